"""Random models, policies, paths and formulas. Their numbers are quotients of small whole numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from monitor.arrays import Floats
from monitor.model import MDP
from monitor.model.counts import Counts

__all__ = ["World", "goal_of", "learned", "path_formula", "question", "random_model", "random_world"]

LABELS: Final = ("a", "b")
REWARDS: Final = (0.0, 0.0, 1.0, 1.0, -1.0, 0.1, -0.75, 2.5)
WEIGHTS: Final = ((1,), (1, 1), (1, 2, 5), (1, 3, 9, 27), (7, 11, 13, 1000))
TWO_SIDED: Final = ("U", "W", "R")
COMPARISONS: Final = ("<", "<=", ">=", ">")
CONNECTIVES: Final = ("&", "|", "=>", "<=>")

Policy = list[int] | Floats


@dataclass(frozen=True)
class World:
    """A model, policies and a possible path, as `monitor.check` takes them.

    `models`: with the name `other`, other dynamics. `terminated`, `acted`: as `monitor.check` has them.
    """

    model: MDP
    policies: dict[str, Policy]
    models: dict[str, MDP]
    path: list[tuple[int, int | None]]
    terminated: bool = False
    acted: tuple[str, ...] = ()

    @property
    def about(self) -> dict[str, Any]:
        """Arguments of `monitor.check`."""
        return vars(self)


def random_model(
    chance: random.Random,
    states: int,
    actions: int,
    most: int,
    *,
    rewards: bool = True,
    labels: dict[str, list[int]] | None = None,
) -> MDP:
    """Return a model whose rows have 1 to `most` successors. Some rows are alike, some actions unavailable.

    `labels`: if absent, `a` and `b`, in states drawn at random.
    """
    transitions: list[tuple[int, int, int, float]] = []
    earned: list[tuple[int, int, float] | tuple[int, int, int, float]] = []
    extra = rewards and chance.random() < 0.5
    row: list[tuple[int, float]] = []
    for state in range(states):
        for action in range(actions):
            if action and chance.random() < 0.05:
                continue
            if not row or chance.random() >= 0.1:
                row = _row(chance, states, most)
            transitions += [(state, action, successor, p) for successor, p in row]
            if rewards:
                earned.append((state, action, chance.choice(REWARDS)))
            if extra:
                earned += [(state, action, y, chance.choice(REWARDS)) for y, _ in row if chance.random() < 0.5]
    if labels is None:
        labels = {name: [s for s in range(states) if chance.random() < 0.5] for name in LABELS}
    return MDP.from_transitions(states=states, actions=actions, transitions=transitions, rewards=earned, labels=labels)


def _row(chance: random.Random, states: int, most: int) -> list[tuple[int, float]]:
    reached = chance.sample(range(states), chance.randint(1, min(most, states)))
    weights, choice = chance.choice(WEIGHTS), chance.choice
    return _divided(reached, [choice(weights) for _ in reached])


def _divided(places: Sequence[int], weights: Sequence[int]) -> list[tuple[int, float]]:
    return [(place, weight / sum(weights)) for place, weight in zip(places, weights, strict=True)]


def random_policy(chance: random.Random, model: MDP, *, stochastic: bool) -> Policy:
    """Return a policy that takes available actions."""
    available = [np.flatnonzero(model.available(state)).tolist() for state in range(model.states)]
    if not stochastic:
        return [chance.choice(each) for each in available]
    table = np.zeros((model.states, model.actions))
    for state, each in enumerate(available):
        for action, p in _divided(each, [chance.choice((1, 1, 2, 7)) for _ in each]):
            table[state, action] = p
    return table


def random_path(
    chance: random.Random, model: MDP, acting: Sequence[Policy], *, open_end: bool = True
) -> list[tuple[int, int | None]]:
    """Return a path on which these policies acted, but for some pairs; sometimes the last action is not yet taken."""
    state, path = chance.randrange(model.states), list[tuple[int, int | None]]()
    for policy in acting:
        if chance.random() < 0.15:
            action = chance.choice(np.flatnonzero(model.available(state)).tolist())
        elif isinstance(policy, list):
            action = policy[state]
        else:
            action = chance.choices(range(model.actions), policy[state].tolist())[0]
        path.append((state, action))
        successors, probabilities = model.row(state, action)
        state = chance.choices(successors.tolist(), probabilities.tolist())[0]
    if open_end and chance.random() < 0.15:
        path[-1] = path[-1][0], None
    return path


def random_world(
    chance: random.Random,
    *,
    states: int,
    actions: int = 2,
    most: int = 3,
    length: int = 6,
    stochastic: float = 0.4,
    rewards: bool = True,
) -> World:
    """Return a world. `most`: successors of a row; `stochastic`: how often a policy is."""
    model = random_model(chance, states, actions, most, rewards=rewards)
    other = random_model(chance, states, actions, most, rewards=rewards)
    rows = {name: each for name, each in (("other", other),) if _fits(model, each)}
    names = ("nominal", "alt", "third")
    policies = {name: random_policy(chance, model, stochastic=chance.random() < stochastic) for name in names}
    acted: tuple[str, ...] = ()
    if chance.random() < 0.2:
        acted = tuple(chance.choice(names) for _ in range(length))
    path = random_path(chance, model, [policies[name] for name in acted or ["nominal"] * length])
    return World(model, policies, rows, path, chance.random() < 0.15, acted)


def _fits(model: MDP, other: MDP) -> bool:
    """Return whether the same actions are available in both."""
    return bool((model.availability == other.availability).all())


def learned(chance: random.Random, *, rewards: bool = False) -> World:
    """Return a world whose model is estimated from draws; in its last state nothing is known."""
    states, actions = chance.choice((4, 5, 7)), 2
    seen: dict[tuple[int, int], list[int]] = {}
    for _ in range(chance.choice((8, 40, 400))):
        pair = chance.randrange(states - 1), chance.randrange(actions)
        seen.setdefault(pair, []).append(min(chance.randrange(states - 1), chance.randrange(states - 1)))
    indptr, successors, probabilities, visits, since, ranks = [0], [], [], [], [], []
    for pair in [(s, a) for s in range(states) for a in range(actions)]:
        found = seen.get(pair, [])
        different = sorted(set(found))
        successors += different or [states - 1]
        visits += [found.count(t) for t in different] or [0]
        since += [len(found) - 1 - found.index(t) for t in different] or [0]
        probabilities += [(found.count(t) * len(different) + 1) / (len(found) + 1) / len(different) for t in different]
        probabilities += [] if different else [1.0]
        indptr.append(len(successors))
        ranks.append(list(seen).index(pair) + 1 if pair in seen else 0)
    model = MDP.from_rows(
        states=states,
        actions=actions,
        indptr=np.array(indptr),
        successors=np.array(successors),
        probabilities=np.array(probabilities),
        transition_rewards=np.array([chance.choice(REWARDS) for _ in successors]) if rewards else None,
        labels={name: [s for s in range(states) if chance.random() < 0.4] for name in LABELS},
        counts=Counts(np.array(visits), np.array(since), np.array(ranks), states - 1),
    )
    names = ("nominal", "alt", "third")
    policies = {name: random_policy(chance, model, stochastic=chance.random() < 0.4) for name in names}
    path = random_path(chance, model, [policies["nominal"]] * chance.choice((1, 3, 6)))
    return World(model, policies, {}, path)


# ---- formulas ----


def path_formula(chance: random.Random, reach: int, depth: int = 2, nesting: int = 0) -> str:
    """Return a path formula that looks at most `reach` steps ahead. `nesting`: how deep goals stand in it."""
    if depth == 0 or reach <= 0:
        if nesting and chance.random() < 0.3:
            return goal_of(chance, f"{_policy(chance)}@{chance.choice((0, 0, 1, -1))}", 2, nesting - 1)
        return chance.choice(('"a"', '"b"', '!"a"', '!"b"', '("a" | "b")'))
    last = chance.randint(0, min(reach, 5))
    span = chance.choice((f"[{chance.randint(0, last)},{last}]", f"<={last}", f"={last}"))
    one = path_formula(chance, reach - last, depth - 1, nesting)
    match chance.randrange(6):
        case 0:
            return f"X ({path_formula(chance, reach - 1, depth - 1, nesting)})"
        case 1 | 2:
            return f"{chance.choice('FG')}{span} ({one})"
        case 3 | 4:
            other = path_formula(chance, reach - last, depth - 1, nesting)
            return f"(({one}) {chance.choice(TWO_SIDED)}{span} ({other}))"
    other = path_formula(chance, reach, depth - 1, nesting)
    return f"(({one}) {chance.choice(CONNECTIVES)} ({other}))"


def _measure(chance: random.Random, test: str, reach: int, nesting: int) -> str:
    """Return P or R with a test (`=?`, or a comparison), over at most `reach` steps."""
    if chance.random() < 0.25:
        last = chance.randint(0, reach)
        return f"R{test} [ C[{chance.randint(0, last)},{last}] ]"
    return f"P{test} [ {path_formula(chance, reach, nesting=nesting)} ]"


def goal_of(chance: random.Random, world: str, reach: int, nesting: int = 0) -> str:
    """Return a goal with a comparison in a world; the world may be empty."""
    bound = chance.choice(("0", "0.25", "0.5", "0.5", "0.75", "0.9"))
    goal = _measure(chance, f"{chance.choice(COMPARISONS)}{bound}", reach, nesting)
    return f"{world}.{goal}" if world else goal


def _policy(chance: random.Random) -> str:
    return chance.choice(("alt", "alt", "third", "nominal", "alt[2]", "third[1]"))


def question(chance: random.Random, world: World, *, reach: int = 4, nesting: int = 1) -> str:
    """Return a formula on a world: of one quantity, or of several."""
    length = len(world.path)

    def where() -> str:
        change = chance.choice((*[_policy(chance)] * 3, "do(0)", *["model:other"] * len(world.models)))
        if chance.random() < 0.1:
            change = f"delta({change},{_policy(chance)})"
        return f"{change}@{chance.choice((0, 1, chance.randrange(length), -chance.randint(1, length)))}"

    kind = chance.random()
    if kind < 0.6:
        return f"{where()}.{_measure(chance, '=?', reach, nesting)}"
    if kind < 0.75:
        parts = [goal_of(chance, where(), reach, nesting) for _ in range(2)]
        return f"({parts[0]}) {chance.choice(CONNECTIVES)} !({parts[1]})"
    if kind < 0.82:
        test = chance.choice(("", ">=0.5"))
        return f"handover(alt, {goal_of(chance, '', min(reach, 3))}, {chance.randrange(4)}){test}"
    change = chance.choice(("alt", "third", "alt[2]"))
    return f"regret({change}@{chance.randrange(length)}, {goal_of(chance, '', reach, nesting)})"
