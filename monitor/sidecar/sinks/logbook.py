"""Log what is monitored, each change of an alarm, and which formulas become blind or can be evaluated again.

A new revision of a firing alarm is logged at level debug, because the alert and the page show it. Every entry is a
sentence, whose parts are also fields in a JSON log.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from monitor._version import __version__
from monitor.alarm.blindness import BLIND_WORDS, advises
from monitor.alarm.phrases import departing_text, wrong_row_text
from monitor.alarm.takeover import takeover_text
from monitor.model import MDP
from monitor.runtime.query import query_notes
from monitor.runtime.takeovers import UNREPORTED
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.effects import Effects
from monitor.sidecar.log import RateLimitedLog
from monitor.sidecar.sinks.sink import Watched
from monitor.statistics.deviation import NOTABLE
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
from monitor.types.stream_events import BlindReason, Instant
from monitor.types.verdicts import Verdict

ALARMS: Final = "monitor.alarms"
"""The logger for changes of alarms."""
LOG: Final = logging.getLogger(ALARMS)
ABOUT: Final = logging.getLogger("monitor.service")
LOST: Final = frozenset({"gap", "conflict", "stale", "dropped", "rejected"})
"""Results of a message if its step is not accepted, or if an earlier step is missing."""
UNSAID: Final = frozenset({AlarmMoved, Alert, Calibrated, Ended, Forecast, OffPolicy, Refreshed})
"""Notices that `_notice` does not log. Alerts are logged when published, blindness by reason."""

MOST_NAMED: Final = 3
"""Maximum number of agents named in one entry on blindness. Further agents are only counted."""
TAKEN_OVER: Final = ("agent", "formula", "policy", "outcome", "episode", "first_seq", "seq", "evidence")
"""Fields of a judged takeover that become fields of its log entry."""
LEVELS: Final = {"firing": logging.WARNING}
"""State of an alarm -> log level; other states have level info."""


def log_banner(loaded: Loaded, client_id: str) -> None:
    """At the start, log this monitor's name, the formulas, agents and model, and the topics of steps and alerts."""
    config, topics = loaded.config, loaded.topics
    _say(f"counterfactual-monitor {__version__} starts as {client_id}", version=__version__, client_id=client_id)
    log_watched(loaded)
    broker = config.mqtt.broker.address
    status = f"{topics.status}/{client_id}"
    _say(
        f"steps from {topics.steps} at {broker}; alerts to {topics.alerts}/<agent>/<formula>, status to {status}",
        broker=broker,
        steps=topics.steps,
        alerts=topics.alerts,
        status=status,
    )
    if config.store.path is not None:
        _say(f"state and evidence are kept in {config.store.path.parent}", store=str(config.store.path))


def log_watched(loaded: Loaded) -> None:
    """Log the formulas, with the model and the policies."""
    identity, model = loaded.identity, loaded.model
    states = f"{model.states:,} states" if isinstance(model, MDP) else f"{len(model.features)} features"
    _say(
        f"model {identity.model_name}: {states}, {model.actions:,} actions, sha256 {identity.model_sha256[:12]}",
        model=identity.model_name,
        sha256=identity.model_sha256,
    )
    for name, sha256 in sorted(identity.policies.items()):
        _say(f"policy {name}: sha256 {sha256[:12]}", policy=name, sha256=sha256)
    for spec in loaded.formulas:
        alarm = spec.alarm
        text = " ".join(spec.text.split())
        _say(
            f"formula {spec.name}: {text} ({alarm.severity}; fires after {alarm.for_}, resolves after {alarm.keep})",
            formula=spec.name,
            text=text,
            severity=alarm.severity,
        )
    for query in loaded.monitor.queries:
        if query.no_takeovers == UNREPORTED:
            ABOUT.warning("%s judges no takeovers: %s", query.spec.name, UNREPORTED)
    for note in query_notes(loaded.monitor.queries):
        ABOUT.warning("formula %s", note)


def _say(message: str, **fields: object) -> None:
    ABOUT.info(message, extra={"fields": fields})


class _Link(msgspec.Struct, frozen=True):
    id: str


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Logged(msgspec.Struct, frozen=True):
    """The part of an alert that is logged."""

    id: str
    formula: _Named
    evidence: _Link | None
    agent: str
    state: str
    revision: int
    severity: str
    blind: str | None
    outcome: str | None
    value: float | None
    episode: str | int
    seq: int
    summary: str


FIELDS: Final = tuple(name for name in _Logged.__struct_fields__ if name not in ("id", "formula", "evidence"))
"""Fields of an alert that become fields of its log entry."""
_read: Final = msgspec.json.Decoder(_Logged).decode


class Logbook:
    """The sink for the log."""

    def __init__(self, watched: Watched) -> None:
        self._alerts = watched.alerts
        self._log = RateLimitedLog(LOG)
        self._about_log = RateLimitedLog(ABOUT)
        self._firing: set[str] = set()
        self._deviating: set[str] = set()
        self._undecided: set[str] = set()
        self._rejected: dict[str, str] = {}

    def take(self, effects: Effects, now: Instant) -> None:
        """Log what one event caused."""
        notable = self._notable(effects.notices)
        if not (notable or effects.publications):
            return  # nearly always
        if blind := [notice for notice in notable if isinstance(notice, Blind)]:
            self._blindness(blind, now)
        for publication in effects.publications:
            if publication.payload and not publication.repeats and publication.topic.startswith(f"{self._alerts}/"):
                self._alert(_read(publication.payload))
        for notice in notable:
            self._notice(notice, now)

    def recall(self, effects: Effects, _now: Instant) -> None:
        """Log nothing, because an earlier process logged it."""
        for notice in effects.notices:
            if isinstance(notice, Contradictions):
                self._rejected = _rejected(notice)

    def adopt(self, _watched: Watched) -> None:
        """Continue with another configuration. Formulas that are undecided under the new one are logged again."""
        self._undecided.clear()

    def _notable(self, notices: Sequence[Notice]) -> list[Notice]:
        """Return the notices that may have to be logged."""
        found: list[Notice] = []
        for notice in notices:
            kind = type(notice)
            if kind is Received:  # most notices have one of these two kinds
                if notice.result in LOST:  # type: ignore[union-attr] # as its class says
                    found.append(notice)
            elif kind is Judged:
                if _is_undecided(notice.verdict) and notice.formula not in self._undecided:  # type: ignore[union-attr,arg-type] # likewise
                    found.append(notice)
            elif kind not in UNSAID:
                found.append(notice)
        return found

    def _notice(self, notice: Notice, now: Instant) -> None:
        match notice:
            case Received():
                what = (notice.result, notice.reason)
                said = (notice.agent or "an unknown agent", *what, notice.detail)
                self._about_log.warn(what, now, "message of %s %s: %s %s", *said)
            case RewardMismatch():
                words = "%s reports a reward that contradicts the model: %s"
                self._about_log.warn("reward", now, words, notice.agent, notice.detail)
            case Judged() if notice.formula not in self._undecided:
                self._undecided.add(notice.formula)
                ABOUT.warning("formula %s is undecided: %s", notice.formula, notice.verdict.reason)
            case Deviates():
                self._deviation(notice, now)
            case Trust(doubted=True):  # reported once, because the test ends with this report
                ABOUT.error(
                    "observed transitions%s contradict the model: e-value 1e%.1f after %d%s",
                    f" of {notice.agent}" if notice.agent else "",
                    notice.log10_e,
                    notice.transitions,
                    "".join(f"; {departing_text(each)}" for each in notice.departing),
                )
            case Contradictions():
                self._contradictions(notice)
            case Skipped():
                topic = f"{self._alerts}/{notice.agent}/{notice.formula}"
                words = "overload: answers of %s for %s are skipped; alarms on %s may be missing"
                self._about_log.warn(("skipped", topic), now, words, notice.formula, notice.agent, topic)
            case TakenOver():
                proof = f" [evidence {notice.evidence}]" if notice.evidence else ""
                fields = {name: getattr(notice, name) for name in TAKEN_OVER}
                same = "takeover", notice.formula, notice.agent, notice.outcome
                self._about_log.write(logging.INFO, same, now, "%s%s", takeover_text(notice), proof, fields=fields)
            case Forgotten():
                where = "in the middle of an episode" if notice.open else "between episodes"
                ABOUT.warning("%s is forgotten: silent for %.0f s, %s", notice.agent, notice.silent, where)
            case _:
                pass

    def _alert(self, alert: _Logged) -> None:
        again = alert.state == "firing" and alert.id in self._firing
        (self._firing.add if alert.state == "firing" else self._firing.discard)(alert.id)
        level = logging.DEBUG if again else LEVELS.get(alert.state, logging.INFO)
        if not LOG.isEnabledFor(level):
            return
        name, evidence = alert.formula.name, alert.evidence.id if alert.evidence else None
        about = {field: getattr(alert, field) for field in FIELDS}
        fields = {"alarm": alert.id, "formula": name, "evidence": evidence, **about}
        proof = f" [evidence {evidence}]" if evidence and not again else ""
        what = "still firing" if again else alert.state
        said = (what, name, alert.summary, proof)
        # The logger's own method is not used, because it searches the stack for the caller, and no entry shows the
        # caller.
        LOG.handle(
            LOG.makeRecord(LOG.name, level, __file__, 0, "ALARM %s: %s: %s%s", said, None, extra={"fields": fields})
        )

    def _contradictions(self, notice: Contradictions) -> None:
        """Log rows and agents when they are rejected, and when they are not rejected any more.

        Changed numbers are not logged.
        """
        before, self._rejected = self._rejected, _rejected(notice)
        for name, words in self._rejected.items():
            if name not in before:
                ABOUT.error("%s contradicts the model: %s", name, words)
        for name in before.keys() - self._rejected.keys():
            ABOUT.info("%s is not among those that contradict the model any more", name)

    def _deviation(self, notice: Deviates, now: Instant) -> None:
        """Log a deviation when it becomes notable, and when it ends. Changes in between are not logged."""
        agent, share = notice.agent, notice.share
        fields = {"agent": agent, "off_policy_ratio": share}
        if share >= NOTABLE and agent not in self._deviating:
            self._deviating.add(agent)
            words = (
                "%s deviates from its nominal policy, which would have acted otherwise on %.0f %% of its last %d steps"
            )
            said = agent, 100 * share, notice.steps
            self._log.write(logging.WARNING, ("deviates", agent), now, words, *said, fields=fields)
        elif share == 0.0 and agent in self._deviating:
            self._deviating.discard(agent)
            words = "%s follows its nominal policy again"
            self._log.write(logging.INFO, ("follows", agent), now, words, agent, fields=fields)

    def _blindness(self, notices: list[Blind], now: Instant) -> None:
        """Log one entry for each reason, with its agents; at most one a minute for the same agent and reason."""
        groups: dict[BlindReason | None, dict[str, list[Blind]]] = defaultdict(lambda: defaultdict(list))
        for notice in notices:
            groups[notice.reason][notice.agent].append(notice)
        for reason, agents in groups.items():
            if len(agents) > MOST_NAMED:
                self._many(reason, agents, now)
                continue
            for agent, same in agents.items():
                self._one(reason, agent, same, now)

    def _one(self, reason: BlindReason | None, agent: str, notices: list[Blind], now: Instant) -> None:
        names = [notice.formula for notice in notices]
        fields: dict[str, object] = {"agent": agent, "formulas": names, "blind": reason}
        listed, kind = ", ".join(names), (reason, agent)
        if reason is None:
            self._log.write(logging.INFO, kind, now, "%s: answered again: %s", agent, listed, fields=fields)
            return
        why = notices[0].detail or BLIND_WORDS[reason]
        words = "%s: in doubt (%s: %s): %s" if advises(reason) else "%s: blind (%s: %s): %s"
        fields["detail"] = why
        self._log.write(logging.WARNING, kind, now, words, agent, reason, why, listed, fields=fields)

    def _many(self, reason: BlindReason | None, agents: dict[str, list[Blind]], now: Instant) -> None:
        fields: dict[str, object] = {"agents": len(agents), "blind": reason}
        if reason is None:
            self._log.write(logging.INFO, reason, now, "%d agents are answered again", len(agents), fields=fields)
            return
        words = "%d agents are in doubt (%s: %s)" if advises(reason) else "%d agents are blind (%s: %s)"
        self._log.write(logging.WARNING, reason, now, words, len(agents), reason, BLIND_WORDS[reason], fields=fields)


def _is_undecided(verdict: Verdict) -> bool:
    """Return whether a verdict gives no answer.

    A verdict with an answer may have a reason too, for example for sampling.
    """
    if not verdict.reason:
        return False  # nearly always
    return verdict.outcome in (None, "undecided") and verdict.holds is None and verdict.value is None


def _rejected(notice: Contradictions) -> dict[str, str]:
    """Return name -> description of each named row and agent that is rejected."""
    rows = {f"row ({row.state}, {row.action})": wrong_row_text(row) for row in notice.rows}
    return rows | {f"agent {each.agent}": f"e-value 1e{each.log10_e:.1f}" for each in notice.agents}
