"""Dashboard of one agent: state and blindness of each formula, values over time with bounds, and its messages."""

from __future__ import annotations

from frame import HERE, NOT_ALL_SEEN, STATES, Episode, board, choose, counted, recalled, state_by, unseen
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue
from panels import BLIND, GOOD, TROUBLE, graph, number, query, timeline

__all__ = ["agent"]

ONE = f'{HERE}, agent="$agent"'
SOME = f'{ONE}, formula=~"$formula"'
FIRING = f'sum(cfmon_alarm_state{{{ONE}, state="firing"}})'
ANY_AGENT = f'{HERE}, formula=~"$formula"'


def agent() -> Dashboard:
    """Return the dashboard."""
    about = "One agent: alarms, blindness, and values with their bounds over causal models."
    variables = [
        choose(),
        recalled("agent", "Agent", "The agent shown.", f"cfmon_last_message_timestamp_seconds{{{HERE}}}", many=False),
        recalled("formula", "Formula", "The formulas shown below.", f"cfmon_alarm_state{{{ONE}}}", many=True),
    ]
    made = board("cfmon-agent", "Counterfactual monitor: one agent", about, variables)
    fires = f'max by (formula) (cfmon_alarm_state{{{SOME}, state="firing"}}) == 1'
    blind = f"max by (formula, reason) (cfmon_blind{{{SOME}}}) == 1"
    made = made.annotation(Episode("alarm firing", TROUBLE, fires, "{{formula}}"))
    made = made.annotation(Episode("blind", BLIND, blind, "{{formula}}: {{reason}}"))
    return _heard(_learned(_values(_states(_numbers(made)))))


def _numbers(made: Dashboard) -> Dashboard:
    return (
        made.with_panel(
            number(
                "Now",
                "The worst state of its formulas. BLIND: the monitor cannot evaluate one; treat the agent as not "
                "monitored.",
                f"max({state_by('agent', ONE)})",
                words=STATES,
                nothing="NOT MONITORED",
                width=6,
            )
        )
        .with_panel(
            number(
                "Formulas firing",
                "Formulas that the agent violates now. From 1: open the status page, which shows the counterfactual "
                "trajectory. UNKNOWN: no alarm is known to fire, but a formula is blind, or a monitor is down, hangs "
                "or has lost its broker.",
                counted(FIRING, unseen(ONE), FIRING),
                words={0: ("none", GOOD), **NOT_ALL_SEEN},
                limit=1,
                nothing="NOT MONITORED",
            )
        )
        .with_panel(
            number(
                "Time since last step",
                "Time since its last usable step. From one minute, within an episode, CfmonAgentSilent fires.",
                f"time() - max(cfmon_last_message_timestamp_seconds{{{ONE}}})",
                unit="s",
                limit=60,
                nothing="never seen, or forgotten",
            )
        )
        .with_panel(
            number(
                "Last alarm",
                "Time since one of its alarms last started to fire.",
                f"1000 * max(cfmon_last_alarm_timestamp_seconds{{{ONE}}})",
                unit="dateTimeFromNow",
                nothing="none so far",
                width=5,
            )
        )
        .with_panel(
            number(
                "Steps off policy",
                "Steps in the time shown on which it took an action that its nominal policy never takes.",
                f"sum(increase(cfmon_off_policy_total{{{ONE}}}[$__range]))",
                nothing="NOT MONITORED",
                width=5,
            )
        )
    )


def _states(made: Dashboard) -> Dashboard:
    return made.with_panel(
        timeline(
            "Each formula over time",
            "The alarm of each formula. BLIND: the formula was not evaluated, and the alarm keeps its state. NOT "
            "MONITORED: its monitor is down, or has forgotten the agent.",
            [query(state_by("formula", SOME), "{{formula}}")],
            STATES,
            nothing="NOT MONITORED",
        )
    ).with_panel(
        timeline(
            "Why it was blind",
            "A row for each reason in the time shown. The runbook CfmonFormulaBlind has the cause and fix of each.",
            [query(f"max by (reason) (cfmon_blind{{{SOME}}})", "{{reason}}")],
            {0: ("no", GOOD), 1: ("BLIND", BLIND)},
            nothing="never blind",
            height=6,
        )
    )


def _values(made: Dashboard) -> Dashboard:
    value = graph(
        "$formula: value",
        "The agent's own value (a probability or a reward) and its threshold (dotted); for a regret formula also the "
        "value under the alternative policy. Dashed: bounds over the configured class of causal models; for a regret "
        "formula, of the alternative value. Gap: the formula is blind, or no episode is running.",
        [
            query(f"max by (formula) (cfmon_formula_value{{{SOME}}})", "value", letter="A"),
            query(_either("lower"), "lower bound", letter="B"),
            query(_either("upper"), "upper bound", letter="C"),
            query(f"max by (formula) (cfmon_alternative_value{{{SOME}}})", "alternative", letter="D"),
            query(f"max by (formula) (cfmon_formula_threshold{{{ANY_AGENT}}})", "threshold", letter="E"),
        ],
        unit="none",
        least=None,
        nothing="no value: blind, or the formula has none",
    )
    dashed = DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [6, 6]})
    thin = DynamicConfigValue(id_val="custom.lineWidth", value=1)
    filled = DynamicConfigValue(id_val="custom.fillBelowTo", value="lower bound")
    shaded = DynamicConfigValue(id_val="custom.fillOpacity", value=15)
    value = value.override_by_name("lower bound", [dashed, thin])
    value = value.override_by_name("upper bound", [dashed, thin, filled, shaded])
    dotted = DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dot", "dash": [0, 6]})
    value = value.override_by_name("threshold", [dotted, thin])
    return made.with_panel(
        value.decimals(3).repeat("formula").repeat_direction("h").max_per_row(2).span(24)
    ).with_panel(
        graph(
            "Effect of the alternative policy",
            "Value under the alternative policy minus value under the nominal one, for regret formulas. Above 0: the "
            "alternative is better; 0: it changes nothing. Gap: the formula is blind, or no episode is running.",
            [query(f"max by (formula) (cfmon_effect{{{SOME}}})", "{{formula}}")],
            unit="none",
            limit=0,
            least=None,
            nothing="no value: blind, or not a regret formula",
            width=24,
        ).decimals(3)
    )


def _learned(made: Dashboard) -> Dashboard:
    low, high = (f"max by (formula, band) (cfmon_value_{end}{{{SOME}}})" for end in ("low", "high"))
    return made.with_panel(
        graph(
            "Bands of the value, on a learned model",
            "How far the agent's own value may be off because the model was learned from data. credible: the middle "
            "95 % of models drawn from the posterior. guaranteed: every causal model and every row that the data "
            "allow. Empty if the model was not learned, or if no band was computed for the last verdict.",
            [
                query(low, "{{formula}}: {{band}}, low", letter="A"),
                query(high, "{{formula}}: {{band}}, high", letter="B"),
            ],
            unit="none",
            least=None,
            nothing="no bands: not a learned model, or none computed",
        ).decimals(3)
    ).with_panel(
        graph(
            "Visits behind the answer, on a learned model",
            "The fewest recorded visits among the rows of the model that the last answer rests on. The lower, the "
            "less the answer is worth; an alert names the pairs to visit.",
            [query(f"min by (formula) (cfmon_formula_support{{{SOME}}})", "{{formula}}")],
            unit="none",
            nothing="not a learned model, or not computed",
        )
    )


def _either(bound: str) -> str:
    """Return the query of the alternative's bound if there is one, otherwise of the own value's bound."""
    alternative = f"max by (formula) (cfmon_alternative_{bound}{{{SOME}}})"
    return f"({alternative} == {alternative}) or max by (formula) (cfmon_formula_{bound}{{{SOME}}})"


def _heard(made: Dashboard) -> Dashboard:
    return (
        made.with_panel(
            graph(
                "Silence",
                "Time since its last usable step. Line: one minute; above it, within an episode, CfmonAgentSilent "
                "fires.",
                [query(f"time() - max by (agent) (cfmon_last_message_timestamp_seconds{{{ONE}}})", "{{agent}}")],
                unit="s",
                limit=60,
                nothing="never seen, or forgotten",
            )
        )
        .with_panel(
            graph(
                "Deviation from the nominal policy",
                "Fraction of the last 100 steps on which the nominal policy would have acted differently, beyond "
                "chance. From 0.1, CfmonAgentDeviates fires.",
                [query(f"max by (agent) (cfmon_off_policy_ratio{{{ONE}}})", "{{agent}}")],
                unit="percentunit",
                limit=0.1,
                nothing="NOT MONITORED",
            )
        )
        .with_panel(
            graph(
                "Rewards that contradict the model",
                "Steps a second whose reward differs from the model's reward for that transition. Verdicts about "
                "rewards are then unreliable; the path is not affected.",
                [query(f"sum by (agent) (rate(cfmon_reward_mismatch_total{{{ONE}}}[$__rate_interval]))", "{{agent}}")],
                unit="cps",
                nothing="NOT MONITORED",
            )
        )
    )
