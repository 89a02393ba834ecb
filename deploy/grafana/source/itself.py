"""The monitor itself: whether it can be relied on, how fast it answers, what it loses, what it runs on."""

from __future__ import annotations

from frame import HERE, board, choose
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.timeseries import Panel
from panels import GOOD, NO_ANSWER, TROUBLE, Words, cells, graph, number, query, timeline

__all__ = ["itself"]

RATE = "[$__rate_interval]"


def itself() -> Dashboard:
    """Build it."""
    about = (
        "Whether the monitor can be relied on: connected, judging, in time, losing nothing, and with a model that fits."
    )
    made = board("cfmon-monitor", "Counterfactual monitor: itself", about, [choose()])
    return _identity(_losses(_speed(_health(made))))


def _health(made: Dashboard) -> Dashboard:
    yes: Words = {0: ("NO", TROUBLE), 1: ("yes", GOOD), None: ("not tested", NO_ANSWER)}
    slowest = f"sum by (le, formula) (rate(cfmon_verdict_seconds_bucket{{{HERE}}}[5m]))"
    age = f"time() - max by (instance) (cfmon_last_evaluation_timestamp_seconds{{{HERE}}})"
    harmed = f"time() - max by (instance) (cfmon_last_store_damage_timestamp_seconds{{{HERE}}})"
    return (
        made.with_panel(
            timeline(
                "Can it be relied on?",
                "Every row should say yes. NO in the first: it is down, the others then have a hole. Each has an "
                "alert and a runbook: CfmonDown, CfmonBrokerDisconnected, CfmonEvaluationStalled, CfmonStoreFailing, "
                "CfmonStoreDamaged, CfmonReloadFailed, CfmonModelDoubt.",
                [
                    query(f"up{{{HERE}}}", "{{instance}} answers scrapes", letter="A"),
                    query(f"cfmon_mqtt_connected{{{HERE}}}", "{{instance}} reaches the broker", letter="B"),
                    query(f"{age} < bool 60", "{{instance}} judges", letter="C"),
                    query(f"cfmon_store_ok{{{HERE}}}", "{{instance}} writes its store", letter="D"),
                    query(f"{harmed} > bool 3600", "{{instance}} found its store whole", letter="E"),
                    query(
                        f"cfmon_config_reload_success{{{HERE}}}",
                        "{{instance}} runs on the newest configuration",
                        letter="F",
                    ),
                    query(f"1 - cfmon_model_doubt{{{HERE}}}", "{{instance}} has a model that fits", letter="G"),
                ],
                yes,
                nothing="no monitor to scrape",
                height=10,
            )
        )
        .with_panel(
            number(
                "Last judged ago",
                "The age of the last evaluation; it looks at least once a second. From a minute on "
                "CfmonEvaluationStalled fires.",
                f"time() - min(cfmon_last_evaluation_timestamp_seconds{{{HERE}}})",
                unit="s",
                limit=60,
                width=6,
            )
        )
        .with_panel(
            number(
                "Waiting",
                "Messages received and not yet taken over. It should come back to 0 again and again.",
                f"sum(cfmon_queue_length{{{HERE}}})",
                unit="short",
                width=6,
            )
        )
        .with_panel(
            number(
                "Slowest answers",
                "99 of 100 answers took no longer than this, of the slowest formula, in the last five minutes.",
                f"max(histogram_quantile(0.99, {slowest}))",
                words={None: ("no answer in 5 min", NO_ANSWER)},
                unit="s",
                nothing="no answer yet",
                width=6,
            )
        )
        .with_panel(
            number(
                "Agents refused",
                "Messages of the last five minutes from agents beyond limits.agents. From 1 on: those agents are not "
                "watched at all.",
                f'sum(increase(cfmon_rejected_total{{{HERE}, reason="too_many_agents"}}[5m]))',
                words={0: ("none", GOOD)},
                limit=1,
                width=6,
            )
        )
    )


def _speed(made: Dashboard) -> Dashboard:
    def quantile(share: str, histogram: str, by: str) -> str:
        return f"histogram_quantile({share}, sum by ({by}) (rate({histogram}_bucket{{{HERE}}}{RATE})))"

    return (
        made.with_panel(
            graph(
                "Time for one answer",
                "Median and 99th percentile by formula. A hole: nothing was answered meanwhile.",
                [
                    query(quantile("0.5", "cfmon_verdict_seconds", "le, formula"), "{{formula}}, median", letter="A"),
                    query(quantile("0.99", "cfmon_verdict_seconds", "le, formula"), "{{formula}}, 99 %", letter="B"),
                ],
                unit="s",
            )
        )
        .with_panel(
            graph(
                "From the agent's clock to ours",
                "How old steps are when they come, median and 99th percentile. It holds the two clocks' difference "
                "too. A hole: no step came meanwhile, or none that says its time.",
                [
                    query(quantile("0.5", "cfmon_message_lag_seconds", "le"), "median", letter="A"),
                    query(quantile("0.99", "cfmon_message_lag_seconds", "le"), "99 %", letter="B"),
                ],
                unit="s",
            )
        )
        .with_panel(
            graph(
                "Answers by method",
                "Answers a second, exact or sampled.",
                [query(f"sum by (method) (rate(cfmon_verdicts_total{{{HERE}}}{RATE}))", "{{method}}")],
                unit="cps",
            )
        )
        .with_panel(
            graph(
                "Waiting messages",
                "Received and not yet taken over. One that grows and does not fall again: the monitor is slower than "
                "its stream.",
                [query(f"cfmon_queue_length{{{HERE}}}", "{{instance}}")],
                unit="short",
            )
        )
    )


def _losses(made: Dashboard) -> Dashboard:
    lost = f'sum by (result) (increase(cfmon_messages_total{{{HERE}, result=~"gap|conflict|dropped|stale"}}{RATE}))'
    none = "nothing is scraped"
    return (
        made.with_panel(
            graph(
                "Steps lost",
                "Missing (gap), contradicting each other (conflict), thrown away (dropped), of an episode long over "
                "(stale). All should be 0; else see CfmonStepsLost.",
                [query(lost, "{{result}}")],
                unit="short",
                bars=True,
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Messages rejected",
                "By the first thing that is wrong with them. All should be 0; else see CfmonMessagesRejected.",
                [query(f"sum by (reason) (increase(cfmon_rejected_total{{{HERE}}}{RATE}))", "{{reason}}")],
                unit="short",
                bars=True,
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Answers passed over or undecided",
                "Skipped: due, and passed over to stay with the present (CfmonEvaluationsSkipped). Undecided: too "
                "large a question, or too near its bound for sampling (CfmonUndecided). Both should be 0.",
                [
                    query(
                        f"sum by (formula) (increase(cfmon_evaluations_skipped_total{{{HERE}}}{RATE}))",
                        "{{formula}} skipped",
                        letter="A",
                    ),
                    query(
                        f'sum by (formula) (increase(cfmon_verdicts_total{{{HERE}, outcome="undecided"}}{RATE}))',
                        "{{formula}} undecided",
                        letter="B",
                    ),
                ],
                unit="short",
                bars=True,
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Store, pictures, clocks, agents forgotten",
                "Failures to write down what happens (CfmonStoreFailing), finds that the store is not what was written "
                "(CfmonStoreDamaged), pictures of alarms that could not be drawn (the log says why), and messages that "
                "claim to come from the future: an agent's clock is ahead of the monitor's. All should be 0. Agents "
                "forgotten since they were silent for long (CfmonAgentIdle).",
                [
                    query(f"sum(increase(cfmon_store_errors_total{{{HERE}}}{RATE}))", "store errors", letter="A"),
                    query(f"sum(increase(cfmon_negative_lags_total{{{HERE}}}{RATE}))", "from the future", letter="B"),
                    query(f"sum(increase(cfmon_store_damage_total{{{HERE}}}{RATE}))", "store damage", letter="C"),
                    query(f"sum(increase(cfmon_picture_errors_total{{{HERE}}}{RATE}))", "no picture", letter="D"),
                    query(f"sum(increase(cfmon_agents_forgotten_total{{{HERE}}}{RATE}))", "forgotten", letter="E"),
                ],
                unit="short",
                bars=True,
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Evidence against the model",
                "log10 of an e-value: 3 (the line) is a thousand to one, and where doubt begins unless trust.alpha "
                "says otherwise. Flat and then steep: the world has changed. Steep from the start: the model never "
                "fitted. A hole: not tested.",
                [query(f"cfmon_model_log10_e_value{{{HERE}}}", "{{instance}}")],
                unit="none",
                limit=3,
                least=None,
            )
        )
        .with_panel(
            graph(
                "Memory of the process",
                "What is resident. It grows with agents and formulas up to a bound; without end it is a leak.",
                [query(f"process_resident_memory_bytes{{{HERE}}}", "{{instance}}")],
                unit="bytes",
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Processor of the process",
                "How many cores it uses. Near 1 for long, with messages waiting: it is slower than its stream.",
                [query(f"rate(process_cpu_seconds_total{{{HERE}}}{RATE})", "{{instance}}")],
                unit="none",
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Time of a scrape",
                "How long Prometheus takes to read the metrics. At the scrape's time limit (4 s, the line) the "
                "monitor counts as down.",
                [query(f"scrape_duration_seconds{{{HERE}}}", "{{instance}}")],
                unit="s",
                limit=4,
            )
        )
        .with_panel(_forecasts())
    )


def _forecasts() -> Panel:
    dropped = f'sum by (formula) (increase(cfmon_forecasts_total{{{HERE}, outcome="dropped"}}[$__range]))'
    followed = f"sum by (formula) (increase(cfmon_forecasts_total{{{HERE}}}[$__range]))"
    return graph(
        "Forecasts against what came of them",
        "Brier score: mean squared error of the probabilities given for the agents' own future; 0 is best. Expected: "
        "what it is on average if each forecast is true. Far apart: the model or the nominal policy is not what is "
        "deployed; the agent's page shows where. Dropped: share of forecasts, in the time shown, of which the outcome "
        "stays unknown; a large one may bias the score. A hole: no forecast has come due.",
        [
            query(f"max by (formula) (cfmon_brier_score{{{HERE}}})", "{{formula}}", letter="A"),
            query(f"max by (formula) (cfmon_brier_score_expected{{{HERE}}})", "{{formula}} expected", letter="B"),
            query(f"{dropped} / ({followed} > 0)", "{{formula}} dropped", letter="C"),
        ],
        unit="none",
        nothing="no formula is followed",
        width=24,
    )


def _identity(made: Dashboard) -> Dashboard:
    about = "What exactly runs: compare it with what you deployed."
    return (
        made.with_panel(
            cells(
                "Software",
                about,
                [query(f"cfmon_build_info{{{HERE}}}", now=True)],
                columns={"instance": "instance", "version": "version"},
                hidden=["Value", "job"],
                width=6,
                height=5,
            )
        )
        .with_panel(
            cells(
                "Model",
                about,
                [query(f"cfmon_model_info{{{HERE}}}", now=True)],
                columns={"instance": "instance", "name": "model", "sha256": "sha256"},
                hidden=["Value", "job"],
                width=9,
                height=5,
            )
        )
        .with_panel(
            cells(
                "Policies",
                about,
                [query(f"cfmon_policy_info{{{HERE}}}", now=True)],
                columns={"instance": "instance", "name": "policy", "sha256": "sha256"},
                hidden=["Value", "job"],
                width=9,
                height=5,
            )
        )
    )
