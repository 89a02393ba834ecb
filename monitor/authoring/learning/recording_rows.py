"""Steps of a recording as rows, for `cfmon model learn`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from monitor.authoring.learning.mapping_rows import MappingRows, flat
from monitor.authoring.learning.row_files import EmptyFileError
from monitor.errors import InputError, RecordingError
from monitor.sidecar.events import Message
from monitor.sidecar.recording_formats import open_recording
from monitor.stream.decode import agent_of, decode
from monitor.types.stream_events import Observation

OPEN: Final = 1 << 16
"""Number of episodes whose last step is remembered, so that steps delivered twice are dropped."""


class RecordingRows(MappingRows):
    """Steps that a sidecar received, with columns `episode` (agent and episode), `seq`, `state`, `action` and so on.

    Messages that are not steps, and steps that arrived twice or late, are left out and counted in `dropped`.
    """

    def __init__(self, path: Path, pattern: str) -> None:
        self.path = path
        self.position = 0
        self.dropped = 0
        self._pattern = pattern

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the steps. Raises RecordingError if the recording is damaged."""
        newest: dict[str, int] = {}
        self.dropped = 0
        with open_recording(self.path) as recording:
            for event in recording:
                self.position = recording.position
                step = self._step(event) if isinstance(event, Message) else None
                if step is None:
                    continue
                episode = f"{step.agent}/{step.episode}"
                last = newest.pop(episode, -1)
                if step.seq <= last:
                    self.dropped += 1
                    newest[episode] = last
                    continue
                newest[episode] = step.seq
                if len(newest) > OPEN:
                    del newest[next(iter(newest))]
                yield _record(step, episode)

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns. Raises RecordingError if there is no step."""
        try:
            return super().names()
        except EmptyFileError:
            problem = f"{self.path}: is empty; no step on {self._pattern}, see --topic"
            raise RecordingError(problem) from None

    def _step(self, event: Message) -> Observation | None:
        try:
            return decode(agent_of(event.topic, self._pattern), event.payload)
        except InputError:
            self.dropped += 1
            return None


def _record(step: Observation, episode: str) -> dict[str, Any]:
    given = {"state": step.state, "inputs": step.inputs, "action": step.action, "reward": step.reward}
    return {
        "v": 1,
        "episode": episode,
        "seq": step.seq,
        **flat({name: value for name, value in given.items() if value is not None}),
        "terminated": step.terminated,
        "truncated": step.truncated,
    }
