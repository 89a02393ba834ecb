"""Bands of a learned model in the picture of an alarm: in words, and drawn to scale."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from monitor.evidence.document import Evidence
from monitor.exact import tables
from monitor.model import MDP
from monitor.picture import draw, explain
from monitor.picture.svg import ALTERNATIVE, NOMINAL
from monitor.types import CausalModel
from tests.exact.learned import learned_model
from tests.picture.test_draw import SVG
from tests.picture.test_explanation import evidence_of
from tests.runtime.test_learned_streams import HOME, POLICIES, ROAD, TEXT, WALK, road

PATH = ((ROAD, WALK), (ROAD, WALK))
HEADING = "What the recordings leave open"


def picture(text: str, model: MDP | None = None, causal_model: CausalModel = "any") -> tuple[Evidence, ET.Element]:
    model = model or road()
    policies = tables(POLICIES, model)
    evidence = evidence_of(text, PATH, model=model, tables=policies, causal_model=causal_model)
    return evidence, ET.fromstring(draw(explain(evidence, model, policies), model))


def words(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def test_bands_are_named_with_their_levels_and_what_to_visit() -> None:
    evidence, root = picture(TEXT)
    found = words(root)
    assert HEADING in found
    for quantity in evidence.verdict.quantities:
        assert quantity.credible is not None
        assert quantity.guaranteed is not None
        shown = [f"{100 * low:.1f} % to {100 * high:.1f} %" for low, high in (quantity.credible, quantity.guaranteed)]
        assert f"credible (95 %): {shown[0]}" in found
        assert f"guaranteed (95 %): {shown[1]}" in found
    assert "The answer rests on at least 10 visits of each row that matters (90 % of the weight)." in found
    assert "To narrow it, record more visits of: action 0 in state 0." in found
    description = root.findtext(f"{SVG}desc") or ""
    assert "nominal: credible (95 %): " in description
    assert "careful: credible (95 %): " in description


def test_bands_are_drawn_to_scale() -> None:
    evidence, root = picture(TEXT)
    nominal = evidence.verdict.quantities[0]
    assert nominal.credible is not None
    assert nominal.guaranteed is not None
    outlines = [line for line in root.iter(f"{SVG}polyline") if line.attrib.get("stroke-dasharray") == "4 2"]
    assert [outline.attrib["stroke"] for outline in outlines] == [NOMINAL, ALTERNATIVE]
    corners = [float(point.split(",")[0]) for point in outlines[0].attrib["points"].split()]
    bar = next(line for line in root.iter(f"{SVG}line") if line.attrib["stroke-width"] == "9")
    drawn = (min(corners), float(bar.attrib["x1"]), float(bar.attrib["x2"]), max(corners))
    ends = (nominal.guaranteed[0], *nominal.credible, nominal.guaranteed[1])
    per_unit = (drawn[3] - drawn[0]) / (ends[3] - ends[0])
    for pixel, value in zip(drawn, ends, strict=True):
        assert pixel - drawn[0] == pytest.approx((value - ends[0]) * per_unit, abs=0.02)
    axis = next(line for line in root.iter(f"{SVG}line") if line.attrib["y1"] == bar.attrib["y1"])
    assert float(axis.attrib["x2"]) - float(axis.attrib["x1"]) == pytest.approx(per_unit, abs=0.02)  # from 0 to 1


def test_a_difference_has_one_row_and_rewards_no_percent() -> None:
    _, difference = picture('delta(careful,nominal)@1.P=? [ G<=3 !"bad" ]')
    assert words(difference).count("difference") == 1
    assert sum(text.startswith("guaranteed (") for text in words(difference)) == 1
    _, reward = picture("careful@1.R=? [ C<=3 ]")
    (interval,) = [text for text in words(reward) if text.startswith("credible (95 %)")]
    assert interval == "credible (95 %): 0 to 0"


def test_what_is_missing_is_not_drawn_but_said() -> None:
    _, plain = picture(TEXT, causal_model="gumbel")
    assert not any(text.startswith("guaranteed (") for text in words(plain))
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
    assert HEADING not in found
    assert not any("credible" in text for text in found)


def test_a_takeover_whose_outcome_depends_on_what_was_never_recorded_has_no_point() -> None:
    labels = {"bad": frozenset({2, 3}), "home": frozenset({HOME})}
    model, _ = learned_model(4, 2, [(ROAD, WALK, ROAD), (ROAD, WALK, HOME)], labels)
    evidence, root = picture(TEXT, model)
    least, most = evidence.verdict.profile_extremes[0][2:]
    assert 0 in evidence.verdict.profile
    assert least < most
    assert explain(evidence, model, tables(POLICIES, model)).profile == {}
    assert "Had it taken over" not in " ".join(words(root))
