"""Small random models learned from draws, twice: for the oracle in rational numbers, and for the monitor."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from monitor.model import MDP
from monitor.model.counts import Counts
from monitor.policy import PolicyTable, as_table
from tests.exact.small import distribution
from tests.oracle.setting import Dist, Setting

__all__ = ["Learned", "learned_model", "learned_world"]

Draws = list[tuple[int, int, int]]
"""Observed transitions (state, action, successor), in their order."""


@dataclass(frozen=True)
class Learned:
    """A setting of the oracle, and the same for the monitor."""

    setting: Setting
    model: MDP
    policies: dict[str, PolicyTable]


def learned_world(chance: Random, *, rewards: bool = False) -> Learned:
    """Return 3-4 states (the last is `elsewhere`), labels a and b, policies nominal and alt, and a possible path."""
    states, actions = chance.randint(3, 4), 2
    draws: Draws = [
        (state, chance.randrange(actions), chance.randrange(states - 1))
        for state in [chance.randrange(states - 1) for _ in range(chance.randint(6, 30))]
    ]
    labels = {name: frozenset(s for s in range(states) if chance.random() < 0.4) for name in ("a", "b")}
    transition_rewards = {(s, a, t): Fraction(chance.randint(-2, 2)) for s, a, t in draws} if rewards else {}
    model, rows = learned_model(states, actions, draws, labels, transition_rewards)
    policies = {
        name: tuple(distribution(chance, actions, actions if chance.random() < 0.5 else 1) for _ in range(states))
        for name in ("nominal", "alt")
    }
    state, path = chance.randrange(states - 1), []
    for _ in range(chance.randint(1, 4)):
        action = chance.choice(sorted(policies["nominal"][state]))
        path.append((state, action))
        state = chance.choice(sorted(rows[state, action]))
    setting = Setting(states, actions, rows, policies, tuple(path), labels, transition_rewards=transition_rewards)
    return Learned(setting, model, {name: _table(policy, model) for name, policy in policies.items()})


def _table(policy: tuple[Dist, ...], model: MDP) -> PolicyTable:
    if all(len(choice) == 1 for choice in policy):
        return as_table([next(iter(choice)) for choice in policy], model)
    return as_table(np.array([[float(choice.get(a, 0)) for a in range(model.actions)] for choice in policy]), model)


def learned_model(
    states: int,
    actions: int,
    draws: Draws,
    labels: dict[str, frozenset[int]],
    transition_rewards: dict[tuple[int, int, int], Fraction] | None = None,
) -> tuple[MDP, dict[tuple[int, int], dict[int, Fraction]]]:
    """Estimate a model by definition, with one pseudo-count a row; also its rows as fractions."""
    seen: dict[tuple[int, int], list[int]] = {}
    for state, action, successor in draws:
        seen.setdefault((state, action), []).append(successor)
    elsewhere, order = states - 1, list(seen)
    indptr, visits, since, rows = [0], [], [], {}
    for pair in [(s, a) for s in range(states) for a in range(actions)]:
        found = seen.get(pair, [])
        different = sorted(set(found))
        visits += [found.count(t) for t in different] or [0]
        since += [len(found) - 1 - found.index(t) for t in different] or [0]
        rows[pair] = {t: (found.count(t) + Fraction(1, len(different))) / (len(found) + 1) for t in different} or {
            elsewhere: Fraction(1)
        }
        indptr.append(len(visits))
    ranks = [order.index(pair) + 1 if pair in seen else 0 for pair in rows]
    extra = [float((transition_rewards or {}).get((*pair, t), 0)) for pair, row in rows.items() for t in row]
    model = MDP.from_rows(
        states=states,
        actions=actions,
        indptr=np.array(indptr),
        successors=np.array([t for row in rows.values() for t in row]),
        probabilities=np.array([float(p) for row in rows.values() for p in row.values()]),
        transition_rewards=np.array(extra) if transition_rewards else None,
        labels={name: sorted(where) for name, where in labels.items()},
        counts=Counts(np.array(visits), np.array(since), np.array(ranks), elsewhere),
    )
    return model, rows
