"""The same question asked of `monitor`, through its public functions alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import monitor
from monitor import referee
from tests.oracle.setting import Dist, Rows, Setting
from tests.truth.generate import Case


def model_of(setting: Setting, rows: Rows, *, rewards: bool) -> monitor.MDP:
    """Return a model with these rows, and with the setting's labels."""
    given: list[tuple[Any, ...]] = []
    if rewards:
        given += [(*key, float(reward)) for key, reward in setting.rewards.items()]
        given += [(*key, float(reward)) for key, reward in setting.transition_rewards.items()]
    names: dict[str, Any] = {} if setting.action_names is None else {"action_names": list(setting.action_names)}
    return monitor.MDP.from_transitions(
        states=setting.states,
        actions=setting.actions,
        transitions=[(s, a, t, float(p)) for (s, a), row in rows.items() for t, p in row.items()],
        rewards=given,
        labels={name: sorted(where) for name, where in setting.labels.items()},
        **names,
    )


def _table(table: tuple[Dist, ...], actions: int) -> npt.NDArray[Any]:
    """Return S actions, or the S x A matrix of a stochastic policy."""
    if all(len(dist) == 1 for dist in table):
        return np.array([next(iter(dist)) for dist in table], dtype=np.int64)
    return np.array([[float(dist.get(a, 0)) for a in range(actions)] for dist in table])


def _policy(table: npt.NDArray[Any]) -> monitor.PolicyTable:
    table.setflags(write=False)
    return monitor.PolicyTable(actions=table) if table.ndim == 1 else monitor.PolicyTable(probabilities=table)


class Engine:
    """`monitor` on one setting: a `Checker` for many questions, `monitor.check` for one from scratch."""

    def __init__(self, setting: Setting) -> None:
        model = model_of(setting, setting.rows, rewards=True)
        models = {name: model_of(setting, rows, rewards=False) for name, rows in setting.models.items()}
        policies = {name: _table(table, setting.actions) for name, table in setting.policies.items()}
        self._setting = setting
        self.about: dict[str, Any] = {
            "model": model,
            "models": models,
            "policies": policies,
            "path": list(setting.path),
            "terminated": setting.terminated,
            "acted": setting.acted,
        }
        self._checker = monitor.Checker(model, {name: _policy(table) for name, table in policies.items()}, models)

    def verdict(self, case: Case) -> monitor.Verdict:
        """Return the verdict of a `Checker` that has answered other questions of the setting before."""
        formula = monitor.parse(case.formula)
        path, kind = self.about["path"], case.causal_model
        ended, acted = self._setting.terminated, self._setting.acted
        return self._checker.check(formula, path, causal_model=kind, terminated=ended, text=case.formula, acted=acted)

    def verdict_alone(self, case: Case) -> monitor.Verdict:
        """Return the verdict of `monitor.check`, which starts from nothing."""
        return monitor.check(case.formula, causal_model=case.causal_model, engine="exact", **self.about)

    def verdict_of_referee(self, case: Case) -> monitor.Verdict:
        """Return the verdict of the second evaluator, which shares nothing with the first."""
        return referee.derive(case.formula, causal_model=case.causal_model, **self.about)
