"""Blindness has an owner: every cause has a reason, a metric, an alert and a test, and stands in `docs/blindness.md`.

The tables are here; `python -m tests.deploy.test_blindness` writes them into the page.
"""

from __future__ import annotations

import ast
import re
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import get_args

import pytest

from monitor.runtime.agent import MARKS
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
BAD, METRIC, LIVE = (
    "tests/sidecar/test_bad_input.py",
    "tests/sidecar/test_metrics.py",
    "tests/deploy/test_live_prometheus.py",
)


@dataclass(frozen=True)
class Row:
    """One cause of blindness. `metric`: which shows it beside `cfmon_blind`. `alert`: which a person gets first."""

    cause: str
    reason: BlindReason
    metric: str
    alert: str
    test: str


@dataclass(frozen=True)
class Unseen:
    """One cause by which something is not watched, or not as it should be, without a formula being blind."""

    cause: str
    metric: str
    elsewhere: str
    alert: str
    test: str


CAUSES = [
    Row(
        "A step never came: lost on the way, or later than `path.reorder` allows",
        "gap",
        'cfmon_messages_total{result="gap"}',
        "CfmonStepsLost",
        f"{FLOW}::test_after_a_gap_a_formula_is_blind_until_the_path_is_longer_than_its_offset",
    ),
    Row(
        "A step came that could not be read; its place is a gap",
        "gap",
        "cfmon_rejected_total",
        "CfmonMessagesRejected",
        f"{BAD}::test_each_bad_message_is_counted_and_the_next_episode_is_judged",
    ),
    Row(
        "A step in mid-episode came without its action",
        "gap",
        'cfmon_rejected_total{reason="missing_action"}',
        "CfmonMessagesRejected",
        f"{SESSION}::test_unusable_content_is_rejected_and_the_order_goes_on",
    ),
    Row(
        "The same step came twice with different content: two agents of one name, or one that starts over",
        "conflict",
        'cfmon_messages_total{result="conflict"}',
        "CfmonStepsLost",
        f"{SESSION}::test_a_conflict_restarts_the_path_after_it",
    ),
    Row(
        "The model gives the transition, or the action there, no chance",
        "impossible_step",
        BLIND,
        "CfmonFormulaBlind",
        f"{FLOW}::test_an_impossible_step_makes_blind_and_is_named",
    ),
    Row(
        "The state, or the action, is none of the model's",
        "unknown_state",
        "cfmon_rejected_total",
        "CfmonMessagesRejected",
        f"{BAD}::test_what_breaks_the_path_blinds_until_it_is_long_enough_again",
    ),
    Row(
        "Messages were dropped at a full door: `limits.queue` of them, or 64 MiB, waited, and holding the broker back"
        " for half a `mqtt.keepalive` did not help",
        "dropped",
        'cfmon_messages_total{result="dropped"}',
        "CfmonStepsLost",
        "tests/sidecar/test_pipeline.py::test_what_was_dropped_at_the_door_makes_blind",
    ),
    Row(
        "What was noted last before a restart is missing in the store: which steps that were is unknown",
        "dropped",
        "cfmon_store_damage_total",
        "CfmonStoreDamaged",
        "tests/sidecar/test_damage.py::test_a_log_that_lost_its_end_is_told_counted_and_makes_blind",
    ),
    Row(
        "Steps of an agent piled up unanswered beyond what is held",
        "dropped",
        BLIND,
        "CfmonFormulaBlind",
        f"{SESSION}::test_events_nobody_takes_are_dropped_together_and_said_so",
    ),
    Row(
        "The monitor joined in mid-episode, and the path is not yet longer than the offset",
        "warming_up",
        BLIND,
        "CfmonFormulaBlind",
        f"{SESSION}::test_joining_in_mid_episode",
    ),
    Row(
        "The agent says that it runs another policy than the configured nominal",
        "policy_mismatch",
        BLIND,
        "CfmonFormulaBlind",
        f"{FLOW}::test_another_policy_than_the_nominal_blinds",
    ),
    Row(
        "The broker is not reached",
        "disconnected",
        "cfmon_mqtt_connected",
        "CfmonBrokerDisconnected",
        f"{FLOW}::test_a_lost_connection_blinds_everyone",
    ),
    Row(
        "Steps came, and wait longer than `stream.stale_after` to be answered",
        "deadline",
        "cfmon_queue_length",
        "CfmonFormulaBlind",
        f"{MARK}::test_steps_that_wait_too_long_for_an_answer_blind_and_are_answered_all_the_same",
    ),
    Row(
        "All steps that came for longer than `stream.stale_after` belong to episodes that are over: the agent started"
        " over under old names",
        "old_episode",
        'cfmon_messages_total{result="duplicate"}',
        "CfmonFormulaBlind",
        f"{MARK}::test_an_agent_that_starts_over_under_old_episodes_is_not_watched_and_that_is_told",
    ),
    Row(
        "In the middle of an episode no step came for longer than `stream.stale_after`",
        "stale",
        "cfmon_last_message_timestamp_seconds",
        "CfmonAgentSilent",
        f"{FLOW}::test_a_silent_agent_is_stale_then_forgotten",
    ),
    Row(
        "Between episodes nothing came for longer than `stream.idle_after`: the agent is done, or it died",
        "idle",
        "cfmon_last_message_timestamp_seconds",
        "CfmonAgentIdle",
        f"{MARK}::test_an_agent_silent_between_episodes_is_idle_then_forgotten",
    ),
    Row(
        "Overload: answers were passed over within the last `stream.stale_after`, and alarms may be missing",
        "overload",
        "cfmon_evaluations_skipped_total",
        "CfmonEvaluationsSkipped",
        f"{FLOW}::test_under_load_questions_are_skipped_and_counted_never_steps",
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
"""In the order of the reasons: where several hold, the one of the upper row is told."""

UNSEEN = [
    Unseen(
        "More agents than `limits.agents`: those beyond are refused",
        'cfmon_rejected_total{reason="too_many_agents"}',
        "the agent is missing on the status page",
        "CfmonAgentsRefused",
        f"{FLOW}::test_agents_beyond_the_limit_are_refused_and_counted",
    ),
    Unseen(
        "Overload: due answers are passed over; steps are not, but in the last resort (`dropped`, above)",
        "cfmon_evaluations_skipped_total",
        "`cfmon_queue_length`",
        "CfmonEvaluationsSkipped",
        f"{FLOW}::test_under_load_questions_are_skipped_and_counted_never_steps",
    ),
    Unseen(
        "A question is too large to be answered there",
        'cfmon_verdicts_total{outcome="undecided"}',
        "the log, with the reason",
        "CfmonUndecided",
        f"{FLOW}::test_a_question_too_large_is_undecided_with_a_reason_and_moves_no_alarm",
    ),
    Unseen(
        "An agent was silent for `stream.forget_after` and is forgotten",
        "cfmon_agents_forgotten_total",
        "the log, with its name",
        "CfmonAgentIdle",
        f"{MARK}::test_an_agent_silent_between_episodes_is_idle_then_forgotten",
    ),
    Unseen(
        "The agent does not follow the nominal policy that is configured: answers about its future are not about it",
        "cfmon_off_policy_ratio",
        "a notice on the status page, and the log",
        "CfmonAgentDeviates",
        "tests/stream/test_stream_session.py::test_how_far_the_actions_depart_from_nominal_is_told_where_it_changes",
    ),
    Unseen(
        "The monitor is gone",
        "up",
        "its last will on the status topic",
        "CfmonDown",
        f"{LIVE}::test_every_rule_is_seen_silent_firing_and_silent",
    ),
    Unseen(
        "The monitor hangs",
        "cfmon_last_evaluation_timestamp_seconds",
        "`/healthz`, the service manager's watchdog, the silence of CfmonWatchdog",
        "CfmonEvaluationStalled",
        "tests/sidecar/test_liveness.py::"
        "test_an_evaluation_that_hangs_while_steps_wait_fails_healthz_and_starves_the_watchdog",
    ),
    Unseen(
        "The store cannot be written: a restart would lose what is known",
        "cfmon_store_ok",
        "the log, `/api/status`",
        "CfmonStoreFailing",
        f"{METRIC}::test_a_store_that_fails_is_shown_until_it_works_again",
    ),
    Unseen(
        "The store is not what was written: an end that is missing, a file taken away, an altered model",
        "cfmon_store_damage_total",
        "the log, `/api/status`; what is not known makes blind (`dropped`)",
        "CfmonStoreDamaged",
        "tests/sidecar/test_damage.py::test_a_log_that_lost_its_end_is_told_counted_and_makes_blind",
    ),
    Unseen(
        "A changed configuration has a mistake: the one before stays in force",
        "cfmon_config_reload_success",
        "the log, with file and line",
        "CfmonReloadFailed",
        "tests/sidecar/test_reload.py::test_a_mistake_changes_nothing_and_is_told_in_one_line",
    ),
    Unseen(
        "Prometheus, Alertmanager or the way between them is broken",
        "ALERTS",
        "whoever waits for Watchdog",
        "Watchdog",
        "tests/deploy/test_alert_chain.py::"
        "test_an_alarm_arrives_and_resolves_a_killed_monitor_and_a_killed_prometheus_are_noticed",
    ),
]

ROWS: list[Row | Unseen] = [*CAUSES, *UNSEEN]


def as_markdown() -> str:
    """Both tables, as the page shows them."""
    lines = ["| cause | reason | answers | metric, beside `cfmon_blind` | alert | test |", "|---|---|---|---|---|---|"]
    for row in CAUSES:
        effect = "marked" if row.reason in MARKS else "stop"
        metric = "" if row.metric == BLIND else f"`{row.metric}`"
        lines.append(
            f"| {row.cause} | `{row.reason}` | {effect} | {metric} | {linked(row.alert)} | {link_to(row.test)} |"
        )
    lines += ["", "| cause | metric | and in | alert | test |", "|---|---|---|---|---|"]
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
    alarms = {"CfmonAlarmCritical", "CfmonAlarmWarning"}  # about the agents, not about seeing them
    owners = {row.alert for row in CAUSES} | {row.alert for row in UNSEEN} | alarms | {"CfmonWatchdog"}
    assert owners == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
def test_the_test_and_the_metric_of_a_row_exist(row: Row | Unseen) -> None:
    file, name = row.test.split("::")
    assert name in functions(ROOT / file)
    assert re.sub(r"\{.*", "", row.metric) in set(METRICS) | {"up", "ALERTS"}  # those two are Prometheus' own


@pytest.mark.parametrize("reason", get_args(BlindReason))
def test_while_a_reason_lasts_an_alert_fires(reason: BlindReason) -> None:
    """By `cfmon_blind` itself, or by the one metric that says it of all agents at once."""
    blind = next(rule["expr"] for rule in rules() if rule["alert"] == "CfmonFormulaBlind")
    elsewhere = set(re.findall(r'reason!~"([^"]+)"', blind)[0].split("|"))
    alerts = {row.alert for row in CAUSES if row.reason == reason}
    own = {
        "CfmonAgentSilent",
        "CfmonAgentIdle",
        "CfmonEvaluationsSkipped",
        "CfmonBrokerDisconnected",
        "CfmonModelDoubt",
    }
    assert reason not in elsewhere or alerts <= own


def test_the_page_shows_these_tables() -> None:
    assert PAGE.read_text().endswith(as_markdown()), "run python -m tests.deploy.test_blindness"


def test_no_cell_breaks_the_table() -> None:
    assert not any("|" in cell for row in ROWS for cell in astuple(row))


if __name__ == "__main__":
    before = PAGE.read_text().split("| cause |")[0]
    PAGE.write_text(before + as_markdown())
