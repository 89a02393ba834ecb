"""The summary stands alone in fewer than 200 characters, whatever names, numbers and formulas are."""

from __future__ import annotations

from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.alarm.phrases import decimals, shortened
from monitor.alarm.summary import LONGEST, Told, tell
from monitor.logic import parse
from monitor.logic.traversal import goals, quantity_goals
from monitor.types import AlarmSpec, AlarmState, Bands, BlindReason, FormulaSpec, Quantity, Verdict

BARE = ('G<=20 !"{label}"', 'F<=20 "{label}"', '!"{label}" U<=5 "{label}"', 'G[1,4] (X "{label}" | F<=2 "{label}")')
TEXTS = (
    *(f"regret({{policy}}@{offset}, P>=0.8 [ {path} ])" for path in BARE for offset in (0, 12, -1)),
    "regret({policy}[3]@5, R>=0.8 [ C<=7 ])", 'regret(do(1)@5, P<=0.2 [ F<=20 "{label}" ])',
    'regret(best[<=2]@5, P>=0.8 [ G<=20 !"{label}" ])', 'regret(optimal@5, P>=0.8 [ G<=20 !"{label}" ])',
    'regret(model:{policy}@5, P>=0.8 [ G<=20 !"{label}" ])', '{policy}@3.P>=0.8 [ F<=20 "{label}" ]',
    'P<0.5 [ X X X "{label}" ]', "R<=3 [ C<=10 ]", 'delta({policy},nominal)@0.P>=0.1 [ G<=20 !"{label}" ]',
    "delta({policy},nominal)@4.R>=0.1 [ C<=20 ]", 'handover({policy}, P>=0.8 [ G<=20 !"{label}" ], 5) <= 0.5',
    'P>=0.8 [ G<=20 !"{label}" ] & {policy}@2.P<0.9 [ F<=3 "{label}" ]', '"{label}"',
    'P>=0.5 [ F<=2 P>=0.5 [ X "{label}" ] ]',
)  # fmt: skip
NUMBERS = st.one_of(st.floats(0, 1), st.floats(-1e300, 1e300), st.sampled_from([0.8 - 1e-13, 0.8, 1e-300, 0.0]))
NAME = st.sampled_from(["fallback", "the_conservative_controller_of_2024", "x" * 60])


@st.composite
def told(draw: st.DrawFn, name: st.SearchStrategy[str] = NAME, numbers: st.SearchStrategy[float] = NUMBERS) -> Told:
    """Return the sentences of an alert on some formula, with some numbers and names."""
    policy, label, formula = draw(name), draw(name), draw(name)
    text = draw(st.sampled_from(TEXTS)).format(policy=policy, label=label)
    parsed = parse(text)
    state: AlarmState | Literal["fired"] = draw(
        st.sampled_from(["firing", "firing", "resolved", "ended", "removed", "fired", "clear"])
    )
    asked = {id(goal): goal for goal, _, _ in goals(parsed)}
    regrets = text.startswith("regret")
    unknown, learned = draw(st.booleans()), draw(st.booleans())

    def band() -> tuple[float, float] | None:
        low, high = sorted((draw(numbers), draw(numbers)))
        return (low, high) if learned and unknown else None

    def quantity(shown: str) -> Quantity:
        bands = band()
        return Quantity(
            shown, draw(numbers), 5, clipped=False, extremes=bands, guaranteed=bands, credible=bands, threshold=0.8
        )

    quantities = tuple(quantity("q" * 50) for _ in (quantity_goals(parsed) if asked else ()))
    profile = draw(st.sampled_from([{}, {0: (draw(numbers), draw(numbers))}]))
    ends = ((*(band() or (0.0, 0.0)), *(band() or (0.0, 0.0))),) if learned and unknown and profile else ()
    more: dict[str, Any] = {"holds": draw(st.sampled_from([True, False, None]))}
    if regrets:
        more = {"outcome": draw(st.sampled_from(["safe", "regret", "unavoidable", "undecided"]))}
    verdict = Verdict(
        text, "exact", "any", quantities, **more,
        robust=draw(st.sampled_from([True, False, None])), profile=profile, profile_extremes=ends,
        latest_useful=draw(st.sampled_from([None, 0, 3])), offset=draw(st.sampled_from([0, 5, 12, -1, -300])),
        clipped=draw(st.booleans()), bands=Bands(level=0.95, delta=0.05) if learned else None,
    )  # fmt: skip
    labels = draw(st.sampled_from([(), ((label, "the patient dies, or " * 5),)]))
    when: Literal["holds"] | None = draw(st.sampled_from([None, "holds"])) if not regrets else None
    return tell(
        agent=draw(st.one_of(name, st.just("warehouse-" * 30))),
        formula=FormulaSpec(formula, text, labels=labels, alarm=AlarmSpec(when=when)),
        parsed=parsed,
        state=state,
        blind=draw(st.sampled_from([None, *get_args(BlindReason)])),
        verdict=verdict,
        path_length=draw(st.sampled_from([0, 400])),
        seq=14,
    )


@given(told())
def test_a_summary_has_fewer_than_200_characters(said: Told) -> None:
    assert len(said.summary) <= LONGEST < 200
    assert "\n" not in said.summary
    assert all(sentence.endswith(".") for sentence in said.details)
    assert said.summary.endswith(".") or any(sentence.startswith("In full: ") for sentence in said.details)


@given(told(name=st.just("fallback"), numbers=st.integers(0, 100).map(lambda percent: percent / 100)))
def test_with_ordinary_names_and_numbers_no_summary_is_cut_off(said: Told) -> None:
    assert said.summary.endswith(".")


def test_a_long_name_keeps_both_ends_and_says_that_something_is_left_out() -> None:
    assert shortened("a" * 30 + "b" * 30, 11) == "aaaaa…bbbbb"
    assert shortened("warehouse-7", 11) == "warehouse-7"


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((1e300, 2.5), ["1e+300", "2.5"]),
        ((12_345_678.0, 12_345_679.0), ["12345678", "12345679"]),
        ((-0.001,), ["0.00"]),
    ],
)
def test_large_numbers_do_not_fill_the_sentence(values: tuple[float, ...], shown: list[str]) -> None:
    assert decimals(*values) == shown
