"""The basis of a value: recorded steps of the pairs that the value uses, and uses of pairs rarely or never recorded.

1. A node is a state and the residual of the formula, at an offset of the world. Its weight is the probability of
   reaching the node. The computation begins at the intervention state, with weight 1.
2. The weight of a use of a pair is the weight of its node times the probability of its action. The pair counts only if
   a residual remains after the pair, or if the reward of the pair's successor counts. If state, action and model are as
   observed, the outcome is known, so the pair does not count.
3. A row counts only if data could give more information about this row. Two kinds of rows count: learned rows, and rows
   that were never recorded and therefore lead to `elsewhere`. A path uses at most one row of the second kind, and only
   once, so the sum of the uses of these rows is a probability.

Definition: docs/semantics/learned-models.md, section 13.6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from monitor.logic.syntax import Const, Goal, Label, Probability, Reward, Temporal
from monitor.logic.traversal import subformulas
from monitor.model.mdp import MDP
from monitor.referee.residual import Residual, collect, expand
from monitor.referee.transition import row
from monitor.referee.world import MAIN, CounterfactualWorld, Frame, Setting, intervene, position
from monitor.types.verdicts import RestsOn

LIMIT = 200_000
"""Largest number of uses of one value."""
FEW = 5
"""A pair with fewer recorded steps counts as rarely recorded."""
NEGLIGIBLE = 0.5e-9
"""Fraction of all uses up to which a pair counts as not used."""


def rests_on(setting: Setting, actions: Mapping[str, int], goal: Goal, frame: Frame) -> RestsOn | None:
    """Return the basis of a goal's value in a frame; for a difference, the basis of the first world.

    `actions`: the index of each action that a `do(..)` names.

    Return None if the value uses no learned row. Return None also if the basis is not counted, that is, if the residual
    does not always show that the formula is decided (`is_counted`), if decisions are made for the goal, or if there are
    more than `LIMIT` uses.
    """
    change, measure = goal.world.change, goal.measure
    if change.decides or (isinstance(measure, Probability) and not is_counted(measure)):
        return None
    model = setting.models[change.name if change.kind == "model" else MAIN]
    if model.counts is None:
        return None
    _, start = position(goal.world.offset, len(frame.steps))
    world = intervene(frame, start, change, actions[change.name] if change.kind == "action" else None)
    first: Residual = measure.path if isinstance(measure, Probability) else measure
    uses = _uses(setting, world, {(first, frame.steps[start].state): 1.0})
    return None if uses is None else _summed(model, uses)


def is_counted(measure: Probability) -> bool:
    """Return whether the residual of a path formula shows the truth of the formula as soon as this truth is decided.

    Uses after the decision do not count. The residual shows the truth at once if the formula has no nested goal and at
    most one temporal operator, and no constant on the right side of this operator. For example, `G[2,4] true` is always
    true, but its residual does not show this.
    """
    parts = list(subformulas(measure.path))
    temporal = [part for part in parts if isinstance(part, Temporal)]
    constant = any(isinstance(part, Const) for each in temporal for part in subformulas(each.right))
    return len(temporal) <= 1 and not constant and not any(isinstance(part, Goal) for part in parts)


def _uses(
    setting: Setting, world: CounterfactualWorld, nodes: dict[tuple[Residual, int], float]
) -> Mapping[tuple[int, int], float] | None:
    """Return the expected number of uses of each pair; None if there are too many uses."""
    found: defaultdict[tuple[int, int], float] = defaultdict(float)
    end = setting.end
    stays = end is not None and all(each.is_absorbing(end) for each in setting.models.values())
    by_successor, count = setting.main.transition_rewards is not None, 0
    while nodes:
        ahead: defaultdict[tuple[Residual, int], float] = defaultdict(float)
        for (residual, state), weight in nodes.items():
            earns = isinstance(residual, Reward) and residual.low == 0
            after = _after(setting, residual, state)
            open_ = not isinstance(after, Const)
            if not open_ and not (earns and by_successor):
                continue
            ended = world.now.ended and state == end and not stays
            for action, chance in setting.actions(world, state):
                count += 1
                if count > LIMIT:
                    return None
                if not (ended or _replayed(world, state, action)):
                    found[state, action] += weight * chance
                if open_:
                    there = row(setting, world, (state, action), "gumbel")
                    for successor, part in zip(there.successors.tolist(), there.probabilities.tolist(), strict=True):
                        ahead[after, successor] += weight * chance * part
        nodes, world = ahead, world.later()
    return found


def _after(setting: Setting, residual: Residual, state: int) -> Residual:
    """Return the residual after the labels of a state are read."""
    if isinstance(residual, Reward):
        return collect(residual)

    def truth(atom: Label | Goal) -> bool:
        assert isinstance(atom, Label)
        return bool(setting.main.labels[atom.name][state])

    return expand(residual, truth)


def _replayed(world: CounterfactualWorld, state: int, action: int) -> bool:
    """Return whether a transition is the observed transition."""
    if len(world.seen) < 2:
        return False
    step = world.seen[0]
    return (state, action, world.now.model) == (step.state, step.action, step.regime.model)


def _summed(model: MDP, uses: Mapping[tuple[int, int], float]) -> RestsOn | None:
    counts = model.counts
    assert counts is not None
    uncertain: dict[tuple[int, int], tuple[float, int, bool]] = {}
    for (state, action), weight in uses.items():
        number = state * model.actions + action
        begin, end = model.indptr[number], model.indptr[number + 1]
        learned = counts.order[number] > 0
        never = not learned and state != counts.elsewhere and model.successors[begin:end].tolist() == [counts.elsewhere]
        if weight > 0.0 and (learned or never):
            uncertain[state, action] = weight, int(counts.visits[begin:end].sum()), never
    total = sum(weight for weight, _, _ in uncertain.values())
    if total == 0.0:
        return None
    return RestsOn(
        steps=sum(draws for weight, draws, _ in uncertain.values() if weight / total > NEGLIGIBLE),
        rare=sum((weight for weight, draws, _ in uncertain.values() if draws < FEW), 0.0) / total,
        never=min(sum((weight for weight, _, never in uncertain.values() if never), 0.0), 1.0),
    )
