"""`model:name` along the whole route: asked on the stream, alarmed, and derived again from the evidence."""

from __future__ import annotations

import pytest

from monitor.alarm.message import Identity
from monitor.errors import ConfigError, FormulaError
from monitor.evaluation import check
from monitor.evidence.document import read_evidence
from monitor.model import MDP, model_sha256
from monitor.policy import as_table
from monitor.runtime.monitor import Monitor
from monitor.types import Alert, FormulaSpec, Instant, Judged, Notice, Observation
from tests.evidence.rederived import make_evidence, rederive

TEXT = 'model:icy@1.P>=0.9 [ G<=2 !"lost" ]'


def road(slip: float) -> MDP:
    transitions = [(0, 0, 0, 1 - slip), (0, 0, 1, slip), (1, 0, 1, 1.0)]
    return MDP.from_transitions(states=2, actions=1, transitions=transitions, labels={"lost": [1]})


@pytest.fixture
def notices() -> list[Notice]:
    identity = Identity(
        "dry.npz", model_sha256(road(0.01)), {"nominal": "0" * 64}, {}, {"icy": model_sha256(road(0.3))}
    )
    models = {"icy": road(0.3)}
    policies = {"nominal": [0, 0]}
    watch = Monitor(road(0.01), policies, [FormulaSpec("ice", TEXT)], identity=identity, models=models)
    told: list[Notice] = []
    for seq in range(2):
        now = Instant(float(seq), float(seq))
        told += watch.observe(Observation("a", 0, seq, 0, 0), now)
        told += watch.evaluate(now)
    return told


def test_the_stream_answers_as_check_does(notices: list[Notice]) -> None:
    last = [notice for notice in notices if isinstance(notice, Judged)][-1].verdict
    again = check(
        TEXT, model=road(0.01), path=[(0, 0), (0, 0)], policies={"nominal": [0, 0]}, models={"icy": road(0.3)}
    )
    assert last == again
    # The step seen went well at u = .99/.7 of the race; on ice the other clock then runs at .3: 1 / (.99 + .3 u).
    assert last.quantities[0].value == pytest.approx(0.7 / (0.99 + 0.3 * 0.99 / 0.7), abs=1e-12)


def test_its_alarm_is_derived_again_only_with_the_very_dynamics(notices: list[Notice]) -> None:
    alert = next(notice for notice in notices if isinstance(notice, Alert))
    identity = Identity(
        "dry.npz", model_sha256(road(0.01)), {"nominal": "0" * 64}, {}, {"icy": model_sha256(road(0.3))}
    )
    tables = {"nominal": as_table([0, 0], road(0.01))}
    evidence = read_evidence(make_evidence(alert, identity, tables, {}))
    assert rederive(evidence, road(0.01), tables, {"icy": road(0.3)}) == []
    assert any("models.icy" in problem for problem in rederive(evidence, road(0.01), tables, {"icy": road(0.4)}))
    assert rederive(evidence, road(0.01), tables) != []


def test_unknown_or_unfitting_dynamics_are_reported_at_start() -> None:
    with pytest.raises(FormulaError, match="did you mean 'icy'"):
        Monitor(road(0.01), {"nominal": [0, 0]}, [TEXT.replace("icy", "icey")], models={"icy": road(0.3)})
    other = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])
    with pytest.raises(ConfigError, match="'icy' has 1 states"):
        Monitor(road(0.01), {"nominal": [0, 0]}, [TEXT], models={"icy": other})
