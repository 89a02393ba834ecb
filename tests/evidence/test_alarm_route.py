"""From live steps to verified evidence: what the whole monitor raises is what this room promises."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from monitor.alarm.message import Identity, alert_payload
from monitor.evidence.document import read_evidence
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.runtime.monitor import Monitor
from monitor.types import AlarmSpec, Alert, FormulaSpec, Instant, Observation
from tests.evidence.rederived import make_evidence, rederive

STEPS = [(0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (2, 1), (3, 1), (5, None)]


def alerts(monitor: Monitor) -> list[Alert]:
    told: list[Alert] = []
    for seq, (state, action) in enumerate(STEPS):
        step = Observation("robot-7", "monday", seq, state, action, time=100.0 + seq, terminated=action is None)
        now = Instant(100.0 + seq, float(seq))
        notices = [*monitor.observe(step, now), *monitor.evaluate(now)]
        told += [notice for notice in notices if isinstance(notice, Alert)]
    return told


@pytest.mark.parametrize("text", ['regret(careful@2, P>=0.8 [ G<=4 !"crash" ])', 'P>=0.8 [ G<=4 !"crash" ]'])
def test_every_alarm_of_a_run_has_evidence_that_is_verified(
    road: MDP, tables: dict[str, PolicyTable], identity: Identity, text: str
) -> None:
    spec = FormulaSpec("watch", text, causal_model="any", alarm=AlarmSpec(for_=2, keep=2))
    told = alerts(Monitor(road, tables, [spec], identity=identity))
    assert told == alerts(Monitor(road, tables, [spec], identity=identity))
    firing = [alert for alert in told if alert.state == "firing"]
    assert len(firing) > 1  # each says something else
    assert [alert.revision for alert in told] == list(range(1, len(told) + 1))
    begun = {alert.id: alert for alert in reversed(firing)}
    for alert in firing:
        evidence = read_evidence(make_evidence(alert, identity, tables, {}))
        assert rederive(evidence, road, tables) == []
        first = begun[alert.id]
        assert evidence.first_seq == first.seq - 1
        assert (alert.fired.seq, alert.fired.value) == (first.seq, first.figures.value)
        payload = json.loads(alert_payload(alert, identity, sent=alert.time, evidence=evidence.id))
        assert (payload["id"], payload["since_unix"]) == (evidence.alert, evidence.since)
        assert rederive(replace(evidence, first_seq=alert.seq + 1), road, tables)
