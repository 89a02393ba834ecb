"""Notices as Prometheus metrics. Dashboards and alert rules depend on their names and labels.

Every counter starts at 0, so that its first increase is visible. No label contains a state or an episode. Agents are
label values, up to the configured limit. The series of a forgotten agent are removed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, assert_never, get_args

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest

from monitor.alarm.figures import effect_of, is_open, other, own, own_quantity
from monitor.sidecar.effects import Effects
from monitor.sidecar.sinks.instruments import FIGURES, PLACES, UNKNOWN, Instruments
from monitor.sidecar.sinks.reliability import WORDS, counted
from monitor.sidecar.sinks.sink import Watched
from monitor.sidecar.webhooks.sender import PostResult
from monitor.statistics.calibration import CalibrationCounts
from monitor.types.alerts import Alert
from monitor.types.notices import (
    AlarmMoved,
    Blind,
    Calibrated,
    Contradictions,
    Deviates,
    Ended,
    Forecast,
    Forgotten,
    Judged,
    Notice,
    OffPolicy,
    Received,
    Refreshed,
    RewardMismatch,
    Skipped,
    TakenOver,
    Trust,
)
from monitor.types.stream_events import Instant
from monitor.types.verdicts import Verdict

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
NOTHING: Final = (math.nan,) * len(FIGURES)
UNREAD: Final = ("rejected", "dropped", "gap")
"""Results of messages without a step. They create no series for an agent, because an agent with only such messages is
not monitored. It would never be forgotten, and its series would never be removed."""


def outcome_of(verdict: Verdict) -> str:
    """Return the label value under which a verdict is counted; `value` for `=?`, which has no truth value."""
    if verdict.outcome is not None:
        return verdict.outcome
    if verdict.value is not None:
        return "value"
    return "undecided" if verdict.holds is None else "holds" if verdict.holds else "fails"


class Metrics:
    """The sink for Prometheus. `exposition` runs on the server's thread, all other methods on the loop's.

    No method waits.
    """

    def __init__(self, watched: Watched, queue_length: Callable[[], float] = lambda: 0.0) -> None:
        # Disable the unneeded second series of each counter. prometheus_client has one switch for the whole process.
        disable_created_metrics()  # type: ignore[no-untyped-call] # it has no annotations
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)  # memory, processor, open files of this process, under the usual names
        self._severity = _severities(watched)
        self._limit = watched.agents
        self._agents: set[str] = set()
        self._reasons: dict[tuple[str, str], set[str]] = {}
        self._blind: set[tuple[str, str]] = set()
        """(agent, formula) pairs that are blind now"""
        self._banded: set[tuple[str, str]] = set()
        """(agent, formula) pairs whose bands or support are shown"""
        self._published: dict[tuple[str, str], tuple[str, str]] = {}
        """(agent, formula) -> id and state of the newest alert"""
        self._forecasts: dict[str, CalibrationCounts] = {}
        self._on = Instruments(self.registry)
        self._on.queue_length.set_function(queue_length)
        self._on.last_evaluation.set_function(lambda: self._evaluated)
        self._on.start(watched)
        self._evaluated = 0.0

    def exposition(self) -> bytes:
        """Return the response to a scrape."""
        return generate_latest(self.registry) + self._on.text().encode()

    def connected(self, *, up: bool) -> None:
        """Show whether the broker is reached."""
        self._on.connected.set(up)

    def others_seen(self, count: int) -> None:
        """Count messages of other shards. These messages are ignored."""
        self._on.others.inc(count)

    def evaluated(self, seconds: float, notices: Iterable[Notice], now: Instant) -> None:
        """Observe an evaluation that took `seconds`. Its time is divided equally among its verdicts."""
        judged = Counter(notice.formula for notice in notices if type(notice) is Judged)
        if judged:
            each = seconds / judged.total()
            for formula, count in judged.items():
                self._on.verdict_seconds.observe(each, formula, count=count)
        self._evaluated = now.wall

    def store_failed(self) -> None:
        """Count a failed write. Until `store_works`, a restart would lose events."""
        self._on.store_errors.inc()
        self._on.store_ok.set(0)

    def store_works(self) -> None:
        """Show that everything is written."""
        self._on.store_ok.set(1)

    def store_damaged(self, count: int, now: Instant) -> None:
        """Count cases in which stored data differed from the data that had been written."""
        self._on.store_damage.inc(count)
        self._on.last_store_damage.set(now.wall)

    def picture_failed(self) -> None:
        """Count a picture that could not be drawn. Called on the server's thread."""
        self._on.picture_errors.inc()

    def watch_posts(self, webhook: str, waiting: Callable[[], int]) -> None:
        """Show the number of posts that wait for a webhook, and start the counters of its results at 0."""
        self._on.webhook_waiting.labels(webhook).set_function(waiting)
        for result in get_args(PostResult):
            self.count_posts(webhook, result, 0)

    def count_posts(self, webhook: str, result: PostResult, count: int) -> None:
        """Count results of a webhook."""
        self._on.webhook_posts.inc((webhook, result), count)

    def reloaded(self, *, ok: bool) -> None:
        """Show whether the last reload succeeded. If not, the former configuration is still in force."""
        self._on.reload_success.set(ok)

    def sink_failed(self, name: str, count: int = 1) -> None:
        """Count exceptions of the sink called `name`; 0 creates the series."""
        self._on.sink_errors.inc((name,), count)

    def adopt(self, watched: Watched) -> None:
        """Continue with another configuration. Counters continue; new counters start at 0.

        Removed formulas lose their series, and a formula whose severity changed gets new ones.
        """
        severity = _severities(watched)
        gone = {name: level for name, level in self._severity.items() if severity.get(name) != level}
        for agent in self._agents:
            self._on.remove_formulas(agent, gone, self._drop(agent, gone))
        for name in self._severity.keys() - severity.keys():
            self._on.stop(name)
        self._forecasts.clear()  # `recall` sets the counts of each followed formula
        new = [name for name in severity if name in gone or name not in self._severity]
        self._severity, self._limit = severity, watched.agents
        self._on.adopt(watched)
        for agent in self._agents:
            self._blank(agent, severity)
            for name in new:
                self._show_alarm(agent, name, "clear")

    def take(self, effects: Effects, now: Instant) -> None:
        """Count and show the effects of an event."""
        for notice in effects.notices:
            kind = type(notice)
            if kind is Received:  # nearly all are one of these two
                self._received(notice, now)  # type: ignore[arg-type] # as its class says
            elif kind is Judged:
                self._judged(notice)  # type: ignore[arg-type] # likewise
            else:
                self._take(notice, now)

    def recall(self, effects: Effects, now: Instant) -> None:
        """Show the whole state. The events that led to it were counted earlier."""
        for notice in effects.notices:
            match notice:
                case Judged():
                    self._show_verdict(notice)
                case Alert():
                    self._published[notice.agent, notice.formula] = (notice.id, notice.state)
                    self._show_alarm(notice.agent, notice.formula, notice.state)
                case _:
                    self._take(notice, now)

    def _take(self, notice: Notice, now: Instant) -> None:
        match notice:  # the most frequent ones first
            case Refreshed():
                pass  # the notice `Judged` shows its verdict
            case Forecast() | Calibrated():
                self._show_forecasts(notice)
            case Alert():
                self._count_alert(notice, now)
            case AlarmMoved():
                self._show_alarm(notice.agent, notice.formula, notice.state)
            case Ended():
                self._blank(notice.agent, self._severity)
            case Received():
                self._received(notice, now)
            case Judged():
                self._judged(notice)
            case Blind():
                self._show_blind(notice)
            case OffPolicy() | RewardMismatch() | Skipped() | TakenOver():
                self._count(notice)
            case Deviates():
                self._show_deviation(notice)
            case Forgotten():
                self._on.forgotten.inc()
                self._forget(notice.agent)
            case Trust():
                self._show_trust(notice)
            case Contradictions():
                self._on.show_contradictions(notice)
            case _:
                assert_never(notice)

    def _count(self, notice: OffPolicy | RewardMismatch | Skipped | TakenOver) -> None:
        match notice:
            case OffPolicy():
                self._on.off_policy.inc((notice.agent,))
            case RewardMismatch():
                self._on.reward_mismatch.inc((notice.agent,))
            case Skipped():
                self._on.skipped.inc((notice.formula,), notice.count)
            case TakenOver():
                self._on.takeovers.inc((notice.formula, notice.outcome))
            case _:
                assert_never(notice)

    # ---- one method a notice ----

    def _received(self, notice: Received, now: Instant) -> None:
        agent, result = notice.agent, notice.result
        self._on.messages.inc((result,))
        if result == "rejected":
            self._on.rejected.inc((notice.reason,))
        if result in UNREAD or (agent not in self._agents and not self._admit(agent)):
            return
        self._on.last_message.set((agent,), now.wall)
        if notice.lag is not None:
            if notice.lag < 0:
                self._on.negative_lags.inc()
            else:
                self._on.lag.observe(notice.lag)

    def _show_deviation(self, notice: Deviates) -> None:
        if self._admit(notice.agent):
            self._on.off_policy_ratio.set((notice.agent,), notice.share)

    def _show_trust(self, notice: Trust) -> None:
        doubted = float(notice.doubted) if notice.transitions > 0 else math.nan
        if not notice.agent:
            self._on.model_doubt.set(doubted)
            self._on.model_log10_e.set(notice.log10_e if notice.transitions > 0 else math.nan)
        elif notice.transitions == 0:  # the start of a test is not reported
            self._on.agent_doubt.remove((notice.agent,))
        elif self._admit(notice.agent):
            self._on.agent_doubt.set((notice.agent,), doubted)

    def _show_forecasts(self, notice: Forecast | Calibrated) -> None:
        """Count a forecast that is due. The scores of one agent are shown only on the agent's page."""
        if isinstance(notice, Calibrated) and notice.agent:
            return
        if isinstance(notice, Forecast):
            self._on.forecasts.inc((notice.formula, WORDS[notice.came_true]))
        counts = counted(self._forecasts.get(notice.formula), notice)
        self._forecasts[notice.formula] = counts
        self._on.show_calibration(notice.formula, counts)

    def _admit(self, agent: str) -> bool:
        """Return whether series of this agent may exist. If they are missing, create them, with every alarm clear."""
        if agent in self._agents:
            return True
        if not agent or len(self._agents) >= self._limit:
            return False
        self._agents.add(agent)
        self._on.start_agent(agent)
        self._blank(agent, self._severity)
        for formula in self._severity:
            self._show_alarm(agent, formula, "clear")
        return True

    def _judged(self, notice: Judged) -> None:
        self._on.verdicts.inc((notice.formula, outcome_of(notice.verdict), notice.verdict.method))
        if (recourse := notice.verdict.recourse) is not None:
            self._on.recourse.inc((notice.formula, recourse.avoidable or UNKNOWN))
        self._show_verdict(notice)

    def _show_verdict(self, notice: Judged) -> None:
        key = (notice.agent, notice.formula)
        if not self._admit(notice.agent) or key in self._blind:  # an unreliable answer is not shown as a value
            return
        verdict = notice.verdict
        self._on.figures.keep(key, partial(_figures, verdict))
        if verdict.bands is None:
            if key in self._banded:
                self._hide_bands(key)
            return
        self._banded.add(key)
        value = own_quantity(verdict)
        if value is not None:
            self._on.show_bands(*key, {"credible": value.credible, "guaranteed": value.guaranteed})
        if verdict.support is None:
            self._on.support.remove(key)
        else:
            self._on.support.set(key, float(verdict.support))

    def _hide_bands(self, key: tuple[str, str]) -> None:
        self._banded.discard(key)
        self._on.show_bands(*key, {})
        self._on.support.remove(key)

    def _blank(self, agent: str, formulas: Iterable[str]) -> None:
        """Set values to NaN, because an old value would look like a current one."""
        if agent not in self._agents:
            return
        for formula in formulas:
            self._on.figures.set((agent, formula), *NOTHING)
            self._hide_bands((agent, formula))

    def _show_blind(self, notice: Blind) -> None:
        if not self._admit(notice.agent):
            return
        key = (notice.agent, notice.formula)
        known = self._reasons.setdefault(key, set())
        if notice.reason is None:
            self._blind.discard(key)
        else:
            known.add(notice.reason)
            self._blind.add(key)
            self._blank(notice.agent, [notice.formula])
        for reason in known:
            self._on.blind.set((notice.agent, notice.formula, reason), float(reason == notice.reason))

    def _show_alarm(self, agent: str, formula: str, state: str) -> None:
        if not self._admit(agent):
            return
        place = state if state in PLACES else "clear"
        for name in PLACES:
            self._on.alarm_state.set((agent, formula, self._severity[formula], name), float(name == place))

    def _count_alert(self, notice: Alert, now: Instant) -> None:
        """Count changes of an alarm's state. An alert that only reports blindness is no change."""
        key, newest = (notice.agent, notice.formula), (notice.id, notice.state)
        if self._published.get(key) != newest:
            self._on.alarms.inc((notice.formula, notice.severity, notice.state))
            if notice.state == "firing" and self._admit(notice.agent):
                self._on.last_alarm.set(key, now.wall)
        self._published[key] = newest
        self._show_alarm(notice.agent, notice.formula, notice.state)

    def _forget(self, agent: str) -> None:
        if agent not in self._agents:
            return
        self._agents.discard(agent)
        self._on.remove(agent, self._severity, self._drop(agent, self._severity))

    def _drop(self, agent: str, formulas: Iterable[str]) -> dict[str, set[str]]:
        """Forget these formulas of an agent; return the reasons for which each has been blind."""
        for formula in formulas:
            self._published.pop((agent, formula), None)
            self._blind.discard((agent, formula))
            self._banded.discard((agent, formula))
        return {formula: self._reasons.pop((agent, formula), set()) for formula in formulas}


def _severities(watched: Watched) -> dict[str, str]:
    return {query.spec.name: query.spec.alarm.severity for query in watched.queries}


def _figures(verdict: Verdict) -> tuple[float, ...]:
    """Return value and bounds of the agent and of the alternative, and the effect; NaN for unknown numbers.

    If unrecorded transitions leave a value open, its bounds are its extremes.
    """
    ends = [quantity.extremes for quantity in verdict.quantities] if own_quantity(verdict) is not None else []
    pairs = zip((own(verdict), other(verdict)), (*ends, None, None), strict=False)
    first, second = (_shown(value, end if is_open(end) else bounds) for (value, bounds), end in pairs)
    return *first, *second, _number(effect_of(verdict))


def _shown(value: float | None, bounds: tuple[float, float] | None) -> tuple[float, float, float]:
    lower, upper = bounds if bounds is not None else (math.nan, math.nan)
    return _number(value), lower, upper


def _number(value: float | None) -> float:
    return math.nan if value is None else value
