"""Companion of a learned model, MODEL.learn.npz: all counts, so that the model can learn more. Impure.

The companion is replaced after each counted file. It remembers the digests of these files, so no file is counted twice.
While a large file is read, MODEL.learn.part.npz has the same counts plus the counts of the file's first rows, and the
open episodes. If learning is interrupted, the next run continues after these rows. If the large file has changed since,
the file is counted from its beginning.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.atomic import write_file
from monitor.authoring.learning.abstraction import Numbering
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import parsed
from monitor.authoring.learning.episodes import Episodes
from monitor.authoring.learning.learned_model import LabelSpec
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.left_out import LeftOut
from monitor.authoring.learning.row_files import FilePosition
from monitor.authoring.learning.tally import Table, Tally
from monitor.errors import ModelError
from monitor.model.centres import checked_centres
from monitor.model.npz import MAX_UNPACKED_BYTES, pack
from monitor.model.unpack import check_archive

FORMAT: Final = 5
TABLES: Final = ("transitions", "rows", "visited", "emissions")


def companion_of(model: Path) -> Path:
    """Return the path of the companion: the path of the model with another suffix."""
    return model.with_suffix(".learn.npz")


def part_of(model: Path) -> Path:
    """Return the path of the companion with the counts of a part of a file."""
    return model.with_suffix(".learn.part.npz")


@dataclass(frozen=True)
class CountedFile:
    """A file that was counted up to a place. `digest`: its SHA-256."""

    digest: str
    place: FilePosition


def save_learner(learner: Learner, path: Path, part: CountedFile | None = None) -> None:
    """Write the companion completely, or not at all. Raises ModelError if it cannot be written.

    `part`: the file that is being read, if its end is not reached.
    """
    about = _about(learner)
    members: dict[str, AnyArray] = {}
    if part is not None:
        about["part"], members = _part(learner, part)
    members["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    for name in TABLES:
        table: Table = getattr(learner.tally, name)
        members |= {f"{name}.keys": table.keys} | {f"{name}.{column}": table[column] for column in table.columns}
    if learner.states is not None:
        members |= {f"edges.{i}": edges for i, edges in enumerate(learner.states.edges)}
        members |= _centres_members(learner.states)
        if learner.states.ranges is not None:
            members["ranges"] = learner.states.ranges
    try:
        write_file(path, pack(members, zipfile.ZIP_DEFLATED))
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror})") from error


def load_learner(path: Path) -> Learner:
    """Return the learner of a companion. Raises ModelError if the companion does not exist or is damaged."""
    return _loaded(path)[0]


def load_part(path: Path) -> tuple[Learner, CountedFile] | None:
    """Return the learner of a companion with a part of a file, or None if there is no such companion."""
    if not path.exists():
        return None
    learner, part = _loaded(path)
    if part is None:
        raise ModelError(f"{path}: is damaged (it has no part of a file); remove it")
    return learner, part


def _loaded(path: Path) -> tuple[Learner, CountedFile | None]:
    try:
        if path.stat().st_size > MAX_UNPACKED_BYTES:
            raise ModelError(f"{path}: is larger than the limit of {MAX_UNPACKED_BYTES:,} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({error.strerror}); only a model that `cfmon model learn` wrote, with this file "
            "beside it, can learn more"
        ) from error
    try:
        check_archive(content, MAX_UNPACKED_BYTES)
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            members = dict(archive)
        learner = _learner(members)
        return learner, _as_part(learner, members)
    except (ValueError, KeyError, TypeError, OSError, EOFError, MemoryError, zlib.error, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: is damaged ({error or type(error).__name__})") from error


def _about(learner: Learner) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "roles": asdict(learner.roles),
        "states": _numbering(learner.states),
        "actions": _numbering(learner.actions),
        "signals": _numbering(learner.signals),
        "labels": [
            [label.name, condition.text, label.unsafe]
            for label, condition in zip(learner.labels, learner.conditions, strict=True)
        ],
        "prior": learner.prior,
        "rows": learner.rows,
        "files": learner.files,
        "function": learner.function,
        "missing": dict(learner.missing),
        "kept": learner.kept,
        "gaps": learner.tally.gaps,
        "mismatches": learner.tally.mismatches,
        "alone": learner.tally.alone,
        "continued": learner.tally.continued,
        "left_out": learner.left_out.document(),
        "step": learner.step,
        "joined": learner.joined,
    }


def _part(learner: Learner, part: CountedFile) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Return the description of a part of a file, and the columns of its open episodes."""
    episodes = learner.episodes
    assert episodes is not None
    about = {
        "digest": part.digest,
        "rows": part.place.rows,
        "kinds": dict(part.place.kinds),
        "read": episodes.rows,
        "counts_up": episodes.counts_up,
        "step": episodes.step,
        "day_first": episodes.day_first,
        "unplaced": episodes.unplaced,
        "newest": episodes.newest,
        "columns": list(episodes.open),
        "held": list(episodes.held),
    }
    open_rows = {f"open.{i}": values for i, values in enumerate(episodes.open.values())}
    return about, open_rows | {f"held.{i}": values for i, values in enumerate(episodes.held.values())}


def _as_part(learner: Learner, members: dict[str, AnyArray]) -> CountedFile | None:
    about = json.loads(members["about"].tobytes()).get("part")
    if about is None or learner.states is None or learner.actions is None:
        return None
    learner.episodes = Episodes(
        learner.roles,
        learner.states,
        learner.actions,
        learner.conditions,
        about["read"],
        about["counts_up"],
        about["step"],
        learner.left_out,
        about["day_first"],
        about["unplaced"],
        newest=about["newest"],
        open={name: members[f"open.{i}"] for i, name in enumerate(about["columns"])},
        held={name: members[f"held.{i}"] for i, name in enumerate(about["held"])},
        signals=learner.signals,
    )
    return CountedFile(about["digest"], FilePosition(about["rows"], about["kinds"]))


def _centres_members(states: Numbering) -> dict[str, AnyArray]:
    if states.centres is None:
        return {}
    return {
        "centres": states.centres.points,
        "scales": states.centres.scales,
        "distances": states.distances,
        "farthest": np.array(states.farthest),
    }


def _numbering(numbering: Numbering | None) -> dict[str, Any] | None:
    if numbering is None:
        return None
    return {
        "kind": numbering.kind,
        "columns": numbering.columns,
        "names": numbering.names,
        "known": [list(known) for known in numbering.known],
        "size": numbering.size,
    }


def _learner(members: dict[str, AnyArray]) -> Learner:
    about = json.loads(members["about"].tobytes())
    if about["format"] != FORMAT:
        raise ValueError(f"its format is {about['format']}; this version reads {FORMAT}: learn the model again")
    given: dict[str, Any] = about["roles"]
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    roles = Roles(**fields)
    conditions = tuple(parsed(f"{name}: {text}") for name, text, _ in about["labels"])
    tally = Tally.empty(len(conditions), len(roles.observation))
    for name in TABLES:
        table: Table = getattr(tally, name)
        if name == "emissions" and f"{name}.keys" not in members:  # of an earlier version
            continue
        table.keys = members[f"{name}.keys"]
        table.columns = {column: members[f"{name}.{column}"] for column in table.columns}
        for column, fill in table.fills.items():
            if isinstance(fill, tuple):
                table.fills[column] = fill[0], table.columns[column].shape[1]
    for name in ("gaps", "mismatches", "alone", "continued"):
        setattr(tally, name, about[name])
    edges = tuple(members[f"edges.{i}"] for i in range(sum(name.startswith("edges.") for name in members)))
    return Learner(
        roles=roles,
        states=_as_numbering(about["states"], edges, members),
        labels=tuple(LabelSpec(name, unsafe) for name, _, unsafe in about["labels"]),
        conditions=conditions,
        prior=about["prior"],
        actions=_as_actions(about["actions"]),
        signals=_as_numbering(about.get("signals"), (), {}),
        tally=tally,
        rows=about["rows"],
        files=about["files"],
        function=about["function"],
        missing={name: tuple(codes) for name, codes in about.get("missing", {}).items()},
        kept=tuple(about["kept"]),
        left_out=LeftOut.of(about.get("left_out")),
        step=about.get("step"),
        joined=about.get("joined", 0),
    )


def _as_actions(about: dict[str, Any] | None) -> Numbering | None:
    """Return the numbering of actions. Earlier versions wrote the kind `index`, which is converted to `levels`."""
    if about is not None and about["kind"] == "index":
        about |= {"kind": "levels", "known": [[float(index)] for index in range(about["size"])]}
    return _as_numbering(about, (), {})


def _as_numbering(
    about: dict[str, Any] | None, edges: tuple[AnyArray, ...], members: dict[str, AnyArray]
) -> Numbering | None:
    if about is None:
        return None
    known = {tuple(values): i for i, values in enumerate(about["known"])}
    names = tuple(map(tuple, about.get("names", ())))
    numbering = Numbering(about["kind"], tuple(about["columns"]), edges, names, known=known, size=about["size"])
    numbering.ranges = members.get("ranges")
    if numbering.kind == "nearest":
        numbering.centres = checked_centres(members["centres"], members["scales"], numbering.size)
        numbering.distances, numbering.farthest = members["distances"], float(members["farthest"])
    return numbering
