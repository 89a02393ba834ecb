"""Writer of UMB files, which `monitor.authoring.formats.umb` reads."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Bools
from monitor.authoring.formats.choices import Choices, choices_of
from monitor.authoring.formats.umb import GROUP, VERSION
from monitor.authoring.formats.umb_archive import packed_tar
from monitor.authoring.formats.umb_valuations import ends_of, packed_valuations
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP

_DOUBLE: Final = {"type": "double", "size": 64}
_BOOL: Final = {"type": "bool", "size": 1}


def umb_files(model: MDP) -> dict[str, bytes]:
    """Return the file of a model by its suffix, `.umb`.

    Numbers are kept bit by bit, and equal models give equal bytes.
    """
    choices = choices_of(model)
    members = {
        "state-to-choices.bin": _ends(np.bincount(choices.state, minlength=choices.states)),
        "state-is-initial.bin": _bits(np.isin(np.arange(choices.states), choices.initial)),
        "choice-to-branches.bin": choices.indptr.astype("<u8").tobytes(),
        "branch-to-target.bin": choices.successors.astype("<u8").tobytes(),
        "branch-to-probability.bin": choices.probabilities.astype("<f8").tobytes(),
        **_actions(choices),
        **_observations(choices),
    }
    annotations: dict[str, Any] = {}
    for part in (_labels(choices), _rewards(choices), _own(model)):
        annotations |= part[0]
        members |= part[1]
    index: dict[str, Any] = {
        "format-version": VERSION,
        "format-revision": 0,
        "file-data": {"tool": "counterfactual-monitor"},
        "transition-system": _system(choices),
    }
    if annotations:
        index["annotations"] = annotations
    if choices.valuations:
        index["valuations"], packed = packed_valuations(choices.variables, choices.valuations)
        members |= packed
    return {".umb": packed_tar({"index.json": json.dumps(index, indent=1).encode(), **members})}


def _system(choices: Choices) -> dict[str, Any]:
    return {
        "time": "discrete",
        "#players": 1,
        "#states": choices.states,
        "#initial-states": len(choices.initial),
        "#choices": len(choices.state),
        "#choice-actions": choices.kinds,
        "#branches": len(choices.successors),
        "#branch-actions": 0,
        **_observed(choices.emissions),
        "branch-probability-type": _DOUBLE,
    }


def _observed(emissions: Emissions | None) -> dict[str, Any]:
    """Return the entries of the index on observations."""
    if emissions is None:
        return {"#observations": 0}
    chance = {} if emissions.only is not None else {"observation-probability-type": _DOUBLE}
    return {"#observations": emissions.signals, "observations-apply-to": "states", **chance}


def _observations(choices: Choices) -> dict[str, bytes]:
    """Return the members for observations. There are probabilities only if a state has several observations."""
    if (emissions := choices.emissions) is None:
        return {}
    folder = "observations/states"
    members = {f"{folder}/values.bin": emissions.observed.astype("<u8").tobytes()}
    if emissions.only is None:
        members[f"{folder}/distribution-mapping.bin"] = emissions.indptr.astype("<u8").tobytes()
        members[f"{folder}/probabilities.bin"] = emissions.probabilities.astype("<f8").tobytes()
    return members


def _actions(choices: Choices) -> dict[str, bytes]:
    members = {"actions/choices/values.bin": choices.kind.astype("<u4").tobytes()}
    if choices.names:
        names = [name.encode() for name in choices.names]
        members["actions/choices/string-mapping.bin"] = ends_of(names)
        members["actions/choices/strings.bin"] = b"".join(names)
    return members


def _labels(choices: Choices) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the index entries and the members of the labels.

    Identifiers are numbers, because labels may have characters that UMB does not allow in identifiers. `init` is left
    out, because the initial states already express it, and Storm refuses a second label of this name.
    """
    names = {f"label-{place}": name for place, name in enumerate(choices.labels) if name != "init"}
    described = {key: {"alias": name, "applies-to": ["states"], "type": _BOOL} for key, name in names.items()}
    members = {
        f"annotations/aps/{key}/states/values.bin": _bits(np.asarray(choices.labels[name]))
        for key, name in names.items()
    }
    return ({"aps": described} if described else {}), members


def _rewards(choices: Choices) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the index entries and the members of the rewards.

    Rewards apply to choices, or to branches if the rewards of successors differ.
    """
    if choices.rewards is None:
        return {}, {}
    starts, lengths = choices.indptr[:-1], np.diff(choices.indptr)
    of_choices = choices.rewards[starts]
    same = bool((np.repeat(of_choices, lengths) == choices.rewards).all())
    applies, values = ("choices", of_choices) if same else ("branches", choices.rewards)
    described = {"reward": {"alias": "reward", "applies-to": [applies], "type": _DOUBLE}}
    return {"rewards": described}, {f"annotations/rewards/reward/{applies}/values.bin": values.astype("<f8").tobytes()}


def _own(model: MDP) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the index entries and the members of the data that UMB has no place for."""
    described: dict[str, Any] = {}
    members: dict[str, bytes] = {}
    if model.state_names:
        names = [name.encode() for name in model.state_names]
        folder = f"annotations/{GROUP}/state-names/states"
        described["state-names"] = {"applies-to": ["states"], "type": {"type": "string"}, "#strings": len(names)}
        members |= {
            f"{folder}/values.bin": np.arange(len(names)).astype("<u8").tobytes(),
            f"{folder}/string-mapping.bin": ends_of(names),
            f"{folder}/strings.bin": b"".join(names),
        }
    if model.initial is not None and np.count_nonzero(model.initial) > 1:
        described["initial"] = {"applies-to": ["states"], "type": _DOUBLE}
        members[f"annotations/{GROUP}/initial/states/values.bin"] = model.initial.astype("<f8").tobytes()
    if model.ended_as is not None:
        described["ended-as"] = {"applies-to": ["states"], "type": {"type": "uint"}}
        members[f"annotations/{GROUP}/ended-as/states/values.bin"] = model.ended_as.astype("<u8").tobytes()
    return ({GROUP: described} if described else {}), members


def _ends(lengths: AnyArray) -> bytes:
    return np.concatenate([[0], np.cumsum(lengths)]).astype("<u8").tobytes()


def _bits(mask: Bools) -> bytes:
    content = np.packbits(mask, bitorder="little").tobytes()
    return content + bytes(-len(content) % 8)
