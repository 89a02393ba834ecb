"""The picture as a document: well formed, the same each time, and readable without colour."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from monitor.model import MDP, load_model
from monitor.picture import draw, explain
from monitor.picture.explanation import Explanation
from monitor.picture.layout import grid_of
from monitor.picture.svg import ALTERNATIVE, FAINT, FIRING, INK, NOMINAL, Anchor, Canvas, shortened
from tests.picture.test_explanation import FORMULAS, GRID, POLICIES, evidence_of

SVG = "{http://www.w3.org/2000/svg}"
DATA = Path(__file__).parents[2] / "policies"


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("grid", [True, False])
def test_every_picture_is_well_formed_and_the_same_each_time(text: str, *, grid: bool) -> None:
    model = GRID if grid else without_places(GRID)
    explanation = explain(evidence_of(text, model=model, causal_model="any"), model, POLICIES)
    picture = draw(explanation, model)
    assert picture == draw(explain(evidence_of(text, model=model, causal_model="any"), model, POLICIES), model)
    root = ET.fromstring(picture)
    assert root.attrib["role"] == "graphics-document"
    words = " ".join(element.text or "" for element in root.iter(f"{SVG}text"))
    assert "NaN" not in picture
    assert "nan" not in re.sub(r"nominal|Nanum", "", picture)
    assert explanation.title in words
    assert "How obtained: exact" in words
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.attrib["x"]) <= width
        assert 0 <= float(element.attrib["y"]) <= height


def test_it_is_described_in_words_to_those_who_cannot_see_it() -> None:
    explanation = explain(evidence_of(FORMULAS[0]), GRID, POLICIES)
    root = ET.fromstring(draw(explanation, GRID))
    told = root.findtext(f"{SVG}desc") or ""
    assert told.startswith(explanation.told.text)
    assert "Under fallback the value is" in told
    assert "3 steps ago:" in told


def test_worlds_differ_in_line_and_mark_and_not_in_colour_alone() -> None:
    root = ET.fromstring(draw(explain(evidence_of(FORMULAS[0]), GRID, POLICIES), GRID))
    lines = list(root.iter(f"{SVG}polyline"))
    dashed = {element.attrib["stroke"] for element in lines if "stroke-dasharray" in element.attrib}
    unbroken = {element.attrib["stroke"] for element in lines if "stroke-dasharray" not in element.attrib}
    assert NOMINAL in unbroken - dashed
    assert ALTERNATIVE in dashed - unbroken


@pytest.mark.parametrize("ink", [INK, FAINT, NOMINAL, ALTERNATIVE, FIRING])
def test_every_ink_has_the_contrast_that_text_needs(ink: str) -> None:
    assert contrast(ink, "#ffffff") >= 4.5  # WCAG 2.2, success criterion 1.4.3


def test_names_from_outside_stay_text() -> None:
    evidence = replace(evidence_of(FORMULAS[0]), agent='<script>"x"</script>', formula="a&b", episode="]]>")
    picture = draw(explain(evidence, GRID, POLICIES), GRID)
    ET.fromstring(picture)
    assert "<script" not in picture


def test_an_impossible_clock_is_left_out() -> None:
    for time in (-1.0, 1e300):
        assert "UTC" not in draw(explain(replace(evidence_of(FORMULAS[0]), time=time), GRID, POLICIES), GRID)


def test_where_states_lie() -> None:
    grid = grid_of(GRID)
    assert grid is not None
    assert (grid.rows, grid.columns) == (4, 4)
    assert grid.cells[5] == (1, 1)
    lake = grid_of(load_model(DATA / "frozen-lake" / "model.npz"))
    assert lake is not None
    assert (lake.rows, lake.columns, lake.cells[63]) == (8, 8, (7, 7))
    rooms = grid_of(load_model(DATA / "minigrid" / "empty.npz"))
    assert rooms is not None
    assert len(set(rooms.cells.values())) < len(rooms.cells)  # several states a cell: the agent faces somewhere
    assert grid_of(load_model(DATA / "icu-sepsis" / "model.npz")) is None


def test_a_grid_too_large_to_be_seen_is_none() -> None:
    names = [f"row {state} column 0" for state in range(50)]
    rows = [(state, 0, state, 1.0) for state in range(50)]
    assert grid_of(MDP.from_transitions(states=50, actions=1, transitions=rows, state_names=names)) is None


def test_a_paragraph_takes_the_height_of_its_lines() -> None:
    canvas = Canvas(100, "t", "d")
    assert canvas.paragraph((0, 0), "word " * 10, size=10) == pytest.approx(4 * 14), "15 characters each"
    assert canvas.paragraph((0, 0), "", size=10) == pytest.approx(14)


def without_places(model: MDP) -> MDP:
    from dataclasses import replace as changed  # noqa: PLC0415 - only here

    return changed(model, state_names=())


def contrast(one: str, other: str) -> float:
    """WCAG 2.2: the ratio of relative luminances."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_what_xml_cannot_write_makes_no_picture_unreadable() -> None:
    canvas = Canvas(100, 'episode \x01"\x1b', "d\ufffe<")
    canvas.text((1, 1), "a\x00b & c")
    canvas.dot((1, 1), 1, says="\x0b")
    root = ET.fromstring(canvas.document(100))
    assert root.attrib["aria-label"] == 'episode \ufffd"\ufffd'
    assert [element.text for element in root.iter(f"{SVG}text")] == ["a\ufffdb & c"]


def test_a_value_that_was_partly_never_recorded_is_an_interval() -> None:
    explanation = explain(evidence_of(FORMULAS[0]), GRID, POLICIES)
    nominal, fallback = explanation.branches
    unknown = replace(fallback, extremes=(0.25, 1.0))
    known = replace(nominal, extremes=(nominal.value, nominal.value))
    words = drawn_words(replace(explanation, branches=(known, unknown)))
    assert "fallback 0.250 to 1.000 (partly never recorded)" in words
    assert "Under fallback the value is 0.250 to 1.000 (partly never recorded)." in words
    assert f"nominal {nominal.value:.3f}" in words


def drawn_words(explanation: Explanation) -> str:
    return " ".join(ET.fromstring(draw(explanation, GRID)).itertext())


LONG = "the_policy_of_the_second_shift_with_a_very_long_name_indeed_0123"


@pytest.mark.parametrize("anchor", ["start", "middle", "end"])
def test_no_text_goes_beyond_the_edge_and_what_is_left_out_is_its_tooltip(anchor: Anchor) -> None:
    canvas = Canvas(300, "t", "d")
    canvas.text((150, 20), LONG, size=12, anchor=anchor)
    canvas.text((150, 40), "short", size=12, anchor=anchor)
    drawn = re.findall(r"<text [^>]*>(.*)</text>", canvas.document(60))
    shown, tooltip = re.fullmatch(r"(.*)<title>(.*)</title>", drawn[0]).groups()  # type: ignore[union-attr] # it matches
    assert (tooltip, drawn[1]) == (LONG, "short")
    assert shown.startswith("the_")
    assert shown.endswith("123")
    room = 134 if anchor != "middle" else 268
    assert len(shown) * 12 * 0.56 <= room < (len(shown) + 1) * 12 * 0.56, "as much as there is room for"


def test_a_text_keeps_both_its_ends() -> None:
    assert shortened("abcdefghij", 5.1 * 5.6, size=10) == "ab…ij"
    assert shortened("abcdefghij", 6.1 * 5.6, size=10) == "abc…ij"
    assert shortened("abcdefghij", 0.0, size=10) == "a…j"
    assert shortened("abcde", 5.1 * 5.6, size=10) == "abcde"
    assert len(shortened("a" * 20, 10.1 * 6.4, size=10, bold=True)) == 10
