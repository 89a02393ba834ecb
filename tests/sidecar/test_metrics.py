"""The metrics as Prometheus sees them: names, labels, what starts at 0, what is NaN, and what goes away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from monitor.alarm.blindness import MARKS
from monitor.alarm.figures import other, own
from monitor.alarm.message import Identity
from monitor.sidecar.effects import Effects
from monitor.sidecar.sinks.metrics import Metrics, outcome_of
from monitor.types import (
    AlarmMoved,
    Avoidable,
    Bands,
    Blind,
    BlindReason,
    Calibrated,
    Calibration,
    Contradictions,
    Deviates,
    Ended,
    Forecast,
    Forgotten,
    FormulaSpec,
    MessageResult,
    OffPolicy,
    Received,
    Recourse,
    RewardMismatch,
    Skipped,
    Trust,
    Verdict,
    WrongAgent,
    WrongRow,
)
from tests.sidecar.watched import NOW, REGRET, alert, judged, metrics_of, take, watched

PAIR = {"agent": "ada", "formula": "watch"}


@pytest.fixture
def metrics(formulas: Sequence[FormulaSpec], identity: Identity) -> Metrics:
    return metrics_of(formulas, identity)


def value(metrics: Metrics, sample_name: str, /, **labels: str) -> float | None:
    """One sample of the exposition, None if it is not there."""
    found = [
        sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.name == sample_name and sample.labels == labels
    ]
    assert len(found) <= 1
    return found[0] if found else None


def test_every_promised_name_is_there(metrics: Metrics) -> None:
    take(metrics, Received("ada", "accepted"), Blind("ada", "watch", "gap"), alert("firing", 1))
    kinds = {family.name: family.type for family in text_string_to_metric_families(metrics.exposition().decode())}
    promised = {
        "cfmon_formula_value": "gauge",
        "cfmon_formula_lower": "gauge",
        "cfmon_formula_upper": "gauge",
        "cfmon_alternative_value": "gauge",
        "cfmon_alternative_lower": "gauge",
        "cfmon_alternative_upper": "gauge",
        "cfmon_effect": "gauge",
        "cfmon_value_low": "gauge",
        "cfmon_value_high": "gauge",
        "cfmon_formula_support": "gauge",
        "cfmon_formula_threshold": "gauge",
        "cfmon_alarm_state": "gauge",
        "cfmon_blind": "gauge",
        "cfmon_last_alarm_timestamp_seconds": "gauge",
        "cfmon_alarms": "counter",
        "cfmon_verdicts": "counter",
        "cfmon_verdict_seconds": "histogram",
        "cfmon_message_lag_seconds": "histogram",
        "cfmon_messages": "counter",
        "cfmon_rejected": "counter",
        "cfmon_off_policy": "counter",
        "cfmon_off_policy_ratio": "gauge",
        "cfmon_reward_mismatch": "counter",
        "cfmon_evaluations_skipped": "counter",
        "cfmon_forecasts": "counter",
        "cfmon_takeovers": "counter",
        "cfmon_recourse": "counter",
        "cfmon_brier_score": "gauge",
        "cfmon_brier_score_expected": "gauge",
        "cfmon_last_message_timestamp_seconds": "gauge",
        "cfmon_last_evaluation_timestamp_seconds": "gauge",
        "cfmon_mqtt_connected": "gauge",
        "cfmon_queue_length": "gauge",
        "cfmon_model_doubt": "gauge",
        "cfmon_rejected_rows": "gauge",
        "cfmon_rejected_agents": "gauge",
        "cfmon_config_reload_success": "gauge",
        "cfmon_model_info": "gauge",
        "cfmon_policy_info": "gauge",
        "cfmon_build_info": "gauge",
    }
    assert {name: kinds.get(name) for name in promised} == promised


def test_nothing_else_is_there(metrics: Metrics) -> None:
    assert b"_created" not in metrics.exposition()


def test_counters_start_at_zero(metrics: Metrics) -> None:
    for result in ("accepted", "duplicate", "stale", "conflict", "gap", "rejected", "dropped"):
        assert value(metrics, "cfmon_messages_total", result=result) == 0
    for state in ("firing", "resolved", "ended", "removed"):
        assert value(metrics, "cfmon_alarms_total", formula="watch", severity="critical", state=state) == 0
    for outcome in ("safe", "regret", "unavoidable", "holds", "fails", "undecided"):
        assert value(metrics, "cfmon_verdicts_total", formula="watch", outcome=outcome, method="exact") == 0
    for reason in ("malformed", "unknown_key", "too_many_agents"):
        assert value(metrics, "cfmon_rejected_total", reason=reason) == 0
    assert value(metrics, "cfmon_evaluations_skipped_total", formula="watch") == 0
    assert value(metrics, "cfmon_verdict_seconds_count", formula="watch") == 0


def test_what_stands_from_the_start(metrics: Metrics, identity: Identity) -> None:
    assert value(metrics, "cfmon_model_info", name="corridor", sha256=identity.model_sha256) == 1
    assert value(metrics, "cfmon_policy_info", name="careful", sha256="b" * 64) == 1
    assert value(metrics, "cfmon_queue_length") == 7
    assert value(metrics, "cfmon_mqtt_connected") == 0
    assert value(metrics, "cfmon_config_reload_success") == 1
    assert math.isnan(value(metrics, "cfmon_model_doubt") or 0.0)
    metrics.connected(up=True)
    assert value(metrics, "cfmon_mqtt_connected") == 1


def test_a_message_is_counted_and_its_agent_shown(metrics: Metrics) -> None:
    take(metrics, Received("ada", "accepted", lag=0.25), Received("ada", "accepted", lag=-1.0))
    take(metrics, Received("ada", "duplicate"), OffPolicy("ada"), Skipped("ada", "watch", 3))
    assert value(metrics, "cfmon_reward_mismatch_total", agent="ada") == 0
    take(metrics, RewardMismatch("ada", "seq 1: 2 instead of 1"))
    assert value(metrics, "cfmon_reward_mismatch_total", agent="ada") == 1
    assert value(metrics, "cfmon_messages_total", result="accepted") == 2
    assert value(metrics, "cfmon_messages_total", result="duplicate") == 1
    assert value(metrics, "cfmon_message_lag_seconds_count") == 1
    assert value(metrics, "cfmon_message_lag_seconds_sum") == 0.25
    assert value(metrics, "cfmon_negative_lags_total") == 1
    assert value(metrics, "cfmon_last_message_timestamp_seconds", agent="ada") == 1000
    assert value(metrics, "cfmon_off_policy_total", agent="ada") == 1
    assert value(metrics, "cfmon_evaluations_skipped_total", formula="watch") == 3
    assert value(metrics, "cfmon_alarm_state", **PAIR, severity="critical", state="clear") == 1
    assert value(metrics, "cfmon_alarm_state", **PAIR, severity="critical", state="firing") == 0


def test_forecasts_are_counted_and_scored(metrics: Metrics) -> None:
    def shown() -> list[float | None]:
        counts = [value(metrics, "cfmon_forecasts_total", formula="watch", outcome=o) for o in ("true", "false")]
        return [*counts, value(metrics, "cfmon_forecasts_total", formula="watch", outcome="dropped")]

    def scores() -> list[float]:
        names = ("cfmon_brier_score", "cfmon_brier_score_expected")
        return [found for name in names if (found := value(metrics, name, formula="watch")) is not None]

    assert shown() == [0, 0, 0]
    assert len(scores()) == 2
    assert all(map(math.isnan, scores()))
    take(metrics, Forecast("ada", "watch", 0.75, None))
    assert all(map(math.isnan, scores()))
    take(metrics, Forecast("ada", "watch", 0.75, came_true=True), Forecast("ida", "watch", 0.25, came_true=True))
    take(metrics, Forecast("eve", "watch", 0.5, came_true=False))
    assert shown() == [2, 1, 1]
    assert scores() == pytest.approx([(0.0625 + 0.5625 + 0.25) / 3, (0.1875 + 0.1875 + 0.25) / 3])
    metrics.recall(
        Effects(notices=(Calibrated("watch", Calibration(((0, 0.0, 0), (4, 0.5, 1)), 1.0, 0.5), "ada"),)), NOW
    )
    assert scores()[0] == pytest.approx(0.875 / 3), "of one agent alone: for its page"
    metrics.recall(Effects(notices=(Calibrated("watch", Calibration(((0, 0.0, 0), (4, 0.5, 1)), 1.0, 0.5)),)), NOW)
    assert scores() == [0.25, 0.125]
    assert shown() == [2, 1, 1], "an earlier process has counted those"


def test_a_formula_that_is_not_followed_has_no_score(identity: Identity) -> None:
    metrics = metrics_of([FormulaSpec("mean", "R>=0.5 [ C<=3 ]")], identity)
    assert b"cfmon_brier_score{" not in metrics.exposition()
    assert b"cfmon_forecasts_total{" not in metrics.exposition()
    metrics.adopt(watched([FormulaSpec("mean", 'P>=0.5 [ X "a" ]')], identity))
    assert value(metrics, "cfmon_forecasts_total", formula="mean", outcome="true") == 0
    take(metrics, Forecast("ada", "mean", 0.5, came_true=True))
    metrics.adopt(watched([FormulaSpec("mean", 'P>=0.6 [ X "a" ]')], identity))
    assert math.isnan(value(metrics, "cfmon_brier_score", formula="mean") or 0.0)
    assert value(metrics, "cfmon_forecasts_total", formula="mean", outcome="true") == 1
    metrics.adopt(watched([FormulaSpec("mean", "R>=0.5 [ C<=3 ]")], identity))
    assert b"cfmon_brier_score{" not in metrics.exposition()
    metrics.adopt(watched([], identity))
    assert b"cfmon_forecasts_total{" not in metrics.exposition()


def test_a_rejected_message_makes_no_agent(metrics: Metrics) -> None:
    take(metrics, Received("eve", "rejected", "too_many_agents"), Received("", "dropped"))
    assert value(metrics, "cfmon_rejected_total", reason="too_many_agents") == 1
    take(metrics, Received("eve", "dropped"))  # not watched, so never forgotten
    assert b'"eve"' not in metrics.exposition()


@pytest.mark.parametrize("result", ["accepted", "duplicate", "stale", "conflict", "gap", "dropped"])
def test_the_number_of_agents_is_limited(metrics: Metrics, result: MessageResult) -> None:
    for agent in ("ada", "ida", "eve"):
        take(metrics, Received(agent, result), judged(agent=agent), Blind(agent, "watch", "gap"))
    assert b'"ida"' in metrics.exposition()
    assert b'"eve"' not in metrics.exposition()
    assert value(metrics, "cfmon_messages_total", result=result) == 3


@pytest.mark.parametrize("result", ["gap", "dropped", "rejected"])
def test_what_did_not_come_is_not_heard(metrics: Metrics, result: MessageResult) -> None:
    take(metrics, Received("ada", "accepted"))
    take(metrics, Received("ada", result, "version"), now=replace(NOW, wall=NOW.wall + 9.0))
    assert value(metrics, "cfmon_last_message_timestamp_seconds", agent="ada") == NOW.wall


def test_values_are_shown_while_seeing_and_nan_otherwise(metrics: Metrics) -> None:
    def figures() -> list[float | None]:
        names = (
            "cfmon_formula_value",
            "cfmon_formula_lower",
            "cfmon_formula_upper",
            "cfmon_alternative_value",
            "cfmon_alternative_lower",
            "cfmon_alternative_upper",
            "cfmon_effect",
        )
        return [value(metrics, name, **PAIR) for name in names]

    seen = [0.25, 0.25, 0.25, 0.75, 0.5, 0.875, 0.5]

    take(metrics, Received("ada", "accepted"))
    assert all(math.isnan(figure or 0.0) for figure in figures())
    take(metrics, judged())
    assert figures() == seen
    assert value(metrics, "cfmon_formula_threshold", formula="watch") == 0.8
    assert value(metrics, "cfmon_formula_threshold", formula="chance") is None
    assert value(metrics, "cfmon_verdicts_total", formula="watch", outcome="regret", method="exact") == 1
    take(metrics, Blind("ada", "watch", "stale"))
    assert all(math.isnan(figure or 0.0) for figure in figures())
    take(metrics, Blind("ada", "watch", None), judged())
    assert figures() == seen
    take(metrics, Ended("ada", 0))
    assert all(math.isnan(figure or 0.0) for figure in figures())


def test_bands_of_a_learned_model_are_shown_while_there_are_any(metrics: Metrics) -> None:
    def shown() -> dict[str, float | None]:
        ends = {
            f"{band} {end}": value(metrics, f"cfmon_value_{end}", **PAIR, band=band)
            for band in ("credible", "guaranteed")
            for end in ("low", "high")
        }
        found = {**ends, "support": value(metrics, "cfmon_formula_support", **PAIR)}
        return {name: number for name, number in found.items() if number is not None}

    nominal = replace(REGRET.quantities[0], credible=(0.125, 0.5), guaranteed=(0.0, 0.75))
    learned = replace(REGRET, quantities=(nominal, REGRET.quantities[1]), support=7, bands=Bands(draws=64, delta=0.05))
    all_of_them = {
        "credible low": 0.125,
        "credible high": 0.5,
        "guaranteed low": 0.0,
        "guaranteed high": 0.75,
        "support": 7.0,
    }
    take(metrics, Received("ada", "accepted"), judged())
    assert shown() == {}
    take(metrics, judged(learned))
    assert shown() == all_of_them
    without = replace(learned, quantities=(replace(nominal, credible=None), REGRET.quantities[1]), support=None)
    take(metrics, judged(without))
    assert shown() == {"guaranteed low": 0.0, "guaranteed high": 0.75}
    take(metrics, judged(replace(learned, quantities=(nominal, *REGRET.quantities))))
    assert "support" in shown()
    for ended in (judged(), Blind("ada", "watch", "gap"), Ended("ada", 0), Forgotten("ada")):
        take(metrics, Blind("ada", "watch", None), judged(learned))
        assert shown() == all_of_them
        take(metrics, ended)
        assert shown() == {}


def test_missed_goals_that_were_examined_are_counted_by_the_answer(metrics: Metrics) -> None:
    def counts() -> dict[str, float | None]:
        answers = (*get_args(Avoidable), "unknown")
        return {each: value(metrics, "cfmon_recourse_total", formula="watch", avoidable=each) for each in answers}

    assert counts() == {"foresight": 0, "hindsight": 0, "no": 0, "unknown": 0}
    take(metrics, Received("ada", "accepted"), judged())
    for answer in ("foresight", "no", "no", None):
        take(metrics, judged(replace(REGRET, recourse=Recourse(answer))))
    assert counts() == {"foresight": 1, "hindsight": 0, "no": 2, "unknown": 1}


def test_what_examines_no_missed_goal_has_no_counter() -> None:
    watch = FormulaSpec("watch", 'regret(careful@1, P>=0.5 [ F<=3 "home" ])')
    plain, off = FormulaSpec("plain", 'P>=0.5 [ F<=1 "home" ]'), replace(watch, name="off", recourse="off")
    metrics = metrics_of([watch, plain, off])
    assert value(metrics, "cfmon_recourse_total", formula="watch", avoidable="no") == 0
    for name in ("plain", "off"):
        assert value(metrics, "cfmon_recourse_total", formula=name, avoidable="no") is None
    metrics.adopt(watched([replace(watch, recourse="off")]))
    assert value(metrics, "cfmon_recourse_total", formula="watch", avoidable="no") is None


def test_blindness_has_one_reason_at_a_time(metrics: Metrics) -> None:
    take(metrics, Blind("ada", "watch", "gap"), Blind("ada", "watch", "stale"))
    assert value(metrics, "cfmon_blind", **PAIR, reason="gap") == 0
    assert value(metrics, "cfmon_blind", **PAIR, reason="stale") == 1
    take(metrics, Blind("ada", "watch", None))
    assert value(metrics, "cfmon_blind", **PAIR, reason="stale") == 0


def test_an_alarm_is_counted_once_for_each_change_of_its_state(metrics: Metrics) -> None:
    def counts() -> list[float | None]:
        names = ("firing", "resolved", "ended", "removed")
        return [value(metrics, "cfmon_alarms_total", formula="watch", severity="critical", state=n) for n in names]

    def firing() -> float | None:
        return value(metrics, "cfmon_alarm_state", **PAIR, severity="critical", state="firing")

    take(metrics, AlarmMoved("ada", "watch", "firing"), alert("firing", 1))
    assert (counts(), firing()) == ([1, 0, 0, 0], 1)
    assert value(metrics, "cfmon_last_alarm_timestamp_seconds", **PAIR) == 1000
    take(metrics, alert("firing", 2, blind="gap"), alert("firing", 3), now=replace(NOW, wall=2000.0))
    assert (counts(), firing()) == ([1, 0, 0, 0], 1)
    assert value(metrics, "cfmon_last_alarm_timestamp_seconds", **PAIR) == 1000
    take(metrics, AlarmMoved("ada", "watch", "clear"), alert("resolved", 4))
    assert (counts(), firing()) == ([1, 1, 0, 0], 0)
    take(metrics, alert("firing", 5), alert("ended", 6), alert("firing", 1, name="y"), alert("removed", 2))
    assert (counts(), firing()) == ([3, 1, 1, 1], 0)


def test_how_far_an_agent_departs_from_its_policy_is_shown(metrics: Metrics) -> None:
    take(metrics, Received("ada", "accepted"))
    assert value(metrics, "cfmon_off_policy_ratio", agent="ada") == 0
    take(metrics, Deviates("ada", 0.37, 100))
    assert value(metrics, "cfmon_off_policy_ratio", agent="ada") == 0.37
    take(metrics, Deviates("ada", 0.0, 100), Forgotten("ada"))
    assert b"ada" not in metrics.exposition()


def test_a_forgotten_agent_leaves_nothing_and_makes_room(metrics: Metrics) -> None:
    take(metrics, Received("ada", "accepted"), judged(), Blind("ada", "watch", "gap"), alert("firing", 1))
    take(metrics, OffPolicy("ada"), Received("ida", "accepted"), Forgotten("ada"), Forgotten("nobody"))
    assert b'"ada"' not in metrics.exposition()
    take(metrics, Received("eve", "accepted"))
    assert b'"eve"' in metrics.exposition()


def test_an_evaluation_is_timed_for_each_verdict(metrics: Metrics) -> None:
    metrics.evaluated(0.5, [judged(), judged(), Received("ada", "accepted")], NOW)
    metrics.evaluated(0.1, [], NOW)
    assert value(metrics, "cfmon_verdict_seconds_count", formula="watch") == 2
    assert value(metrics, "cfmon_verdict_seconds_sum", formula="watch") == 0.5
    assert value(metrics, "cfmon_last_evaluation_timestamp_seconds") == 1000


def test_a_store_that_fails_is_shown_until_it_works_again(metrics: Metrics) -> None:
    assert value(metrics, "cfmon_store_ok") == 1
    metrics.store_failed()
    assert (value(metrics, "cfmon_store_errors_total"), value(metrics, "cfmon_store_ok")) == (1, 0)
    metrics.store_works()
    assert (value(metrics, "cfmon_store_errors_total"), value(metrics, "cfmon_store_ok")) == (1, 1)


def test_a_configuration_that_cannot_be_read_again_is_shown(metrics: Metrics) -> None:
    metrics.reloaded(ok=False)
    assert value(metrics, "cfmon_config_reload_success") == 0
    metrics.reloaded(ok=True)
    assert value(metrics, "cfmon_config_reload_success") == 1


def test_how_the_model_stands_is_shown(metrics: Metrics) -> None:
    assert math.isnan(value(metrics, "cfmon_model_log10_e_value") or 0.0)
    for doubted, log10_e in ((False, -0.5), (True, 3.25)):
        take(metrics, Trust(doubted, log10_e, 100))
        assert value(metrics, "cfmon_model_doubt") == doubted
        assert value(metrics, "cfmon_model_log10_e_value") == log10_e
    take(metrics, Trust(doubted=False, log10_e=0.0, transitions=0))  # another model
    assert math.isnan(value(metrics, "cfmon_model_doubt") or 0.0)


def test_an_agent_in_doubt_has_a_series_until_it_is_tested_anew(metrics: Metrics) -> None:
    for transitions, shown in ((0, None), (7, 1.0), (0, None)):
        take(metrics, Trust(doubted=transitions > 0, log10_e=3.0, transitions=transitions, agent="ada"))
        assert value(metrics, "cfmon_agent_doubt", agent="ada") == shown


def test_rejected_rows_have_series_only_while_they_are_named(metrics: Metrics) -> None:
    assert math.isnan(value(metrics, "cfmon_rejected_rows") or 0.0)
    first, second = (WrongRow("hill", name, 4.0, "plain", 40, 100, 0.1, 0) for name in ("walk", "brake"))
    agents = (WrongAgent("ada", 5.0),)
    take(metrics, Contradictions((first, second), agents, rows_rejected=12, agents_rejected=1, rows_tested=64))
    assert value(metrics, "cfmon_rejected_rows") == 12
    assert value(metrics, "cfmon_rejected_agents") == 1
    assert value(metrics, "cfmon_row_deviation", state="hill", action="walk") == pytest.approx(0.3)
    assert value(metrics, "cfmon_row_log10_e_value", state="hill", action="brake") == 4.0
    take(metrics, Contradictions((second,), rows_rejected=1, rows_tested=64))
    assert value(metrics, "cfmon_row_deviation", state="hill", action="walk") is None
    assert value(metrics, "cfmon_row_deviation", state="hill", action="brake") is not None
    assert value(metrics, "cfmon_rejected_agents") == 0
    take(metrics, Contradictions())  # not tested any more
    assert value(metrics, "cfmon_row_deviation", state="hill", action="brake") is None
    assert math.isnan(value(metrics, "cfmon_rejected_rows") or 0.0)


@pytest.mark.parametrize("reason", sorted(MARKS))
def test_no_value_is_shown_while_answers_are_marked(metrics: Metrics, reason: BlindReason) -> None:
    take(metrics, judged(), Blind("ada", "watch", reason), judged())
    assert math.isnan(value(metrics, "cfmon_formula_value", **PAIR) or 0.0)
    assert value(metrics, "cfmon_verdicts_total", formula="watch", outcome="regret", method="exact") == 2
    take(metrics, Blind("ada", "watch", None), judged())
    assert value(metrics, "cfmon_formula_value", **PAIR) == 0.25


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (REGRET, "regret"),
        (replace(REGRET, outcome=None, value=0.5), "value"),
        (replace(REGRET, outcome=None, holds=True), "holds"),
        (replace(REGRET, outcome=None, holds=False), "fails"),
        (replace(REGRET, outcome=None), "undecided"),
    ],
)
def test_every_verdict_has_a_word(verdict: Verdict, word: str) -> None:
    assert outcome_of(verdict) == word


def test_a_formula_of_several_quantities_has_no_single_value() -> None:
    assert own(replace(REGRET, outcome=None, value=0.5, bounds=(0.25, 1.0))) == (0.5, (0.25, 1.0))
    assert own(replace(REGRET, outcome=None, holds=True)) == (None, None)


def test_the_value_is_the_agents_own_and_the_alternative_stands_beside_it() -> None:
    assert (own(REGRET), other(REGRET)) == ((0.25, (0.25, 0.25)), (0.75, (0.5, 0.875)))
    assert other(replace(REGRET, outcome=None, value=0.5)) == (None, None)


def test_the_threshold_of_a_changed_formula_is_the_new_one(
    metrics: Metrics, formulas: Sequence[FormulaSpec], identity: Identity
) -> None:
    changed = [replace(formulas[0], text='P>=0.5 [ F<=3 "home" ]'), FormulaSpec("more", "R<=2 [ C<=3 ]")]
    metrics.adopt(watched(changed, identity))
    assert value(metrics, "cfmon_formula_threshold", formula="watch") == 0.5
    assert value(metrics, "cfmon_formula_threshold", formula="more") == 2
    metrics.adopt(watched([replace(changed[0], text='P=? [ F<=3 "home" ]')], identity))
    assert value(metrics, "cfmon_formula_threshold", formula="watch") is None
    assert value(metrics, "cfmon_formula_threshold", formula="more") is None


def test_the_process_itself_is_measured_under_the_usual_names(metrics: Metrics) -> None:
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
        seen = value(metrics, name)
        assert seen is not None
        assert seen > 0


def test_a_value_that_was_never_recorded_is_nan_between_its_extremes(metrics: Metrics) -> None:
    nominal, other_one = REGRET.quantities
    known = replace(nominal, extremes=(0.25, 0.25))
    unknown = replace(
        REGRET, quantities=(known, replace(other_one, extremes=(0.5, 1.0), holds=None)), outcome="undecided"
    )
    take(metrics, Received("ada", "accepted"), judged(unknown))
    assert value(metrics, "cfmon_formula_value", **PAIR) == 0.25
    for name in ("cfmon_alternative_value", "cfmon_effect"):
        assert math.isnan(value(metrics, name, **PAIR) or 0.0)
    ends = [value(metrics, f"cfmon_alternative_{end}", **PAIR) for end in ("lower", "upper")]
    assert ends == [0.5, 1.0]
