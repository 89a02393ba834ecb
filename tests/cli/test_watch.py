"""What the demo shows: lines or a table in place, each change of an alarm once."""

from __future__ import annotations

import io
import json

import msgpack
import pytest
from rich.console import Console

from monitor.cli.watch import Watcher
from monitor.model import MDP

MODEL = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)], labels={"goal": [1]})


def step(seq: int, state: int, **more: object) -> bytes:
    packed = msgpack.packb({"v": 1, "episode": "e", "seq": seq, "state": state, **more})
    assert isinstance(packed, bytes)
    return packed


def alert(revision: int, state: str, effect: float | None = 0.25) -> bytes:
    facts = {"id": "a", "revision": revision, "state": state, "episode": "e", "seq": 1, "outcome": "regret"}
    return json.dumps({**facts, "effect": effect, "summary": f"it is {state}"}).encode()


def watched(*, terminal: bool) -> tuple[Watcher, str]:
    out = io.StringIO()
    watcher = Watcher(MODEL, "the header", Console(file=out, force_terminal=terminal, width=90, height=24))
    with watcher.shown():
        watcher.take_step(step(0, 0, action=0))
        watcher.take_alert(alert(1, "firing"))
        during = watcher.settled
        watcher.take_alert(alert(1, "firing"))  # a heartbeat
        watcher.take_alert(alert(2, "resolved", None))
        watcher.take_alert(b"")  # taken back
        watcher.take_step(step(1, 1, terminated=True))
    assert (during, watcher.settled) == (False, True)
    return watcher, out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_each_change_counts_once(*, terminal: bool) -> None:
    seen = watched(terminal=terminal)[0].seen
    assert (seen.steps, seen.episodes) == (2, 1)
    assert [(a["revision"], a["state"]) for a in seen.alerts] == [(1, "firing"), (2, "resolved")]
    assert [a["revision"] for a in seen.alarms("resolved")] == [2]


def test_lines_where_there_is_no_terminal() -> None:
    assert watched(terminal=False)[1].splitlines() == [
        "the header",
        "ALARM firing   e step 1: it is firing",
        "ALARM resolved e step 1: it is resolved",
        "episode e: 2 steps, goal",
    ]


def test_a_table_where_there_is_one() -> None:
    out = watched(terminal=True)[1]
    for words in ("the header", "ALARM FIRING", "clear", "it is resolved", "+0.250", "goal", "2 steps over MQTT"):
        assert words in out
