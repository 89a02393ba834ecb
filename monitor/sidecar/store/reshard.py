"""Copy the agents of stores to new stores, for another number of shards. The old stores are not changed.

All old stores are read and checked first. Then the new stores are written into a hidden folder, which is renamed at the
end. A failure therefore leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from monitor.atomic import new_path
from monitor.errors import ConfigError, EvidenceError, InputError
from monitor.evidence.document import read_evidence
from monitor.runtime.resharding import MonitorParts, divided, joined, later
from monitor.sidecar.effects import Publication
from monitor.sidecar.pipeline import CommonState, Snapshot, StoredAgent
from monitor.sidecar.store.alarm_history import MAX_ALARMS, AlarmRecord, HistoryChanges
from monitor.sidecar.store.high_water import HighWaterMark
from monitor.sidecar.store.journal import STORE_ERRORS, Batch, Journal, SnapshotSetting, StoreContent
from monitor.stream import seal, unseal
from monitor.stream.shard import MOST_SHARDS, Shard, parse_shard, shard_of

DATABASE: Final = "cfmon.sqlite"
"""Name of the database in the folder of a new store."""

_SIGNATURE: Final = ".sig"


@dataclass(frozen=True)
class NewStore:
    """A new store: its database, its shard (None if it has all agents), and its agents."""

    path: Path
    shard: Shard | None
    agents: tuple[str, ...]


@dataclass(frozen=True)
class _Old:
    """The content of a store that was stopped cleanly."""

    path: Path
    kept: StoreContent
    setting: SnapshotSetting
    common: CommonState
    agents: Mapping[str, StoredAgent]

    @property
    def shard(self) -> Shard | None:
        return parse_shard(self.setting.shard) if self.setting.shard else None


def merge_stores(paths: Sequence[Path], target: Path) -> NewStore:
    """Write one store with the agents of all these stores. `target`: a new folder.

    Errors are those of `split_stores`.
    """
    [store] = _reshard(paths, 1, target, sharded=False)
    return store


def split_stores(paths: Sequence[Path], shards: int, target: Path) -> list[NewStore]:
    """Write the agents of the stores at `paths` to new stores, one for each shard. `target`: a new folder.

    Raises:
        ConfigError: a store is missing, in use, damaged or was not stopped cleanly; shards are missing; the stores have
            agents in common or were written under different configurations; `target` exists or cannot be written.
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise ConfigError(f"--into {shards}: must be from 1 to {MOST_SHARDS} shards")
    return _reshard(paths, shards, target, sharded=True)


def _reshard(paths: Sequence[Path], shards: int, target: Path, *, sharded: bool) -> list[NewStore]:
    if target.exists():
        raise ConfigError(f"{target} exists; give a new folder")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a store is given twice; name each once")
    olds = [_read(path) for path in paths]
    _check_shards(olds)
    _check_alike(olds)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_path(target) as building:
            building.mkdir()
            parts = _parts(olds, shards)
            made = []
            for number, part in enumerate(parts):
                shard = Shard(number, shards) if sharded else None
                folder = Path() if shard is None else Path(f"{number}-{shards}")
                _write(building / folder, part, shard)
                made.append(NewStore(target / folder / DATABASE, shard, tuple(part.snapshot.agents)))
            _copy_files(olds, building, made, target)
    except STORE_ERRORS as error:
        raise ConfigError(f"{target} cannot be written: {error}; the old stores are as they were") from error
    return made


# ---- reading and checking ----


def _read(path: Path) -> _Old:
    """Read a store. Raises ConfigError unless it was stopped cleanly."""
    if not path.is_file():
        raise ConfigError(f"{path} is no file; give the database of a store, such as var/cfmon.sqlite")
    try:
        with closing(Journal(path)) as journal:
            kept, number, current = journal.read(), journal.number, journal.current
        mark = HighWaterMark(path.with_name(f"{path.name}-mark"))
        mark.read()
        common = unseal((kept.setting and kept.setting.common) or b"", CommonState)
        agents = {name: unseal(state, StoredAgent) for name, state in kept.agents.items()}
    except (*STORE_ERRORS, InputError) as error:
        raise ConfigError(f"{path}: {error}; start its monitor once, and stop it with SIGTERM") from error
    assert kept.setting is not None, "it has the common state"
    if kept.events or not current:
        why = "its monitor was not stopped cleanly" if kept.events else "it is of an earlier version"
        raise ConfigError(f"{path}: {why}; start the monitor once, and stop it with SIGTERM")
    if mark.number != number:
        raise ConfigError(f"{path}: its end is missing; start its monitor once, which reports that, and stop it")
    return _Old(path, kept, kept.setting, common, agents)


def _check_shards(olds: Sequence[_Old]) -> None:
    """Raise ConfigError unless all agents of the fleet are in exactly one of the stores."""
    shards = [old.shard for old in olds]
    if any(shards):
        of = max(shard.of for shard in shards if shard is not None)
        missing = {Shard(number, of) for number in range(of)} - {shard for shard in shards if shard is not None}
        if missing:
            names = ", ".join(map(str, sorted(missing)))
            raise ConfigError(f"the stores of these shards are missing, and their agents would be lost: {names}")
        for old in olds:
            if old.shard is None or old.shard.of != of:
                raise ConfigError(
                    f"{old.path}: its shard is {old.shard or 'not stated'}; the others are of {of} shards"
                )
    seen: dict[str, Path] = {}
    for old in olds:
        for agent in old.agents:
            if agent in seen:
                raise ConfigError(f"agent {agent} is in {seen[agent]} and in {old.path}; which state holds is unknown")
            seen[agent] = old.path
            if old.shard is not None and not old.shard.has(agent):
                raise ConfigError(f"{old.path}: agent {agent} does not belong to shard {old.shard}")


def _check_alike(olds: Sequence[_Old]) -> None:
    """Raise ConfigError unless all stores were written under the same configuration."""
    first = olds[0]
    for old in olds[1:]:
        different = [
            name
            for name, same in (
                ("model, policies or sampling", old.setting.inputs_digest == first.setting.inputs_digest),
                ("formulas", old.setting.formulas == first.setting.formulas),
                ("topics", old.common.topics == first.common.topics),
                ("settings of the test of the model", _trust_of(old) == _trust_of(first)),
            )
            if not same
        ]
        if different:
            raise ConfigError(
                f"{old.path} and {first.path} were written under different configurations ({', '.join(different)}); "
                f"start each monitor once with the same one, and stop it with SIGTERM"
            )


def _trust_of(old: _Old) -> object:
    trust = old.common.monitor.trust
    return None if trust is None else (trust.settings, trust.encoder, trust.delta)


# ---- the new contents ----


@dataclass(frozen=True)
class _OldShard:
    setting: SnapshotSetting
    snapshot: Snapshot
    batch: Batch


def _parts(olds: Sequence[_Old], shards: int) -> list[_OldShard]:
    ticks = max(old.setting.ticks for old in olds)
    states: dict[str, StoredAgent] = {}
    monitors = []
    for old in olds:
        ahead = ticks - old.setting.ticks
        moved = {name: replace(state, watch=later(state.watch, ahead)) for name, state in old.agents.items()}
        states |= moved
        monitors.append(MonitorParts(old.common.monitor, {name: state.watch for name, state in moved.items()}))
    pages = {key: page for old in olds for key, page in old.kept.pages.items()}
    parts = []
    for number, monitor in enumerate(divided(joined(monitors), lambda agent: shard_of(agent, shards), shards)):
        former = olds[number % len(olds)]
        common = CommonState(
            monitor.common, former.common.topics, former.common.status_topic, max(old.common.sent for old in olds)
        )
        snapshot = Snapshot(
            seal(common),
            {name: seal(states[name]) for name in monitor.agents},
            {key: page for key, page in pages.items() if key.rpartition("/")[0] in monitor.agents},
        )
        setting = replace(former.setting, ticks=ticks, common=None)
        parts.append(_OldShard(setting, snapshot, _batch(olds, number, shards)))
    return parts


def _batch(olds: Sequence[_Old], number: int, shards: int) -> Batch:
    """Return the rest of a new store's content: messages still to be sent, evidence not in files yet, and alarms."""
    messages = [
        message
        for old in olds
        for _, message in old.kept.publications
        if _shard_of_message(message, old.common.topics.alerts, shards) == number
    ]
    if number == 0:  # the first new store clears the statuses of monitors that have no successor
        messages += [Publication(old.common.status_topic, b"") for old in olds[shards:]]
    evidence = [
        file for old in olds for file in old.kept.evidence if _shard_of_evidence(file.content, shards) == number
    ]
    alarms = [alarm for old in olds for _, alarm in old.kept.alarms if shard_of(alarm.agent, shards) == number]
    rows = {n: msgspec.msgpack.encode(alarm) for n, alarm in enumerate(_newest(alarms), 1)}
    return Batch(publications=list(enumerate(messages)), evidence=evidence, alarms=HistoryChanges(rows))


def _newest(alarms: Sequence[AlarmRecord]) -> list[AlarmRecord]:
    """Return as many alarms as a store keeps, oldest first. All firing alarms are among them."""
    ordered = sorted(alarms, key=lambda alarm: alarm.began or 0.0)
    excess = max(len(ordered) - MAX_ALARMS, 0)
    dropped = {id(alarm) for alarm in [alarm for alarm in ordered if alarm.state != "firing"][:excess]}
    return [alarm for alarm in ordered if id(alarm) not in dropped]


def _shard_of_message(message: Publication, alerts: str, shards: int) -> int:
    """Return the shard that sends a message: the shard of the message's agent, or the first shard."""
    if message.to:
        return shard_of(message.topic.split("/")[0], shards)
    if message.topic.startswith(f"{alerts}/"):
        return shard_of(message.topic.removeprefix(f"{alerts}/").split("/")[0], shards)
    return 0


def _shard_of_evidence(content: bytes, shards: int) -> int:
    """Return the shard of the agent that evidence is about; the first shard if the evidence cannot be read."""
    try:
        return shard_of(read_evidence(content).agent, shards)
    except EvidenceError:
        return 0


# ---- writing ----


def _write(folder: Path, part: _OldShard, shard: Shard | None) -> None:
    folder.mkdir(exist_ok=True)
    setting = replace(part.setting, shard="" if shard is None else str(shard))
    with ExitStack() as stack:
        journal = stack.enter_context(closing(Journal(folder / DATABASE)))
        mark = stack.enter_context(closing(HighWaterMark(folder / f"{DATABASE}-mark")))
        mark.write(0)
        journal.checkpoint(setting, part.snapshot, part.batch, everything=True)
        mark.write(journal.number)


def _copy_files(olds: Sequence[_Old], building: Path, made: Sequence[NewStore], target: Path) -> None:
    """Give each new store the evidence of its agents, and all models and policies. Files are linked if possible."""
    folders = [building / store.path.parent.relative_to(target) for store in made]
    for folder in folders:
        for name in ("evidence", "objects"):
            (folder / name).mkdir()
    for old in olds:
        for file in _files(old.path.parent / "objects"):
            for folder in folders:
                _copy(file, folder / "objects" / file.name)
        evidence = old.path.parent / "evidence"
        for file in _files(evidence):
            proof = evidence / file.name.removesuffix(_SIGNATURE)
            number = _shard_of_evidence(proof.read_bytes() if proof.is_file() else b"", len(made))
            _copy(file, folders[number] / "evidence" / file.name)


def _files(folder: Path) -> list[Path]:
    """Return the files in a folder, without unfinished files."""
    return [file for file in sorted(folder.glob("*")) if file.is_file() and not file.name.startswith(".")]


def _copy(file: Path, target: Path) -> None:
    """Link or copy a file that never changes."""
    if target.exists():
        return
    try:
        os.link(file, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(file, target)
