"""Dashboard of the monitor itself: health, speed, losses, and the versions it runs."""

from __future__ import annotations

from frame import HERE, board, choose
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.timeseries import Panel
from panels import GOOD, NO_ANSWER, TROUBLE, Words, cells, graph, number, query, timeline

__all__ = ["itself"]

RATE = "[$__rate_interval]"


def itself() -> Dashboard:
    """Return the dashboard."""
    about = "Health of the monitor: connected, evaluating, in time, without losses, and with a model that fits."
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
                "Health",
                "Every row should be yes. NO in the first row: the monitor is down, and the other rows have no data. "
                "Each row has an alert and a runbook: CfmonDown, CfmonBrokerDisconnected, CfmonEvaluationStalled, "
                "CfmonStoreFailing, CfmonStoreDamaged, CfmonReloadFailed, CfmonModelDoubt.",
                [
                    query(f"up{{{HERE}}}", "{{instance}} answers scrapes", letter="A"),
                    query(f"cfmon_mqtt_connected{{{HERE}}}", "{{instance}} is connected to the broker", letter="B"),
                    query(f"{age} < bool 60", "{{instance}} evaluates", letter="C"),
                    query(f"cfmon_store_ok{{{HERE}}}", "{{instance}} writes its store", letter="D"),
                    query(f"{harmed} > bool 3600", "{{instance}} has an undamaged store", letter="E"),
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
                "Time since last evaluation",
                "The monitor evaluates at least once a second. From one minute, CfmonEvaluationStalled fires.",
                f"time() - min(cfmon_last_evaluation_timestamp_seconds{{{HERE}}})",
                unit="s",
                limit=60,
                width=6,
            )
        )
        .with_panel(
            number(
                "Messages waiting",
                "Messages received and not yet processed. It should return to 0 regularly.",
                f"sum(cfmon_queue_length{{{HERE}}})",
                unit="short",
                width=6,
            )
        )
        .with_panel(
            number(
                "Slowest verdicts",
                "99th percentile of the time for one verdict, of the slowest formula, over the last five minutes.",
                f"max(histogram_quantile(0.99, {slowest}))",
                words={None: ("no verdict in 5 min", NO_ANSWER)},
                unit="s",
                nothing="no verdict yet",
                width=6,
            )
        )
        .with_panel(
            number(
                "Agents refused",
                "Messages in the last five minutes from agents beyond limits.agents. From 1: these agents are not "
                "monitored.",
                f'sum(increase(cfmon_rejected_total{{{HERE}, reason="too_many_agents"}}[5m]))',
                words={0: ("none", GOOD)},
                limit=1,
                width=6,
            )
        )
    )


def _speed(made: Dashboard) -> Dashboard:
    def quantile(level: str, histogram: str, by: str) -> str:
        return f"histogram_quantile({level}, sum by ({by}) (rate({histogram}_bucket{{{HERE}}}{RATE})))"

    return (
        made.with_panel(
            graph(
                "Time for one verdict",
                "Median and 99th percentile by formula. Gap: no verdict.",
                [
                    query(quantile("0.5", "cfmon_verdict_seconds", "le, formula"), "{{formula}}, median", letter="A"),
                    query(quantile("0.99", "cfmon_verdict_seconds", "le, formula"), "{{formula}}, 99 %", letter="B"),
                ],
                unit="s",
            )
        )
        .with_panel(
            graph(
                "Message lag",
                "Age of steps on arrival, by the agent's clock: median and 99th percentile. It includes the "
                "difference of the two clocks. Gap: no step, or none with a time.",
                [
                    query(quantile("0.5", "cfmon_message_lag_seconds", "le"), "median", letter="A"),
                    query(quantile("0.99", "cfmon_message_lag_seconds", "le"), "99 %", letter="B"),
                ],
                unit="s",
            )
        )
        .with_panel(
            graph(
                "Verdicts by method",
                "Verdicts a second, exact or sampled.",
                [query(f"sum by (method) (rate(cfmon_verdicts_total{{{HERE}}}{RATE}))", "{{method}}")],
                unit="cps",
            )
        )
        .with_panel(
            graph(
                "Waiting messages",
                "Messages received and not yet processed. If it grows and does not fall: the monitor is slower than "
                "its stream.",
                [query(f"cfmon_queue_length{{{HERE}}}", "{{instance}}")],
                unit="short",
            )
        )
    )


def _losses(made: Dashboard) -> Dashboard:
    lost = f'sum by (result) (increase(cfmon_messages_total{{{HERE}, result=~"gap|conflict|dropped|stale"}}{RATE}))'
    none = "no monitor"
    return (
        made.with_panel(
            graph(
                "Steps lost",
                "Missing (gap), contradicting each other (conflict), dropped by the monitor (dropped), or of an "
                "episode that is over (stale). All should be 0; else see CfmonStepsLost.",
                [query(lost, "{{result}}")],
                unit="short",
                bars=True,
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Messages rejected",
                "By reason: the first error in the message. All should be 0; else see CfmonMessagesRejected.",
                [query(f"sum by (reason) (increase(cfmon_rejected_total{{{HERE}}}{RATE}))", "{{reason}}")],
                unit="short",
                bars=True,
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Evaluations skipped or undecided",
                "Skipped: due, but skipped under overload (CfmonEvaluationsSkipped). Undecided: too large, or too "
                "close to the bound for sampling (CfmonUndecided). Both should be 0.",
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
                "Store, pictures, clocks, forgotten agents",
                "Write errors of the store (CfmonStoreFailing), damage found in the store (CfmonStoreDamaged), "
                "pictures of alarms that could not be drawn (the log has the reason), and messages from the future "
                "(an agent's clock is ahead of the monitor's): all should be 0. Forgotten: agents removed after long "
                "silence (CfmonAgentIdle).",
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
                "log10 of the e-value. The line at 3 is 1000 to 1, where the model is rejected by default "
                "(trust.alpha). Flat, then steep: the environment changed. Steep from the start: the model never "
                "fitted. Gap: not tested.",
                [query(f"cfmon_model_log10_e_value{{{HERE}}}", "{{instance}}")],
                unit="none",
                limit=3,
                least=None,
            )
        )
        .with_panel(
            graph(
                "Rows and agents that contradict the model",
                "Rows of the model (pairs of state and action) that are wrong, and agents that do not follow it. Of "
                "those named at most 5 % are expected to be right. From 1 row on, CfmonRowsRejected fires. Gap: not "
                "tested.",
                [
                    query(f"cfmon_rejected_rows{{{HERE}}}", "{{instance}}: rows", letter="A"),
                    query(f"cfmon_rejected_agents{{{HERE}}}", "{{instance}}: agents", letter="B"),
                ],
                unit="short",
                limit=1,
            )
        )
        .with_panel(
            graph(
                "How far off these rows are",
                "Of at most ten rows: the largest difference of an observed fraction and the model's probability, and "
                "the evidence, log10 of an e-value. The status page has the next state and the number of visits.",
                [
                    query(
                        f"cfmon_row_deviation{{{HERE}}}",
                        "{{instance}}: state {{state}}, action {{action}}, deviation",
                        letter="A",
                    ),
                    query(
                        f"cfmon_row_log10_e_value{{{HERE}}}",
                        "{{instance}}: state {{state}}, action {{action}}, evidence",
                        letter="B",
                    ),
                ],
                unit="none",
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Memory of the process",
                "Resident memory. It grows with agents and formulas up to a bound; unlimited growth is a leak.",
                [query(f"process_resident_memory_bytes{{{HERE}}}", "{{instance}}")],
                unit="bytes",
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "CPU of the process",
                "Cores in use. Near 1 for long, with messages waiting: the monitor is slower than its stream.",
                [query(f"rate(process_cpu_seconds_total{{{HERE}}}{RATE})", "{{instance}}")],
                unit="none",
                nothing=none,
            )
        )
        .with_panel(
            graph(
                "Scrape duration",
                "Time Prometheus takes to read the metrics. At the scrape timeout (4 s, the line) the monitor counts "
                "as down.",
                [query(f"scrape_duration_seconds{{{HERE}}}", "{{instance}}")],
                unit="s",
                limit=4,
            )
        )
        .with_panel(_shards())
        .with_panel(_webhooks())
        .with_panel(_forecasts())
    )


def _shards() -> Panel:
    return graph(
        "Shards",
        "Of a fleet whose agents are shared by several monitors: shards that answer, and how many there should be "
        "(CfmonShardMissing), and messages a second that each shard ignores, because their agents are of other shards.",
        [
            query(f"count by (fleet) (count by (fleet, shard) (cfmon_shards{{{HERE}}}))", "{{fleet}}", letter="A"),
            query(f"max by (fleet) (cfmon_shards{{{HERE}}})", "{{fleet}} expected", letter="B"),
            query(f"rate(cfmon_messages_of_other_shards_total{{{HERE}}}{RATE})", "{{instance}} ignores", letter="C"),
        ],
        unit="none",
        nothing="no monitor is a shard",
        width=24,
    )


def _webhooks() -> Panel:
    def posts(result: str) -> str:
        chosen = f'{{{HERE}, result="{result}"}}'
        return f"sum by (webhook) (increase(cfmon_webhook_posts_total{chosen}{RATE}))"

    return graph(
        "Webhooks",
        "Alerts that wait for a webhook's receiver, delivered alerts, failed attempts, alerts given up, and those that "
        "it refused while it accepted others. All but delivered should be 0; else see CfmonWebhookFailing.",
        [
            query(f"sum by (webhook) (cfmon_webhook_waiting{{{HERE}}})", "{{webhook}} waiting", letter="A"),
            query(posts("delivered"), "{{webhook}} delivered", letter="B"),
            query(posts("failed"), "{{webhook}} failed", letter="C"),
            query(posts("dropped"), "{{webhook}} dropped", letter="D"),
            query(posts("refused"), "{{webhook}} refused", letter="E"),
        ],
        unit="short",
        nothing="no webhook is configured",
        width=24,
    )


def _forecasts() -> Panel:
    dropped = f'sum by (formula) (increase(cfmon_forecasts_total{{{HERE}, outcome="dropped"}}[$__range]))'
    followed = f"sum by (formula) (increase(cfmon_forecasts_total{{{HERE}}}[$__range]))"
    return graph(
        "Forecasts and outcomes",
        "Brier score: mean squared error of the probabilities forecast for the agents' own future; 0 is best. "
        "Expected: its mean if the forecasts are correct. Far apart: the deployed model or nominal policy is another "
        "one; the agent's page shows where. Dropped: fraction of forecasts in the time shown whose outcome stays "
        "unknown; a large one may bias the score. Of several monitors the largest score is shown. Gap: no "
        "forecast is due yet.",
        [
            query(f"max by (formula) (cfmon_brier_score{{{HERE}}})", "{{formula}}", letter="A"),
            query(f"max by (formula) (cfmon_brier_score_expected{{{HERE}}})", "{{formula}} expected", letter="B"),
            query(f"{dropped} / ({followed} > 0)", "{{formula}} dropped", letter="C"),
        ],
        unit="none",
        nothing="no formula has forecasts",
        width=24,
    )


def _identity(made: Dashboard) -> Dashboard:
    about = "The running version: compare it with the one you deployed."
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
