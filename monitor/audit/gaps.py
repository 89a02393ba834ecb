"""Find gaps in recordings: missing steps, by sequence number, and missing days. No message is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from monitor.audit.plan import Day
from monitor.sidecar.parquet_recording import read_part
from monitor.sidecar.recording_columns import ALL

_COLUMNS: Final = ("kind", "agent", "episode", "seq", "number_of")


@dataclass
class Gaps:
    """Gaps in recordings.

    Attributes:
        agents: number of agents.
        steps: number of messages that are steps.
        invalid: number of messages that are no steps.
        lost: number of messages that the monitor recorded as lost.
        missing: (agent, day) -> number of sequence numbers missing within episodes.
        cut: (agent, day) -> number of episodes without their beginning, except episodes that were open on the first
            day.
        days: dates without events between the first and the last date.
        newest: recordings whose newest events are not yet in a complete part, so that the audit lacks these events.
    """

    agents: int = 0
    steps: int = 0
    invalid: int = 0
    lost: int = 0
    missing: dict[tuple[str, str], int] = field(default_factory=dict)
    cut: dict[tuple[str, str], int] = field(default_factory=dict)
    days: list[str] = field(default_factory=list)
    newest: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a sentence for each kind of gap that was found."""
        agents = len({agent for agent, _ in self.missing})
        found = [
            (sum(self.missing.values()), f"steps of {agents} agents are missing within episodes"),
            (sum(self.cut.values()), "episodes are recorded without their beginning"),
            (self.lost, "messages were lost before the monitor had them"),
            (self.invalid, "messages are no steps"),
            (len(self.days), f"days have no events: {', '.join(self.days[:5])}{', ...' if len(self.days) > 5 else ''}"),
        ]
        shown = [f"{count:,} {what}" for count, what in found if count]
        return [*shown, *(f"the newest events of {path} are not in a complete part yet" for path in self.newest)]


def find_gaps(days: Sequence[Day]) -> Gaps:
    """Return the gaps in the recordings of these days. Raises RecordingError if a recording cannot be read."""
    gaps = Gaps(days=_missing_days(days))
    gaps.newest = [str(path) for path in dict.fromkeys(d.recording.path for d in days if d.recording.is_open)]
    agents: set[str] = set()
    newest: dict[int, dict[tuple[str, str], int]] = {}
    for place, day in enumerate(days):
        for part in day.parts:
            table = read_part(part.path, _COLUMNS)
            if part.bucket == ALL:
                gaps.invalid += _count(table, "message")
                continue
            gaps.lost += _lost(table)
            steps, episodes = _episodes(table)
            gaps.steps += steps
            gaps.invalid += _count(table, "message") - steps
            agents |= {agent for agent, _ in episodes}
            newest[part.bucket] = _compare(gaps, day.name, episodes, newest.get(part.bucket, {}), first=place == 0)
    gaps.agents = len(agents)
    return gaps


def _compare(
    gaps: Gaps,
    day: str,
    episodes: dict[tuple[str, str], tuple[int, int, int]],
    newest: dict[tuple[str, str], int],
    *,
    first: bool,
) -> dict[tuple[str, str], int]:
    """Count missing steps; return the newest seq of the day's episodes and of each silent agent's last episode."""
    for (agent, episode), (least, most, distinct) in episodes.items():
        before = newest.get((agent, episode))
        lacking = most - least + 1 - distinct
        if before is not None:
            lacking += max(0, least - before - 1)
        elif least > 0 and not first:
            gaps.cut[agent, day] = gaps.cut.get((agent, day), 0) + 1
        if lacking > 0:
            gaps.missing[agent, day] = gaps.missing.get((agent, day), 0) + lacking
    last = {agent: (agent, episode) for agent, episode in newest}  # a silent agent continues its last episode
    kept = {key: newest[key] for key in last.values()}
    return {**kept, **{key: max(most, kept.get(key, -1)) for key, (_, most, _) in episodes.items()}}


def _episodes(table: Any) -> tuple[int, dict[tuple[str, str], tuple[int, int, int]]]:  # noqa: ANN401 - of pyarrow
    """Return the number of steps, and (agent, episode) -> least, greatest and count of its sequence numbers."""
    steps = table.filter(table.column("seq").is_valid()).select(["agent", "episode", "seq"])
    grouped = steps.group_by(["agent", "episode"], use_threads=False)
    found = grouped.aggregate([("seq", "min"), ("seq", "max"), ("seq", "count_distinct")])
    names = ("agent", "episode", "seq_min", "seq_max", "seq_count_distinct")
    rows = zip(*(found.column(name).to_pylist() for name in names), strict=True)
    return steps.num_rows, {(agent, episode): (least, most, n) for agent, episode, least, most, n in rows}


def _count(table: Any, kind: str) -> int:  # noqa: ANN401 - of pyarrow
    from pyarrow import compute  # noqa: PLC0415 - an optional extra

    return int(compute.sum(compute.equal(table.column("kind"), kind)).as_py() or 0)


def _lost(table: Any) -> int:  # noqa: ANN401 - of pyarrow
    from pyarrow import compute  # noqa: PLC0415 - an optional extra

    return int(compute.sum(table.filter(compute.equal(table.column("kind"), "lost")).column("number_of")).as_py() or 0)


def _missing_days(days: Sequence[Day]) -> list[str]:
    dates = sorted({day.name.partition("~")[0] for day in days} - {"unknown"})
    if not dates:
        return []
    every = np.arange(np.datetime64(dates[0]), np.datetime64(dates[-1]) + 1)
    return [str(date) for date in every if str(date) not in dates] if len(every) < 36_525 else []
