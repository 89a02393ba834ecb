"""Settings of PCFTL questions as plain data: model, policies, other models, observed path. Everything in fractions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Dist = dict[int, Fraction]
Rows = Mapping[tuple[int, int], Dist]
Pair = tuple[int, int | None]


@dataclass(frozen=True)
class Setting:
    """An MDP, its policies and other models, and the path that was observed.

    An action without a row in a state is unavailable there. `rewards` is r(s, a), `transition_rewards` r'(s, a, s2);
    their sum is R(s, a, s2). A policy gives a distribution over actions for every state; `nominal` is the deployed one.
    """

    states: int
    actions: int
    rows: Rows
    policies: Mapping[str, tuple[Dist, ...]]
    path: tuple[Pair, ...]
    labels: Mapping[str, frozenset[int]] = field(default_factory=dict)
    rewards: Mapping[tuple[int, int], Fraction] = field(default_factory=dict)
    transition_rewards: Mapping[tuple[int, int, int], Fraction] = field(default_factory=dict)
    models: Mapping[str, Rows] = field(default_factory=dict)
    action_names: tuple[str, ...] | None = None
    terminated: bool = False
    acted: tuple[str, ...] = ()  # the policy that acted at each pair; empty: nominal

    def to_json(self) -> dict[str, Any]:
        """Return the setting as lists and strings; fractions are written "1/3"."""
        return {
            "states": self.states,
            "actions": self.actions,
            "rows": _rows_out(self.rows),
            "rewards": [[*key, str(value)] for key, value in sorted(self.rewards.items())],
            "transition_rewards": [[*key, str(value)] for key, value in sorted(self.transition_rewards.items())],
            "labels": {name: sorted(where) for name, where in self.labels.items()},
            "policies": {
                name: [{str(a): str(w) for a, w in sorted(dist.items())} for dist in table]
                for name, table in self.policies.items()
            },
            "models": {name: _rows_out(rows) for name, rows in self.models.items()},
            "action_names": None if self.action_names is None else list(self.action_names),
            "path": [list(pair) for pair in self.path],
            "terminated": self.terminated,
            "acted": list(self.acted),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Setting:
        """Return the setting that `to_json` wrote."""
        names = data.get("action_names")
        return cls(
            states=data["states"],
            actions=data["actions"],
            rows=rows_of(data["rows"]),
            rewards={(s, a): Fraction(r) for s, a, r in data.get("rewards", [])},
            transition_rewards={(s, a, t): Fraction(r) for s, a, t, r in data.get("transition_rewards", [])},
            labels={name: frozenset(where) for name, where in data["labels"].items()},
            policies={
                name: tuple({int(a): Fraction(w) for a, w in dist.items()} for dist in table)
                for name, table in data["policies"].items()
            },
            models={name: rows_of(rows) for name, rows in data.get("models", {}).items()},
            action_names=None if names is None else tuple(names),
            path=tuple((s, a) for s, a in data["path"]),
            terminated=data.get("terminated", False),
            acted=tuple(data.get("acted", ())),
        )


def rows_of(transitions: list[Any]) -> dict[tuple[int, int], Dist]:
    """Return rows from [s, a, s2, probability] entries; duplicates are summed, zeros dropped."""
    rows: dict[tuple[int, int], Dist] = {}
    for s, a, t, p in transitions:
        if Fraction(p):
            row = rows.setdefault((s, a), {})
            row[t] = row.get(t, Fraction(0)) + Fraction(p)
    return rows


def _rows_out(rows: Rows) -> list[list[Any]]:
    return [[s, a, t, str(p)] for (s, a), row in sorted(rows.items()) for t, p in sorted(row.items())]
