"""The estimate of the work an evidence file asks for, counted by hand; no text gets below what it asks for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from monitor.errors import FormulaError
from monitor.evidence.document import Evidence, read_evidence
from monitor.evidence.effort import MAX_WORK, work
from monitor.types import Bands, Drawn, Recourse, Sampling

GOAL = 'P>=0.8 [ G<=4 !"crash" ]'
"""Five steps from 0 to 4, so five parts."""
REWARD = "R>=5 [ C<=4 ]"


@pytest.fixture(scope="module")
def evidence(content: bytes) -> Evidence:
    """Of a path of four pairs: its last is 3 steps after its first. It was not examined whether it was avoidable."""
    found = read_evidence(content)
    assert (len(found.path), found.verdict.drawn) == (4, None)
    return replace(found, verdict=replace(found.verdict, recourse=None))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('"home"', 0),
        ("true", 0),
        (GOAL, 5),
        (f"!{GOAL}", 5),
        (f"{GOAL} & {REWARD}", 5 + 5),
        (f'"home" | ({REWARD} & {GOAL})', 5 + 5),
        ("R>=5 [ C[2,4] ]", 5),
        ('P>=0.8 [ F[2,4] "home" ]', 5),
        ('P>=0.8 [ X "home" ]', 2),
        ('P>=0.8 [ (F<=3 "home") U<=2 (G<=4 "safe") ]', 3 * 4 * 5),
        ('P>=0.8 [ (F<=3 "home") & (G<=4 "safe") ]', 4 * 5),
        ('P>=0.8 [ (F<=3 "home") | (G<=4 "safe") ]', 4 * 5),
        (f"P>=0.8 [ F<=2 {REWARD} ]", 3 * 5),
    ],
)
def test_the_parts_are_the_combinations_of_what_is_left_of_the_intervals(
    evidence: Evidence, text: str, parts: int
) -> None:
    assert work(replace(evidence, text=text)) == parts


@pytest.mark.parametrize(
    ("world", "parts"),
    [
        ("careful@2.", 5 + 2),
        ("careful@9.", 5 + 3),
        ("careful@-1.", 5 + 3),
        ("careful@-3.", 5 + 1),
        ("careful@-4.", 5),
        ("careful@-900.", 5),
        ("careful[2].", 5 * 3),
        ("careful[9].", 5 * 6),
        ("delta(careful[2],nominal).", 5 * 3),
        ("delta(nominal,careful[2]).", 5 * 3),
        ("delta(careful[2],do(1)[3]).", 5 * 4),
    ],
)
def test_to_look_back_costs_its_steps_and_a_takeover_that_ends_its_length(
    evidence: Evidence, world: str, parts: int
) -> None:
    assert work(replace(evidence, text=world + GOAL)) == parts


@pytest.mark.parametrize(
    ("world", "parts"),
    [("careful@2", (5 + 2) * 3), ("careful@9", (5 + 3) * 4), ("careful@-900", 5), ("careful[2]@1", (15 + 1) * 2)],
)
def test_regret_is_asked_at_every_offset_up_to_its_own(evidence: Evidence, world: str, parts: int) -> None:
    assert work(replace(evidence, text=f"regret({world}, {GOAL})")) == parts


def test_a_missed_goal_that_is_examined_costs_as_much_as_four_worlds_of_decisions(evidence: Evidence) -> None:
    examined = replace(evidence, verdict=replace(evidence.verdict, recourse=Recourse("no")))
    for world, parts in (("careful@-900", 5), ("careful[2]@-900", 15)):
        assert work(replace(examined, text=f"regret({world}, {GOAL})")) == parts + 5 * 4 * 10
    assert work(replace(examined, text=GOAL)) == 5


def test_a_hundred_pairs_cost_as_much_as_a_part_at_each_offset(evidence: Evidence) -> None:
    pair = evidence.path[0]

    def of(pairs: int, text: str) -> int:
        return work(replace(evidence, path=(pair,) * pairs, text=text))

    assert (of(99, GOAL), of(100, GOAL), of(250, GOAL)) == (5, 5 + 1, 5 + 2)
    assert of(250, f"careful@3.{GOAL}") == 5 + 3 + 10
    assert of(250, f"careful@3.{GOAL} & {GOAL}") == 5 + 3 + 5 + 10
    assert of(250, f"careful@300.{GOAL}") == 5 + 249 + 625
    assert of(0, f"regret(careful@3, {GOAL})") == of(1, f"regret(careful@3, {GOAL})") == 5


@pytest.mark.parametrize(
    ("text", "steps"),
    [(GOAL, 5), (f"regret(careful@0, {GOAL})", 10), (f"{GOAL} & {REWARD}", 10), (f"{REWARD} & !{GOAL}", 10)],
)
def test_a_thousand_steps_of_samples_cost_as_much_as_a_part(evidence: Evidence, text: str, steps: int) -> None:
    def of(limit: int) -> int:
        drawn = Drawn(Sampling(limit=limit), seed=1, first=0, alpha=0.01, beta=0.01)
        return work(replace(evidence, text=text, verdict=replace(evidence.verdict, drawn=drawn)))

    exact = work(replace(evidence, text=text))
    assert (of(0), of(999 // steps), of(1_000 // steps), of(1_000_000 // steps)) == (
        exact,
        exact,
        exact + 1,
        exact + 1_000,
    )


@pytest.mark.parametrize(("draws", "fits", "times"), [(64, 0, 64), (0, 16, 16), (64, -(10**9), 64)])
def test_each_model_and_each_fit_costs_as_much_as_the_answer(
    evidence: Evidence, draws: int, fits: int, times: int
) -> None:
    banded = replace(evidence.verdict, bands=Bands(draws=draws, fits=fits))
    assert work(replace(evidence, text=GOAL, verdict=banded)) == (1 + times) * 5


@pytest.mark.parametrize(
    "text",
    [
        'regret(careful@-1000, P>=0.8 [ G<=1000000 !"crash" ])',
        'P>=0.8 [ F<=60 G<=60 F<=60 "home" ] & careful@-1000000.P>=0.8 [ F<=4 "home" ]',
        'delta(nominal,careful[900000]).P>=0.5 [ F<=400 "home" ]',
    ],
)
def test_no_text_hides_how_much_it_asks_for(evidence: Evidence, text: str) -> None:
    assert work(replace(evidence, text=text)) > MAX_WORK


def test_a_text_that_is_no_formula_is_refused(evidence: Evidence) -> None:
    with pytest.raises(FormulaError):
        work(replace(evidence, text="P>=0.8 ["))
