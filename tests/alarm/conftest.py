"""One world in which a reckless policy gives cause for regret, and alarms raised in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from monitor.alarm.figures import figures_of
from monitor.alarm.message import Identity, alert_id
from monitor.alarm.summary import tell
from monitor.evaluation import check
from monitor.logic import parse
from monitor.model.mdp import MDP
from monitor.model.npz import model_sha256
from monitor.policy.table import PolicyTable, as_table
from monitor.types import Alert, CausalModel, Fired, FormulaSpec
from tests.evidence.rederived import make_evidence

REGRET = 'regret(careful@2, P>=0.8 [ G<=4 !"crash" ])'

WALK, RUN = 0, 1
PLACES, CRASH, HOME = 6, 4, 5


@pytest.fixture(scope="session")
def road() -> MDP:
    """Places 0..3 in a row, then home; walking seldom crashes, running often does, the more the further on."""
    transitions = []
    for place in range(4):
        ahead = place + 1 if place < 3 else HOME
        for action, crash, stay in ((WALK, 0.01 * (place + 1), 0.3), (RUN, 0.15 + 0.05 * place, 0.1)):
            transitions += [
                (place, action, CRASH, crash),
                (place, action, place, stay),
                (place, action, ahead, 1 - crash - stay),
            ]
    transitions += [(place, action, place, 1.0) for place in (CRASH, HOME) for action in (WALK, RUN)]
    rewards = [(place, action, 1.0 + action) for place in range(4) for action in (WALK, RUN)]
    return MDP.from_transitions(
        states=PLACES, actions=2, transitions=transitions, rewards=rewards, labels={"crash": [CRASH], "home": [HOME]}
    )


@pytest.fixture(scope="session")
def tables(road: MDP) -> dict[str, PolicyTable]:
    mixed = np.tile([0.3, 0.7], (PLACES, 1))
    return {"nominal": as_table(mixed, road), "careful": as_table([WALK] * PLACES, road)}


@pytest.fixture(scope="session")
def identity(road: MDP) -> Identity:
    versions = {"monitor": "0.1", "numpy": "2.1", "onnxruntime": "1.20"}
    return Identity("road", model_sha256(road), {"nominal": "a" * 64, "careful": "b" * 64}, versions)


@pytest.fixture(scope="session")
def manifests() -> dict[str, dict[str, Any]]:
    return {
        "nominal": {"file": "nominal.onnx", "sha256": "a" * 64, "greedy": False, "input": {"shape": [1, 6]}},
        "careful": {"file": "careful.onnx", "sha256": "b" * 64, "greedy": True, "input": {"shape": [1, 6]}},
    }


Raise = Callable[..., Alert]


@pytest.fixture(scope="session")
def raise_alert(road: MDP, tables: dict[str, PolicyTable], identity: Identity) -> Raise:
    """An alert as the monitor would raise it on a path that starts with the episode (or at `seq`, in its midst)."""

    def make(
        text: str = REGRET,
        path: Sequence[tuple[int, int | None]] = ((0, RUN), (0, RUN), (1, WALK), (2, RUN)),
        *,
        causal_model: CausalModel = "any",
        terminated: bool = False,
        first: int = 0,
    ) -> Alert:
        verdict = check(
            text,
            model=road,
            path=path,
            policies=tables,
            causal_model=causal_model,
            terminated=terminated,
            start_observed=first == 0,
        )
        formula = FormulaSpec("watch", text, causal_model=causal_model)
        seq = first + len(path) - 1
        figures = figures_of(parse(text), verdict)
        told = tell(
            seq=seq,
            agent="robot-7",
            formula=formula,
            parsed=parse(text),
            state="firing",
            blind=None,
            verdict=verdict,
            path_length=len(path),
        )
        return Alert(
            id=alert_id("robot-7", "monday", formula, identity, seq),
            revision=1,
            agent="robot-7",
            formula="watch",
            text=text,
            state="firing",
            blind=None,
            severity="critical",
            verdict=verdict,
            figures=figures,
            fired=Fired(verdict.outcome, figures.value, figures.alternative, seq, 1_700_000_003.5),
            episode="monday",
            seq=seq,
            first_seq=seq,
            time=1_700_000_003.5,
            since=1_700_000_003.5,
            late=False,
            summary=told.summary,
            details=told.details,
            runbook=None,
            path=tuple(path),
            start_observed=first == 0,
            terminated=terminated,
        )

    return make


@pytest.fixture(scope="session")
def regret(raise_alert: Raise) -> Alert:
    alert = raise_alert()
    assert alert.verdict.outcome == "regret"
    return alert


@pytest.fixture(scope="session")
def content(
    regret: Alert, identity: Identity, tables: dict[str, PolicyTable], manifests: dict[str, dict[str, Any]]
) -> bytes:
    return make_evidence(regret, identity, tables, manifests)
