"""An alarm whose deciding value was never recorded: what its alert says and has, on a stream on a learned model."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from monitor.alarm.figures import figures_of
from monitor.alarm.message import Identity, alert_id, alert_payload, identity_of
from monitor.alarm.summary import tell
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, Deriver, derive_again
from monitor.exact.checker import Checker
from monitor.logic import parse
from monitor.policy import as_table
from monitor.types import Alert, Fired, FormulaSpec
from tests.evidence.rederived import make_evidence
from tests.exact.test_extremes import CRAWL, LEDGE, START, WALK, road

PATH = ((START, WALK), (LEDGE, WALK))
REGRET = 'regret(careful@0, P>=0.6 [ G<=3 !"unsafe" ])'


def alert_on(text: str, crawled: int = 0) -> Alert:
    """Return the alert of a firing alarm after its newest verdict, on the ledge."""
    model = road(crawled)
    policies = {"nominal": as_table([WALK] * 5, model), "careful": as_table([CRAWL] * 5, model)}
    verdict = Checker(model, policies).check(parse(text), PATH)
    figures = figures_of(parse(text), verdict)
    told = tell(
        agent="arm-7", formula=FormulaSpec("watch", text), parsed=parse(text), state="firing", blind=None,
        verdict=verdict, path_length=2, seq=1,
    )  # fmt: skip
    return Alert(
        "a" * 32, 1, "arm-7", "watch", text, "firing", None, "critical", verdict, figures,
        Fired(verdict.outcome, figures.value, figures.alternative, 1, 2.0), "e", 1, 1, 2.0, 2.0, late=False,
        summary=told.summary, runbook=None, path=PATH, start_observed=True, terminated=False, details=told.details,
    )  # fmt: skip


def published(alert: Alert) -> dict[str, object]:
    found = json.loads(alert_payload(alert, Identity("road", "0" * 64, {}, {}), sent=2.0, evidence=None))
    assert isinstance(found, dict)
    return found


def test_nobody_is_told_to_stop_because_nobody_has_recorded_it() -> None:
    alert = alert_on(REGRET)
    assert alert.summary == (
        "arm-7: P(no unsafe in 3 steps) = 0.50; at least 0.60 required. You decide: the recordings do not show whether "
        "handing over to 'careful' suffices (0.00 to 1.00). Estimated from recordings."
    )
    assert alert.details == ("Without handing over: 0.50.",)
    message = published(alert)
    assert message["handover"] == {
        "policy": "careful", "helps_now": None, "latest_useful": None, "extremes": [0.0, 1.0]
    }  # fmt: skip
    assert message["alternative"] == {"name": "careful", "value": None, "bounds": None, "extremes": [0.0, 1.0]}
    assert (message["outcome"], message["value"], message["extremes"]) == ("undecided", 0.5, [0.5, 0.5])
    assert message["effect"] is None
    assert message["profile"] == [
        {"offset": 0, "nominal": 0.5, "alternative": None, "nominal_extremes": [0.5, 0.5],
         "alternative_extremes": [0.0, 1.0]}
    ]  # fmt: skip


def test_where_the_recordings_show_that_it_suffices_or_does_not_the_alert_says_so() -> None:
    assert "Hand over to 'careful' now: 1.00 instead of 0.50" in alert_on(REGRET, crawled=9).summary
    hopeless = alert_on(REGRET.replace("careful", "do(0)")).summary
    assert "Stop the agent safely: taking action 0 does not help (0.50)" in hopeless
    assert "extremes" not in published(alert_on(REGRET, crawled=9))


def test_what_is_better_even_at_its_worst_is_advised() -> None:
    """Carrying on certainly fails; to crawl from the start is recorded for one step, and unknown beyond."""
    verdict = alert_on(REGRET).verdict
    shown = replace(verdict, profile={0: (0.1, 0.3)}, profile_extremes=((0.1, 0.1, 0.3, 0.97),))
    told = tell(
        agent="arm-7", formula=FormulaSpec("watch", REGRET), parsed=parse(REGRET), state="firing", blind=None,
        verdict=shown, path_length=2, seq=1,
    )  # fmt: skip
    assert "Hand over to 'careful' now: 0.30 to 0.97 instead of 0.10; " in told.summary
    assert "whether that suffices" in told.summary
    assert "stop" not in told.summary


@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
def test_evidence_has_the_extremes_and_both_programs_derive_them(deriver: Deriver) -> None:
    model = road()
    tables = {"nominal": as_table([WALK] * 5, model), "careful": as_table([CRAWL] * 5, model)}
    identity = identity_of(model, tables, {})
    alert = alert_on(REGRET)
    alert = replace(alert, id=alert_id("arm-7", "e", FormulaSpec("watch", REGRET), identity, 1))
    evidence = read_evidence(make_evidence(alert, identity, tables, {}))
    assert evidence.verdict.quantities[1].extremes == (0.0, 1.0)
    assert derive_again(evidence, model, tables, derivers=(deriver,)).problems == []
    nominal, other = evidence.verdict.quantities
    claimed = replace(evidence.verdict, quantities=(nominal, replace(other, extremes=(0.7, 1.0))))
    (problem,) = derive_again(replace(evidence, verdict=claimed), model, tables, derivers=(deriver,)).problems
    assert problem == "verdict.quantities[1].extremes[0]: 0.7 is recorded, 0.0 follows"


def test_nobody_is_told_to_stop_where_the_extremes_are_not_computed() -> None:
    """An upper bound of a nested reward has no worst and best case, so that nothing is known of handing over."""
    alert = alert_on("regret(careful@0, P<=0.1 [ F<=1 (R<=0.1 [ C<=2 ]) ])")
    assert alert.verdict is not None
    assert [quantity.extremes for quantity in alert.verdict.quantities] == [None, None]
    assert "You decide: the recordings do not show whether handing over to 'careful' suffices" in alert.summary
    handover = published(alert)["handover"]
    assert isinstance(handover, dict)
    assert handover["helps_now"] is None
