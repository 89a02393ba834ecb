"""Values of the best decisions for one measure on any path (`BestValues`), computed by a backward pass along it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import LimitError
from monitor.exact.best.induction import (
    BLOCK,
    BackwardProblem,
    DecisionValues,
    HeldPath,
    Lanes,
    Task,
    induct,
    scratch_of,
)
from monitor.exact.best.lanes import DecisionRule, lanes_of
from monitor.exact.best.layouts import FIRST_SLOT, NEVER, Layout, LayoutNode, ObligationLayouts
from monitor.exact.best.options import TIE, Options, acting_of
from monitor.exact.best.posteriors import Transitions
from monitor.exact.best.prior import MAX_NUMBERS, NO_STATE, Prior
from monitor.exact.forward.row_table import EXACT
from monitor.policy import PolicyTable

FRAMES: Final = 16
"""Largest number of cached frames (`_Frame`). A stream needs one frame for the usual length of its paths, and more
frames for the shorter paths at the beginning of an episode."""
FEW_NUMBERS: Final = 1 << 16
"""Largest count of numbers in a cached frame."""
MAX_PRODUCTS: Final = 2_000_000_000
"""Largest number of multiplications (obligations x lanes x row entries) of one pass for all offsets."""


class Observed(NamedTuple):
    """A path: `states` and `actions` [n], -1 for an action not yet taken.

    `end`: the state in which the episode has ended; None if the episode continues, or if this state is absorbing
    anyway. `acted`: the policy that acted at each pair; empty if the nominal policy acted. `repeats`: whether an
    unchanged decision takes the observed action in every state in which it is available, not only in the observed
    state.
    """

    states: Ints
    actions: Ints
    end: int | None = None
    acted: Sequence[PolicyTable] = ()
    repeats: bool = False


class FirstChange(NamedTuple):
    """The first changed decision of a best plan.

    `level`: steps from the intervention state to the decision; `state`, `taken`: the observed pair (`taken` is -1 if
    the action is not yet taken); `proposed`: the action to take instead.
    """

    level: int
    state: int
    taken: int
    proposed: int


class PlanValues(NamedTuple):
    """Values of a measure from one pair on, and the first change of each plan.

    `unchanged`: the value with no change; `few` [K + 1]: the value if at most k decisions are best, k = 0..K; `best`:
    the value if all decisions are best; `optimal`: the value of the policy that is best without hindsight. `first`
    [K + 1]: the first change of the plan with at most k changes.
    """

    unchanged: float
    few: list[float]
    best: float
    optimal: float
    first: list[FirstChange | None]


class Pass(NamedTuple):
    """Results of one backward pass: values [slots, lanes] of the first level, and the arrays of `DecisionValues`."""

    values: Floats
    held: Floats
    actions: Floats
    chosen: Ints
    begun: Floats


class Lookback(NamedTuple):
    """All results of one backward pass, decision by decision.

    `actions` [L, A]: the value if one decision on the observed path is replaced by this action and all others are
    unchanged; nan if the action is unavailable, or if no obligation remains at the decision. `chosen` [L, S, slots,
    K + 1]: the action that a plan with k changes left takes instead, -1 if it changes nothing here. `layout`: the
    meaning of the slots.
    """

    plan_values: PlanValues
    actions: Floats
    chosen: Ints
    layout: Layout


class _Frame(NamedTuple):
    """Data shared by the backward passes over all paths of `pairs` pairs.

    `ahead`: the values after the last pair; None if they are not cached.
    """

    lanes: Lanes
    layout: Layout
    plan: BackwardProblem
    pairs: int
    ahead: Floats | None = None


class BestValues:
    """Values of the decisions that maximise or minimise one measure.

    Args:
        options: the rows of the model, between which decisions choose.
        transitions: the cache of counterfactual rows, shared by all measures.
        nominal: the deployed policy.
        layouts: the obligations of the measure.
        prior: the tables of the measure beyond the path.
        end: the state in which the episode has ended, or NO_STATE.
    """

    def __init__(  # noqa: PLR0917 - all made by the catalogue
        self,
        options: Options,
        transitions: Transitions,
        nominal: PolicyTable,
        layouts: ObligationLayouts,
        prior: Prior,
        end: int,
    ) -> None:
        self._options, self._transitions, self._nominal = options, transitions, nominal
        self._layouts, self._prior, self._end = layouts, prior, end
        self._alone = acting_of([nominal], *options.rewards.shape)[0]
        self._frames: OrderedDict[tuple[int, tuple[DecisionRule, ...], bool], _Frame] = OrderedDict()

    def value(self, path: Observed, rule: DecisionRule) -> float:
        """Return the Gumbel-Max value from the first pair on, with decisions made by one rule."""
        found, (lane,) = self._decided(path, (_possible(rule, path),))
        return float(found.values[0, lane])

    def profile(self, path: Observed, rule: DecisionRule) -> Floats:
        """Return the Gumbel-Max values [L] from each pair on, with decisions made by one rule, in a single pass."""
        found, (lane,) = self._decided(path, (_possible(rule, path),), each=True)
        return found.begun[:, lane]

    def products(self, pairs: int, rule: DecisionRule, *, each: bool) -> int:
        """Return the number of multiplications of a backward pass over `pairs` pairs.

        `each`: whether the pass computes the values from each pair on, not only from the first.

        Raises LimitError if the pass would be too large.
        """
        lanes, _ = lanes_of((rule._replace(changes=min(rule.changes, pairs)),))
        return self._check_size(pairs, lanes, whole=False, each=each)

    def interval(self, path: Observed, rule: DecisionRule, kind: int) -> tuple[float, float]:
        """Return the bounds, lowest first, of the best decisions over a class of causal models (ANY or STABLE).

        One bound is the value that the best decisions reach in every causal model. The other is the best value in any
        causal model.
        """
        low, high = (self.bound(path, rule, kind, greatest=greatest) for greatest in (False, True))
        return low, high

    def bound(self, path: Observed, rule: DecisionRule, kind: int, *, greatest: bool) -> float:
        """Return one end of `interval`: every mean over a row is the least (or greatest) that the class allows."""
        found, (lane,) = self._decided(path, (_possible(rule, path),), kind, greatest=greatest)
        return float(found.values[0, lane])

    def everywhere(self, rule: DecisionRule) -> Floats:
        """Return the value [S] in every state, on the path of this state alone.

        The path has one decision, which is not yet made, so at most one decision can be changed.
        """
        steps = min(rule.changes, 1) if rule.kind == "few" else rule.until
        return self._prior.takeover(steps, self._layouts.automaton.start).copy()

    def plan_values(self, path: Observed, most: int) -> PlanValues:
        """Return the Gumbel-Max values from the first pair on, with 0 to `most` changes and with all decisions best."""
        return self._plan_values(path, most, whole=False)[0]

    def lookback(self, path: Observed, most: int) -> Lookback:
        """Return the values of `plan_values` (`most` is at least 1), and the decisions in all states."""
        plan_values, few, found = self._plan_values(path, most, whole=True)
        effects = found.actions[:, :, few[0]] - found.held[:, few[0], None]
        return Lookback(plan_values, plan_values.unchanged + effects, found.chosen[..., few], self.layout(path))

    def _plan_values(self, path: Observed, most: int, *, whole: bool) -> tuple[PlanValues, list[int], Pass]:
        """Return the values, the lane for each number of changes, and the pass.

        `whole`: whether the pass keeps the decisions in all states, not only the decisions on the path.
        """
        found, (best, optimal, *few) = self._decided(path, _outlook_rules(most), whole=whole)
        values = found.values[0]
        plan_values = PlanValues(
            float(values[few[0]]),
            [float(values[lane]) for lane in few],
            float(values[best]),
            float(values[optimal]),
            [None, *self._first_changes(path, found, few[1:])],
        )
        return plan_values, few, found

    def _first_changes(self, path: Observed, found: Pass, lanes: list[int]) -> Iterator[FirstChange | None]:
        """Yield for each lane the first decision that a better action replaces; None if there is no such decision.

        `lanes`: lanes of 1, 2, ... changes, each after the lane with one change less. Among equally good actions the
        action with the lowest number is proposed.
        """
        sign = 1.0 if self._prior.largest else -1.0
        held, changed = sign * found.held[:, lanes], sign * found.actions[:, :, [lane - 1 for lane in lanes]]
        best = np.fmax.reduce(changed, axis=1)  # nan after the obligation is decided
        better = best - held > TIE * np.maximum(1.0, np.abs(held))
        for n, changes in enumerate(better.any(axis=0)):
            if not changes:
                yield None
                continue
            level = int(better[:, n].argmax())
            limit = best[level, n] - TIE * max(1.0, abs(best[level, n]))
            proposed = int((changed[level, :, n] >= limit).argmax())
            yield FirstChange(level, int(path.states[level]), int(path.actions[level]), proposed)

    def layout(self, path: Observed) -> Layout:
        """Return the obligations that may remain at each pair of a path."""
        return self._layouts.layout(len(path.states))

    def slot_after(self, layout: Layout, level: int, slot: int, state: int) -> int:
        """Return the slot at the next level after the labels of a state; negative if the obligation is decided."""
        return int(layout.target[level, slot, self._layouts.label_of[state]]) - FIRST_SLOT

    def backward(
        self, path: Observed, lanes: Lanes, kind: int = EXACT, *, greatest: bool = False, whole: bool = False
    ) -> Pass:
        """Return the values and the decisions of one backward pass.

        Args:
            path: the path from the intervention state on.
            lanes: the lanes of decision rules.
            kind: EXACT, ANY or STABLE.
            greatest: for ANY and STABLE, whether means are as large as possible.
            whole: whether to keep the decisions in all states, not only the decisions on the path.

        Raises:
            LimitError: the pass would need too much memory.
        """
        self._check_size(len(path.states), lanes, whole=whole)
        return self._backward(
            path, self._frame(len(path.states), lanes, each=False), kind, greatest=greatest, whole=whole
        )

    def _decided(
        self,
        path: Observed,
        rules: tuple[DecisionRule, ...],
        kind: int = EXACT,
        *,
        greatest: bool = False,
        whole: bool = False,
        each: bool = False,
    ) -> tuple[Pass, list[int]]:
        """Return the backward pass and the lane of each rule. For errors and other arguments see `backward`.

        `each`: whether the intervention may begin at each pair, instead of at the first only.
        """
        lanes, places = lanes_of(rules)
        pairs = len(path.states)
        self._check_size(pairs, lanes, whole=whole, each=each)
        frame = self._frames.get((pairs, rules, each))
        if frame is None:
            frame = self._frame(pairs, lanes, each=each)
            if frame.plan.policy.size + self._width(frame.layout, lanes) <= FEW_NUMBERS:
                if len(self._frames) >= FRAMES:
                    self._frames.popitem(last=False)
                self._frames[pairs, rules, each] = frame = frame._replace(ahead=self._values_ahead(frame))
        else:
            self._frames.move_to_end((pairs, rules, each))
        return self._backward(path, frame, kind, greatest=greatest, whole=whole), places

    def _width(self, layout: Layout, lanes: Lanes) -> int:
        """Return the number of values of one level [S, slots, lanes], with lanes padded to full blocks."""
        return len(self._options.rewards) * int(layout.target.shape[1]) * -(-len(lanes.spends) // BLOCK) * BLOCK

    def _check_size(self, pairs: int, lanes: Lanes, *, whole: bool, each: bool = False) -> int:
        """Return the largest number of multiplications of a backward pass over `pairs` pairs.

        Raises LimitError if the pass needs too much memory, or if it computes the values from `each` pair on and needs
        more than `MAX_PRODUCTS` multiplications.
        """
        layout = self._laid_out(pairs, lanes, each=each)
        levels, widest, width = len(layout.used), layout.target.shape[1], len(lanes.spends)
        size, available = self._options.rewards.shape
        kept = levels * size * widest * width if whole else 0
        if (2 * widest * width + levels) * size + levels * width * (1 + available) + kept > MAX_NUMBERS:
            raise LimitError(
                f"the best decisions would need more than {MAX_NUMBERS} numbers for {widest} obligations, {width} ways "
                f"to decide and {size} states (limit MAX_NUMBERS); shorten the formula's intervals, "
                "or examine fewer decisions or changes"
            )
        obligations, entries = int(layout.used.sum()), len(self._options.probabilities)
        products = obligations * width * entries
        if each and products > MAX_PRODUCTS:
            raise LimitError(
                f"the best decisions from each of {pairs} pairs would need {products:,} multiplications, for "
                f"{obligations:,} obligations, {width} ways to decide and {entries:,} entries of the model (limit "
                f"MAX_PRODUCTS, {MAX_PRODUCTS:,}); look back fewer steps, or shorten the formula's intervals"
            )
        return products

    def _laid_out(self, pairs: int, lanes: Lanes, *, each: bool) -> Layout:
        """Return the obligations of paths of `pairs` pairs, from the first pair on or from `each` pair on."""
        ends = [until for until in lanes.until if until < NEVER] if each else []
        return self._layouts.layout(pairs, max(ends, default=0) if each else None)

    def _backward(self, path: Observed, frame: _Frame, kind: int, *, greatest: bool, whole: bool) -> Pass:
        layout, lanes = frame.layout, frame.lanes
        levels, widest = len(layout.used), layout.target.shape[1]
        states, actions = path.states[:levels], path.actions[:levels]
        outcomes = np.full(levels, -1)
        outcomes[: len(path.states) - 1] = path.states[1 : levels + 1]
        if path.acted:
            acting, acted = acting_of(path.acted[:levels], *self._options.rewards.shape)
        else:
            acting, acted = self._alone, np.zeros(levels, dtype=np.int64)
        held = HeldPath(states, actions, outcomes, acted, self._along(layout, path), self._end, path.repeats)
        (size, available), width = self._options.rewards.shape, len(lanes.spends)
        padded = -(-width // BLOCK) * BLOCK
        buffers = np.zeros((2, size, widest, padded))
        if frame.ahead is not None:
            buffers[0] = frame.ahead
        elif levels == len(path.states):
            self._fill_ahead(buffers[0], layout.nodes[levels], lanes)
        decisions = (
            np.zeros((levels, width)),
            np.full((levels, available, width), np.nan),
            np.full((levels, size, widest, width) if whole else (0, 0, 0, 0), -1),
            np.zeros((levels, width)),
        )
        posteriors = (
            self._transitions.of(states, actions, outcomes) if kind == EXACT else self._transitions.none(levels)
        )
        task = Task(
            self._options,
            posteriors,
            acting,
            frame.plan,
            lanes,
            held,
            DecisionValues(*decisions),
            scratch_of(self._options, frame.plan, lanes),
            np.zeros((levels, size), dtype=np.uint8),
            buffers,
            kind,
            greatest,
            self._prior.largest,
        )
        now = induct(task)
        return Pass(buffers[now, int(states[0]), :, :width], *decisions)

    def _frame(self, pairs: int, lanes: Lanes, *, each: bool) -> _Frame:
        """Return the data shared by the passes over paths of `pairs` pairs."""
        layout = self._laid_out(pairs, lanes, each=each)
        return _Frame(lanes, layout, self._plan(layout, lanes, pairs), pairs)

    def _plan(self, layout: Layout, lanes: Lanes, pairs: int) -> BackwardProblem:
        """Return the problem of the passes over paths of `pairs` pairs."""
        policy, policy_of = [np.zeros(0, dtype=np.int64)], np.zeros(layout.target.shape[:2], dtype=np.int64)
        if lanes.follows:
            choices = self._choices(layout, pairs)
            policy = list(choices.values())
            for row, (level, slot) in enumerate(choices):
                policy_of[level, slot] = row
        return BackwardProblem(
            layout.target,
            layout.rewarded.view(np.uint8),
            layout.used,
            self._layouts.label_of,
            np.stack(policy),
            policy_of,
            layout.age,
            layout.start,
        )

    def _along(self, layout: Layout, path: Observed) -> Ints:
        """Return the slot of each level on the observed path.

        It is -1 after the obligation is decided, and at all levels if a path begins at each pair.
        """
        slots = np.full(len(layout.used), -1)
        slot = 0 if (layout.start[1:] < 0).all() else -1
        for level in range(len(slots)):
            if slot < 0:
                break
            slots[level] = slot
            slot = self.slot_after(layout, level, slot, int(path.states[level]))
        return slots

    def _choices(self, layout: Layout, pairs: int) -> dict[tuple[int, int], Ints]:
        """Return the optimal policy [S] at each level and slot of a path of `pairs` pairs.

        The policy depends on the level only if the episode has ended, because the end is known only at the last pair.
        """
        levels = [(level, [node.obligation for node in nodes]) for level, nodes in enumerate(layout.nodes[:-1])]
        if self._end == NO_STATE:
            return {(k, slot): self._prior.choices(o) for k, row in levels for slot, o in enumerate(row)}
        chosen: dict[tuple[int, int], Ints] = {}
        ahead: dict[int, Floats] = {}
        for level, obligations in reversed(levels):
            here: dict[int, Floats] = {}
            for slot, obligation in enumerate(obligations):
                if level == pairs - 1:
                    here[obligation] = self._prior.best(obligation)
                    chosen[level, slot] = self._prior.choices(obligation)
                else:
                    here[obligation], chosen[level, slot] = self._prior.before_end(obligation, ahead.__getitem__)
            ahead = here
        return chosen

    def _values_ahead(self, frame: _Frame) -> Floats | None:
        """Return the values after the last pair; None if no obligation remains there."""
        layout, lanes = frame.layout, frame.lanes
        if len(layout.used) < frame.pairs:
            return None
        padded = -(-len(lanes.spends) // BLOCK) * BLOCK
        ahead = np.zeros((self._options.rewards.shape[0], layout.target.shape[1], padded))
        self._fill_ahead(ahead, layout.nodes[frame.pairs], lanes)
        return ahead

    def _fill_ahead(self, ahead: Floats, nodes: list[LayoutNode], lanes: Lanes) -> None:
        """Write the values after the last pair to `ahead` [S, slots, lanes]."""
        for slot, node in enumerate(nodes):
            for lane in range(len(lanes.spends)):
                ahead[:, slot, lane] = self._beyond(node, lanes, lane)

    def _beyond(self, node: LayoutNode, lanes: Lanes, lane: int) -> Floats:
        if lanes.follows and lane == len(lanes.spends) - 1:
            return self._prior.followed(node.obligation)
        if lanes.holds[lane]:
            return self._prior.takeover(0, node.obligation)
        if lanes.until[lane] == NEVER:
            return self._prior.best(node.obligation)
        return self._prior.takeover(int(lanes.until[lane]) - node.age, node.obligation)


@lru_cache(64)
def _outlook_rules(most: int) -> tuple[DecisionRule, ...]:
    return DecisionRule("free"), DecisionRule("optimal"), *(DecisionRule("few", n) for n in range(most + 1))


def _possible(rule: DecisionRule, path: Observed) -> DecisionRule:
    """Limit the changes of a rule to the number of decisions on the path. More lanes would only cost memory."""
    return rule._replace(changes=min(rule.changes, len(path.states)))
