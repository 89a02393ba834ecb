"""UMB, the unified Markov binary format of PRISM, Storm and Modest: Markov chains and Markov decision processes.

The reader supports transitions, initial states, labels (`aps`), one reward structure, names of actions, valuations of
states, and observations of states. Probabilities may be doubles or rationals. Observations may be deterministic or
random. Other kinds of model (continuous time, games, observations of branches, intervals) are refused. UMB has no place
for state names, for the distribution over several initial states, or for `ended_as`. They are stored as annotations of
the group `cfmon`.

Source: the UMB specification, github.com/pmc-tools/umb, version 1.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.formats.choices import ENTRY_BYTES, MAX_MODEL_BYTES, NAME_BYTES, Choices, as_mdp, require_memory
from monitor.authoring.formats.umb_archive import UmbArchive, unpacked_tar
from monitor.authoring.formats.umb_valuations import read_valuations
from monitor.errors import ModelError, ModelWarning
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP
from monitor.model.rewards import chosen_structure

VERSION: Final = 1
GROUP: Final = "cfmon"

_IDENTIFIER: Final = re.compile(r"[0-9A-Za-z_-]{1,200}\Z")


@dataclass(frozen=True)
class _Sizes:
    """Numbers of states, choices, branches, actions of choices, players and observations."""

    states: int
    choices: int
    branches: int
    actions: int
    players: int
    signals: int


def read_files(files: Mapping[str, bytes], source: str, rewards: str | None = None) -> MDP:
    """Read a model; the reader that `monitor.model.formats` names.

    `rewards`: the reward structure, if there are several.
    """
    return read_umb(files[".umb"], source, rewards)


def read_umb(content: bytes, source: str, rewards: str | None = None, *, limit: int = MAX_MODEL_BYTES) -> MDP:
    """Read the model in the bytes of a UMB file. `limit`: bytes of memory for the model.

    Raises:
        ModelError: the bytes are not a UMB file, the model is malformed or of an unsupported kind, or it has several
            reward structures and `rewards` names none of them. No bytes cause any other error.
    """
    try:
        archive = unpacked_tar(content, limit)
        return _model(archive, archive.index(), source, (rewards, limit))
    except ModelError as error:
        raise ModelError(f"model {source}: {error}") from error


def _model(archive: UmbArchive, index: dict[str, Any], source: str, chosen: tuple[str | None, int]) -> MDP:
    system = index.get("transition-system")
    if index.get("format-version") not in (0, VERSION) or not isinstance(system, dict):
        version = str(index.get("format-version"))[:40]
        raise ModelError(f"index.json gives format-version {version}; this version reads {VERSION}")
    sizes, limit = _sizes(archive, system), chosen[1]
    require_memory(ENTRY_BYTES * sizes.branches, limit, f"{sizes.branches:,} branches")
    ranges = archive.ranges("choice-to-branches.bin", sizes.choices, sizes.branches)
    of_states = archive.ranges("state-to-choices.bin", sizes.states, sizes.choices)
    _check_filled(of_states, "state", "choice")
    _check_filled(ranges, "choice", "branch")
    state = np.repeat(np.arange(sizes.states), np.diff(of_states))
    kind, names = _kinds(archive, sizes)
    variables, valuations = read_valuations(archive, index, sizes.states, limit)
    if len(set(valuations)) < len(valuations):
        warnings.warn(
            f"model {source}: several states have the same valuation, so valuations are left out",
            ModelWarning,
            stacklevel=2,
        )
        variables, valuations = (), []
    groups = _object(index.get("annotations"), "annotations")
    choices = Choices(
        states=sizes.states,
        state=state,
        kind=kind,
        kinds=max(sizes.actions, 1),
        names=names,
        indptr=ranges,
        successors=archive.indices("branch-to-target.bin", "<u8", sizes.branches, sizes.states),
        probabilities=_probabilities(archive, system, sizes),
        rewards=_rewards(archive, _object(groups.get("rewards"), "rewards"), (state, ranges), (chosen[0], sizes)),
        initial=np.flatnonzero(archive.bits("state-is-initial.bin", sizes.states)),
        labels=_labels(archive, _object(groups.get("aps"), "aps"), sizes.states, limit),
        variables=variables,
        valuations=valuations,
        emissions=_emissions(archive, system, sizes, limit),
    )
    return as_mdp(choices, source, limit, **_own(archive, _object(groups.get(GROUP), GROUP), sizes, limit))


def _sizes(archive: UmbArchive, system: dict[str, Any]) -> _Sizes:
    """Return the sizes, after checking that they are not too large for the size of the file."""
    keys = ("#states", "#choices", "#branches", "#choice-actions", "#players", "#observations")
    found = [system.get(key, 0 if key == "#observations" else None) for key in keys]
    for key, value in zip(keys, found, strict=True):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
            raise ModelError(f"index.json: {key} is {str(value)[:40]}, not a whole number of at least 0")
    sizes = _Sizes(*(value for value in found if isinstance(value, int)))
    if system.get("time") != "discrete" or sizes.players > 1:
        raise ModelError(
            "only Markov chains and Markov decision processes are supported: discrete time, at most one player"
        )
    if not 1 <= sizes.states <= sizes.choices <= sizes.branches:
        raise ModelError(
            f"{sizes.states:,} states, {sizes.choices:,} choices, {sizes.branches:,} branches: every state needs a "
            "choice and every choice a branch"
        )
    archive.array("branch-to-target.bin", "<u8", sizes.branches)
    return sizes


def _check_filled(ranges: Ints, what: str, of: str) -> None:
    empty = np.flatnonzero(np.diff(ranges) == 0)
    if empty.size:
        raise ModelError(f"{what} {empty[0]} has no {of}: give it at least one")


def _kinds(archive: UmbArchive, sizes: _Sizes) -> tuple[Ints, tuple[str, ...]]:
    """Return the action of each choice, and the names of the actions."""
    folder = "actions/choices"
    if not sizes.actions:
        return np.zeros(sizes.choices, np.int64), ("",)
    kind = np.zeros(sizes.choices, np.int64)
    if archive.has(f"{folder}/values.bin"):
        kind = archive.indices(f"{folder}/values.bin", "<u4", sizes.choices, sizes.actions)
    if not archive.has(f"{folder}/string-mapping.bin"):
        return kind, ()
    return kind, archive.texts(f"{folder}/string-mapping.bin", f"{folder}/strings.bin", sizes.actions)


def _probabilities(archive: UmbArchive, system: dict[str, Any], sizes: _Sizes) -> Floats:
    kind = system.get("branch-probability-type")
    if kind is None:
        raise ModelError("index.json gives no branch-probability-type: models without probabilities are not supported")
    return archive.numbers("branch-to-probability.bin", kind, sizes.branches)


def _emissions(archive: UmbArchive, system: dict[str, Any], sizes: _Sizes, limit: int) -> Emissions | None:
    """Return the observations of the states, or None if states are seen."""
    if not sizes.signals:
        return None
    if system.get("observations-apply-to") != "states":
        raise ModelError(
            f"its observations apply to {str(system.get('observations-apply-to'))[:40]}; those of states are supported"
        )
    folder, kind = "observations/states", system.get("observation-probability-type")
    values = archive.length(f"{folder}/values.bin", "<u8")
    require_memory(ENTRY_BYTES * values, limit, f"{values:,} observations of states")
    begins = archive.ranges(f"{folder}/distribution-mapping.bin", sizes.states, values)
    shown = archive.indices(f"{folder}/values.bin", "<u8", values, sizes.signals)
    chances = np.ones(values) if kind is None else archive.numbers(f"{folder}/probabilities.bin", kind, values)
    return Emissions.from_rows(sizes.states, sizes.signals, begins, shown, chances)


def _labels(archive: UmbArchive, group: dict[str, Any], states: int, limit: int) -> dict[str, Bools]:
    """Return the labels as [S] bool. `deadlock` is left out if it holds nowhere."""
    require_memory(2 * len(group) * states, limit, f"{len(group):,} labels of {states:,} states")
    labels: dict[str, Bools] = {}
    for identifier, described in group.items():
        name = _alias(identifier, described)
        if name in labels:
            raise ModelError(f"label {name!r} is given twice")
        labels[name] = archive.bits(_member("aps", identifier, "states"), states)
    if not labels.get("deadlock", np.ones(1)).any():
        del labels["deadlock"]
    return labels


def _rewards(
    archive: UmbArchive, group: dict[str, Any], place: tuple[Ints, Ints], chosen: tuple[str | None, _Sizes]
) -> Floats | None:
    """Return the reward of each branch: the sum of the rewards of its state, of its choice, and its own."""
    identifier = _chosen(group, chosen[0])
    if identifier is None:
        return None
    described, sizes = _object(group[identifier], identifier), chosen[1]
    total = np.zeros(sizes.branches)
    state, lengths = place[0], np.diff(place[1])
    parts = described.get("applies-to")
    if not isinstance(parts, list):
        raise ModelError(f"index.json: rewards {identifier!r} do not say what they apply to")
    for part in parts:
        count = {"states": sizes.states, "choices": sizes.choices, "branches": sizes.branches}.get(str(part))
        if count is None:
            raise ModelError(f"index.json: rewards {identifier!r} apply to {str(part)[:40]!r}")
        name = _member("rewards", identifier, str(part))
        values = archive.numbers(name, described.get("type"), count) if archive.has(name) else np.zeros(count)
        of_choices = values[state] if part == "states" else values
        total += of_choices if part == "branches" else np.repeat(of_choices, lengths)
    return total if total.any() else None


def _chosen(group: dict[str, Any], wanted: str | None) -> str | None:
    """Return the identifier of the reward structure to read, or None for no rewards."""
    identifiers = {_alias(identifier, described): identifier for identifier, described in group.items()}
    place = chosen_structure(list(group), wanted if wanted in group else identifiers.get(wanted or "", wanted))
    return None if place is None else list(group)[place]


def _own(archive: UmbArchive, group: dict[str, Any], sizes: _Sizes, limit: int) -> dict[str, Any]:
    """Return the annotations of the group `cfmon` as arguments of `MDP.from_rows`."""
    found: dict[str, Any] = {}
    if "state-names" in group:
        require_memory(NAME_BYTES * sizes.states, limit, f"{sizes.states:,} state names")
        folder = f"annotations/{GROUP}/state-names/states"
        found["state_names"] = archive.texts(f"{folder}/string-mapping.bin", f"{folder}/strings.bin", sizes.states)
    if "initial" in group:
        kind = _object(group["initial"], "initial").get("type")
        found["initial"] = archive.numbers(_member(GROUP, "initial", "states"), kind, sizes.states)
    if "ended-as" in group:
        found["ended_as"] = archive.indices(_member(GROUP, "ended-as", "states"), "<u8", sizes.states, sizes.states)
    return found


def _object(value: Any, what: str) -> dict[str, Any]:  # noqa: ANN401 - JSON
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ModelError(f"index.json: {what} is not an object")
    return value


def _alias(identifier: str, described: Any) -> str:  # noqa: ANN401 - JSON
    alias = _object(described, identifier).get("alias")
    return alias if isinstance(alias, str) and alias else identifier


def _member(group: str, identifier: str, of: str) -> str:
    if not _IDENTIFIER.match(identifier):
        raise ModelError(f"index.json: {identifier[:80]!r} is not an identifier of an annotation")
    return f"annotations/{group}/{identifier}/{of}/values.bin"
