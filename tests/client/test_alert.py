"""Alerts are read as the monitor publishes them, and duplicates are removed by (id, revision)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cfmon_client import Alert, AlertError, read_alert
from cfmon_client.subscription import Seen

PAGE = (Path(__file__).resolve().parents[2] / "docs/messages/alert.md").read_text(encoding="utf-8")


def example() -> dict[str, Any]:
    """The alert on the page, which another test compares with the one that the monitor publishes."""
    found = re.search(r"^```json\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def read(**changes: object) -> Alert:
    return read_alert(json.dumps({**example(), **changes}).encode())


def test_the_documented_alert_is_read() -> None:
    alert, document = read(), example()
    assert (alert.id, alert.revision, alert.agent) == (document["id"], document["revision"], "demo")
    assert alert.firing
    assert alert.formula.name == "regret_fallback"
    assert alert.threshold is not None
    assert (alert.threshold.comparison, alert.threshold.bound) == (">=", 0.75)
    assert alert.alternative is not None
    assert alert.alternative.value == document["alternative"]["value"]
    assert alert.alternative.bounds == tuple(document["alternative"]["bounds"])
    assert [each.offset for each in alert.profile] == [0, 1, 2]
    assert alert.handover is not None
    assert (alert.handover.policy, alert.handover.helps_now, alert.handover.latest_useful) == ("fallback", True, 0)
    assert alert.fired.seq == 11
    assert alert.evidence is not None
    assert alert.evidence.path == document["evidence"]["path"]
    assert alert.document == document


def test_a_closed_alert_and_one_of_a_plain_formula_are_read() -> None:
    alert = read(state="ended", handover=None, alternative=None, effect=None, profile=[], robust=None, bounds=None)
    assert not alert.firing
    assert (alert.handover, alert.alternative, alert.profile) == (None, None, ())


def test_numbers_written_as_integers_are_floats() -> None:
    value = read(value=1).value
    assert (value, type(value)) == (1.0, float)


def test_fields_of_a_newer_monitor_are_in_the_document() -> None:
    assert read(blind="a new reason").blind == "a new reason"
    assert read(news={"a": 1}).document["news"] == {"a": 1}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"v": 2}, '"v" is 2; this package reads version 1'),
        ({"state": "burning"}, "\"state\" is 'burning'"),
        ({"value": "high"}, "\"value\" is 'high'"),
        ({"revision": True}, '"revision" is True'),
        ({"revision": 1.5}, '"revision" is 1.5'),
        ({"formula": []}, '"formula" is a list; expected a map'),
        ({"formula": {"name": "f"}}, '"formula.text" is missing'),
        ({"bounds": [0.1]}, '"bounds" is a list'),
        ({"profile": [{"offset": "now", "nominal": 1, "alternative": 1}]}, "\"profile[].offset\" is 'now'"),
        ({"episode": None}, '"episode" is None'),
    ],
)
def test_another_message_is_refused_with_the_field(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(AlertError, match=re.escape(problem)):
        read(**changes)


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"[" * 100_000])
def test_what_is_no_map_in_json_is_refused(payload: bytes) -> None:
    with pytest.raises(AlertError, match="the message is not"):
        read_alert(payload)


def test_a_revision_is_new_once_and_an_older_one_never() -> None:
    seen = Seen()
    assert [seen.new(read(revision=n)) for n in (1, 1, 3, 2, 3, 4)] == [True, False, True, False, False, True]
    assert seen.new(read(id="another", revision=1))


def test_only_the_last_alarms_are_remembered() -> None:
    seen = Seen(limit=2)
    assert all(seen.new(read(id=name)) for name in ("a", "b", "c"))
    assert [seen.new(read(id=name)) for name in ("c", "b", "a")] == [False, False, True]
