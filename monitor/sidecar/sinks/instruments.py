"""The metrics of the sidecar: name, help, labels, buckets, and the series that exist from the start.

To add a metric, declare it in `Instruments.__init__` and update it in `Metrics`. `make dashboards` makes the panel of
the metric. Counters with the label agent start at 0 when the agent appears. Series with the labels agent or formula are
removed with the agent or formula.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from monitor._version import __version__
from monitor.runtime.query import Query
from monitor.sidecar.sinks.exposition import HistogramFamily, SeriesFamily
from monitor.sidecar.sinks.reliability import WORDS
from monitor.sidecar.sinks.sink import FleetShard, Watched
from monitor.statistics.calibration import CalibrationCounts
from monitor.stream.decode import REASONS
from monitor.types.notices import Contradictions, TakeoverOutcome
from monitor.types.stream_events import MessageResult
from monitor.types.verdicts import Avoidable

PAIR = ("agent", "formula")
PLACES = ("clear", "pending", "firing")
"""States of an alarm: label values of `cfmon_alarm_state`."""

FIGURES = {
    "formula_value": "The agent's own value; NaN while blind or between episodes.",
    "formula_lower": "Lower bound of the agent's own value over the class of causal models.",
    "formula_upper": "Upper bound of the agent's own value over the class of causal models.",
    "alternative_value": "Value of a regret formula under the alternative.",
    "alternative_lower": "Lower bound of the alternative's value over the class of causal models.",
    "alternative_upper": "Upper bound of the alternative's value over the class of causal models.",
    "effect": "Value of a regret formula under the alternative minus its value under nominal.",
}
"""Gauges set by a verdict, in this order."""

BANDS = ("credible", "guaranteed")
"""Bands of the agent's own value on a learned model: label values of `cfmon_value_low` and `cfmon_value_high`."""
BAND_ENDS = {
    "value_low": "Lower end of a band of the agent's own value, on a learned model; absent if there is none now.",
    "value_high": "Upper end of a band of the agent's own value, on a learned model; absent if there is none now.",
}
"""Gauges set by a verdict on a learned model, in this order."""

ROW = {
    "row_log10_e_value": "Evidence against a row of the model that is wrong: log10 of an e-value; at most ten rows.",
    "row_deviation": "Largest difference of an observed fraction and the model's probability in such a row.",
}
"""Gauges of a rejected row, in this order."""

_VERDICT_BUCKETS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0, 5.0)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
CALIBRATION = {
    "brier_score": "Mean squared error of the forecasts whose outcome is known; NaN: none is.",
    "brier_score_expected": "Expected Brier score if every forecast is correct; NaN: no outcome is known.",
}
"""Gauges set by followed forecasts, in this order."""

UNKNOWN = "unknown"
"""Label value for a missed goal if it is unknown whether the goal could have been met."""

_COUNTED_STATES = ("firing", "resolved", "ended", "removed")
_OUTCOMES = ("safe", "regret", "unavoidable", "holds", "fails", "undecided", "value")


class Instruments:
    """Every metric of the sidecar.

    Metrics that change often are families of `exposition`; the other metrics are in one registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._families: list[SeriesFamily] = []
        self.figures = self._many(FIGURES, *PAIR)
        self.bands = self._many(BAND_ENDS, *PAIR, "band")
        self.support = self._shown("formula_support", "Fewest visits behind the answer, on a learned model.", *PAIR)
        self.threshold = self._gauge("formula_threshold", "Bound that the formula's value is compared with.", "formula")
        self.alarm_state = self._shown("alarm_state", "1 for the alarm's state, else 0.", *PAIR, "severity", "state")
        self.blind = self._shown("blind", "1 while the formula is blind for this reason.", *PAIR, "reason")
        self.last_alarm = self._shown("last_alarm_timestamp_seconds", "When the alarm last started to fire.", *PAIR)
        self.last_message = self._shown("last_message_timestamp_seconds", "Time of its last valid message.", "agent")
        self.last_evaluation = self._gauge("last_evaluation_timestamp_seconds", "Time of the last evaluation.")
        self.connected = self._gauge("mqtt_connected", "1 while the broker is connected.")
        self.queue_length = self._gauge("queue_length", "Messages received and not yet processed.")
        self.model_doubt = self._gauge(
            "model_doubt", "1 if the transitions of several agents contradict the model; NaN: not tested."
        )
        self.agent_doubt = self._shown("agent_doubt", "1 if this agent's transitions contradict the model.", "agent")
        self.model_log10_e = self._gauge(
            "model_log10_e_value", "Evidence against the model: log10 of an e-value; NaN: not tested."
        )
        self.rejected_rows = self._gauge("rejected_rows", "Rows of the model that are wrong; NaN: not tested.")
        self.rejected_agents = self._gauge("rejected_agents", "Agents that contradict the model; NaN: not tested.")
        self.row = self._many(ROW, "state", "action")
        self._named_rows: set[tuple[str, str]] = set()
        self.store_ok = self._gauge("store_ok", "1 while the store can be written; if 0, a restart loses state.")
        self.reload_success = self._gauge("config_reload_success", "1 if the last load of the configuration succeeded.")
        self.model_info = self._gauge("model_info", "The model in use.", "name", "sha256")
        self.policy_info = self._gauge("policy_info", "A policy in use.", "name", "sha256")
        self.shards = self._gauge("shards", "Number of shards of the monitor's fleet.", "fleet", "shard")
        self.build_info = self._gauge("build_info", "Version of the monitor.", "version")
        self.alarms = self._counted("alarms", "Alarm changes, by the new state.", "formula", "severity", "state")
        self.verdicts = self._counted("verdicts", "Verdicts, by outcome and method.", "formula", "outcome", "method")
        self.messages = self._counted("messages", "Messages, by result.", "result")
        self.others = Counter(
            "cfmon_messages_of_other_shards",
            "Messages ignored, as their agents are of other shards.",
            registry=registry,
        )
        self.rejected = self._counted("rejected", "Messages rejected, by reason.", "reason")
        self.off_policy = self._counted("off_policy", "Steps whose action the nominal policy never takes.", "agent")
        self.off_policy_ratio = self._shown(
            "off_policy_ratio",
            "Fraction of the last 100 steps on which the nominal policy would have acted differently, beyond chance.",
            "agent",
        )
        self.reward_mismatch = self._counted("reward_mismatch", "Steps whose reward contradicts the model.", "agent")
        self.skipped = self._counted("evaluations_skipped", "Evaluations skipped under load.", "formula")
        self.forecasts = self._counted("forecasts", "Forecasts, by outcome.", "formula", "outcome")
        self.calibration = self._many(CALIBRATION, "formula")
        self.takeovers = self._counted("takeovers", "Takeovers, by whether the goal needed them.", "formula", "outcome")
        self.recourse = self._counted(
            "recourse", "Missed goals examined, by whether they could have been met.", "formula", "avoidable"
        )
        self.forgotten = Counter("cfmon_agents_forgotten", "Agents forgotten after silence.", registry=registry)
        self.negative_lags = Counter("cfmon_negative_lags", "Messages with a time in the future.", registry=registry)
        self.store_errors = Counter("cfmon_store_errors", "Failed writes to the store.", registry=registry)
        self.store_damage = Counter("cfmon_store_damage", "Number of damages found in the store.", registry=registry)
        self.last_store_damage = self._gauge(
            "last_store_damage_timestamp_seconds", "When damage was last found; 0: never."
        )
        self.sink_errors = self._counted("sink_errors", "Exceptions raised by a sink.", "sink")
        self.webhook_posts = self._counted("webhook_posts", "Posts of alerts, by result.", "webhook", "result")
        self.webhook_waiting = self._gauge("webhook_waiting", "Posts not accepted by the receiver yet.", "webhook")
        self.picture_errors = Counter("cfmon_picture_errors", "Pictures that could not be drawn.", registry=registry)
        self.verdict_seconds = self._histogram(
            "verdict_seconds", "Time of one evaluation.", _VERDICT_BUCKETS, "formula"
        )
        self.lag = self._histogram("message_lag_seconds", "Time from the agent's clock to arrival.", _LAG_BUCKETS)

    def start(self, watched: Watched) -> None:
        """Create every series that is known beforehand, so that its first increase starts from 0."""
        for result in get_args(MessageResult):
            self.messages.inc((result,), 0)
        for reason in sorted(REASONS | {"too_many_agents"}):
            self.rejected.inc((reason,), 0)
        self.adopt(watched)
        if (part := watched.part) is not None:
            self.show_part(part)
        self.store_ok.set(1)
        self.reload_success.set(1)
        self.build_info.labels(__version__).set(1)

    def show_part(self, part: FleetShard) -> None:
        """Show which part of a fleet is monitored."""
        self.shards.labels(part.fleet, str(part.shard)).set(part.shard.of)

    def adopt(self, watched: Watched) -> None:
        """Continue with another configuration. New series start at 0; other counters continue."""
        for query in watched.queries:
            self._start_formula(query)
        self.model_doubt.set(math.nan)
        self.model_log10_e.set(math.nan)
        self.show_contradictions(Contradictions())
        for info in (self.model_info, self.policy_info):
            info.clear()
        identity = watched.identity
        self.model_info.labels(identity.model_name, identity.model_sha256).set(1)
        for name, sha256 in identity.policies.items():
            self.policy_info.labels(name, sha256).set(1)

    def stop(self, formula: str) -> None:
        """Remove the series of a formula that is not monitored any more."""
        for family in self._families:
            if family.labels[0] == "formula":
                family.drop("formula", formula)
        self._forget_threshold(formula)
        self.verdict_seconds.stop(formula)

    def show_contradictions(self, notice: Contradictions) -> None:
        """Show the number of rejected rows and agents, and the deviation of each named row."""
        tested = notice.rows_tested > 0
        self.rejected_rows.set(notice.rows_rejected if tested else math.nan)
        self.rejected_agents.set(notice.agents_rejected if tested else math.nan)
        named = {(row.state, row.action): row for row in notice.rows}
        for gone in self._named_rows - named.keys():
            self.row.remove(gone)
        for place, row in named.items():
            self.row.set(place, row.log10_e, abs(row.seen / max(row.visits, 1) - row.probability))
        self._named_rows = set(named)

    def show_calibration(self, formula: str, counts: CalibrationCounts) -> None:
        """Show the scores of all forecasts of a formula."""
        self.calibration.set((formula,), counts.brier, counts.expected_brier)

    def text(self) -> str:
        """Return the metrics that are not in the registry, in the text format."""
        return "".join([family.text() for family in self._families])

    def start_agent(self, agent: str) -> None:
        """Create the counters of an agent."""
        for family in self._families:
            if family.kind == "counter" and family.labels == ("agent",):
                family.inc((agent,), 0)
        self.off_policy_ratio.set((agent,), 0.0)

    def show_bands(self, agent: str, formula: str, bands: Mapping[str, tuple[float, float] | None]) -> None:
        """Show the bands of a verdict. A band that is None has no series."""
        for band in BANDS:
            ends = bands.get(band)
            if ends is None:
                self.bands.remove((agent, formula, band))
            else:
                self.bands.set((agent, formula, band), *ends)

    def remove(self, agent: str, severity: Mapping[str, str], reasons: Mapping[str, Iterable[str]]) -> None:
        """Remove every series of an agent. `severity`: formula -> severity of its alarm.

        `reasons`: formula -> reasons for which it has been blind. Each series is removed by its labels, because a
        search of all series takes seconds when many agents are forgotten at once.
        """
        self.remove_formulas(agent, severity, reasons)
        for family in self._families:
            if family.labels == ("agent",):
                family.remove((agent,))

    def remove_formulas(self, agent: str, severity: Mapping[str, str], reasons: Mapping[str, Iterable[str]]) -> None:
        """Remove an agent's series of these formulas; arguments as for `remove`."""
        for formula, level in severity.items():
            for family in self._families:
                if family.labels == PAIR:
                    family.remove((agent, formula))
            for place in PLACES:
                self.alarm_state.remove((agent, formula, level, place))
            for reason in reasons[formula]:
                self.blind.remove((agent, formula, reason))
            self.show_bands(agent, formula, {})

    def _start_formula(self, query: Query) -> None:
        formula, threshold = query.spec, query.threshold
        if threshold is None:
            self._forget_threshold(formula.name)
        else:
            self.threshold.labels(formula.name).set(threshold.bound)
        for state in _COUNTED_STATES:
            self.alarms.inc((formula.name, formula.alarm.severity, state), 0)
        for method in ("exact", "sampled") if formula.engine == "auto" else (formula.engine,):
            for outcome in _OUTCOMES:
                self.verdicts.inc((formula.name, outcome, method), 0)
        self.skipped.inc((formula.name,), 0)
        self._start_forecasts(query)
        self._start_takeovers(query)
        self._start_recourse(query)
        self.verdict_seconds.start(formula.name)

    def _start_forecasts(self, query: Query) -> None:
        """Create the series of a formula's forecasts.

        If no forecasts are followed, there are no series, because 0 would be wrong.
        """
        name = query.spec.name
        if isinstance(query.followed, str):
            for family in (self.forecasts, self.calibration):
                family.drop("formula", name)
            return
        for outcome in WORDS.values():
            self.forecasts.inc((name, outcome), 0)
        self.show_calibration(name, CalibrationCounts())

    def _start_takeovers(self, query: Query) -> None:
        """Create the series of a formula's takeovers.

        If no takeovers are judged, there are no series, because 0 would be wrong.
        """
        if query.takeover_goal is None:
            self.takeovers.drop("formula", query.spec.name)
            return
        for outcome in get_args(TakeoverOutcome):
            self.takeovers.inc((query.spec.name, outcome), 0)

    def _start_recourse(self, query: Query) -> None:
        """Create the series of missed goals. If none are examined, there are no series, because 0 would be wrong."""
        if query.alternative is None or query.spec.recourse == "off":
            self.recourse.drop("formula", query.spec.name)
            return
        for answer in (*get_args(Avoidable), UNKNOWN):
            self.recourse.inc((query.spec.name, answer), 0)

    def _forget_threshold(self, formula: str) -> None:
        with contextlib.suppress(KeyError):
            self.threshold.remove(formula)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"cfmon_{name}", about, labels, registry=self._registry)

    def _counted(self, name: str, about: str, *labels: str) -> SeriesFamily:
        self._families.append(family := SeriesFamily("counter", {f"cfmon_{name}_total": about}, *labels))
        return family

    def _shown(self, name: str, about: str, *labels: str) -> SeriesFamily:
        return self._many({name: about}, *labels)

    def _many(self, names: Mapping[str, str], *labels: str) -> SeriesFamily:
        named = {f"cfmon_{name}": about for name, about in names.items()}
        self._families.append(family := SeriesFamily("gauge", named, *labels))
        return family

    def _histogram(self, name: str, about: str, bounds: Sequence[float], *labels: str) -> HistogramFamily:
        family = HistogramFamily(f"cfmon_{name}", about, bounds, *labels)
        self._registry.register(family)
        return family
