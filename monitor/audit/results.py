"""Findings of an audit: alarms, takeovers, evaluations that a single process would have limited, and differences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from monitor.audit.partition import ALERTS, SPENT, TAKEOVERS
from monitor.audit.plan import DONE, Partition
from monitor.errors import RecordingError

OUTCOMES: Final = ("needed", "needless", "harmful", "futile", "undecided")
COUNTS: Final = ("accepted", "verdicts", "skipped", "rejected")


@dataclass(frozen=True, slots=True, order=True)
class Raised:
    """An alarm that fired. `episode`: as JSON. `seq`, `day`: seq and UTC date of the step on which it fired."""

    day: str
    agent: str
    formula: str
    episode: str
    seq: int
    id: str

    @property
    def place(self) -> tuple[str, str, str]:
        """Agent, formula and episode."""
        return self.agent, self.formula, self.episode


@dataclass
class Findings:
    """Findings of an audit.

    Attributes:
        raised: alarms in order.
        takeovers: (formula, policy, outcome) -> number of takeovers.
        counts: numbers of accepted steps, verdicts, skipped verdicts and rejections of the model.
        limited: number of evaluations at which a single process would have left steps to the next evaluation.
        seconds: total processor time of all partitions.
    """

    raised: list[Raised] = field(default_factory=list)
    takeovers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    limited: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class AlarmDifferences:
    """Difference between two lists of alarms: those in both at the same step, in both at different steps, or in one."""

    same: list[Raised]
    moved: list[tuple[Raised, Raised]]
    only_before: list[Raised]
    only_now: list[Raised]


def findings(plan: Mapping[int, Sequence[Partition]]) -> Findings:
    """Return the findings of all partitions. All results must exist."""
    found = Findings()
    spent: dict[str, list[np.ndarray[Any, Any]]] = {}
    lines: list[str] = []
    for part in (part for parts in plan.values() for part in parts):
        folder = Path(part.folder)
        about = json.loads((folder / DONE).read_bytes())
        found.counts.update({name: about.get(name, 0) for name in COUNTS})
        found.seconds += about["seconds"]
        for line in (folder / TAKEOVERS).read_bytes().splitlines():
            takeover = json.loads(line)
            found.takeovers[takeover["formula"], takeover["policy"], takeover["outcome"]] += 1
        lines += (folder / ALERTS).read_text(encoding="utf-8").splitlines()
        spent.setdefault(part.day, []).append(np.load(folder / SPENT))
    found.raised = _raised(lines, "the audit")
    found.limited = sum(_limited(np.concatenate(rows)) for rows in spent.values() if len(plan) > 1)
    return found


def raised_before(path: Path) -> list[Raised]:
    """Return the alarms in another audit's folder, or in lines printed by `cfmon replay`. Raises RecordingError."""
    files = sorted(path.glob(f"partitions/*/*/{ALERTS}")) if path.is_dir() else [path]
    if not files:
        raise RecordingError(f"{path}: holds no audit; give the folder of one, or what `cfmon replay` printed")
    try:
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from error
    return _raised(lines, str(path))


def changes(before: Iterable[Raised], now: Iterable[Raised]) -> AlarmDifferences:
    """Return the difference between two lists of alarms. Alarms of a formula in an episode are compared in order."""
    old, new = _by_place(before), _by_place(now)
    change = AlarmDifferences([], [], [], [])
    for place in sorted(old.keys() | new.keys()):
        mine, others = new.get(place, {}), old.get(place, {})
        change.same.extend(mine[seq] for seq in sorted(mine.keys() & others.keys()))
        appeared = [mine[seq] for seq in sorted(mine.keys() - others.keys())]
        gone = [others[seq] for seq in sorted(others.keys() - mine.keys())]
        pairs = min(len(appeared), len(gone))
        change.moved.extend(zip(gone[:pairs], appeared[:pairs], strict=True))
        change.only_before.extend(gone[pairs:])
        change.only_now.extend(appeared[pairs:])
    return change


def _by_place(raised: Iterable[Raised]) -> dict[tuple[str, str, str], dict[int, Raised]]:
    found: dict[tuple[str, str, str], dict[int, Raised]] = {}
    for alarm in raised:
        found.setdefault(alarm.place, {})[alarm.seq] = alarm
    return found


def _raised(lines: Iterable[str], source: str) -> list[Raised]:
    """Return each alarm once, from its first message."""
    found: dict[str, Raised] = {}
    for alert in _alerts(lines, source):
        if alert["state"] == "firing" and alert["id"] not in found:
            day = str(alert["fired"]["time"] or "unknown")[:10]
            episode = json.dumps(alert["episode"], ensure_ascii=False)
            place = (alert["agent"], alert["formula"]["name"], episode)
            found[alert["id"]] = Raised(day, *place, alert["fired"]["seq"], alert["id"])
    return sorted(found.values())


def _alerts(lines: Iterable[str], source: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            payload = json.loads(line)["payload"]
            if payload is not None and "revision" in payload:  # the message is neither a status nor a cleared topic
                payload["fired"]["seq"], payload["formula"]["name"], payload["id"]
                yield payload
        except (ValueError, KeyError, TypeError) as error:
            raise RecordingError(f"{source}, line {number}: is not what `cfmon replay` prints: {error!r}") from None


def _limited(spent: np.ndarray[Any, Any]) -> int:
    """Return the number of evaluations in which all buckets together used all allowed steps.

    A row of `spent` has the number of the event, the steps used by a bucket, and the steps allowed.
    """
    if not len(spent):
        return 0
    events, places = np.unique(spent[:, 0], return_inverse=True)
    used, given = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
    np.add.at(used, places, spent[:, 1])
    given[places] = spent[:, 2]
    return int((used >= given).sum())
