"""The table of `cfmon run` as text: what fires first, blindness in words, whatever size, nothing that steers."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from monitor.sidecar.web.fleet_table import FleetTable

NOW = 1_800_000_000.0
STATES = ("firing", "pending", "blind", "unknown", "fine")
OTHER = {"name": "fallback", "value": 0.9, "bounds": None}
CALM: dict[str, Any] = {
    "state": "fine",
    "alarm": "clear",
    "blind": None,
    "blind_since": None,
    "outcome": "safe",
    "value": 0.8,
    "alternative": OTHER,
}
FIRING = {
    **CALM,
    "state": "firing",
    "alarm": "firing",
    "outcome": "regret",
    "value": 0.7478,
    "alternative": {**OTHER, "value": 0.8024},
}
BLIND: dict[str, Any] = {
    **CALM, "state": "blind", "blind": "gap", "outcome": None, "value": None, "alternative": {**OTHER, "value": None}
}  # fmt: skip
PLAIN: dict[str, Any] = {**CALM, "outcome": "holds", "alternative": None, "threshold": None}


def agent(name: str, *rows: dict[str, Any], lag: float | None = 0.003, heard: float = 2.0) -> dict[str, Any]:
    more = {"threshold": {"comparison": ">=", "bound": 0.75}, "seq": 7}
    named = [{"name": f"formula{n}", **more, **row} for n, row in enumerate(rows)]
    return {"name": name, "lag": lag, "last_message": NOW - heard, "formulas": named}


def alert(summary: str, state: str = "firing") -> dict[str, Any]:
    when = {"since_unix": NOW - 60, "sent_unix": NOW - 30}
    return {"formula": {"name": "formula0"}, "severity": "critical", "state": state, "summary": summary, **when} | {
        "instructions": "Call 4711.",
        "runbook": "https://example.org/runbook",
    }


def told(agents: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    status = {"connected": True, "broker": "mqtt://b:1", "queue": 3, "unsent": 1, "store": "ok"}
    lists: dict[str, Any] = {
        "firing": [],
        "recent": [],
        "blind": [],
        "formulas": agents[0]["formulas"] if agents else [],
    }
    rows = [row["state"] for agent in agents for row in agent["formulas"]]
    count = {"firing": rows.count("firing"), "agents": len(agents), "found": len(agents)}
    states = {state: rows.count(state) for state in STATES}
    return {
        **lists,
        "agents": agents,
        "count": count,
        "states": states,
        "status": status,
        "problem": "",
        "now": NOW,
        **more,
    }


def drawn(document: dict[str, Any], *, ended: bool = False, width: int = 110, height: int = 30) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None, highlight=False)
    console.print(FleetTable(document, "cfmon run c.yaml", "http://127.0.0.1:9108", ended=ended))
    return out.getvalue()


def places(text: str, *words: str) -> list[int]:
    return [text.index(word) for word in words]


def test_all_that_one_row_says() -> None:
    text = drawn(told([agent("ada", FIRING)]))
    row = next(line for line in text.splitlines() if line.startswith("ada"))
    assert row.split() == [
        "ada",
        "formula0",
        "FIRING",
        "regret",
        "0.7478",
        ">=",
        "0.7500",
        "0.8024",
        "7",
        "3",
        "ms",
        "2",
        "s",
        "ago",
    ]
    assert "connected to mqtt://b:1, 3 messages waiting, 1 unsent" in text
    assert "http://127.0.0.1:9108" in text


def test_rows_stand_in_the_order_of_the_status_page() -> None:
    pending, unknown = {**CALM, "state": "pending", "alarm": "pending"}, {**CALM, "state": "unknown", "outcome": None}
    text = drawn(told([agent("ada", CALM, unknown), agent("bob", CALM, BLIND), agent("cid", pending, FIRING)]))
    rows = [line.split()[:2] for line in text.splitlines() if line.startswith(("ada", "bob", "cid"))]
    assert rows == [
        *(["cid", "formula1"], ["cid", "formula0"], ["bob", "formula1"], ["ada", "formula1"]),
        *(["ada", "formula0"], ["bob", "formula0"]),
    ]
    assert "blind: gap" in text
    assert "1 firing, 1 pending, 1 blind, 1 unknown, 2 fine; 3 agents" in text


def test_the_alarm_is_described_in_words_above_the_table() -> None:
    text = drawn(told([agent("ada", FIRING)], firing=[alert("ada: had it been in charge")]))
    todo = "what to do: Call 4711. https://example.org/runbook"
    first = places(text, "FIRING since", "had it been in charge", todo, "last step")
    assert first == sorted(first)


def test_the_last_alarm_is_told_while_none_fires() -> None:
    text = drawn(told([agent("ada", CALM)], recent=[alert("ada: all is well", "resolved")]))
    assert "last alarm: resolved" in text
    assert "all is well" in text
    both = drawn(told([agent("ada", CALM)], recent=[alert("ada: all is well", "resolved")], firing=[alert("fires")]))
    assert "last alarm" not in both


def test_why_it_is_blind() -> None:
    blind = [{"agent": "ada", "reason": "gap", "words": "steps are missing", "detail": "", "formulas": ["f", "g"]}]
    assert "BLIND ada (gap): steps are missing; f, g" in drawn(told([agent("ada", BLIND)], blind=blind))
    assert "blind: gap " in drawn(told([agent("ada", BLIND)]))
    since = time.strftime("%H:%M:%S", time.localtime(NOW - 60))
    assert f"blind: gap since {since}" in drawn(told([agent("ada", {**BLIND, "blind_since": NOW - 60})]))


def test_trouble_of_its_own() -> None:
    status = {"connected": False, "broker": "mqtt://b:1", "queue": 0, "unsent": 9, "store": "disk full"}
    text = drawn(told([], status=status, problem="not connected to the broker"))
    assert "NOT CONNECTED to mqtt://b:1, 0 messages waiting, 9 unsent" in text
    assert "STORE: disk full" in text
    assert "no agent has sent a step yet" in text
    assert "NOT READY: every formula is blind" in drawn(told([agent("ada", BLIND)], problem="every formula is blind"))


def test_what_has_ended_cannot_be_taken_for_live() -> None:
    assert "the monitor has stopped" in drawn(told([agent("ada", CALM)]), ended=True)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [10, 24, 50])
def test_it_fits(width: int, height: int) -> None:
    agents = [agent(f"agent-with-a-long-name-{n}", FIRING, CALM) for n in range(100)]
    text = drawn(told(agents, firing=[alert("ada: had it been in charge")]), width=width, height=height)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height - 4, 15 if width < 60 else 11)
    shown = sum("agent-w" in line for line in lines)
    assert shown >= 1
    assert f"and {200 - shown} more" in text


def test_nothing_strangers_say_steers_the_terminal() -> None:
    evil = "\x1b[2J\x07\r\x9b31m"
    status = {"connected": True, "broker": f"mqtt://{evil}", "queue": 0, "unsent": 0, "store": evil}
    text = drawn(told([agent("ada", FIRING)], firing=[alert(f"ada: {evil}")], problem=evil, status=status))
    assert not set(evil) - set("[2J31m") & set(text)


def test_what_a_formula_does_not_have_is_a_dash() -> None:
    row = next(line for line in drawn(told([agent("ada", PLAIN)])).splitlines() if line.startswith("ada"))
    assert row.split()[4:7] == ["0.8000", "-", "-"]


@pytest.mark.parametrize("since", [1e300, -1e300, float("nan"), float("inf"), None])
def test_an_agents_clock_may_say_anything(since: float | None) -> None:
    assert "FIRING since ?" in drawn(told([agent("ada", FIRING)], firing=[{**alert("a"), "since_unix": since}]))


@pytest.mark.parametrize(
    ("heard", "says"),
    [(0.4, "0 s ago"), (-5.0, "0 s ago"), (119.0, "119 s ago"), (600.0, "10 min ago"), (9000.0, "2 h ago")],
)
def test_how_long_ago_is_said_in_its_unit(heard: float, says: str) -> None:
    assert says in drawn(told([agent("ada", CALM, heard=heard, lag=None)]))


def test_no_firing_is_said_only_where_it_is_known() -> None:
    assert "UNKNOWN" not in drawn(told([agent("ada", CALM)]))
    assert "0 firing, 0 pending, 0 blind, 0 unknown, 1 fine; 1 agent\n" in drawn(told([agent("ada", CALM)]))
    lost = told([agent("ada", CALM)])
    lost["status"] = {**lost["status"], "connected": False}
    late = "no evaluation for 31.0 s"
    silent = "no agent has sent a step yet, so nothing is monitored"
    for text, counts, why in (
        (drawn(told([])), "0 known to fire; 0 agents", silent),
        (drawn(told([agent("ada", CALM)], problem=late)), "0 known to fire, 1 fine; 1 agent", late),
        (drawn(told([agent("ada", CALM)]), ended=True), "0 known to fire, 1 fine; 1 agent", "the monitor has stopped"),
        (drawn(lost), "0 known to fire, 1 fine; 1 agent", "not connected to the broker"),
    ):
        assert f"{counts}  UNKNOWN: {why}" in [line.rstrip() for line in text.splitlines()]
