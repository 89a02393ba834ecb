"""Counts of `cfmon replay`: messages that were read, accepted and rejected, verdicts and alarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from monitor.cli.recorded_inputs import many
from monitor.sidecar.events import Event, Message
from monitor.types.alerts import Alert
from monitor.types.notices import Judged, Notice, Received


@dataclass
class ReplayCounts:
    """Counts of a replay.

    Attributes:
        read: number of messages read.
        results: result -> number of messages.
        reasons: reason -> number of rejected messages.
        examples: reason -> description of the first rejected message.
        verdicts: number of verdicts on all formulas.
        alarms: ids of the alarms.
    """

    read: int = 0
    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    verdicts: int = 0
    alarms: set[str] = field(default_factory=set)

    def add(self, event: Event, notices: Iterable[Notice]) -> None:
        """Count an event and its results."""
        self.read += isinstance(event, Message)
        for notice in notices:
            match notice:
                case Received(result=result, reason=reason, detail=detail):
                    self.results[result] += 1
                    if result == "rejected":
                        self.reasons[reason] += 1
                        self.examples.setdefault(reason, detail)
                case Judged():
                    self.verdicts += 1
                case Alert(id=name):
                    self.alarms.add(name)
                case _:
                    pass

    def listing(self) -> str:
        """Return the counts in a sentence."""
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.most_common())
        parts = [
            f"{count:,} {result}{f' ({reasons})' if result == 'rejected' else ''}"
            for result, count in self.results.most_common()
        ]
        read = f"{many(self.read, 'message')} read{': ' if parts else ''}{', '.join(parts)}"
        return f"{read}; {many(self.verdicts, 'verdict')}, {many(len(self.alarms), 'alarm')}"
