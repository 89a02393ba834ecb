"""Expected alerts: the publisher's log through the same pipeline without faults; and the comparison with them.

A fault may *mark* an alarm (`blind`: disconnected, stale, deadline), which is published as a further revision; so is a
changed verdict, at most once a second. These revisions are removed, and marks counted. The rest (how each alarm fired
and closed) must equal the alerts of a monitor without faults, in every number.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from monitor.alarm.figures import own
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Evaluate, Message
from monitor.types import Ended, Instant, Judged
from tests.faults.publisher import read_log

__all__ = ["ALERTS", "Expected", "Fault", "Heard", "Outcome", "compare", "replay", "said_again"]

Alert = dict[str, Any]
Fault = tuple[float, float]
"""When a fault began and ended, in seconds since the epoch."""

Marks = defaultdict[tuple[str, Any], list[int]]
"""(topic, episode) -> revisions of an alarm that fired already."""

MARKS: Final = frozenset({None, "disconnected", "stale", "deadline"})
"""Blind reasons that a fault of network or process may cause; others would mean that the path was damaged."""

ALERTS: Final = "cfmon/alerts/"
LATER: Final = 60.0
"""Seconds after which all timers have expired: no earlier step or end of episode is awaited."""

OF_THE_MOMENT: Final = frozenset({"sent", "sent_unix", "revision", "blind", "summary", "details", "handover"})
"""Keys that depend on the time of publication. Revision, summary, details and handover are checked separately."""

LASTING: Final = ("id", "revision", "state", "blind", "severity", "agent", "formula", "fired", "since", "evidence")
"""Keys that are the same in every copy of a revision: the others follow the newest verdict."""


@dataclass
class Expected:
    """`alerts` in order; `newest`: (agent, formula) -> seq and value of the last verdict in a running episode."""

    steps: int = 0
    alerts: list[Alert] = field(default_factory=list)
    newest: dict[tuple[str, str], tuple[int, float | None]] = field(default_factory=dict)

    def take(self, effects: Effects) -> None:
        """Add the effects of a pipeline."""
        for notice in effects.notices:
            if isinstance(notice, Judged):
                self.newest[notice.agent, notice.formula] = (notice.seq, own(notice.verdict)[0])
            if isinstance(notice, Ended):
                self.newest = {key: verdict for key, verdict in self.newest.items() if key[0] != notice.agent}
        self.alerts += [{"topic": message.topic, **json.loads(message.payload)} for message in effects.publications]


@dataclass(frozen=True)
class Heard:
    """Message received by a subscriber; `at`: in seconds since the epoch; `again`: redelivered by the broker."""

    at: float
    topic: str
    payload: bytes
    again: bool = False


@dataclass
class Outcome:
    """Result of a comparison; `problems` is empty if it succeeded.

    `duplicates` are of the monitor, `redelivered` of the broker; `most_copies` of one alert beyond the first.
    """

    steps: int = 0
    alerts: int = 0
    duplicates: int = 0
    most_copies: int = 0
    redelivered: int = 0
    marks: int = 0
    heartbeats: int = 0
    problems: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        """Return the numbers, for a report."""
        return {name: figure for name, figure in asdict(self).items() if name != "problems"}


def replay(config: Path, log: Path, rate: float) -> Expected:
    """Run a pipeline of the same configuration that evaluates each step immediately."""
    read = load_config(config, {})
    patient = read.stream.model_copy(update={"stale_after": 1800.0})  # no agent is silent at the end
    pipeline = assemble(read.model_copy(update={"stream": patient})).pipeline("expected")
    found = Expected()
    for agent, payload in read_log(log):
        now = Instant(0.0, found.steps / rate)  # the agents' clock is what counts
        pipeline.step(Message(now, f"agents/{agent}/steps", payload))
        found.take(pipeline.step(Evaluate(now)))
        found.steps += 1
    found.take(pipeline.step(Evaluate(Instant(0.0, found.steps / rate + LATER))))
    return found


def compare(expected: Expected, heard: Iterable[Heard], faults: Sequence[Fault], *, late: bool = False) -> Outcome:
    """Compare received with expected alerts; each may be repeated once for each fault after it was sent.

    `late`: ignore how late an alarm is published.
    """
    outcome = Outcome()
    told = _first_copies(heard, faults, outcome)
    wanted: dict[str, list[Alert]] = defaultdict(list)
    for alert in expected.alerts:
        wanted[alert["id"]].append(alert)
    outcome.steps, outcome.alerts = expected.steps, len(expected.alerts)
    marks, news = _without_marks(told, outcome), _without_marks(wanted, Outcome())
    for name in wanted.keys() - told.keys():
        outcome.problems.append(f"missing: {_short(wanted[name][0])}")
    for name in told.keys() - wanted.keys():
        outcome.problems.append(f"unexpected: {_short(told[name][0])}")
    for name in wanted.keys() & told.keys():
        moment = OF_THE_MOMENT | ({"late"} if late else set())
        outcome.problems += _differences(wanted[name], told[name], news, marks, moment)
    return outcome


def said_again(said: Iterable[Heard], faults: Sequence[Fault]) -> tuple[int, list[str]]:
    """Count duplicates sent by the monitor itself, recorded on its own connection; return also the excess ones."""
    outcome = Outcome()
    _first_copies((told for told in said if told.topic.startswith(ALERTS)), faults, outcome)
    return outcome.duplicates, outcome.problems


def _first_copies(heard: Iterable[Heard], faults: Sequence[Fault], outcome: Outcome) -> dict[str, list[Alert]]:
    """Return id -> its revisions in order; count repeated messages."""
    copies: dict[tuple[str, int], list[tuple[Heard, Alert]]] = defaultdict(list)
    for message in heard:
        if message.payload:
            alert = {"topic": message.topic, **json.loads(message.payload)}
            copies[alert["id"], alert["revision"]].append((message, alert))
    told: dict[str, list[Alert]] = defaultdict(list)
    for (name, _), several in sorted(copies.items()):
        # If messages are reordered, a heartbeat with a newer verdict may overtake the message that it repeats.
        first = min((alert for _, alert in several), key=sent_at)
        told[name].append(first)
        if any(alert[key] != first[key] for _, alert in several for key in LASTING):
            outcome.problems.append(f"different contents under one revision: {_short(first)}")
        outcome.heartbeats += sum(alert["sent"] != first["sent"] for _, alert in several)
        same = [message for message, alert in several if alert["sent"] == first["sent"]]
        outcome.redelivered += sum(message.again for message in same[1:])
        again = sum(not message.again for message in same[1:])
        outcome.duplicates += again
        outcome.most_copies = max(outcome.most_copies, again)
        since = sum(begun <= same[-1].at and sent_at(first) <= ended for begun, ended in faults)
        if again > since:
            outcome.problems.append(f"{again} copies after {since} faults: {_short(first)}")
    return told


def sent_at(alert: Alert) -> float:
    return float(alert["sent_unix"])


def _without_marks(told: dict[str, list[Alert]], outcome: Outcome) -> Marks:
    """Remove the revisions of an alarm that is already firing: their number depends on when steps arrive.

    Count those that begin or end a mark.
    """
    marks: Marks = defaultdict(list)
    for alerts in told.values():
        blind = alerts[0]["blind"]
        for mark in [alert for alert in alerts[1:] if alert["state"] == "firing"]:
            alerts.remove(mark)
            marks[mark["topic"], mark["episode"]].append(mark["revision"])
            outcome.marks += mark["blind"] != blind
            blind = mark["blind"]
            if mark["blind"] not in MARKS:
                outcome.problems.append(f"the path was damaged ({mark['blind']}): {_short(mark)}")
    return marks


def _differences(
    wanted: list[Alert], told: list[Alert], news: Marks, marks: Marks, moment: frozenset[str]
) -> Iterable[str]:
    """Yield differences. `news`, `marks`: revisions removed from the expected and from the received alerts."""
    states = [[alert["state"] for alert in alerts] for alerts in (wanted, told)]
    if states[0] != states[1]:
        yield f"{states[1]} instead of {states[0]}: {_short(told[0])}"
        return
    for right, alert in zip(wanted, told, strict=True):
        wrong = [key for key in right if key not in moment and right[key] != alert.get(key)]
        if alert["blind"] == right["blind"]:
            wrong += [key for key in ("summary", "details", "handover") if alert[key] != right[key]]
        revisions = (
            message["revision"]
            - sum(other < message["revision"] for other in others[message["topic"], message["episode"]])
            for message, others in ((alert, marks), (right, news))
        )
        if len(set(revisions)) > 1:
            wrong.append("revision")
        if alert["blind"] != right["blind"] and alert["blind"] not in MARKS:
            wrong.append("blind")
        for key in wrong:
            yield f"{key} is {alert.get(key)!r}, not {right[key]!r}: {_short(alert)}"


def _short(alert: Alert) -> str:
    keys = ("topic", "episode", "seq", "state", "revision", "blind", "id")
    return " ".join(f"{key}={alert[key]}" for key in keys)
