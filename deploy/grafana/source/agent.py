"""One agent: each formula's state, why it is blind, its value over time with bounds, and how it is heard."""

from __future__ import annotations

from frame import HERE, NOT_ALL_SEEN, STATES, Episode, board, choose, counted, recalled, standing, unseen
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue
from panels import BLIND, GOOD, TROUBLE, graph, number, query, timeline

__all__ = ["agent"]

ONE = f'{HERE}, agent="$agent"'
SOME = f'{ONE}, formula=~"$formula"'
FIRING = f'sum(cfmon_alarm_state{{{ONE}, state="firing"}})'
ANY_AGENT = f'{HERE}, formula=~"$formula"'


def agent() -> Dashboard:
    """Build it."""
    about = "What the monitor says of one agent: alarms, blindness, values with their bounds over causal models."
    variables = [
        choose(),
        recalled(
            "agent", "Agent", "Whose page this is.", f"cfmon_last_message_timestamp_seconds{{{HERE}}}", many=False
        ),
        recalled("formula", "Formula", "Which to show below.", f"cfmon_alarm_state{{{ONE}}}", many=True),
    ]
    made = board("cfmon-agent", "Counterfactual monitor: one agent", about, variables)
    fires = f'max by (formula) (cfmon_alarm_state{{{SOME}, state="firing"}}) == 1'
    blind = f"max by (formula, reason) (cfmon_blind{{{SOME}}}) == 1"
    made = made.annotation(Episode("alarm fires", TROUBLE, fires, "{{formula}}"))
    made = made.annotation(Episode("blind", BLIND, blind, "{{formula}}: {{reason}}"))
    return _heard(_values(_states(_numbers(made))))


def _numbers(made: Dashboard) -> Dashboard:
    return (
        made.with_panel(
            number(
                "Now",
                "The worst state of any of its formulas. BLIND: the monitor cannot answer; treat the agent as "
                "unwatched.",
                f"max({standing('agent', ONE)})",
                words=STATES,
                nothing="NOT WATCHED",
                width=6,
            )
        )
        .with_panel(
            number(
                "Formulas firing",
                "How many of its formulas are breached now. From 1 on: open the status page, it tells what would have "
                "happened. UNKNOWN: none is known to fire, but a formula is blind, or a monitor is down, hangs or is "
                "without its broker.",
                counted(FIRING, unseen(ONE), FIRING),
                words={0: ("none", GOOD), **NOT_ALL_SEEN},
                limit=1,
                nothing="NOT WATCHED",
            )
        )
        .with_panel(
            number(
                "Last heard ago",
                "How long ago a usable step of it came. From a minute on, in the middle of an episode, "
                "CfmonAgentSilent fires.",
                f"time() - max(cfmon_last_message_timestamp_seconds{{{ONE}}})",
                unit="s",
                limit=60,
                nothing="never, or forgotten",
            )
        )
        .with_panel(
            number(
                "Last alarm",
                "When an alarm of it last began to fire.",
                f"1000 * max(cfmon_last_alarm_timestamp_seconds{{{ONE}}})",
                unit="dateTimeFromNow",
                nothing="none since it is known",
                width=5,
            )
        )
        .with_panel(
            number(
                "Steps off policy",
                "On how many steps in the time shown it acted otherwise than its nominal policy does.",
                f"sum(increase(cfmon_off_policy_total{{{ONE}}}[$__range]))",
                nothing="NOT WATCHED",
                width=5,
            )
        )
    )


def _states(made: Dashboard) -> Dashboard:
    return made.with_panel(
        timeline(
            "Each formula over time",
            "The alarm of each formula. BLIND: it was not answered, and the alarm stands as it stood before. NOT "
            "WATCHED: its monitor is gone, or has forgotten it.",
            [query(standing("formula", SOME), "{{formula}}")],
            STATES,
            nothing="NOT WATCHED",
        )
    ).with_panel(
        timeline(
            "Why it was blind",
            "A row for each reason there ever was. The runbook CfmonFormulaBlind has each reason's cause and remedy.",
            [query(f"max by (reason) (cfmon_blind{{{SOME}}})", "{{reason}}")],
            {0: ("no", GOOD), 1: ("BLIND", BLIND)},
            nothing="never blind",
            height=6,
        )
    )


def _values(made: Dashboard) -> Dashboard:
    value = graph(
        "$formula: value",
        "The agent's own value (a probability, or a reward) and what it is compared with (dotted); of a regret formula "
        "also the value under the alternative. Dashed: the bounds over every causal model asked for, of a regret "
        "formula those of the alternative, with what lies between them filled. A hole: blind, or between two episodes.",
        [
            query(f"max by (formula) (cfmon_formula_value{{{SOME}}})", "value", letter="A"),
            query(_either("lower"), "lower bound", letter="B"),
            query(_either("upper"), "upper bound", letter="C"),
            query(f"max by (formula) (cfmon_alternative_value{{{SOME}}})", "alternative", letter="D"),
            query(f"max by (formula) (cfmon_formula_threshold{{{ANY_AGENT}}})", "threshold", letter="E"),
        ],
        unit="none",
        least=None,
        nothing="no value: blind, or no quantity of its own",
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
            "What the alternative would change",
            "Value under the alternative minus value under the nominal policy, of regret formulas. Far above 0: the "
            "other policy would do better; at 0: it would change nothing. A hole: blind, or between two episodes.",
            [query(f"max by (formula) (cfmon_effect{{{SOME}}})", "{{formula}}")],
            unit="none",
            limit=0,
            least=None,
            nothing="no value: blind, or no regret formula",
            width=24,
        ).decimals(3)
    )


def _either(bound: str) -> str:
    """The alternative's bound where there is one: that of a regret formula's own value is the value itself."""
    alternative = f"max by (formula) (cfmon_alternative_{bound}{{{SOME}}})"
    return f"({alternative} == {alternative}) or max by (formula) (cfmon_formula_{bound}{{{SOME}}})"


def _heard(made: Dashboard) -> Dashboard:
    return (
        made.with_panel(
            graph(
                "Silence",
                "Seconds since a usable step of it came. The line: a minute, where CfmonAgentSilent fires in the "
                "middle of an episode.",
                [query(f"time() - max by (agent) (cfmon_last_message_timestamp_seconds{{{ONE}}})", "{{agent}}")],
                unit="s",
                limit=60,
                nothing="never heard, or forgotten",
            )
        )
        .with_panel(
            graph(
                "Deviation from the nominal policy",
                "Share of the last 100 steps on which the nominal policy would have acted otherwise, beyond what it "
                "leaves to chance. From 0.1 on, CfmonAgentDeviates fires.",
                [query(f"max by (agent) (cfmon_off_policy_ratio{{{ONE}}})", "{{agent}}")],
                unit="percentunit",
                limit=0.1,
                nothing="NOT WATCHED",
            )
        )
        .with_panel(
            graph(
                "Rewards that contradict the model",
                "How many steps a second say that they earned something else than the model has for that transition. "
                "Verdicts about rewards are then those of another environment; the path is not affected.",
                [query(f"sum by (agent) (rate(cfmon_reward_mismatch_total{{{ONE}}}[$__rate_interval]))", "{{agent}}")],
                unit="cps",
                nothing="NOT WATCHED",
            )
        )
    )
