"""Random small settings in which things collide: equal rows, equal probabilities, shared labels, sure transitions."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from random import Random

from monitor import MDP
from tests.oracle.setting import Dist, Pair, Rows, Setting

ONE = Fraction(1)
# Weights of the successors of a row: mostly equal, so that values meet.
SHAPES = ((1,), (1, 1), (1, 1), (1, 1, 1), (1, 2), (1, 3), (2, 1, 1), (3, 2, 1), (1, 9))
REWARDS = tuple(Fraction(x) for x in ("0", "0", "1", "1", "-1", "2", "1/2", "-3/4"))
LENGTHS = (1, 2, 2, 3, 3, 3, 4, 4, 5, 6)
ACTION_NAMES = ("go", "stay", "P1")
LABELS = ("a", "b", "c")

Table = tuple[Dist, ...]
Available = dict[int, list[int]]


def has_transition_rewards() -> bool:
    """Return whether models know rewards of transitions."""
    return "transition_rewards" in {each.name for each in fields(MDP)}


def random_setting(random: Random) -> Setting:
    """Return a setting of 2-4 states and 1-3 actions whose path is possible."""
    states, actions = random.choice((2, 3, 3, 3, 4)), random.choice((1, 2, 2, 2, 3))
    available = _available(random, states, actions)
    rows = _rows(random, states, available)
    policies = _policies(random, states, available)
    path = _path(random, rows, policies["nominal"], available)
    return Setting(
        states=states,
        actions=actions,
        rows=rows,
        rewards={key: reward for key in rows if (reward := random.choice(REWARDS))},
        transition_rewards=_transition_rewards(random, rows),
        labels=_labels(random, states),
        policies=policies,
        models=_models(random, states, rows),
        action_names=ACTION_NAMES[:actions] if random.random() < 0.2 else None,
        path=path,
        terminated=random.random() < 0.25,
        acted=_acted(random, len(path), tuple(policies)),
    )


def _acted(random: Random, length: int, policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return who acted: mostly nominal throughout, else policies that took over for a while each."""
    if random.random() < 0.7:
        return ()
    acted = [random.choice(policies)]
    while len(acted) < length:
        acted.append(random.choice(policies) if random.random() < 0.4 else acted[-1])
    return tuple(acted)


def _available(random: Random, states: int, actions: int) -> Available:
    available = {s: list(range(actions)) for s in range(states)}
    if actions > 1 and random.random() < 0.1:
        state = random.randrange(states)
        available[state] = sorted(random.sample(range(actions), actions - 1))
    return available


def _row(random: Random, states: int) -> Dist:
    shape = random.choice([shape for shape in SHAPES if len(shape) <= states])
    total = sum(shape)
    return {s: Fraction(w, total) for s, w in zip(random.sample(range(states), len(shape)), shape, strict=True)}


def _rows(random: Random, states: int, available: Available) -> dict[tuple[int, int], Dist]:
    rows: dict[tuple[int, int], Dist] = {}
    for state, actions in available.items():
        for action in actions:
            copied = rows and random.random() < 0.15
            rows[state, action] = random.choice(list(rows.values())) if copied else _row(random, states)
    return rows


def _models(random: Random, states: int, rows: Rows) -> dict[str, Rows]:
    """Return up to two other models; many of their rows are the main model's."""
    return {
        f"m{number}": {key: _row(random, states) if random.random() < 0.5 else row for key, row in rows.items()}
        for number in range(1, 1 + random.choice((0, 1, 1, 2)))
    }


def _labels(random: Random, states: int) -> dict[str, frozenset[int]]:
    return {name: frozenset(s for s in range(states) if random.random() < 0.5) for name in LABELS}


def _transition_rewards(random: Random, rows: Rows) -> dict[tuple[int, int, int], Fraction]:
    if not has_transition_rewards() or random.random() < 0.4:
        return {}
    keys = [(s, a, t) for (s, a), row in rows.items() for t in sorted(row)]
    return {key: reward for key in keys if random.random() < 0.6 and (reward := random.choice(REWARDS))}


def _table(random: Random, available: Available, *, stochastic: bool) -> Table:
    table = []
    for actions in available.values():
        size = random.randint(1, min(2, len(actions))) if stochastic else 1
        weights = random.choice(((1, 1), (1, 2), (3, 1)))[:size]
        chosen = random.sample(actions, size)
        table.append({a: Fraction(w, sum(weights)) for a, w in zip(chosen, weights, strict=True)})
    return tuple(table)


def _policies(random: Random, states: int, available: Available) -> dict[str, Table]:
    nominal = _table(random, available, stochastic=random.random() < 0.25)
    alt = list(_table(random, available, stochastic=False))
    near = list(nominal)  # differs from nominal in one state
    state = random.randrange(states)
    near[state] = alt[state]
    return {
        "nominal": nominal,
        "alt": tuple(alt),
        "near": tuple(near),
        "mixed": _table(random, available, stochastic=True),
    }


def _draw(random: Random, dist: Dist) -> int:
    return random.choices(list(dist), [float(w) for w in dist.values()])[0]


def _path(random: Random, rows: Rows, nominal: Table, available: Available) -> tuple[Pair, ...]:
    """Return a path that the model allows; some actions deviate from nominal, the last may be missing."""
    state = random.randrange(len(nominal))
    path: list[Pair] = []
    length = random.choice(LENGTHS)
    while True:
        deviates = random.random() < 0.15
        action = random.choice(available[state]) if deviates else _draw(random, nominal[state])
        if len(path) + 1 == length:
            return (*path, (state, None if random.random() < 0.15 else action))
        path.append((state, action))
        state = _draw(random, rows[state, action])
