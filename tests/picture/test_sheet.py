"""One axis for all bands: round numbers, words that hide no data, names of states, and colours for the dark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor import sidecar
from monitor.model import MDP
from monitor.picture import draw, explain, sheet
from monitor.picture.sheet import WIDEST, scale_of, ticks
from monitor.picture.state_words import state_in_brief
from monitor.picture.svg import AHEAD, ALTERNATIVE, DARK, FAINT, FIRING, INK, NOMINAL, PAPER, RULE, Canvas
from tests.picture.test_draw import SVG, contrast, without_places
from tests.picture.test_explanation import FORMULAS, GRID, POLICIES, evidence_of

EMBEDDED = pytest.mark.parametrize("text", FORMULAS)


def is_round(number: float) -> bool:
    """A multiple of 1, 2 or 5 times a power of ten, in two digits."""
    return number == 0 or float(f"{number:.2g}") == pytest.approx(number, rel=1e-9)


@given(st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_round_few_and_within_the_axis(number: float, most: int) -> None:
    drawn = ticks(0.0, number, most)
    assert 1 <= len(drawn) <= most + 1
    assert all(0 <= tick <= number * (1 + 1e-9) for tick in drawn)
    assert all(is_round(tick / max(drawn)) or is_round(tick) for tick in drawn if tick)
    gaps = np.diff(drawn)
    assert gaps == pytest.approx(np.full(len(gaps), gaps[0])) if len(gaps) else True


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.lists(st.floats(0, 1), max_size=4))
def test_an_axis_holds_its_lines_and_wastes_little(lines: list[float], bounds: list[float]) -> None:
    scale = scale_of(lines, bounds, reward=False)
    assert scale.low < min(lines) <= max(lines) < scale.high
    if not scale.clipped:
        assert scale.low < min([*lines, *bounds])
        assert max([*lines, *bounds]) < scale.high
    used = max(lines) - min(lines)
    assert scale.high - scale.low <= max(1.2 * WIDEST * max(used, 0.1), 0.2), "a line at 0.74 is not drawn on 0 to 1"


def test_a_scale_that_is_cut_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    alarm = explain(evidence_of(FORMULAS[0], causal_model="any"), GRID, POLICIES)
    lows, highs = zip(*(moment.bounds for moment in alarm.history if moment.bounds is not None), strict=True)
    shaded = "shaded: fallback over every causal model"
    monkeypatch.setattr(sheet, "WIDEST", 0.0)
    reach = f"({min(lows):.3f} to {max(highs):.3f}, beyond the axis)"
    assert f"{shaded} {reach}, from step" in " ".join(words(draw(alarm, GRID)))
    monkeypatch.setattr(sheet, "WIDEST", 1e9)
    assert f"{shaded}, from step" in " ".join(words(draw(alarm, GRID)))
    monkeypatch.undo()
    assert scale_of([0.70, 0.74], [0.0, 1.0], reward=False).clipped
    assert not scale_of([0.70, 0.74], [0.69, 0.75], reward=False).clipped


def places(picture: str) -> dict[str, set[float]]:
    """Step -> the left edges of what belongs to it."""
    return {
        each.attrib["aria-label"].split(".")[0]: {float(box.attrib["x"]) for box in each.findall(f"{SVG}rect")}
        for each in ET.fromstring(picture).iter(f"{SVG}g")
        if each.attrib.get("class") == "step"
    }


@EMBEDDED
def test_all_bands_have_one_axis_and_each_step_its_numbers(text: str) -> None:
    evidence = evidence_of(text, causal_model="any")
    picture = draw(explain(evidence, GRID, POLICIES), GRID)
    root = ET.fromstring(picture)
    found = places(picture)
    assert [*found][: len(evidence.path)] == [f"Step {n}" for n in range(len(evidence.path))]
    edges = [min(each) for each in found.values()]
    assert np.diff(edges) == pytest.approx(np.full(len(edges) - 1, edges[1] - edges[0]), abs=0.011)
    grounds = [box for box in root.iter(f"{SVG}rect") if box.attrib.get("fill") == AHEAD]
    assert len(grounds) >= 2
    assert len({(box.attrib["x"], box.attrib["width"]) for box in grounds}) == 1, "the same in every band"
    assert words(picture).count("step") == 1
    for group in root.iter(f"{SVG}g"):
        if group.attrib.get("class") == "step":
            assert group.attrib["tabindex"] == "0"
            shown = [line.text or "" for line in group.iter(f"{SVG}text")]
            assert ". ".join(shown) == group.attrib["aria-label"]


def test_equal_words_that_are_no_neighbours_have_a_box_each() -> None:
    canvas = Canvas(sheet.WIDTH, "t", "d")
    drawn = sheet.Sheet(canvas, sheet.TimeAxis(first=0, last=6, now=5, seq=5, ends=6), 0.0)
    drawn.lane("action", {1: "left", 2: "left", 5: "left"})
    root = ET.fromstring(canvas.document(100))
    cell = drawn.time_axis.cell
    boxes = [float(box.attrib["width"]) for box in root.iter(f"{SVG}rect") if box.attrib.get("stroke") == RULE]
    assert boxes == pytest.approx([2 * cell - 1, cell - 1], abs=0.01)


def test_a_future_or_a_past_that_is_cut_off_is_said() -> None:
    picture = draw(explain(evidence_of('regret(fallback@0, P>=0.95 [ G<=60 !"unsafe" ])'), GRID, POLICIES), GRID)
    steps = [int(step.removeprefix("Step ")) for step in places(picture)]
    assert (steps[0], steps[-1], len(steps)) == (4, 47, 44)
    said = words(picture)
    assert "Only steps 4 to 47 of steps 0 to 64 are drawn." in said
    assert "marks at the right: after step 64" in said
    whole = words(draw(explain(evidence_of(FORMULAS[0]), GRID, POLICIES), GRID))
    assert not [text for text in whole if "are drawn" in text or "marks at the right" in text]


def test_colours_are_those_of_the_page() -> None:
    style = (Path(sidecar.__file__).parent / "web" / "static" / "style.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", part)) for part in style.split("@media", 2)[:2])
    names = {"ink": INK, "faint": FAINT, "own": NOMINAL, "instead": ALTERNATIVE, "firing": FIRING, "line": RULE}
    for name, colour in {**names, "card": PAPER}.items():
        assert light[name] == colour
        assert dark[name] == DARK[colour]


def test_words_of_the_configuration_name_actions() -> None:
    model = without_places(GRID)
    said = replace(evidence_of(FORMULAS[0], model=model), actions=(("down", "descend slowly"),))
    picture = draw(explain(said, model, POLICIES), model)
    assert "did 'descend slowly'" in picture
    assert "did down" not in picture
    assert "descend slowly" in " ".join(ET.fromstring(picture).itertext())


def test_steps_are_whole_and_round() -> None:
    assert ticks(0, 25, 8, least=1) == [0, 5, 10, 15, 20, 25]
    assert ticks(37, 101, 8, least=1) == [40, 50, 60, 70, 80, 90, 100]
    assert ticks(3, 4, 8, least=1) == [3, 4]


def words(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}text")]


def on_it(text: ET.Element, x: float, y: float) -> bool:
    """Whether a point lies under a text."""
    left, wide = float(text.attrib["x"]), 6 * len(text.text or "")
    left -= {"start": 0, "middle": wide / 2, "end": wide}[text.attrib["text-anchor"]]
    return left <= x <= left + wide and abs(y - float(text.attrib["y"]) + 4) < 7


@EMBEDDED
def test_words_stand_beside_the_data_and_not_on_it(text: str) -> None:
    model = without_places(GRID)
    picture = draw(explain(evidence_of(text, model=model, causal_model="any"), model, POLICIES), model)
    lines = [
        [(float(point.split(",")[0]), float(point.split(",")[1])) for point in element.attrib["points"].split()]
        for element in ET.fromstring(picture).iter(f"{SVG}polyline")
    ]
    drawn = [point for line in lines for point in line]
    texts = ET.fromstring(picture).iter(f"{SVG}text")
    said = [text for text in texts if re.search("taken over|^the alarm fires|required|shaded", text.text or "")]
    assert said
    assert [(text.text, point) for text in said for point in drawn if on_it(text, *point)] == []


def test_the_band_and_the_dotted_line_are_explained() -> None:
    told = words(draw(explain(evidence_of(FORMULAS[0], causal_model="any"), GRID, POLICIES), GRID))
    assert "at least 0.95 required" in told
    plain = words(draw(explain(evidence_of(FORMULAS[0]), GRID, POLICIES), GRID))
    assert not [word for word in plain if word.startswith("shaded")]


def test_the_words_on_the_band_are_those_of_the_bounds_at_each_step() -> None:
    alarm = explain(evidence_of(FORMULAS[0], causal_model="any"), GRID, POLICIES)
    bounds = {moment.seq: moment.bounds for moment in alarm.history if moment.bounds is not None}
    wide = [seq for seq, (low, high) in bounds.items() if high - low > 1e-6]
    assert 0 < len(wide) < len(bounds), "they disagree at some steps only"
    told = " ".join(words(draw(alarm, GRID)))
    (first, where), *_ = re.findall(
        r"from step (\d+) to where the alarm fired\. On .+?, they disagree at (.+?)\.", told
    )
    assert int(first) == min(bounds)
    assert max(bounds) == alarm.evidence.seq
    said = re.fullmatch(r"steps? (.+)", where)
    assert said is not None
    runs = [[int(end) for end in run.split(" to ")] for run in said[1].split(", ")]
    assert [seq for run in runs for seq in range(run[0], run[-1] + 1)] == wide
    assert "computed from" not in " ".join(words(draw(explain(evidence_of(FORMULAS[0]), GRID, POLICIES), GRID)))


@EMBEDDED
def test_the_goal_has_one_name_and_every_probability_is_a_decimal(text: str) -> None:
    alarm = explain(evidence_of(text, causal_model="any"), GRID, POLICIES)
    told = " ".join(words(draw(alarm, GRID)))
    assert "violation" not in told
    assert "would take over" not in told
    assert not re.search(r"\d %", told)
    heading = re.search(r"What would have happened: (.*?\)|reward collected by then)", told)
    assert heading is not None
    if 'G<=8 !"unsafe"' in text:
        assert heading[1] == "P(no unsafe by then)"
        assert "P(no unsafe in 8 steps" in alarm.told.summary


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ('fallback@2.P>=0.99 [ F<=6 "goal" ]', "What if 'fallback' had taken over here?"),
        ('fallback[2]@2.P>=0.99 [ F<=6 "goal" ]', "What if 'fallback' had taken over here for 2 steps?"),
        ('do(down)@2.P>=0.99 [ F<=6 "goal" ]', "What if action down had been taken here?"),
        ('optimal@2.P>=0.99 [ F<=6 "goal" ]', "What if the optimal policy had taken over here?"),
        ('best@2.P>=0.99 [ F<=6 "goal" ]', "What if the decisions of 'best' had been made from here on?"),
    ],
)
def test_where_a_world_parts_it_asks_what_it_answers(text: str, question: str) -> None:
    told = words(draw(explain(evidence_of(text), GRID, POLICIES), GRID))
    assert question in told
    assert "the alarm fires" in told


def test_an_alarm_on_the_last_step_says_that_the_episode_has_ended() -> None:
    evidence = evidence_of(FORMULAS[0], terminated=True)
    assert "the alarm fires, the episode has ended" in words(draw(explain(evidence, GRID, POLICIES), GRID))


def stay(states: int, **carried: Any) -> MDP:  # noqa: ANN401 - whatever a model carries
    rows = [(state, 0, state, 1.0) for state in range(states)]
    return MDP.from_transitions(states=states, actions=1, transitions=rows, **carried)


def test_a_state_has_its_name_or_what_is_special_about_it() -> None:
    named = stay(3, state_names=["at home", "row 2 column 0", "lost"])
    assert [state_in_brief(named, state) for state in range(3)] == ["at home", "2,0", "lost"]
    bare = stay(20, labels={"won": [7], "common": list(range(20))})
    assert [state_in_brief(bare, state) for state in (3, 7)] == ["3", "won (state 7)"]


def test_every_colour_has_another_for_the_dark_that_is_as_legible() -> None:
    picture = draw(explain(evidence_of(FORMULAS[0], causal_model="any"), GRID, POLICIES), GRID)
    style = picture[picture.index("<style>") : picture.index("</style>")]
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]+)"', picture))
    assert used <= DARK.keys()
    for colour in used:
        assert f'[fill="{colour}"] {{ fill: {DARK[colour]}; }}' in style
    for ink in {e.attrib["fill"] for e in ET.fromstring(picture).iter(f"{SVG}text")} - {PAPER}:
        assert contrast(DARK[ink], DARK[PAPER]) >= 4.5  # WCAG 2.2, success criterion 1.4.3
    assert "style=" not in picture  # which no rule could overcome


def test_a_text_keeps_its_size_and_colour_without_a_style() -> None:
    canvas = Canvas(100, "t", "d")
    canvas.text((1, 1), "a", size=12, ink="#767676")
    (text,) = ET.fromstring(canvas.document(10)).iter(f"{SVG}text")
    assert (text.attrib["font-size"], text.attrib["fill"]) == ("12", "#767676")
