"""The picture of an alarm on a world with numbers."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.evidence.document import Evidence, read_evidence
from monitor.evidence.rederivation import given_of
from monitor.logic.syntax import InterventionRef
from monitor.picture import draw_alarm
from monitor.referee.numbers import drawn_states
from monitor.worlds import CheckedWorld
from tests.worlds.test_stream import House

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def house() -> House:
    return House(slice(360, 400))


@pytest.fixture(scope="module")
def evidence(house: House) -> Evidence:
    return read_evidence(house.evidence()[-1])


def drawn(house: House, evidence: Evidence) -> tuple[list[str], str]:
    picture, told = draw_alarm(evidence, house.loaded.model, house.loaded.tables, house.loaded.models)
    root = ET.fromstring(picture)
    assert told.summary
    description = root.find(f"{SVG}desc")
    assert description is not None
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")], str(description.text)


def test_it_shows_numbers_worlds_and_how_they_were_obtained(house: House, evidence: Evidence) -> None:
    said, description = drawn(house, evidence)
    assert {"room, °C", "store, °C", "price, €/kWh", "“cold” holds", "observed", "nominal", "careful"} <= set(said)
    assert {"careful takes over", "now"} <= set(said)
    assert any(text.startswith("How obtained: ") and "400 paths of each world" in text for text in said)
    assert "Under careful it would now be room=" in description


def test_where_noise_is_known_a_world_is_one_path(house: House, evidence: Evidence) -> None:
    world = house.loaded.model
    assert isinstance(world, CheckedWorld)
    given = given_of(evidence, world, house.loaded.tables, {})._replace(draws=50)
    now = len(evidence.path) - 1
    begins, states = drawn_states(InterventionRef("policy", "careful"), 8, given, 12)
    assert begins == now - 8
    assert all(np.ptp(each, axis=0).max() < 1e-12 for each in states[:9])
    assert np.ptp(states[10][:, 0]) > 0.0
    begins, own = drawn_states(InterventionRef("nominal"), 8, given, 8)
    assert np.array_equal(own[-1][0], evidence.path[-1][0]), "under nominal what happened happens"


def test_what_is_not_drawn_is_said(house: House, evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("not drawn" in text for text in drawn(house, evidence)[0])
    monkeypatch.setattr("monitor.picture.numbers.MOST_FEATURES", 1)
    monkeypatch.setattr("monitor.picture.numbers.MOST_LABELS", 0)
    two = msgspec.structs.replace(evidence, text='P>=0.99 [ X "cold" ] & P>=0.9 [ X "cold" ]')
    said, _ = drawn(house, two)
    assert (
        "2 more features are not drawn: store, price. 1 more label is not drawn: cold. "
        '1 more goal is not drawn: nominal@0.P>=0.9 [ X "cold" ].'
    ) in said
    assert "room, °C" in said
    assert "store, °C" not in said


def test_a_feature_that_two_numbers_of_the_noise_drive_is_drawn_once(
    house: House, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.loaded.model, "noise_features", (0, 0, 2))
    monkeypatch.setattr("monitor.picture.numbers.MOST_FEATURES", 2)
    said, _ = drawn(house, evidence)
    assert (said.count("room, °C"), said.count("price, €/kWh"), said.count("store, °C")) == (1, 1, 0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('P>=0.99 [ (X "cold") | !("cold" U<=3 "cold") ]', "“cold” holds"),
        ("careful@3.P<=0.5 [ F<=2 true ]", "careful"),
        ("careful@-1.R>=0 [ C<=4 ]", "careful"),
    ],
)
def test_every_kind_of_formula_is_drawn(house: House, evidence: Evidence, text: str, says: str) -> None:
    said, _ = drawn(house, msgspec.structs.replace(evidence, text=text))
    assert says in said


def test_a_formula_without_a_quantity_is_not_drawn(house: House, evidence: Evidence) -> None:
    with pytest.raises(LimitError, match="no probability or reward"):
        drawn(house, msgspec.structs.replace(evidence, text='"cold"'))
