"""What the demo shows: lines or a table in place, each change of an alarm once."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgpack
import pytest
from rich.console import Console

from monitor.demo.watch import Watcher
from monitor.model import MDP
from tests.terminal import Terminal
from tests.tiers import slow

MODEL = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)], labels={"goal": [1]})


def step(seq: int, state: int, **more: object) -> bytes:
    packed = msgpack.packb({"v": 1, "episode": "e", "seq": seq, "state": state, **more})
    assert isinstance(packed, bytes)
    return packed


def alert(revision: int, state: str, value: float | None = 0.25) -> bytes:
    facts = {"id": "a", "revision": revision, "state": state, "episode": "e", "seq": 1, "outcome": "regret"}
    return json.dumps({**facts, "value": value, "alternative": None, "summary": f"it is {state}"}).encode()


def watched() -> Watcher:
    watcher = Watcher(MODEL, "the header")
    with watcher.shown():
        watcher.take_step(step(0, 0, action=0))
        watcher.take_alert(alert(1, "firing"))
        during = watcher.settled
        watcher.take_alert(alert(1, "firing"))  # a heartbeat
        watcher.take_alert(alert(2, "resolved", None))
        watcher.take_alert(b"")  # taken back
        going_on = watcher.over
        watcher.take_step(step(1, 1, terminated=True))
    assert (during, watcher.settled) == (False, True)
    assert (going_on, watcher.over) == (False, True)
    return watcher


def test_each_change_counts_once() -> None:
    seen = watched().seen
    assert (seen.steps, seen.episodes) == (2, 1)
    assert [(a["revision"], a["state"]) for a in seen.alerts] == [(1, "firing"), (2, "resolved")]
    assert [a["revision"] for a in seen.alarms("resolved")] == [2]


def test_an_alarm_that_says_more_while_it_fires_is_still_one(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Watcher(MODEL, "the header")
    for revision, state in enumerate(("firing", "firing", "resolved"), start=1):
        watcher.take_alert(alert(revision, state))
    assert [a["revision"] for a in watcher.seen.alarms("firing")] == [1]
    assert capsys.readouterr().out.splitlines() == [
        "ALARM firing   e step 1: it is firing",
        "ALARM updated  e step 1: it is firing",
        "ALARM resolved e step 1: it is resolved",
    ]


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    watched()
    assert capsys.readouterr().out.splitlines() == [
        "the header",
        "ALARM firing   e step 1: it is firing",
        "ALARM resolved e step 1: it is resolved",
        "episode e: 2 steps, goal",
    ]


def demo(config: Path, *more: str) -> list[str]:
    return ["cfmon", "demo", "--config", str(config), "--seed", "1", "--interval", "0.02", *more]


@slow
def test_a_table_where_there_is_one(tmp_path: Path, patient: Path) -> None:
    with Terminal(demo(patient, "--steps", "120", "--output", str(tmp_path))) as terminal:
        seen = terminal.until("steps over MQTT, ", "; alarm: ", "seed1-")
        assert "runs until" not in seen
        terminal.until(" firing ")
        assert terminal.end() == 0
        assert terminal.cursor_shown()
        assert "explain" in terminal.text
        assert "all agree" in terminal.text


@slow
def test_until_ctrl_c(tmp_path: Path, patient: Path) -> None:
    with Terminal(demo(patient, "--forever", "--output", str(tmp_path)), columns=300) as terminal:
        terminal.until("runs until Ctrl-C", " firing ")
        terminal.press_ctrl_c()
        assert terminal.end() == 0
        assert terminal.cursor_shown()
        for words in ("steps over MQTT in", "draw it", "verify it", "alarm.svg"):
            assert words in terminal.text
        assert "Traceback" not in terminal.text


def said(watcher: Watcher, *, ended: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(watcher.table(ended=ended))
    return out.getvalue()


def status(state: str = "online", **more: object) -> bytes:
    return json.dumps({"state": state, **more}).encode()


def test_that_no_alarm_fires_is_said_only_where_it_is_known() -> None:
    passed = [0.0]
    watcher = Watcher(MODEL, "the header", clock=lambda: passed[0])
    assert "alarm: UNKNOWN: the monitor has not sent its status yet" in said(watcher)
    watcher.take_status(status(blind=0))
    assert "alarm: UNKNOWN: no step has been received yet" in said(watcher)
    watcher.take_step(step(0, 0, action=0))
    assert "alarm: clear" in said(watcher)
    watcher.take_status(status(blind=2))
    assert "alarm: UNKNOWN: 2 formulas are blind" in said(watcher)
    watcher.take_status(status(blind=0))
    assert "alarm: clear" in said(watcher)
    passed[0] = 46.0
    assert "alarm: UNKNOWN: the monitor has sent no status for 46 s" in said(watcher)
    watcher.take_alert(alert(1, "firing"))
    assert "ALARM FIRING when last known: the monitor has sent no status" in said(watcher)
    watcher.take_alert(alert(2, "resolved"))
    watcher.take_status(status("offline"))
    assert "alarm: UNKNOWN: the monitor is offline" in said(watcher)
    watcher.take_status(status(blind=0))
    assert "alarm: UNKNOWN: the monitor has stopped" in said(watcher, ended=True)
