"""Every cause of blindness has a reason, a metric, an alert, a test, and a row in `docs/blindness.md`.

The tables are defined here; `python -m tests.deploy.test_blindness` writes them into the page.
"""

from __future__ import annotations

import ast
import re
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import get_args

import pytest

from monitor.alarm.blindness import BLINDNESS, MARKS
from monitor.types import BlindReason
from tests.deploy.test_rules import METRICS, rules

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "blindness.md"
BLIND = "cfmon_blind"
FLOW, MARK, SESSION = (
    "tests/runtime/test_monitor.py",
    "tests/runtime/test_marks.py",
    "tests/stream/test_stream_session.py",
)
LEARNED = "tests/runtime/test_learned_trust.py"
BAD, METRIC, LIVE = (
    "tests/sidecar/test_bad_input.py",
    "tests/sidecar/test_metrics.py",
    "tests/deploy/test_live_prometheus.py",
)


@dataclass(frozen=True)
class Row:
    """One cause of blindness. `metric`: shows it besides `cfmon_blind`. `alert`: the first that a person gets."""

    cause: str
    reason: BlindReason
    metric: str
    alert: str
    test: str


@dataclass(frozen=True)
class Unseen:
    """One cause by which something is not monitored, or not fully, although no formula is blind."""

    cause: str
    metric: str
    elsewhere: str
    alert: str
    test: str


CAUSES = [
    Row(
        "A step was lost, or arrived later than `path.reorder` allows",
        "gap",
        'cfmon_messages_total{result="gap"}',
        "CfmonStepsLost",
        f"{FLOW}::test_after_a_gap_a_formula_is_blind_until_the_path_is_longer_than_its_offset",
    ),
    Row(
        "A step could not be read, which leaves a gap",
        "gap",
        "cfmon_rejected_total",
        "CfmonMessagesRejected",
        f"{BAD}::test_each_bad_message_is_counted_and_the_next_episode_is_judged",
    ),
    Row(
        "A step within an episode has no action, and the model's states are not hidden",
        "gap",
        'cfmon_rejected_total{reason="missing_action"}',
        "CfmonMessagesRejected",
        f"{SESSION}::test_unusable_content_is_rejected_and_the_order_goes_on",
    ),
    Row(
        "The same step came twice with different content: two agents with one name, or an agent that restarted",
        "conflict",
        'cfmon_messages_total{result="conflict"}',
        "CfmonStepsLost",
        f"{SESSION}::test_a_conflict_restarts_the_path_after_it",
    ),
    Row(
        "The model gives the transition, or the action in that state, probability 0",
        "impossible_step",
        BLIND,
        "CfmonFormulaBlind",
        f"{FLOW}::test_an_impossible_step_makes_blind_and_is_named",
    ),
    Row(
        "The model is learned, and the transition, or the action in that state, was never recorded",
        "impossible_step",
        BLIND,
        "CfmonFormulaBlind",
        f"{LEARNED}::test_a_transition_that_was_never_recorded_is_named_and_counted",
    ),
    Row(
        "The model does not have the state or the action",
        "unknown_state",
        "cfmon_rejected_total",
        "CfmonMessagesRejected",
        f"{BAD}::test_what_breaks_the_path_blinds_until_it_is_long_enough_again",
    ),
    Row(
        "The model is learned, and the state or the action was never recorded",
        "unknown_state",
        "cfmon_rejected_total",
        "CfmonMessagesRejected",
        f"{LEARNED}::test_a_state_that_was_never_recorded_is_named_and_counts_as_a_successor",
    ),
    Row(
        "The model is learned, and a number of the state lies far outside what was recorded: another unit, or a sensor"
        " that failed",
        "out_of_range",
        'cfmon_rejected_total{reason="out_of_range"}',
        "CfmonMessagesRejected",
        f"{LEARNED}::test_a_number_far_outside_what_was_recorded_blinds_and_is_named",
    ),
    Row(
        "Messages were dropped because the inbox was full: `limits.queue` of them, or 64 MiB, waited, and back-pressure"
        " on the broker for half of `mqtt.keepalive` did not help",
        "dropped",
        'cfmon_messages_total{result="dropped"}',
        "CfmonStepsLost",
        "tests/sidecar/test_pipeline.py::test_dropped_messages_make_the_formula_blind",
    ),
    Row(
        "The last records before a restart are missing in the store, so the steps received then are unknown",
        "dropped",
        "cfmon_store_damage_total",
        "CfmonStoreDamaged",
        "tests/sidecar/test_damage.py::test_a_log_that_lost_its_end_is_reported_counted_and_makes_blind",
    ),
    Row(
        "More steps of an agent waited for evaluation than the monitor can hold",
        "dropped",
        BLIND,
        "CfmonFormulaBlind",
        f"{SESSION}::test_events_nobody_takes_are_dropped_together_and_said_so",
    ),
    Row(
        "The monitor joined in the middle of an episode, and the path is not yet longer than the offset",
        "warming_up",
        BLIND,
        "CfmonFormulaBlind",
        f"{SESSION}::test_joining_in_mid_episode",
    ),
    Row(
        "The agent reports an acting policy that is not configured",
        "policy_mismatch",
        BLIND,
        "CfmonFormulaBlind",
        f"{FLOW}::test_another_policy_than_the_nominal_blinds",
    ),
    Row(
        "The broker is not connected",
        "disconnected",
        "cfmon_mqtt_connected",
        "CfmonBrokerDisconnected",
        f"{FLOW}::test_a_lost_connection_blinds_everyone",
    ),
    Row(
        "Steps wait longer than `stream.stale_after` for evaluation",
        "deadline",
        "cfmon_queue_length",
        "CfmonFormulaBlind",
        f"{MARK}::test_steps_that_wait_too_long_for_an_answer_blind_and_are_answered_all_the_same",
    ),
    Row(
        "For longer than `stream.stale_after` all steps belonged to episodes that have ended: the agent reuses old"
        " episode names",
        "old_episode",
        'cfmon_messages_total{result="duplicate"}',
        "CfmonFormulaBlind",
        f"{MARK}::test_an_agent_that_starts_over_under_old_episodes_is_reported_as_not_watched",
    ),
    Row(
        "No step arrived within an episode for longer than `stream.stale_after`",
        "stale",
        "cfmon_last_message_timestamp_seconds",
        "CfmonAgentSilent",
        f"{FLOW}::test_a_silent_agent_is_stale_then_forgotten",
    ),
    Row(
        "Nothing arrived between episodes for longer than `stream.idle_after`: the agent is finished or has crashed",
        "idle",
        "cfmon_last_message_timestamp_seconds",
        "CfmonAgentIdle",
        f"{MARK}::test_an_agent_silent_between_episodes_is_idle_then_forgotten",
    ),
    Row(
        "Overload: evaluations were skipped within the last `stream.stale_after`, and alarms may be missing",
        "overload",
        "cfmon_evaluations_skipped_total",
        "CfmonEvaluationsSkipped",
        f"{FLOW}::test_under_load_evaluations_are_skipped_and_counted_never_steps",
    ),
    Row(
        "The agent's transitions contradict the model",
        "model_doubt",
        "cfmon_agent_doubt",
        "CfmonModelDoubt",
        f"{MARK}::test_an_agent_whose_steps_do_not_follow_the_model_is_marked_and_no_other",
    ),
    Row(
        "The transitions of several agents together contradict the model",
        "model_doubt",
        "cfmon_model_doubt",
        "CfmonModelDoubt",
        f"{MARK}::test_a_model_that_several_agents_contradict_marks_every_agent_and_stops_no_answer",
    ),
]
"""In the order of the reasons: if several hold, the first is reported."""

UNSEEN = [
    Unseen(
        "More agents publish than `limits.agents` allows: the newest are refused",
        'cfmon_rejected_total{reason="too_many_agents"}',
        "the agent is missing on the status page",
        "CfmonAgentsRefused",
        f"{FLOW}::test_agents_beyond_the_limit_are_refused_and_counted",
    ),
    Unseen(
        "Overload: due evaluations are skipped; steps are dropped only as a last resort (`dropped`, above)",
        "cfmon_evaluations_skipped_total",
        "`cfmon_queue_length`",
        "CfmonEvaluationsSkipped",
        f"{FLOW}::test_under_load_evaluations_are_skipped_and_counted_never_steps",
    ),
    Unseen(
        "A formula is too large to be evaluated on the path",
        'cfmon_verdicts_total{outcome="undecided"}',
        "the log, with the reason",
        "CfmonUndecided",
        f"{FLOW}::test_a_query_too_large_is_undecided_with_a_reason_and_moves_no_alarm",
    ),
    Unseen(
        "An agent was silent for `stream.forget_after` and is forgotten",
        "cfmon_agents_forgotten_total",
        "the log, with its name",
        "CfmonAgentIdle",
        f"{MARK}::test_an_agent_silent_between_episodes_is_idle_then_forgotten",
    ),
    Unseen(
        "The agent does not follow the configured nominal policy: verdicts about its future do not describe it",
        "cfmon_off_policy_ratio",
        "a notice on the status page, and the log",
        "CfmonAgentDeviates",
        "tests/stream/test_stream_session.py::test_how_far_the_actions_depart_from_nominal_is_reported_where_it_changes",
    ),
    Unseen(
        "Rows of the model are wrong: values whose future reaches these rows are wrong too",
        "cfmon_rejected_rows",
        "the status page and the log, with the rows",
        "CfmonRowsRejected",
        "tests/runtime/test_contradictions.py::test_a_wrong_row_is_named_with_what_was_seen_and_no_other",
    ),
    Unseen(
        "The monitor is down",
        "up",
        "its last will on the status topic",
        "CfmonDown",
        f"{LIVE}::test_every_rule_is_seen_silent_firing_and_silent",
    ),
    Unseen(
        "A shard of a fleet is not a target of Prometheus: its agents may not be monitored",
        "cfmon_shards",
        "no status, or its last will, on the status topic",
        "CfmonShardMissing",
        f"{LIVE}::test_every_rule_is_seen_silent_firing_and_silent",
    ),
    Unseen(
        "The monitor hangs",
        "cfmon_last_evaluation_timestamp_seconds",
        "`/healthz`, the service manager's watchdog, CfmonWatchdog stops",
        "CfmonEvaluationStalled",
        "tests/sidecar/test_liveness.py::"
        "test_an_evaluation_that_hangs_while_steps_wait_fails_healthz_and_starves_the_watchdog",
    ),
    Unseen(
        "The store cannot be written: a restart would lose state",
        "cfmon_store_ok",
        "the log, `/api/status`",
        "CfmonStoreFailing",
        f"{METRIC}::test_a_store_that_fails_is_shown_until_it_works_again",
    ),
    Unseen(
        "The store is damaged: a missing end, a removed file, an altered model",
        "cfmon_store_damage_total",
        "the log, `/api/status`; agents are blind (`dropped`)",
        "CfmonStoreDamaged",
        "tests/sidecar/test_damage.py::test_a_log_that_lost_its_end_is_reported_counted_and_makes_blind",
    ),
    Unseen(
        "The receiver of a webhook accepts no alerts: its users are not informed of alarms",
        "cfmon_webhook_waiting",
        "the log, `/api/status`",
        "CfmonWebhookFailing",
        "tests/sidecar/test_webhooks.py::test_a_killed_monitor_posts_what_waited_once_it_is_back",
    ),
    Unseen(
        "A changed configuration has an error: the old one stays in effect",
        "cfmon_config_reload_success",
        "the log, with file and line",
        "CfmonReloadFailed",
        "tests/sidecar/test_reload.py::test_a_mistake_changes_nothing_and_is_reported_in_one_line",
    ),
    Unseen(
        "Prometheus, Alertmanager or the connection between them is broken",
        "ALERTS",
        "the dead man's switch that expects Watchdog",
        "Watchdog",
        "tests/deploy/test_alert_chain.py::"
        "test_an_alarm_arrives_and_resolves_a_killed_monitor_and_a_killed_prometheus_are_noticed",
    ),
]

ROWS: list[Row | Unseen] = [*CAUSES, *UNSEEN]


def as_markdown() -> str:
    """Return both tables in Markdown."""
    lines = ["| cause | reason | verdicts | metric (and `cfmon_blind`) | alert | test |", "|---|---|---|---|---|---|"]
    for row in CAUSES:
        effect = "marked" if row.reason in MARKS else "stop"
        metric = "" if row.metric == BLIND else f"`{row.metric}`"
        lines.append(
            f"| {row.cause} | `{row.reason}` | {effect} | {metric} | {linked(row.alert)} | {link_to(row.test)} |"
        )
    lines += ["", "| cause | metric | also shown in | alert | test |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.cause} | `{row.metric}` | {row.elsewhere} | {linked(row.alert)} | {link_to(row.test)} |"
        for row in UNSEEN
    ]
    return "\n".join(lines) + "\n"


def linked(alert: str) -> str:
    return f"[{alert}](../deploy/runbooks/{alert}.md)"


def link_to(test: str) -> str:
    file, name = test.split("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{file})"


def functions(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_reason_has_a_row() -> None:
    assert {row.reason for row in CAUSES} == set(get_args(BlindReason))


def test_every_alert_has_a_cause() -> None:
    alarms = {"CfmonAlarmCritical", "CfmonAlarmWarning"}  # about agents, not about blindness
    owners = {row.alert for row in CAUSES} | {row.alert for row in UNSEEN} | alarms | {"CfmonWatchdog"}
    assert owners == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
def test_the_test_and_the_metric_of_a_row_exist(row: Row | Unseen) -> None:
    file, name = row.test.split("::")
    assert name in functions(ROOT / file)
    assert re.sub(r"\{.*", "", row.metric) in set(METRICS) | {"up", "ALERTS"}  # those two are Prometheus' own


@pytest.mark.parametrize("reason", get_args(BlindReason))
def test_while_a_reason_lasts_its_alert_fires(reason: BlindReason) -> None:
    """The rule of that alert reads `cfmon_blind`, or one metric for all agents."""
    alert = BLINDNESS[reason].alert
    (rule,) = (each for each in rules() if each["alert"] == alert)
    causes = [row for row in CAUSES if row.reason == reason]
    metrics = {re.sub(r"\{.*", "", row.metric) for row in causes} | {BLIND}
    assert alert == "CfmonFormulaBlind" or alert in {row.alert for row in causes}
    assert any(metric in rule["expr"] for metric in metrics)


def test_the_page_shows_these_tables() -> None:
    assert PAGE.read_text().endswith(as_markdown()), "run python -m tests.deploy.test_blindness"


def test_no_cell_breaks_the_table() -> None:
    assert not any("|" in cell for row in ROWS for cell in astuple(row))


if __name__ == "__main__":
    before = PAGE.read_text().split("| cause |")[0]
    PAGE.write_text(before + as_markdown())
