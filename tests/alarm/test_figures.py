"""What a verdict says in numbers: one meaning for every kind of formula; what a newer verdict changes in an alert."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from monitor.alarm.figures import (
    advised_change,
    figures_of,
    fired_of,
    other,
    own,
    own_quantity,
    stance_of,
    threshold_of,
)
from monitor.alarm.refresh import refreshed
from monitor.evaluation import check
from monitor.logic import parse
from monitor.logic.traversal import handover_goal
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.types import (
    AlarmState,
    Alert,
    Fired,
    FormulaSpec,
    Handover,
    Judged,
    Quantity,
    Refreshed,
    Threshold,
    Verdict,
)
from tests.alarm.conftest import REGRET, RUN, WALK

GOAL = 'P>=0.8 [ G<=4 !"crash" ]'


@pytest.mark.parametrize(
    ("text", "threshold"),
    [
        (REGRET, Threshold(">=", 0.8)),
        (GOAL, Threshold(">=", 0.8)),
        (f"careful@2.{GOAL}", Threshold(">=", 0.8)),
        ("R<3 [ C<=4 ]", Threshold("<", 3.0)),
        (f"!{GOAL}", Threshold(">=", 0.8)),
        (f'"home" | {GOAL}', Threshold(">=", 0.8)),
        (f"{GOAL} & {GOAL}", Threshold(">=", 0.8)),
        (f"{GOAL} & @1.{GOAL}", None),
        ('P=? [ F<=4 "home" ]', None),
        ('"home"', None),
    ],
)
def test_the_threshold_is_that_of_the_one_quantity_there_is(text: str, threshold: Threshold | None) -> None:
    assert threshold_of(parse(text)) == threshold


@pytest.mark.parametrize("text", [GOAL, f"careful@2.{GOAL}", f"!{GOAL}", 'P=? [ F<=4 "home" ]', f"{GOAL} & {GOAL}"])
def test_a_formula_of_one_quantity_has_its_value_and_bounds_and_no_alternative(
    raise_alert: Callable[..., Alert], text: str
) -> None:
    verdict = raise_alert(text).verdict
    [quantity] = verdict.quantities
    assert own(verdict) == (quantity.value, quantity.bounds)
    assert quantity.bounds is not None
    assert other(verdict) == (None, None)
    figures = figures_of(parse(text), verdict)
    assert (figures.alternative, figures.handover) == (None, None)


def test_of_regret_the_value_is_nominals_and_the_alternative_stands_beside_it(regret: Alert) -> None:
    verdict = regret.verdict
    nominal, alternative = verdict.quantities
    assert own(verdict) == (nominal.value, (nominal.value, nominal.value))
    assert other(verdict) == (alternative.value, verdict.bounds)
    assert nominal.value < 0.8 <= alternative.value


@pytest.mark.parametrize("text", [f'{GOAL} & P>=0.1 [ F<=4 "home" ]', '"home"', "true"])
def test_a_formula_of_several_quantities_or_none_has_no_value(raise_alert: Callable[..., Alert], text: str) -> None:
    assert own(raise_alert(text).verdict) == (None, None)


def test_a_sampled_verdict_knows_of_no_help(regret: Alert) -> None:
    two = (Quantity("n", 0.5, 2, clipped=False), Quantity("a", 0.9, 2, clipped=False))
    verdict = Verdict(REGRET, "sampled", "gumbel", two, outcome="regret")
    handover = figures_of(parse(REGRET), verdict).handover
    assert handover is not None
    assert (handover.helps_now, handover.latest_useful) == (None, None)
    assert stance_of(parse(REGRET), verdict, None) != stance_of(parse(REGRET), regret.verdict, None)


def test_the_quantity_of_the_agents_own_value(regret: Alert, raise_alert: Callable[..., Alert]) -> None:
    assert own_quantity(regret.verdict) is regret.verdict.quantities[0]
    single = raise_alert(GOAL).verdict
    assert own_quantity(single) is single.quantities[0]
    for text in (f'{GOAL} & P>=0.1 [ F<=4 "home" ]', '"home"'):
        assert own_quantity(raise_alert(text).verdict) is None


def late(bound: float) -> str:
    return f'handover(careful, P>={bound} [ G<=4 !"crash" ], 2)'


@pytest.mark.parametrize("bound", [0.05, 0.5, 0.8, 0.9, 0.95, 0.999])
def test_handing_over_helps_as_long_as_the_policy_meets_the_goal(
    raise_alert: Callable[..., Alert], bound: float
) -> None:
    text = f"{late(bound)} >= 0"
    verdict = raise_alert(text).verdict
    [given] = raise_alert(f'careful@0.P>={bound} [ G<=4 !"crash" ]').verdict.quantities
    [carried_on] = raise_alert(f'P>={bound} [ G<=4 !"crash" ]').verdict.quantities
    assert verdict.profile[0] == pytest.approx((carried_on.value, given.value))
    handover = figures_of(parse(text), verdict).handover
    assert handover == Handover("careful", given.holds is True, 0 if given.holds else None)
    assert figures_of(parse(text), verdict).alternative is None, "its value is of another quantity"
    assert verdict.quantities[0].value == 1.0 or given.holds


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ('delta(careful,nominal)@0.P>=0.05 [ G<=4 !"crash" ]', "careful"),
        ('delta(careful[2],nominal).P>0.05 [ G<=4 !"crash" ]', "careful[2]"),
        ('delta(do(0),nominal)@0.P<=-0.05 [ F<=4 "crash" ]', "do(0)"),
    ],
)
def test_handing_over_helps_where_its_effect_is_as_large_as_the_formula_says(
    raise_alert: Callable[..., Alert], text: str, policy: str
) -> None:
    verdict = raise_alert(text).verdict
    assert verdict.holds is True
    assert figures_of(parse(text), verdict).handover == Handover(policy, helps_now=True, latest_useful=0)
    larger = text.replace("0.05", "0.99")
    assert figures_of(parse(larger), raise_alert(larger).verdict).handover == Handover(policy, False, None)  # noqa: FBT003 - a field
    assert figures_of(parse(text), replace(verdict, method="sampled")).handover == Handover(policy, None, None)
    assert figures_of(parse(text), verdict, blind="gap").handover == Handover(policy, None, None)
    assert stance_of(parse(text), verdict, None).helps_now is True


@pytest.mark.parametrize(
    "text",
    [
        'delta(careful,nominal)@1.P>=0.05 [ G<=4 !"crash" ]',
        'delta(nominal,careful)@0.P>=0.05 [ G<=4 !"crash" ]',
        'delta(careful,do(1))@0.P>=0.05 [ G<=4 !"crash" ]',
        'delta(model:dry,nominal)@0.P>=0.05 [ G<=4 !"crash" ]',
        'delta(careful,nominal)@0.P=? [ G<=4 !"crash" ]',
        '!delta(careful,nominal)@0.P>=0.05 [ G<=4 !"crash" ]',
        'careful@0.P>=0.05 [ G<=4 !"crash" ]',
    ],
)
def test_other_comparisons_of_worlds_advise_nothing(text: str) -> None:
    assert advised_change(parse(text)) is None


@pytest.mark.parametrize("change", ["best", "best[1]", "best[<=1]", "optimal", "max", "min"])
def test_decisions_made_for_the_goal_are_nothing_to_hand_over_to(
    raise_alert: Callable[..., Alert], change: str
) -> None:
    text = f"regret({change}@2, {GOAL})"
    verdict = raise_alert(text).verdict
    assert 0 in verdict.profile
    figures = figures_of(parse(text), verdict)
    assert figures.handover is None
    assert figures.alternative is not None
    advised = change in ("best", "optimal")
    assert (advised_change(parse(text)) is not None) is advised
    assert (stance_of(parse(text), verdict, None).helps_now is not None) is advised, (
        "a revision, for the summary changes"
    )


@pytest.mark.parametrize("state", ["resolved", "ended", "removed"])
def test_an_alarm_that_is_over_advises_no_handover(raise_alert: Callable[..., Alert], state: AlarmState) -> None:
    verdict = raise_alert(f"{late(0.8)} >= 0").verdict
    assert figures_of(parse(verdict.formula), verdict, state=state).handover is None
    assert figures_of(parse(verdict.formula), verdict, blind="gap").handover == Handover("careful", None, None)


@pytest.mark.parametrize(
    "text",
    [
        f"!({late(0.8)} >= 0.5)",
        '@1.P>=0.5 [ F<=2 !(careful@0.P>=0.8 [ G<=4 !"crash" ]) ]',
        '@0.P>=0.5 [ F[1,2] !(careful@0.P>=0.8 [ G<=4 !"crash" ]) ]',
        '@0.P>=0.5 [ F<=2 !(careful@1.P>=0.8 [ G<=4 !"crash" ]) ]',
        '@0.P>=0.5 [ F<=2 careful@0.P>=0.8 [ G<=4 !"crash" ] ]',
        '@0.P>=0.5 [ F<=2 !(delta(careful,nominal)@0.P>=0.1 [ G<=4 !"crash" ]) ]',
        '@0.P>=0.5 [ F<=2 !(model:dry@0.P>=0.8 [ G<=4 !"crash" ]) ]',
        'careful@0.P>=0.5 [ F<=2 !(careful@0.P>=0.8 [ G<=4 !"crash" ]) ]',
    ],
)
def test_other_formulas_with_a_nested_goal_are_no_handover(text: str) -> None:
    assert handover_goal(parse(text)) is None
    assert advised_change(parse(text)) is None


def test_what_fired_is_kept_with_its_step(regret: Alert) -> None:
    judged = Judged("robot-7", "watch", regret.verdict, "monday", 3, 7.5)
    figures = figures_of(parse(REGRET), regret.verdict)
    assert fired_of(figures, judged) == Fired("regret", figures.value, figures.alternative, 3, 7.5)


def test_a_newer_verdict_changes_what_the_alert_says_and_neither_id_nor_revision_nor_evidence(
    road: MDP, tables: dict[str, PolicyTable], raise_alert: Callable[..., Alert], regret: Alert
) -> None:
    path = [(0, RUN), (0, RUN), (1, WALK), (2, RUN), (3, RUN)]
    verdict = check(REGRET, model=road, path=path, policies=tables, causal_model="any")
    spec = FormulaSpec("watch", REGRET, causal_model="any")
    judged = Judged("robot-7", "watch", verdict, "monday", 4, 1_700_000_004.5, late=True)
    told = refreshed(regret, Refreshed(judged, spec, len(path)))
    fresh = raise_alert(REGRET, path)  # as it would be told if it fired on this verdict
    following = {
        "verdict": verdict,
        "figures": fresh.figures,
        "seq": 4,
        "time": 1_700_000_004.5,
        "late": True,
        "summary": fresh.summary,
        "details": fresh.details,
    }
    assert told == replace(regret, **following)
    assert told.summary != regret.summary
    blind = refreshed(replace(regret, blind="stale"), Refreshed(judged, spec, len(path)))
    assert blind.figures.handover is not None
    assert blind.figures.handover.helps_now is None
    assert "BLIND (stale)" in blind.summary
