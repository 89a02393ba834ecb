"""Bands of a learned model in the picture of an alarm: in words, and drawn to scale."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from monitor.evidence.document import Evidence
from monitor.exact import tables
from monitor.model import MDP
from monitor.picture import draw, explain, sheet
from monitor.picture.svg import NOMINAL
from monitor.types import CausalModel
from tests.exact.learned import learned_model
from tests.picture.test_draw import SVG
from tests.picture.test_explanation import evidence_of
from tests.runtime.test_learned_streams import HOME, POLICIES, ROAD, TEXT, WALK, road

PATH = ((ROAD, WALK), (ROAD, WALK))


def picture(text: str, model: MDP | None = None, causal_model: CausalModel = "any") -> tuple[Evidence, ET.Element]:
    model = model or road()
    policies = tables(POLICIES, model)
    evidence = evidence_of(text, PATH, model=model, tables=policies, causal_model=causal_model)
    return evidence, ET.fromstring(draw(explain(evidence, model, policies), model))


def words(root: ET.Element) -> list[str]:
    """The text; lines of one paragraph are one."""
    return [" ".join(element.text or "" for element in root.iter(f"{SVG}text"))]


def test_bands_are_named_with_their_levels_and_what_to_visit() -> None:
    evidence, root = picture(TEXT)
    (found,) = words(root)
    for quantity in evidence.verdict.quantities:
        assert quantity.credible is not None
        assert quantity.guaranteed is not None
        shown = [f"{low:.3f} to {high:.3f}" for low, high in (quantity.credible, quantity.guaranteed)]
        assert f"credible (95 %): {shown[0]}, guaranteed (95 %): {shown[1]}." in found
    assert "The answer rests on at least 10 visits of each row that matters (90 % of the weight)." in found
    assert "To narrow it, record more visits of: action 0 in state 0." in found
    description = root.findtext(f"{SVG}desc") or ""
    assert "nominal: credible (95 %): " in description
    assert "careful: credible (95 %): " in description


def test_bands_are_drawn_to_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheet, "WIDEST", 1e9)  # nothing is cut off
    evidence, root = picture(TEXT)
    nominal = evidence.verdict.quantities[0]
    assert nominal.credible is not None
    assert nominal.guaranteed is not None
    lines = [line for line in root.iter(f"{SVG}line") if line.attrib.get("stroke") == NOMINAL]
    upright = [line for line in lines if line.attrib["x1"] == line.attrib["x2"]]
    (outer,), (bar,) = ([line for line in upright if line.attrib["stroke-width"] == each] for each in ("1.6", "4.6"))
    drawn = [float(line.attrib[end]) for line, end in ((outer, "y1"), (bar, "y1"), (bar, "y2"), (outer, "y2"))]
    ends = (nominal.guaranteed[0], *nominal.credible, nominal.guaranteed[1])
    per_unit = (drawn[3] - drawn[0]) / (ends[3] - ends[0])
    assert per_unit < 0, "up"
    for pixel, value in zip(drawn, ends, strict=True):
        assert pixel - drawn[0] == pytest.approx((value - ends[0]) * per_unit, abs=0.02)


def test_a_difference_has_one_row_and_rewards_no_percent() -> None:
    _, difference = picture('delta(careful,nominal)@1.P=? [ G<=3 !"bad" ]')
    assert words(difference)[0].count("difference: ") == 1
    assert words(difference)[0].count("guaranteed (") == 1
    _, reward = picture("careful@1.R=? [ C<=3 ]")
    assert "credible (95 %): 0 to 0" in words(reward)[0]


def test_what_is_missing_is_not_drawn_but_said() -> None:
    _, plain = picture(TEXT, causal_model="gumbel")
    assert "guaranteed (" not in words(plain)[0]
    _, nested = picture('careful@1.P>=0.1 [ F<=2 (P>0.5 [ X "bad" ]) ]')
    assert any("no guaranteed band: quantities are nested" in text for text in words(nested))
    once = learned_model(4, 2, [(ROAD, WALK, ROAD), (ROAD, 1, HOME)], {"bad": frozenset({2, 3}), "home": frozenset()})
    _, single = picture('P>=0.9 [ X "home" ]', once[0])
    assert any("rests on at least 1 visit of each row" in text for text in words(single))
    never = learned_model(
        4, 2, [(ROAD, WALK, ROAD), (ROAD, WALK, HOME)], {"bad": frozenset({2, 3}), "home": frozenset()}
    )
    _, unknown = picture('P>=0.9 [ F<=3 "bad" ]', never[0])
    assert any("rests on rows that were never recorded" in text for text in words(unknown))


def test_nothing_changes_without_counts() -> None:
    evidence, _ = picture(TEXT)
    bare = replace(evidence, verdict=replace(evidence.verdict, bands=None))
    found = words(ET.fromstring(draw(explain(bare, road(), tables(POLICIES, road())), road())))
    assert not any("credible" in text for text in found)


def test_a_takeover_whose_outcome_depends_on_what_was_never_recorded_has_no_point() -> None:
    labels = {"bad": frozenset({2, 3}), "home": frozenset({HOME})}
    model, _ = learned_model(4, 2, [(ROAD, WALK, ROAD), (ROAD, WALK, HOME)], labels)
    evidence, root = picture(TEXT, model)
    least, most = evidence.verdict.profile_extremes[0][2:]
    assert 0 in evidence.verdict.profile
    assert least < most
    assert explain(evidence, model, tables(POLICIES, model)).profile == {}
    assert "When handing over helped" not in words(root)[0]


@pytest.mark.parametrize("worlds", ["careful,nominal", "nominal,careful"])
def test_what_is_known_of_a_difference_is_not_said_of_its_worlds(worlds: str) -> None:
    evidence, root = picture(f'delta({worlds})@1.P>=0.1 [ G<=3 !"bad" ]')
    (quantity,) = evidence.verdict.quantities
    (found,) = words(root)
    head, _, outlook = found.partition("What would have happened: ")
    outlook, _, foot = outlook.partition("How obtained")
    bands, _, _ = outlook.partition("The model rests on")
    assert worlds.replace(",", " ") in head
    assert not re.search(r"-[0-9]", bands)
    assert {"1.000", "0.746"} <= {*re.findall(r"[0-9.]+", bands)}, "what each curve ends in"
    assert " to " not in bands
    shown = f"{quantity.value:.3f}"
    assert f"Value at this step: difference {shown}" in foot
    assert "the value is" not in (root.findtext(f"{SVG}desc") or "")
    assert "What happened: the difference at each step" in head


def test_a_difference_below_zero_is_drawn_to_scale() -> None:
    scale = sheet.scale_of([-0.36, -0.25, 0.1], reward=False)
    assert scale.low < -0.36
    assert 0.1 < scale.high < 0.2
    assert sheet.scale_of([-0.99, -0.98], [-1.0], reward=False).low < -1.0
