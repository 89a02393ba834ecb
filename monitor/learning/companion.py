"""Companion of a learned model, MODEL.learn.npz: all counts, to learn more. Impure.

It is replaced after each counted file and remembers the digests of these files. So learning that was interrupted goes
on with the first file that was not counted completely, and no file is counted twice.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.errors import ModelError
from monitor.learning.abstraction import Numbering
from monitor.learning.build import LabelSpec
from monitor.learning.columns import Roles
from monitor.learning.conditions import parsed
from monitor.learning.learner import Learner
from monitor.learning.tally import Table, Tally
from monitor.model.centres import checked_centres
from monitor.model.npz import pack

__all__ = ["companion_of", "load_learner", "save_learner"]

FORMAT: Final = 1
TABLES: Final = ("transitions", "rows", "visited")


def companion_of(model: Path) -> Path:
    """Return the name of the companion: that of the model with another suffix."""
    return model.with_suffix(".learn.npz")


def save_learner(learner: Learner, path: Path) -> None:
    """Write the companion; it is replaced as a whole, or not at all. ModelError if it cannot be written."""
    members: dict[str, AnyArray] = {"about": np.frombuffer(json.dumps(_about(learner)).encode(), np.uint8)}
    for name in TABLES:
        table: Table = getattr(learner.tally, name)
        members |= {f"{name}.keys": table.keys} | {f"{name}.{column}": table[column] for column in table.columns}
    if learner.states is not None:
        members |= {f"edges.{i}": edges for i, edges in enumerate(learner.states.edges)}
        members |= _centres_members(learner.states)
    replaced = path.with_name(path.name + ".new")
    try:
        replaced.write_bytes(pack(members, zipfile.ZIP_DEFLATED))
        replaced.replace(path)
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error})") from error


def load_learner(path: Path) -> Learner:
    """Return the learner of a companion. ModelError if there is none, or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({error.strerror}); only a model that `cfmon model learn` wrote, with this file "
            "beside it, can learn more"
        ) from error
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            members = dict(archive)
        return _learner(members)
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: is damaged ({error or type(error).__name__})") from error


def _about(learner: Learner) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "roles": asdict(learner.roles),
        "states": _numbering(learner.states),
        "actions": _numbering(learner.actions),
        "labels": [
            [label.name, condition.text, label.unsafe]
            for label, condition in zip(learner.labels, learner.conditions, strict=True)
        ],
        "prior": learner.prior,
        "rows": learner.rows,
        "files": learner.files,
        "function": learner.function,
        "gaps": learner.tally.gaps,
        "mismatches": learner.tally.mismatches,
    }


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
        "known": [list(known) for known in numbering.known],
        "size": numbering.size,
    }


def _learner(members: dict[str, AnyArray]) -> Learner:
    about = json.loads(members["about"].tobytes())
    if about["format"] != FORMAT:
        raise ValueError(f"its format is {about['format']}; this version reads {FORMAT}")
    given: dict[str, Any] = about["roles"]
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    roles = Roles(**fields)
    conditions = tuple(parsed(f"{name}: {text}") for name, text, _ in about["labels"])
    tally = Tally.empty(len(conditions), len(roles.observation))
    for name in TABLES:
        table: Table = getattr(tally, name)
        table.keys = members[f"{name}.keys"]
        table.columns = {column: members[f"{name}.{column}"] for column in table.columns}
    tally.gaps, tally.mismatches = about["gaps"], about["mismatches"]
    edges = tuple(members[f"edges.{i}"] for i in range(sum(name.startswith("edges.") for name in members)))
    return Learner(
        roles=roles,
        states=_as_numbering(about["states"], edges, members),
        labels=tuple(LabelSpec(name, unsafe) for name, _, unsafe in about["labels"]),
        conditions=conditions,
        prior=about["prior"],
        actions=_as_numbering(about["actions"], (), {}),
        tally=tally,
        rows=about["rows"],
        files=about["files"],
        function=about["function"],
    )


def _as_numbering(
    about: dict[str, Any] | None, edges: tuple[AnyArray, ...], members: dict[str, AnyArray]
) -> Numbering | None:
    if about is None:
        return None
    known = {tuple(values): i for i, values in enumerate(about["known"])}
    numbering = Numbering(about["kind"], tuple(about["columns"]), edges, known=known, size=about["size"])
    if numbering.kind == "nearest":
        numbering.centres = checked_centres(members["centres"], members["scales"], numbering.size)
        numbering.distances, numbering.farthest = members["distances"], float(members["farthest"])
    return numbering
