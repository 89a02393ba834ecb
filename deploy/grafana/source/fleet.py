"""Dashboard of all agents and monitors: firing alarms, blind agents, monitors that are down; links to one agent."""

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
    state_by,
    unseen,
    unwatched,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard
from panels import GOOD, NO_ANSWER, TROUBLE, WAIT, Words, cells, graph, link, number, query, timeline

__all__ = ["fleet"]

ZERO = f"0 * sum(up{{{HERE}}} == 1)"
"""Zero while at least one monitor is up; no value otherwise, because nothing is known then."""

NONE_FIRE = f"0 * count(cfmon_last_message_timestamp_seconds{{{HERE}}}) or {ZERO} - 1"
"""Zero if agents are known. A monitor without agents monitors nothing, so its alarms are unknown."""

WHO = f'{HERE}, agent=~"$agents"'
TO_AGENT = link("This agent", f"/d/cfmon-agent?var-agent=${{__data.fields.agent}}&{CHOSEN}")
TO_RUNBOOK = link("Runbook: what it means, what to do", "/d/cfmon-${__data.fields.alertname}")


def fleet() -> Dashboard:
    """Return the dashboard."""
    about = "All agents and monitors: firing alarms, blind formulas, lost steps. Click an agent to open its dashboard."
    agents = "The agents in the lists below; the numbers at the top count all agents."
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
                "Formulas of severity critical that are violated now. From 1: act, see the list below. UNKNOWN: none "
                "is known to fire, but one may: a monitor is down or has lost its broker, a formula is blind, or no "
                "agent is known.",
                counted(f'sum({alarms}, severity="critical"}})', unknown, NONE_FIRE),
                words=none,
                limit=1,
            )
        )
        .with_panel(
            number(
                "Other alarms",
                "Formulas of any other severity that are violated now. From 1: look at them in working hours. UNKNOWN: "
                "as for critical alarms.",
                counted(f'sum({alarms}, severity!="critical"}})', unknown, NONE_FIRE),
                words=none,
                limit=1,
                width=3,
            )
        )
        .with_panel(
            number(
                "Pending",
                "Formulas that are violated, but not yet for as long or as often as an alarm needs. From 1: one may "
                "fire soon. UNKNOWN: as for critical alarms.",
                counted(f'sum(cfmon_alarm_state{{{HERE}, state="pending"}})', unknown, NONE_FIRE),
                words=none,
                limit=1,
                beyond=WAIT,
                width=3,
            )
        )
        .with_panel(
            number(
                "Blind agents",
                "Agents with at least one formula that cannot be evaluated now, or not reliably. From 1: treat them as "
                "not monitored. UNKNOWN: a monitor is down or hangs, or no agent is known.",
                counted(f"sum(max by (instance, agent) (cfmon_blind{{{HERE}}}))", unwatched(), NONE_FIRE),
                words=none,
                limit=1,
            )
        )
        .with_panel(
            number(
                "Agents known",
                "Agents that have sent steps and are not yet forgotten (stream.forget_after).",
                f"count(cfmon_last_message_timestamp_seconds{{{HERE}}}) or {ZERO}",
                words={0: ("none yet", WAIT)},
                width=3,
            )
        )
        .with_panel(
            number(
                "Monitors down",
                "Monitors that cannot be scraped. From 1: their agents are not monitored, their alarms reach nobody.",
                f"sum(up{{{HERE}}} == bool 0)",
                words=down,
                limit=1,
                nothing="no monitor to scrape",
                width=3,
            )
        )
        .with_panel(
            number(
                "Transitions follow the model",
                "Whether observed transitions agree with the model. If not, the alert names the agent.",
                f"max(cfmon_model_doubt{{{HERE}}} or cfmon_agent_doubt{{{HERE}}})",
                words={0: ("yes", GOOD), 1: ("NO: in doubt", TROUBLE), None: ("not tested", NO_ANSWER)},
                limit=1,
            )
        )
    )


def _now(made: Dashboard) -> Dashboard:
    labels = "alertname, severity, agent, formula, reason, result, instance"
    ours = 'alertname=~"Cfmon.+", alertstate="firing", severity!="none", job=~"$job|"'  # without a job: of all
    alerts = f"max by ({labels}) (ALERTS{{{ours}}})"
    return made.with_panel(
        cells(
            "Alerts now",
            "Firing Prometheus alerts of the jobs selected above, for all monitors. The name links to the runbook, the "
            "agent to its dashboard.",
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
            "The worst state of each agent's formulas, the number that fire, and the time since its last step; agents "
            "that need somebody are first.",
            [
                query(state_by("agent", WHO), letter="A", now=True),
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
                "Value #C": "time since last step",
                "Value #D": "steps off policy in 5 min",
            },
            words={"state": STATES},
            first="state",
            units={"time since last step": "s", "formulas firing": "none", "steps off policy in 5 min": "none"},
            links={"agent": TO_AGENT},
            nothing="no agent is known",
            height=9,
        )
    )


def _over_time(made: Dashboard) -> Dashboard:
    return (
        made.with_panel(
            timeline(
                "Monitors and agents over time",
                "A row for each monitor and each agent. BLIND: a formula could not be evaluated; alarms keep their "
                "state. NOT MONITORED: its monitor is down, or has forgotten it. Click a row to open the agent's "
                "dashboard.",
                [
                    query(f"32 + 2 * (up{{{HERE}}} == bool 0)", "monitor {{instance}}", letter="A"),
                    query(state_by("agent", WHO), "{{agent}}", letter="B"),
                ],
                STATES,
                links=AGENT_LINKS,
                nothing="no monitor",
                height=12,
            )
        )
        .with_panel(
            graph(
                "Alarms started",
                "Alarms that started to fire, by formula, over all agents. Many at once suggest a change of the "
                "environment or of a policy.",
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
                "Messages received",
                "Messages a second by result. Every result except accepted and duplicate is a step that cannot be "
                "evaluated.",
                [query(f"sum by (result) (rate(cfmon_messages_total{{{HERE}}}[$__rate_interval]))", "{{result}}")],
                unit="cps",
            )
        )
        .with_panel(
            graph(
                "Verdicts",
                "Verdicts a second by outcome. An undecided verdict changes no alarm.",
                [query(f"sum by (outcome) (rate(cfmon_verdicts_total{{{HERE}}}[$__rate_interval]))", "{{outcome}}")],
                unit="cps",
            )
        )
        .with_panel(
            graph(
                "Blind, by reason",
                "Number of blind (agent, formula) pairs by reason. The runbook CfmonFormulaBlind has the fix for each "
                "reason.",
                [query(f"sum by (reason) (cfmon_blind{{{HERE}}})", "{{reason}}")],
                unit="short",
                nothing="no formula was blind",
            )
        )
        .with_panel(
            graph(
                "Takeovers, and whether they were needed",
                "Judged takeovers by formula. Needed: the deployed policy would have missed the goal, and it was met. "
                "Needless: the deployed policy would have met it too. Harmful: only the deployed policy would have met "
                "it. Futile: neither. Undecided: not known, such as in an episode that was cut off.",
                [
                    query(
                        f"sum by (formula, outcome) (increase(cfmon_takeovers_total{{{HERE}}}[$__rate_interval]))",
                        "{{formula}} {{outcome}}",
                    )
                ],
                unit="short",
                bars=True,
                nothing="no formula judges takeovers",
                width=24,
            )
        )
        .with_panel(
            graph(
                "Missed goals, and whether they could have been met",
                "Missed goals of regret formulas that were examined (by default while an alarm is pending or fires). "
                "Foresight: the policy that is best without hindsight would have met them. Hindsight: only with "
                "knowledge of how it turned out. No: nobody could have. Unknown: too large, sampled, or nested.",
                [
                    query(
                        f"sum by (formula, avoidable) (increase(cfmon_recourse_total{{{HERE}}}[$__rate_interval]))",
                        "{{formula}} {{avoidable}}",
                    )
                ],
                unit="short",
                bars=True,
                nothing="no missed goal is examined",
                width=24,
            )
        )
    )
