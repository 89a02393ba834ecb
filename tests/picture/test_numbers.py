"""The picture of an alarm on a world with numbers."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import LimitError
from monitor.evidence.document import Evidence, read_evidence
from monitor.evidence.rederivation import given_of
from monitor.logic.syntax import InterventionRef
from monitor.picture import draw_alarm
from monitor.picture.numbers import draw_numbers
from monitor.picture.svg import ALTERNATIVE, NOMINAL
from monitor.picture.thresholds import thresholds
from monitor.referee.numbers import drawn_states
from monitor.worlds import CheckedWorld, Feature
from monitor.worlds.world_policies import WorldPolicy
from tests.tiers import heavy
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


@heavy
def test_it_shows_numbers_worlds_and_how_they_were_obtained(house: House, evidence: Evidence) -> None:
    said, description = drawn(house, evidence)
    assert {"room, °C", "store, °C", "price, €/kWh", "“cold” holds"} <= set(said)
    assert {"What if 'careful' had taken over here?", "the alarm fires"} <= set(said)
    assert {text.split(" ")[0] for text in said} >= {"nominal", "careful"}
    assert any("1,024 draws of each world, with the verdict's noise" in text for text in said)
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


def test_a_band_holds_four_fifths_of_runs_drawn_independently(house: House, evidence: Evidence) -> None:
    world, policy = house.loaded.model, house.loaded.tables["careful"]
    assert isinstance(world, CheckedWorld)
    assert isinstance(policy, WorldPolicy)
    root = ET.fromstring(draw_alarm(evidence, world, house.loaded.tables, house.loaded.models)[0])
    degrees, steps = scale(root, "end", "y", 3), scale(root, "middle", "x", 8)
    tinted = [each for each in root.iter(f"{SVG}polygon") if "fill-opacity" in each.attrib]
    bands = [each.attrib["points"] for each in tinted if each.get("fill") == ALTERNATIVE]
    points = [tuple(map(float, each.split(","))) for each in bands[0].split()]
    upper, lower = points[: len(points) // 2], points[: len(points) // 2 - 1 : -1]
    assert [round(steps(x)) for x, _ in upper] == [*range(evidence.seq, evidence.seq + 5)]
    given = given_of(evidence, world, house.loaded.tables, {})
    rng, runs = np.random.default_rng(5), 20_000
    state = np.repeat(drawn_states(InterventionRef("policy", "careful"), 8, given, 8)[1][-1], runs, axis=0)
    inputs, chance = evidence.inputs[-1], rng.uniform(size=runs)
    for ahead, ((_, high), (_, low)) in enumerate(zip(upper[1:], lower[1:], strict=True)):
        later = world.resample(inputs, ahead, chance) if ahead else inputs
        state = world.step(state, policy.decide(state), rng.uniform(size=(runs, world.noise)), later)
        within = (degrees(low) <= state[:, 0]) & (state[:, 0] <= degrees(high))
        assert 0.75 < within.mean() < 0.85, ahead


def scale(root: ET.Element, anchor: str, axis: str, count: int) -> Callable[[float], float]:
    """What pixels of the first chart mean, by the numbers at its axis."""
    size = "11" if axis == "y" else "12"
    texts = [each for each in root.iter(f"{SVG}text") if each.get("font-size") == size]
    ticks = [each for each in texts if each.get("text-anchor") == anchor][:count]
    shift = -4.0 if axis == "y" else 0.0  # a number stands a little below its tick
    slope, base = np.polyfit(
        [float(each.attrib[axis]) + shift for each in ticks], [float(str(each.text)) for each in ticks], 1
    )
    return lambda pixel: float(slope * pixel + base)


def test_where_the_goal_is_lost_is_drawn_on_the_feature_that_decides(house: House, evidence: Evidence) -> None:
    said, _ = drawn(house, evidence)
    assert [text for text in said if text.startswith("“cold” ") and "holds" not in text] == ["“cold” below 18"]


class Mixed:
    """A level, and the damp ground under it."""

    features = (Feature("level", low=0.0, high=10.0), Feature("ground", low=0.0, high=10.0))
    actions = ("wait",)
    labels = ("high", "between", "far", "damp")
    noise = 0
    version = "mixed"

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        del a, u, w
        return x

    def holds(self, label: str, x: Floats) -> Bools:
        level, ground = x[:, 0], x[:, 1]
        match label:
            case "high":
                return level >= 9.0
            case "between":
                return (level > 2.0) & (level < 4.0) & (ground < 5.0)
            case "far":
                return level + ground > 8.0
            case _:
                return ground < 1.0


@pytest.mark.parametrize(
    ("label", "wanted"),
    [("high", [(9.0, False)]), ("between", [(2.0, False), (4.0, True)]), ("far", []), ("damp", [])],
)
def test_thresholds_are_those_of_one_number_alone(label: str, wanted: list[tuple[float, bool]]) -> None:
    states = np.array([[5.0, 0.5], [3.0, 2.0], [1.0, 8.0]])
    found = thresholds(CheckedWorld(Mixed()), label, 0, states, (-5.0, 15.0))
    assert [each.below for each in found] == [below for _, below in wanted]
    assert [each.value for each in found] == pytest.approx([value for value, _ in wanted], abs=1e-9)


def test_an_alarm_under_a_policy_that_chooses_at_random_is_drawn(house: House, evidence: Evidence) -> None:
    def undecided(states: Floats) -> Floats:
        return np.tile([0.5, 0.25, 0.25], (len(states), 1))

    world = house.loaded.model
    assert isinstance(world, CheckedWorld)
    random = WorldPolicy("nominal", undecided, 3)
    picture = draw_numbers(evidence, world, {**house.loaded.tables, "nominal": random})
    assert picture.count(f'fill="{NOMINAL}" fill-opacity') > 1


def test_what_is_not_drawn_is_said(house: House, evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("not drawn" in text for text in drawn(house, evidence)[0])
    monkeypatch.setattr("monitor.picture.numbers.MOST_FEATURES", 1)
    monkeypatch.setattr("monitor.picture.numbers.MOST_LABELS", 0)
    two = msgspec.structs.replace(evidence, text='P>=0.99 [ X "cold" ] & P>=0.9 [ X "cold" ]')
    said, _ = drawn(house, two)
    assert (
        "2 more features are not drawn: store, price. 1 more label is not drawn: cold. "
        '1 more goal is not drawn: nominal@0.P>=0.9 [ X "cold" ].'
    ) in " ".join(said)
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
        ("careful@3.P<=0.5 [ F<=2 true ]", "careful "),
        ("careful@-1.R>=0 [ C<=4 ]", "careful "),
    ],
)
def test_every_kind_of_formula_is_drawn(house: House, evidence: Evidence, text: str, says: str) -> None:
    said, _ = drawn(house, msgspec.structs.replace(evidence, text=text))
    assert any(each.startswith(says) for each in said)


def test_the_worlds_of_a_difference_have_no_values(house: House, evidence: Evidence) -> None:
    difference = msgspec.structs.replace(evidence.verdict, quantities=evidence.verdict.quantities[:1], outcome=None)
    text = 'delta(careful,nominal)@3.P>=0.5 [ F<=2 "cold" ]'
    said, _ = drawn(house, msgspec.structs.replace(evidence, text=text, verdict=difference))
    assert {"careful", "nominal"} <= {*said}


def test_a_verdict_without_values_is_drawn(house: House, evidence: Evidence) -> None:
    failed = msgspec.structs.replace(evidence.verdict, quantities=(), profile={}, outcome="undecided", recourse=None)
    said, _ = drawn(house, msgspec.structs.replace(evidence, verdict=failed))
    assert any("400 draws of each world" in text for text in said)


def test_a_formula_without_a_quantity_is_not_drawn(house: House, evidence: Evidence) -> None:
    with pytest.raises(LimitError, match="no probability or reward"):
        drawn(house, msgspec.structs.replace(evidence, text='"cold"'))
