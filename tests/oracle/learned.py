"""Small models learned from draws of a random true model, with paths that they allow, policies and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from monitor.model import MDP
from monitor.model.counts import Counts
from tests.oracle.setting import Dist, Setting

Key = tuple[int, int]
Draw = tuple[int, int, int]
LABELS = ("a", "b")


@dataclass(frozen=True)
class Case:
    """A learned model and what may be asked of it.

    `truth` has the true rows, with the same labels, rewards, policies and path. Policy entries are actions, or weights
    of all actions.
    """

    model: MDP
    truth: Setting
    policies: dict[str, list[int] | list[list[float]]]
    path: list[tuple[int, int | None]]
    texts: list[str]


def learned_model(
    draws: Sequence[Draw], states: int, actions: int, given: dict[Key, Dist] | None = None, **more: object
) -> MDP:
    """Return the model estimated from (state, action, successor) draws in their order, by definition.

    The last state is `elsewhere`; rows of `given` are known, and draws from them ignored.
    """
    elsewhere, given = states - 1, given or {}
    rows: dict[Key, list[int]] = {}
    for state, action, successor in draws:
        if (state, action) not in given:
            rows.setdefault((state, action), []).append(successor)
    order = {key: rank for rank, key in enumerate(rows, start=1)}
    indptr, entries = [0], list[tuple[int, float, int, int]]()
    for key in ((s, a) for s in range(states) for a in range(actions)):
        seen, kinds = rows.get(key, []), sorted(set(rows.get(key, [])))
        for k in kinds:
            mean = (seen.count(k) + Fraction(1, len(kinds))) / (len(seen) + 1)
            entries.append((k, float(mean), seen.count(k), len(seen) - 1 - seen.index(k)))
        if not seen:
            known = given.get(key, {elsewhere: Fraction(1)})
            entries += [(k, float(p), 0, 0) for k, p in sorted(known.items())]
        indptr.append(len(entries))
    successors, probabilities, visits, since = (np.array(column) for column in zip(*entries, strict=True))
    ranks = np.array([order.get((s, a), 0) for s in range(states) for a in range(actions)])
    return MDP.from_rows(
        states=states,
        actions=actions,
        indptr=np.array(indptr),
        successors=successors,
        probabilities=probabilities,
        counts=Counts(visits, since, ranks, elsewhere),
        **more,  # type: ignore[arg-type]
    )


def random_case(seed: int) -> Case:
    """Return a case; its model has 3 to 6 states, `elsewhere` among them, and 2 or 3 actions."""
    random = Random(seed)
    states, actions = random.randint(3, 6), random.randint(2, 3)
    keys = [(s, a) for s in range(states - 1) for a in range(actions)]
    rows = {key: random_row(random, states - 1) for key in keys}
    given = {key: row for key, row in rows.items() if random.random() < 0.1}
    rows |= {(states - 1, a): {states - 1: Fraction(1)} for a in range(actions)}
    draws = random_draws(random, rows, keys, int(10 ** random.uniform(1, 4)))
    labels = {
        "a": frozenset({states - 1, *(s for s in range(states - 1) if random.random() < 0.5)}),  # marks the unsafe
        "b": frozenset(s for s in range(states - 1) if random.random() < 0.5),
    }
    rewards = {key: Fraction(random.randint(-3, 3)) for key in keys}
    model = learned_model(
        draws,
        states,
        actions,
        given,
        labels={name: sorted(where) for name, where in labels.items()},
        rewards=np.array([[float(rewards.get((s, a), 0)) for a in range(actions)] for s in range(states)]),
    )
    policies = {name: [random.randrange(actions) for _ in range(states)] for name in ("nominal", "pi")}
    mixed = [[w / 4 for w in random.choice([[1, 3], [2, 2], [4, 0]])] + [0.0] * (actions - 2) for _ in range(states)]
    path = random_path(random, model)
    truth = Setting(
        states=states,
        actions=actions,
        rows=rows,
        policies={
            **{name: tuple({a: Fraction(1)} for a in table) for name, table in policies.items()},
            "mixed": tuple({a: Fraction(w) for a, w in enumerate(weights) if w} for weights in mixed),
        },
        path=tuple(path),
        labels=labels,
        rewards=rewards,
    )
    texts = [random_query(random, len(path), actions) for _ in range(6)]
    return Case(model, truth, {**policies, "mixed": mixed}, path, texts)


def random_row(random: Random, states: int) -> Dist:
    """Return a true row; some successors are rare."""
    successors = random.sample(range(states), random.randint(1, min(4, states)))
    weights = [Fraction(random.choice([1, 5, 20, 100])) for _ in successors]
    return {k: weight / sum(weights) for k, weight in zip(successors, weights, strict=True)}


def random_draws(random: Random, rows: dict[Key, Dist], keys: list[Key], count: int) -> list[Draw]:
    """Return draws from rows of which some are visited often and some rarely or not at all."""
    often = [random.choice([0.0, 0.05, 1.0, 1.0, 1.0]) for _ in keys]
    often[random.randrange(len(keys))] = 1.0
    visited = random.choices(keys, often, k=count)
    return [(*key, random.choices([*rows[key]], [float(p) for p in rows[key].values()])[0]) for key in visited]


def random_path(random: Random, model: MDP) -> list[tuple[int, int | None]]:
    """Return 1 to 5 pairs, each transition one that the model allows, through states other than `elsewhere`."""
    assert model.counts is not None
    ways: dict[int, list[Key]] = {}
    for state in range(model.states - 1):
        for action in range(model.actions):
            for k in model.row(state, action)[0].tolist():
                if k != model.counts.elsewhere:
                    ways.setdefault(state, []).append((action, k))
    state, path = random.choice(sorted(ways)), list[tuple[int, int | None]]()
    for _ in range(random.randint(0, 4)):
        if state not in ways:
            break
        action, successor = random.choice(ways[state])
        path.append((state, action))
        state = successor
    return [*path, (state, random.choice([None, *range(model.actions)]))]


def random_query(random: Random, length: int, actions: int) -> str:
    """Return a `=?` query of labels or rewards."""
    steps = random.choice(["", "", f"[{random.randint(0, 3)}]"])
    change = random.choice(
        ["", "nominal", f"pi{steps}", f"pi{steps}", "mixed", f"do({random.randrange(actions)}){steps}"]
    )
    offset = random.choice([f"@{random.randint(0, length - 1)}", f"@{length - 1}", "@-1"])
    if random.random() < 0.25:
        first = random.choice(["<=", f"{random.randint(0, 2)},"])
        interval = f"[{first}{3}]" if first.endswith(",") else f"<={random.randint(0, 3)}"
        return f"{change}{offset}.R=? [ C{interval} ]"
    return f"{change}{offset}.P=? [ {random_formula(random, 2)} ]"


def random_formula(random: Random, depth: int) -> str:
    """Return a bounded formula of labels."""
    if depth == 0:
        return random.choice(["", "!"]) + f'"{random.choice(LABELS)}"'
    first, last = random.choice([0, 0, 0, 1]), random.randint(1, 3)
    left, right = random_formula(random, depth - 1), random_formula(random, random.randrange(depth))
    match random.randrange(6):
        case 0 | 1:
            return f"{random.choice('FG')}[{first},{last}] ({left})"
        case 2 | 3:
            return f"({left}) {random.choice('UWR')}[{first},{last}] ({right})"
        case 4:
            return f"X ({left})"
    return f"({left}) {random.choice(['&', '|', '=>', '<=>'])} ({right})"
