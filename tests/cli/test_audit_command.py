"""`cfmon audit`: gaps first, then alarms; a page with pictures; what differs from before; mistakes of the user."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.audit.audit_page import page
from monitor.audit.results import AlarmDifferences, Findings, Raised, changes, raised_before
from monitor.errors import RecordingError
from tests.sidecar.audited import FORMULAS, events, recorded, replayed, world
from tests.tiers import slow

Run = Callable[..., tuple[int, str, str]]


def alarm(day: int, agent: str = "ada", episode: str = "1", seq: int = 3, formula: str = "watch") -> Raised:
    return Raised(f"2026-11-{day:02}", agent, formula, episode, seq, f"{day}{agent}{episode}{seq}")


@pytest.fixture
def audited(tmp_path: Path) -> tuple[Path, Path]:
    """A configuration and a recording."""
    return world(tmp_path), recorded(tmp_path / "r.parquet", events(steps=80))


def test_an_audit_reports_gaps_first_and_then_alarms(tmp_path: Path, cfmon: Run, audited: tuple[Path, Path]) -> None:
    config, recording = audited
    out = tmp_path / "out"
    code, text, err = cfmon("audit", str(config), str(recording), "--out", str(out), "--workers", "1")
    assert (code, err) == (0, "")
    lines = text.splitlines()
    assert lines[0].endswith("steps of 12 agents, 2026-09-21 to 2026-09-24")
    assert lines[1] == "  13 steps of 10 agents are missing within episodes"
    assert "messages were lost before the monitor had them" in text
    assert lines[-1] == str(out / "report.html")
    pictures = (out / "report.html").read_text().split("<svg")[1:]
    assert len(pictures) == 2
    for picture in pictures:
        ET.fromstring("<svg" + picture.partition("</svg>")[0] + "</svg>")
    again = cfmon("audit", str(config), str(recording), "--out", str(out), "--workers", "1")
    assert again[1] == text


@slow
def test_the_audit_of_another_formula_is_compared_with_what_was_raised_then(
    tmp_path: Path, cfmon: Run, audited: tuple[Path, Path]
) -> None:
    config, recording = audited
    then = tmp_path / "then.jsonl"
    then.write_text("".join(replayed(config, events(steps=80))))
    documents = []
    for name, formulas in (("same", FORMULAS), ("other", FORMULAS.replace("P>=0.6", "P>=0.3"))):
        other = world(tmp_path / name, formulas)
        command = ["audit", str(other), str(recording), "--out", str(tmp_path / f"out-{name}"), "--workers", "1"]
        code, text, err = cfmon(*command, "--against", str(then), "--json")
        assert code == 0, err
        documents.append(json.loads(text))
    same, other_one = documents
    assert same["changes"] == {"same": len(same["alarms"]), "moved": [], "only_before": [], "only_now": []}
    assert len(same["alarms"]) > 10
    change = other_one["changes"]
    assert {each["formula"] for each in change["only_before"]} == {"safe"}
    assert {each["now"]["formula"] for each in change["moved"]} <= {"safe"}
    assert change["same"] + len(change["moved"]) + len(change["only_before"]) == len(same["alarms"])
    assert change["same"] + len(change["moved"]) + len(change["only_now"]) == len(other_one["alarms"])
    found = raised_before(tmp_path / "out-same")
    assert [each.id for each in found] == [each["id"] for each in same["alarms"]]


def test_a_folder_with_something_else_is_not_used(tmp_path: Path, cfmon: Run, audited: tuple[Path, Path]) -> None:
    config, recording = audited
    code, _, err = cfmon("audit", str(config), str(recording), "--out", str(tmp_path))
    assert code == 2
    assert "is not empty and holds no audit" in err
    (out := tmp_path / "out").mkdir()
    (out / "audit.json").write_text('{"config_sha256": "another"}')
    code, _, err = cfmon("audit", str(config), str(recording), "--out", str(out))
    assert code == 2
    assert "another configuration" in err
    (out / "audit.json").write_text("{")
    assert "choose another folder" in cfmon("audit", str(config), str(recording), "--out", str(out))[2]


def test_limits_of_one_process_that_were_reached_are_reported(tmp_path: Path, cfmon: Run) -> None:
    config = world(tmp_path, more="limits: {agents: 5}\n")
    recording = recorded(tmp_path / "r.parquet", events(steps=20, batch=40, budget=2))
    command = ["audit", str(config), str(recording), "--workers", "1"]
    _, text, _ = cfmon(*command, "--out", str(tmp_path / "out"))
    assert "evaluations had more steps than one process evaluated at once" in text
    assert "12 agents, and limits.agents is 5" in text
    _, text, _ = cfmon(*command, "--out", str(tmp_path / "in-order"), "--in-order")
    assert "note:" not in text


def test_what_holds_no_alarms_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"topic": "cfmon/status/x", "payload": null}\n{"payload": {"revision": 1}}\n')
    with pytest.raises(RecordingError, match="line 2: is not what"):
        raised_before(tmp_path / "lines")
    with pytest.raises(RecordingError, match="holds no audit"):
        raised_before(tmp_path)
    with pytest.raises(RecordingError, match="cannot be read"):
        raised_before(tmp_path / "absent")


def test_alarms_are_compared_by_agent_formula_and_episode() -> None:
    before = [alarm(1), alarm(2, "bob", seq=4), alarm(3, "eve"), alarm(3, "eve", seq=9)]
    now = [alarm(1), alarm(2, "bob", seq=7), alarm(3, "eve", seq=9), alarm(4, formula="safe")]
    found = changes(before, now)
    assert found == AlarmDifferences(
        same=[alarm(1), alarm(3, "eve", seq=9)],
        moved=[(alarm(2, "bob", seq=4), alarm(2, "bob", seq=7))],
        only_before=[alarm(3, "eve")],
        only_now=[alarm(4, formula="safe")],
    )


def test_the_page_shows_takeovers_differences_and_at_most_so_many_agents() -> None:
    names = ["a" * 30, *(f"a<{n}>" for n in range(1, 70))]
    found = Findings(raised=[alarm(n % 28 + 1, names[n % 70], seq=n) for n in range(400)])
    found.takeovers["watch", "careful", "needed"] = 7
    found.takeovers["watch", "careful", "needless"] = 1234
    change = AlarmDifferences([], [], found.raised[:250], [])
    text = page(
        "Audit", days=["2026-11-01"], found=found, notes=["3 < 4"], inputs=[("a", "b&c")], before=("then", change)
    )
    assert "1,234 needless" in text
    assert "10 other agents" in text
    assert ">" + "a" * 23 + "…<" in text
    assert "and 50 more" in text
    assert "3 &lt; 4" in text
    assert "a<1>" not in text
    for picture in text.split("<svg")[1:]:
        ET.fromstring("<svg" + picture.partition("</svg>")[0] + "</svg>")
