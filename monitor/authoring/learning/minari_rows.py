"""Rows of a Minari dataset (extra `minari`), the format of the Farama Foundation for recorded episodes. Impure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.learning import row_files
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.row_files import START, FilePosition, joined, no_column, plain, refuse_rows
from monitor.errors import RecordingError, brief, to_install
from monitor.memory import bounded

METADATA: Final = Path("data", "metadata.json")

METADATA_BYTES: Final = 4 << 20


def is_minari(path: Path) -> bool:
    """Return whether a folder is a Minari dataset."""
    return (path / METADATA).is_file()


class MinariRows:
    """Minari dataset, a folder such as `~/.minari/datasets/D4RL/pointmaze/umaze-v2`. A batch ends with an episode.

    Columns: `episode`, `step`, `observation`, `next_observation`, `action`, `reward`, `terminated`, `truncated`. Arrays
    become `observation[0]`, ..., and maps become `observation.key`. Arrays of more dimensions, such as pictures, are
    left out. HDF5 files that refer to other files are refused, because those files may lie outside the dataset.
    """

    def __init__(self, path: Path) -> None:
        try:
            from minari import MinariDataset  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise RecordingError(f"{path}: needs minari: {to_install('minari')}") from error
        self.path = path
        self.position = 0
        self.kinds: Mapping[str, str] = START.kinds  # a dataset has types
        self.left_out: dict[str, str] = {}
        with bounded(path), self._readable():
            self._require_spaces()
            self._refuse_links()
            self._dataset = MinariDataset(path / METADATA.parent)
            self._size = row_files.size_of(path)
            self._bytes_a_step = self._size / max(int(self._dataset.total_steps), 1)

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns. Raises RecordingError if there is no step."""
        with bounded(self.path):
            for episode in self._episodes():
                if len(episode):
                    return tuple(self._columns(episode))
        raise RecordingError(f"{self.path}: is empty")

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns of whole episodes."""
        yield from joined(self._wanted(wanted), self.path, begin, row_files.ROWS)

    def _wanted(self, wanted: Sequence[str]) -> Iterator[dict[str, AnyArray]]:
        rows = 0
        for episode in self._episodes():
            columns = self._columns(episode)
            for name in wanted:
                if name not in columns:
                    raise no_column(self, name, columns)
            rows += len(episode)
            refuse_rows(self.path, rows, self._size)
            self.position = int(rows * self._bytes_a_step)
            yield {name: columns[name] for name in wanted}

    def _episodes(self) -> Iterator[Any]:
        with self._readable():
            yield from self._dataset.iterate_episodes()

    def _columns(self, episode: Any) -> dict[str, AnyArray]:  # noqa: ANN401 - minari is optional
        steps = len(episode)
        found = {"episode": np.full(steps, int(episode.id)), "step": np.arange(steps)}
        found |= self._parts("observation", episode.observations, slice(0, steps))
        found |= self._parts("next_observation", episode.observations, slice(1, steps + 1))
        found |= self._parts("action", episode.actions, slice(0, steps))
        ends = {"reward": episode.rewards, "terminated": episode.terminations, "truncated": episode.truncations}
        return found | {name: plain(np.asarray(values)) for name, values in ends.items()}

    def _require_spaces(self) -> None:
        """Refuse a dataset that can be read only by running its environment."""
        with (self.path / METADATA).open("rb") as file:
            content = file.read(METADATA_BYTES + 1)
        if len(content) > METADATA_BYTES:
            raise RecordingError(f"{self.path / METADATA}: is larger than {METADATA_BYTES >> 20} MiB")
        metadata = json.loads(content)
        if not isinstance(metadata, dict) or not {"observation_space", "action_space"} <= set(metadata):
            raise RecordingError(f"{self.path}: its spaces are not stored; write it with minari 0.5 or later")

    def _refuse_links(self) -> None:
        """Refuse HDF5 files that take data from other files, before anything opens these."""
        for file in sorted((self.path / METADATA.parent).glob("*.hdf5")):
            import h5py  # noqa: PLC0415 - the part of the extra for HDF5

            with h5py.File(file, "r") as opened:
                groups, seen = [opened], set[int]()
                while groups:
                    group = groups.pop()
                    if (place := h5py.h5o.get_info(group.id).addr) in seen:
                        continue
                    seen.add(place)
                    for name in group:
                        link = group.get(name, getlink=True)
                        if not isinstance(link, h5py.HardLink):
                            raise self._link(file, f"{group.name}/{name}")
                        member = group[name]
                        if isinstance(member, h5py.Group):
                            groups.append(member)
                        elif isinstance(member, h5py.Dataset) and (member.external or member.is_virtual):
                            raise self._link(file, member.name)

    def _link(self, file: Path, name: str) -> RecordingError:
        return RecordingError(f"{file}: {name} is a link, or keeps its data elsewhere; write one that holds its data")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, LookupError, ValueError, TypeError, AttributeError, AssertionError, ImportError) as error:
            raise RecordingError(f"{self.path}: cannot be read: {brief(error)}") from error
        except RecursionError as error:
            raise RecordingError(f"{self.path}: cannot be read: its metadata are nested too deeply") from error

    def _parts(self, name: str, values: Any, part: slice) -> dict[str, AnyArray]:  # noqa: ANN401 - array, map, tuple
        """Return the columns of observations or actions; no columns for arrays of more than one dimension."""
        if isinstance(values, Mapping):
            every = [self._parts(f"{name}.{key}", value, part) for key, value in values.items()]
        elif isinstance(values, tuple):
            every = [self._parts(f"{name}[{i}]", value, part) for i, value in enumerate(values)]
        else:
            table = np.asarray(values)[part]
            if table.dtype.kind not in "biufU" or table.ndim not in (1, 2):
                self.left_out[name] = f"arrays of {table.ndim - 1} dimensions of {table.dtype}"
                return {}
            if table.ndim == 1:
                return {name: plain(table)}
            return {f"{name}[{i}]": plain(table[:, i]) for i in range(table.shape[1])}
        return {column: entries for columns in every for column, entries in columns.items()}
