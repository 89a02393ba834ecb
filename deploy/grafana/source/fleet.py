"""The fleet at a glance: what fires, who is blind, who is down; from here to one agent."""

from __future__ import annotations

from frame import (
    AGENT_LINKS,
    CHOSEN,
    HERE,
    NOT_ALL_SEEN,
    STATES,
    board,
    choose,
    counted,
    recalled,
    standing,
    unseen,
    unwatched,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard
from panels import GOOD, NO_ANSWER, TROUBLE, WAIT, Words, cells, graph, link, number, query, timeline

__all__ = ["fleet"]

ZERO = f"0 * sum(up{{{HERE}}} == 1)"
"""A zero that is only there while some monitor is: without one, nothing is known."""

NONE_FIRE = f"0 * count(cfmon_last_message_timestamp_seconds{{{HERE}}}) or {ZERO} - 1"
"""A zero where agents are known. A monitor that knows none watches nothing, and nothing is known of alarms."""

WHO = f'{HERE}, agent=~"$agents"'
TO_AGENT = link("This agent", f"/d/cfmon-agent?var-agent=${{__data.fields.agent}}&{CHOSEN}")
TO_RUNBOOK = link("Its runbook: what it means, what to do", "/d/cfmon-${__data.fields.alertname}")


def fleet() -> Dashboard:
    """Build it."""
    about = "Every agent and every monitor: what fires, what is blind, what is lost. Click an agent for its own page."
    agents = "The agents to show in the lists below; the numbers at the top are of all."
    heard = f"cfmon_last_message_timestamp_seconds{{{HERE}}}"
    variables = [choose(), recalled("agents", "Agents", agents, heard, of="agent", many=True)]
    made = board("cfmon-fleet", "Counterfactual monitor: fleet", about, variables)
    return _over_time(_now(_numbers(made)))


def _numbers(made: Dashboard) -> Dashboard:
    none: Words = {0: ("none", GOOD), **NOT_ALL_SEEN}
    down: Words = {0: ("none", GOOD)}
    unknown = unseen(HERE)
    alarms = f'cfmon_alarm_state{{{HERE}, state="firing"'
    return (
        made.with_panel(
            number(
                "Critical alarms",
                "Formulas of severity critical that are breached now. From 1 on: act, see the list below. UNKNOWN: a "
                "monitor is down or without its broker, a formula is blind, or no agent is known; none is known to "
                "fire, and one may.",
                counted(f'sum({alarms}, severity="critical"}})', unknown, NONE_FIRE),
                words=none,
                limit=1,
            )
        )
        .with_panel(
            number(
                "Other alarms",
                "Formulas of any other severity that are breached now. From 1 on: look in working hours. UNKNOWN as "
                "beside it.",
                counted(f'sum({alarms}, severity!="critical"}})', unknown, NONE_FIRE),
                words=none,
                limit=1,
            )
        )
        .with_panel(
            number(
                "Blind agents",
                "Agents of which at least one formula is not answered now, or not to be relied on. From 1 on: treat "
                "those as unwatched. UNKNOWN: a monitor is down or hangs, or no agent is known.",
                counted(f"sum(max by (instance, agent) (cfmon_blind{{{HERE}}}))", unwatched(), NONE_FIRE),
                words=none,
                limit=1,
            )
        )
        .with_panel(
            number(
                "Agents known",
                "Agents heard of and not yet forgotten (stream.forget_after).",
                f"count(cfmon_last_message_timestamp_seconds{{{HERE}}}) or {ZERO}",
                words={0: ("none yet", WAIT)},
            )
        )
        .with_panel(
            number(
                "Monitors down",
                "Monitors that cannot be scraped. From 1 on: their agents are unwatched, their alarms reach nobody.",
                f"sum(up{{{HERE}}} == bool 0)",
                words=down,
                limit=1,
                nothing="no monitor to scrape",
            )
        )
        .with_panel(
            number(
                "The world follows the model",
                "Whether what the agents' steps lead to agrees with the model. If not, the alert says for which agent.",
                f"max(cfmon_model_doubt{{{HERE}}} or cfmon_agent_doubt{{{HERE}}})",
                words={0: ("yes", GOOD), 1: ("NO: in doubt", TROUBLE), None: ("not tested", NO_ANSWER)},
                limit=1,
            )
        )
    )


def _now(made: Dashboard) -> Dashboard:
    labels = "alertname, severity, agent, formula, reason, result, instance"
    ours = 'alertname=~"Cfmon.+", alertstate="firing", severity!="none", job=~"$job|"'  # one without a job is of all
    alerts = f"max by ({labels}) (ALERTS{{{ours}}})"
    return made.with_panel(
        cells(
            "Alerts now",
            "What Prometheus alerts about now in the jobs chosen above, whatever monitor is chosen. The name leads to "
            "the runbook, the agent to its page.",
            [query(alerts, now=True)],
            columns={name: name for name in labels.split(", ")},
            hidden=["Value"],
            links={"alertname": TO_RUNBOOK, "agent": TO_AGENT},
            nothing="no alert",
            height=7,
        )
    ).with_panel(
        cells(
            "Agents now",
            "The worst state of any of the agent's formulas, how many fire, and for how long nothing was heard of it.",
            [
                query(standing("agent", WHO), letter="A", now=True),
                query(f'sum by (agent) (cfmon_alarm_state{{{WHO}, state="firing"}})', letter="B", now=True),
                query(
                    f"time() - max by (agent) (cfmon_last_message_timestamp_seconds{{{WHO}}})",
                    letter="C",
                    now=True,
                ),
                query(f"sum by (agent) (increase(cfmon_off_policy_total{{{WHO}}}[5m]))", letter="D", now=True),
            ],
            columns={
                "agent": "agent",
                "Value #A": "state",
                "Value #B": "formulas firing",
                "Value #C": "last heard ago",
                "Value #D": "steps off policy in 5 min",
            },
            words={"state": STATES},
            units={"last heard ago": "s", "formulas firing": "none", "steps off policy in 5 min": "none"},
            links={"agent": TO_AGENT},
            nothing="no agent is known",
            height=9,
        )
    )


def _over_time(made: Dashboard) -> Dashboard:
    return (
        made.with_panel(
            timeline(
                "Everybody over time",
                "A row for each monitor and each agent. BLIND: the monitor could not answer, whatever the alarm was "
                "before. NOT WATCHED: its monitor is gone, or has forgotten it. Click a row for the agent's page.",
                [
                    query(f"8 + 2 * (up{{{HERE}}} == bool 0)", "monitor {{instance}}", letter="A"),
                    query(standing("agent", WHO), "{{agent}}", letter="B"),
                ],
                STATES,
                links=AGENT_LINKS,
                nothing="nobody looks",
                height=12,
            )
        )
        .with_panel(
            graph(
                "Alarms that began",
                "How often each formula's alarm began to fire, over all agents. Many at once point at the world or at "
                "a new policy.",
                [
                    query(
                        f'sum by (formula) (increase(cfmon_alarms_total{{{HERE}, state="firing"}}[$__rate_interval]))',
                        "{{formula}}",
                    )
                ],
                unit="short",
                bars=True,
            )
        )
        .with_panel(
            graph(
                "Steps that arrive",
                "Messages a second by what became of them. Anything but accepted and duplicate is a step that cannot "
                "be judged.",
                [query(f"sum by (result) (rate(cfmon_messages_total{{{HERE}}}[$__rate_interval]))", "{{result}}")],
                unit="cps",
            )
        )
        .with_panel(
            graph(
                "Answers",
                "Answers a second by outcome. Undecided counts for nothing: no alarm can come of it.",
                [query(f"sum by (outcome) (rate(cfmon_verdicts_total{{{HERE}}}[$__rate_interval]))", "{{outcome}}")],
                unit="cps",
            )
        )
        .with_panel(
            graph(
                "Blind, by reason",
                "In how many (agent, formula) pairs the monitor is blind, by reason. The page of CfmonFormulaBlind "
                "has each reason's remedy.",
                [query(f"sum by (reason) (cfmon_blind{{{HERE}}})", "{{reason}}")],
                unit="short",
                nothing="nobody was ever blind",
            )
        )
    )
