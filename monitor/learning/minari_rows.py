"""Rows of a Minari dataset (extra `minari`), the format of the Farama Foundation for recorded episodes. Impure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from monitor.arrays import AnyArray
from monitor.errors import RecordingError, to_install
from monitor.learning import files
from monitor.learning.batch import Batch
from monitor.learning.files import START, Place, plain

__all__ = ["MinariRows", "is_minari"]

METADATA = Path("data", "metadata.json")


def is_minari(path: Path) -> bool:
    """Return whether a folder is a Minari dataset."""
    return (path / METADATA).is_file()


class MinariRows:
    """Minari dataset, a folder such as `~/.minari/datasets/D4RL/pointmaze/umaze-v2`; a batch ends with an episode.

    Columns: `episode`, `step`, `observation`, `next_observation`, `action`, `reward`, `terminated`, `truncated`; arrays
    become `observation[0]`, ..., maps `observation.key`. Arrays of more dimensions, such as pictures, are left out.
    """

    def __init__(self, path: Path) -> None:
        try:
            from minari import MinariDataset  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise RecordingError(f"{path}: needs minari: {to_install('minari')}") from error
        self.path = path
        self.position = 0
        self.kinds: Mapping[str, str] = START.kinds  # a dataset has types
        with self._readable():
            self._require_spaces()
            self._dataset = MinariDataset(path / METADATA.parent)
            self._bytes_a_step = files.size_of(path) / max(int(self._dataset.total_steps), 1)

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns; RecordingError if there is no step."""
        for episode in self._episodes():
            if len(episode):
                return tuple(self._columns(episode))
        raise RecordingError(f"{self.path}: is empty")

    def batches(self, wanted: Sequence[str], begin: Place = START) -> Iterator[Batch]:
        """Yield the wanted columns of whole episodes."""
        parts: list[dict[str, AnyArray]] = []
        first, rows, skipped = 1 + begin.rows, 0, 0
        for episode in self._episodes():
            if skipped < begin.rows:
                skipped += len(episode)
                continue
            columns = self._columns(episode)
            if missing := [name for name in wanted if name not in columns]:
                raise RecordingError(f"{self.path}: there is no column {missing[0]!r}; it has {', '.join(columns)}")
            parts.append({name: columns[name] for name in wanted})
            rows += len(episode)
            if rows >= files.ROWS:
                yield self._batch(parts, first, rows)
                parts, first, rows = [], first + rows, 0
        if rows:
            yield self._batch(parts, first, rows)

    def _batch(self, parts: list[dict[str, AnyArray]], first: int, rows: int) -> Batch:
        self.position = int((first + rows) * self._bytes_a_step)
        return Batch({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, first, str(self.path))

    def _episodes(self) -> Iterator[Any]:
        with self._readable():
            yield from self._dataset.iterate_episodes()

    def _columns(self, episode: Any) -> dict[str, AnyArray]:  # noqa: ANN401 - minari is optional
        steps = len(episode)
        found = {"episode": np.full(steps, int(episode.id)), "step": np.arange(steps)}
        found |= _parts("observation", episode.observations, slice(0, steps))
        found |= _parts("next_observation", episode.observations, slice(1, steps + 1))
        found |= _parts("action", episode.actions, slice(0, steps))
        ends = {"reward": episode.rewards, "terminated": episode.terminations, "truncated": episode.truncations}
        return found | {name: plain(np.asarray(values)) for name, values in ends.items()}

    def _require_spaces(self) -> None:
        """Refuse a dataset that would have to run its environment to be read."""
        metadata = json.loads((self.path / METADATA).read_text("utf-8"))
        if not isinstance(metadata, dict) or not {"observation_space", "action_space"} <= set(metadata):
            raise RecordingError(f"{self.path}: its spaces are not stored; write it with minari 0.5 or later")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, KeyError, ValueError, TypeError, AttributeError, AssertionError, ImportError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise RecordingError(f"{self.path}: cannot be read: {reason}") from error


def _parts(name: str, values: Any, part: slice) -> dict[str, AnyArray]:  # noqa: ANN401 - by the space: array, map, tuple
    """Return the columns of observations or actions; none for arrays of more than one dimension."""
    if isinstance(values, Mapping):
        every = [_parts(f"{name}.{key}", value, part) for key, value in values.items()]
    elif isinstance(values, tuple):
        every = [_parts(f"{name}[{i}]", value, part) for i, value in enumerate(values)]
    else:
        table = np.asarray(values)[part]
        if table.dtype.kind not in "biufU" or table.ndim not in (1, 2):
            return {}
        if table.ndim == 1:
            return {name: plain(table)}
        return {f"{name}[{i}]": plain(table[:, i]) for i in range(table.shape[1])}
    return {column: entries for columns in every for column, entries in columns.items()}
