"""What stands on a chart: round numbers, words that hide no data, names of states, and colours for the dark."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.model import MDP
from monitor.picture import draw, explain
from monitor.picture.axes import rounded, ticks
from monitor.picture.routes import route_in_words
from monitor.picture.svg import DARK, PAPER, Canvas
from tests.picture.test_draw import SVG, contrast, without_places
from tests.picture.test_explanation import FORMULAS, GRID, POLICIES, evidence_of

EMBEDDED = pytest.mark.parametrize("text", FORMULAS)
FIGURE = re.compile(r"-?[0-9.]+( %)?")


def is_round(number: float) -> bool:
    """A multiple of 1, 2 or 5 times a power of ten, in two digits."""
    return number == 0 or float(f"{number:.2g}") == pytest.approx(number, rel=1e-9)


@given(st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_round_few_and_hold_the_data(number: float, most: int) -> None:
    top = rounded(number)
    assert top >= number * (1 - 1e-9)
    assert is_round(top)
    assert -rounded(-number, down=True) == pytest.approx(top)
    drawn = ticks(0.0, number, most)
    assert 1 <= len(drawn) <= most + 1
    assert all(0 <= tick <= number * (1 + 1e-9) for tick in drawn)
    gaps = np.diff(drawn)
    assert gaps == pytest.approx(np.full(len(gaps), gaps[0])) if len(gaps) else True


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
    said = [text for text in texts if re.search("takes over|^now$|dotted|hatched|still helps", text.text or "")]
    assert said
    assert [(text.text, point) for text in said for point in drawn if on_it(text, *point)] == []


def test_the_band_and_the_dotted_line_are_explained() -> None:
    told = words(draw(explain(evidence_of(FORMULAS[0], causal_model="any"), GRID, POLICIES), GRID))
    assert "hatched: fallback over every causal model that fits" in told
    assert "dotted: at least 95 %" in told
    plain = words(draw(explain(evidence_of(FORMULAS[0]), GRID, POLICIES), GRID))
    assert not [word for word in plain if word.startswith("hatched")]


def stay(states: int, **carried: Any) -> MDP:  # noqa: ANN401 - whatever a model carries
    rows = [(state, 0, state, 1.0) for state in range(states)]
    return MDP.from_transitions(states=states, actions=1, transitions=rows, **carried)


def test_a_path_is_told_in_names_or_in_what_changed() -> None:
    named = stay(3, state_names=["at home", "on the way", "lost"])
    assert route_in_words(named, [0, 1, 1, 2]) == "at home > on the way, stays > lost"
    valued = stay(3, valuations=[(0.0, "dry"), (1.0, "dry"), (1.0, "wet")])
    assert (
        route_in_words(valued, [0, 1, 2]) == "state 0 > state 1 [variable 0: 0 to 1] > state 2 [variable 1: dry to wet]"
    )
    seen = stay(4, observations=np.array([[0.0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]))
    assert route_in_words(seen, [0, 1]) == "state 0 > state 1 [feature 1 up 2.3 sd]"
    assert route_in_words(seen, [1, 0, 2]) == "state 1 > state 0 [feature 1 down 2.3 sd] > state 2"
    bare = stay(20, labels={"won": [7], "common": list(range(20))})
    assert route_in_words(bare, [3, 7]) == "state 3 > won (state 7)"
    assert route_in_words(bare, [5]) == "state 5"


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
