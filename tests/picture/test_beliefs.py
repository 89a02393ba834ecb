"""The picture of an alarm where states are hidden: its numbers are those of the beliefs, and it is well formed."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

import monitor
from monitor.errors import LimitError
from monitor.evidence.document import Evidence
from monitor.picture import beliefs, sheet
from monitor.picture.alarm_picture import draw_alarm
from tests.evidence.test_hidden import READERS, alarm, evidence
from tests.hidden.robot import robot
from tests.picture.test_draw import SVG


def drawn(found: Evidence, model: monitor.MDP | None = None, readers: Any = READERS) -> tuple[str, list[str]]:  # noqa: ANN401
    picture, told = draw_alarm(found, model or robot(), readers, {})
    root = ET.fromstring(picture)
    words = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert told.summary.split()[0] in " ".join(words)
    assert not re.search("nan", re.sub(r"nominal|Nanum", "", picture), re.IGNORECASE)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.attrib["x"]) <= width
        assert 0 <= float(element.attrib["y"]) <= height
    return picture, words


def test_it_has_what_happened_and_what_would_have() -> None:
    found = evidence(alarm())
    picture, words = drawn(found)
    assert picture == drawn(found)[0]
    assert "Where it was, and where it may go" in words
    assert f"What would have happened had wary acted from step {found.seq - 2} on" in words
    assert words.count("“fallen”") == 2
    assert "What happened: the value at each step" in words
    assert any(word.startswith("When handing over helped: ") for word in words)


def test_bounds_that_may_be_too_wide_are_called_so() -> None:
    words = " ".join(drawn(evidence(alarm(causal_model="any")))[1])
    assert "wary over every causal model" in words
    assert "On wary, they may disagree at step" in words
    assert "Gumbel-Max; bounds over every causal model, which may be too wide;" in words


def test_now_it_is_what_the_verdict_believes() -> None:
    found = evidence(alarm())
    text = ET.fromstring(drawn(found)[0]).findtext(f"{SVG}desc") or ""
    assert found.verdict.belief is not None
    state, chance = next(iter(found.verdict.belief.items()))
    (happened,) = re.findall(rf"Where it was, and where it may go: step {found.seq}: ([^;]*);", text)
    assert "%" not in happened
    assert re.match(rf".*state {state}\)?: {chance:.2f}", happened)


def test_what_was_not_seen_is_a_question_mark() -> None:
    assert "?" in drawn(evidence(alarm()))[1]


def test_observations_have_their_names() -> None:
    numbered = robot()
    assert numbered.emissions is not None
    named = monitor.MDP(**{**vars(numbered), "emissions": numbered.emissions.named(["dry", "slippery"])})
    assert "dry" in drawn(evidence(alarm()), named)[1]


def test_more_states_than_rows_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "other states" not in drawn(evidence(alarm()))[1]
    monkeypatch.setattr(beliefs, "MOST_STATES", 2)
    assert drawn(evidence(alarm()))[1].count("other states") == 2


def test_of_a_long_path_the_newest_steps_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(evidence(alarm()), path=((0, 0),) * 12, inputs=(), seq=11)
    assert "Step 0. " in drawn(found)[0]
    for module in (beliefs, sheet):
        monkeypatch.setattr(module, "MOST_STEPS", 6)
    steps = re.findall(r'aria-label="Step (\d+)\. ', drawn(found)[0])
    assert steps == ["7", "8", "9", "10", "11", "12"], "the last 5 of the path, and one ahead"
    assert "Only steps 7 to 12 of steps 0 to 1" in drawn(found)[0]


def test_a_formula_without_quantity_is_not_drawn() -> None:
    with pytest.raises(LimitError, match="nothing is drawn"):
        drawn(replace(evidence(alarm()), text="false"))
