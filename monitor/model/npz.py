"""Model files are NumPy `.npz` archives of plain arrays. The digest of a model is that of its canonical file.

Keys (S states, A actions, N entries; integers and floats of any width are read; keys marked * are required):
    format*         scalar, 1
    states*, actions*   scalars
    indptr*         [S*A + 1] integers: the row of (s, a) is entries `indptr[s*A + a]` up to `indptr[s*A + a + 1]`
    successors*     [N] integers
    probabilities*  [N] floats; an empty row is an unavailable action, every other row sums to 1 within 1e-9
    rewards         [S, A] floats, the part of R(s, a, s') that does not depend on s'; zeros if absent
    transition_rewards  [N] floats, the part of R that depends on s'; zeros if absent
    reward_spread   [N] floats, largest difference of an observed reward from R; zeros if absent
    label_names     [L] text, and labels [L, S] Booleans: the states that have each label
    initial         [S] floats, the distribution of the first state
    signals         scalar, the number of observations if states are hidden; it needs emission_indptr, [S + 1] integers,
                    observed, [K] integers, and emission_probabilities, [K] floats: the distribution of observations
                    of each state
    signal_names    [signals] text, the names of the observations
    emission_visits, emission_since  [K] integers and emission_prior, a scalar: the counts of emissions learned from
                    data (`EmissionCounts`); give all of them or none. The observations of each state must ascend
    observations    [S, D] floats, input of a policy in each state
    samples         [M, D] floats, recorded inputs of a policy, and sample_states, [M] ascending integers, the state of
                    each
    state_names     [S] text
    action_names    [A] text
    bin_edges_0 ..  [K] floats each, one per dimension, for the `bins` encoder
    bin_names_0 ..  [K] text each, for dimensions that hold text: the texts that the bins stand for, in order
    centres         [K, D] floats, the centre of each of the first K states, and centre_scales, [D] floats, the unit of
                    each column, for the `nearest` encoder
    ranges          [D, 2] floats, the least and the greatest recorded number in each dimension of the bins or centres
    dimension_names [D] text, the columns in which a state was recorded
    valuations      [S] text: a JSON list of numbers, text and Booleans each, for the `valuation` encoder
    ended_as        [S] integers: the state of an episode that has terminated in s; s itself if absent
    visits, since   [N] integers, row_order [S*A] integers, elsewhere and prior scalars: the counts of a model learned
                    from data (`monitor.model.counts`); give all of them or none
    unknown         [L, S] Booleans, with counts: the states for which the data do not show whether they have each label

Such a file can be written with `numpy.savez_compressed(path, format=1, states=3, ...)` alone. Python objects are never
read, and sizes are checked before memory is allocated (`monitor.model.unpack`).
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from monitor.arrays import AnyArray
from monitor.errors import ModelError
from monitor.model.archive import packed
from monitor.model.counts import Counts, EmissionCounts
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP
from monitor.model.unpack import BIN_EDGES, BIN_NAMES, unpacked

FORMAT = 1
EMISSIONS = ("signals", "emission_indptr", "observed", "emission_probabilities")
EMISSION_COUNTS = ("emission_visits", "emission_since", "emission_prior")
COUNTS = ("visits", "since", "row_order", "elsewhere", "prior")
MEANINGS = ("state_names", "action_names", "signal_names", "valuations", "centre", "bin_", "dimension_")
"""Prefixes of the keys that define the meaning of the numbers of states, actions and observations."""
MAX_UNPACKED_BYTES = 4 << 30
"""Largest memory for reading a model, in bytes. A model that needs more is refused before it is unpacked."""

_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    NotImplementedError,
    RuntimeError,  # an encrypted member, and nesting too deep
    OverflowError,
    MemoryError,
)


def read_model(content: bytes, source: str, *, limit: int = MAX_UNPACKED_BYTES) -> MDP:
    """Read the model in the bytes of the `.npz` file `source`, with at most `limit` bytes of memory.

    Raises:
        ModelError: the bytes are not such a file, or its model is malformed (`LargeModelError` if it needs more
            memory). No other error is raised, whatever the bytes are.
    """
    try:
        return _model(unpacked(content, limit), source)
    except ModelError as error:
        raise type(error)(f"model {source}: {error}") from error
    except _UNREADABLE as error:
        raise ModelError(f"model {source}: not a readable .npz file ({error or type(error).__name__})") from error


def read_files(files: Mapping[str, bytes], source: str) -> MDP:
    """Read a model; this is the reader for `monitor.model.formats`."""
    return read_model(files[".npz"], source)


def npz_files(model: MDP) -> dict[str, bytes]:
    """Return the compressed file of a model by its suffix; this is the writer for `monitor.model.formats`."""
    return {".npz": pack(model, zipfile.ZIP_DEFLATED)}


def canonical_bytes(model: MDP) -> bytes:
    """Return the model as an uncompressed `.npz` without `source`; equal models give equal bytes everywhere."""
    return pack(_members(model), zipfile.ZIP_STORED)


def model_sha256(model: MDP) -> str:
    """Return the SHA-256 of `canonical_bytes`, in hexadecimal; it identifies the model in alerts and evidence."""
    digest = hashlib.sha256()
    for piece in packed(_members(model), zipfile.ZIP_STORED):
        digest.update(piece)
    return digest.hexdigest()


def meaning_sha256(model: MDP) -> str:
    """Return a digest of the names that give the numbers of states, observations and actions their meaning."""
    said = {name: member for name, member in _members(model).items() if name.startswith(MEANINGS)}
    return hashlib.sha256(b"".join(packed(said, zipfile.ZIP_STORED))).hexdigest()


def pack(members: MDP | Mapping[str, AnyArray], compression: int) -> bytes:
    """Return a `.npz` archive with fixed dates and sorted members. `compression`: such as `zipfile.ZIP_STORED`."""
    return b"".join(packed(_members(members) if isinstance(members, MDP) else members, compression))


def _members(model: MDP) -> dict[str, AnyArray]:
    index = "<i4" if model.states < 2**31 else "<i8"
    members: dict[str, AnyArray] = {
        "format": np.array(FORMAT, "<i8"),
        "states": np.array(model.states, "<i8"),
        "actions": np.array(model.actions, "<i8"),
        "indptr": model.indptr.astype("<i8", copy=False),
        "successors": model.successors.astype(index, copy=False),
        "probabilities": model.probabilities.astype("<f8", copy=False),
        "rewards": model.rewards.astype("<f8", copy=False),
    }
    for name in ("transition_rewards", "reward_spread"):  # left out if None, so that such models keep their digest
        if (values := getattr(model, name)) is not None:
            members[name] = values.astype("<f8", copy=False)
    if model.labels:
        names = sorted(model.labels)
        members["label_names"] = _text(names)
        members["labels"] = np.stack([model.labels[name] for name in names])
    if model.initial is not None:
        members["initial"] = model.initial.astype("<f8")
    if model.observations is not None:
        members["observations"] = model.observations.astype(model.observations.dtype.newbyteorder("<"), copy=False)
    if model.samples is not None and model.sample_states is not None:
        members["samples"] = model.samples.astype(model.samples.dtype.newbyteorder("<"), copy=False)
        members["sample_states"] = model.sample_states.astype(index, copy=False)
    if model.state_names:
        members["state_names"] = _text(model.state_names)
    if model.action_names:
        members["action_names"] = _text(model.action_names)
    if model.valuations:
        members["valuations"] = _text([json.dumps(v, separators=(",", ":")) for v in model.valuations])
    if model.centres is not None:
        members["centres"] = model.centres.points.astype("<f8", copy=False)
        members["centre_scales"] = model.centres.scales.astype("<f8", copy=False)
    if model.ranges is not None:
        members["ranges"] = model.ranges.astype("<f8", copy=False)
    if model.ended_as is not None:
        members["ended_as"] = model.ended_as.astype(index)
    if model.counts is not None:
        members |= _counts_members(model.counts, index)
        if model.counts.unknown:
            nowhere = np.zeros(model.states, np.bool_)
            members["unknown"] = np.stack([model.counts.unknown.get(name, nowhere) for name in sorted(model.labels)])
    edges = {f"bin_edges_{i}": each.astype("<f8") for i, each in enumerate(model.bin_edges)}
    texts = {f"bin_names_{i}": _text(each) for i, each in enumerate(model.bin_names) if each}
    texts |= {"dimension_names": _text(model.dimension_names)} if model.dimension_names else {}
    return members | _emission_members(model.emissions) | edges | texts


def _emission_members(emissions: Emissions | None) -> dict[str, AnyArray]:
    if emissions is None:
        return {}
    shown = emissions.indptr.astype("<i8", copy=False), emissions.observed.astype("<i8", copy=False)
    chances = emissions.probabilities.astype("<f8", copy=False)
    members = dict(zip(EMISSIONS, (np.array(emissions.signals, "<i8"), *shown, chances), strict=True))
    if (counts := emissions.counts) is not None:
        values = counts.visits.astype("<i8", copy=False), counts.since.astype("<i8", copy=False)
        members |= dict(zip(EMISSION_COUNTS, (*values, np.array(counts.prior, "<f8")), strict=True))
    return members | ({"signal_names": _text(emissions.names)} if emissions.names else {})


def _counts_members(counts: Counts, index: str) -> dict[str, AnyArray]:
    return {
        "visits": counts.visits.astype("<i8", copy=False),
        "since": counts.since.astype("<i8", copy=False),
        "row_order": counts.order.astype("<i8", copy=False),
        "elsewhere": np.array(counts.elsewhere, index),
        "prior": np.array(counts.prior, "<f8"),
    }


def _text(names: tuple[str, ...] | list[str]) -> AnyArray:
    return np.array(names, dtype=f"<U{max(map(len, names))}")


def _model(arrays: dict[str, AnyArray], source: str) -> MDP:
    if (version := _scalar(arrays, "format")) != FORMAT:
        raise ModelError(f"it is of format {version}; this version reads format {FORMAT}")
    states, actions = _scalar(arrays, "states"), _scalar(arrays, "actions")
    return MDP.from_rows(
        states=states,
        actions=actions,
        indptr=arrays["indptr"],
        successors=arrays["successors"],
        probabilities=arrays["probabilities"],
        rewards=arrays.get("rewards"),
        transition_rewards=arrays.get("transition_rewards"),
        reward_spread=arrays.get("reward_spread"),
        labels=_labels(arrays, states),
        initial=arrays.get("initial"),
        emissions=_emissions(arrays, states),
        observations=arrays.get("observations"),
        samples=arrays.get("samples"),
        sample_states=arrays.get("sample_states"),
        state_names=_texts(arrays, "state_names"),
        action_names=_texts(arrays, "action_names"),
        bin_edges=_bin_edges(arrays),
        bin_names=_bin_names(arrays),
        valuations=(_valuation(text) for text in _texts(arrays, "valuations")),
        centres=arrays.get("centres"),
        scales=arrays.get("centre_scales"),
        ranges=arrays.get("ranges"),
        dimension_names=_texts(arrays, "dimension_names"),
        ended_as=arrays.get("ended_as"),
        counts=_counts(arrays, states),
        source=source,
    )


def _emissions(arrays: dict[str, AnyArray], states: int) -> Emissions | None:
    if not _all_of(arrays, EMISSIONS, "hidden states need"):
        if "signal_names" in arrays:
            raise ModelError("it has 'signal_names' but not 'signals': there are no observations to name")
        if strange := [key for key in EMISSION_COUNTS if key in arrays]:
            raise ModelError(f"it has {strange[0]!r} but not 'signals': there are no observations to count")
        return None
    rows = arrays["emission_indptr"], arrays["observed"], arrays["emission_probabilities"]
    found = Emissions.from_rows(states, _scalar(arrays, "signals"), *rows).named(_texts(arrays, "signal_names"))
    if not _all_of(arrays, EMISSION_COUNTS, "learned emissions have"):
        return found
    if not np.array_equal(found.observed, rows[1]):
        raise ModelError("emissions with counts need ascending observations, without duplicates or zeros")
    visits, since, prior = (arrays[key] for key in EMISSION_COUNTS)
    return found.learned(EmissionCounts(visits, since, float(prior.reshape(())[()])))


def _counts(arrays: dict[str, AnyArray], states: int) -> Counts | None:
    if not _all_of(arrays, COUNTS, "a learned model has"):
        return None
    prior = float(arrays["prior"].reshape(())[()])
    unknown = {name: mask for name, mask in _labels(arrays, states, "unknown").items() if mask.any()}
    return Counts(arrays["visits"], arrays["since"], arrays["row_order"], _scalar(arrays, "elsewhere"), prior, unknown)


def _all_of(arrays: dict[str, AnyArray], keys: tuple[str, ...], who: str) -> bool:
    """Return whether all keys are there; False if none is. Raises ModelError if only some are."""
    there = [key in arrays for key in keys]
    if any(there) and not all(there):
        one, other = keys[there.index(True)], keys[there.index(False)]
        raise ModelError(f"it has {one!r} but not {other!r}; {who} all of {', '.join(keys)}")
    return all(there)


def _scalar(arrays: dict[str, AnyArray], key: str) -> int:
    return int(arrays[key].reshape(())[()])


def _texts(arrays: dict[str, AnyArray], key: str) -> list[str]:
    array = arrays.get(key)
    if array is None:
        return []
    if array.ndim != 1:
        raise ModelError(f"key {key!r} must be a flat list of text")
    return [str(text) for text in array.tolist()]


def _labels(arrays: dict[str, AnyArray], states: int, key: str = "labels") -> dict[str, AnyArray]:
    names = _texts(arrays, "label_names")
    table = arrays.get(key, np.zeros((0 if key == "labels" else len(names), states), np.bool_))
    if table.shape != (len(names), states):
        what = "labels" if key == "labels" else "unknown labels"
        raise ModelError(f"{what} have shape {table.shape}, not [{len(names)}, {states}]: one row for each label name")
    if len(set(names)) != len(names):
        raise ModelError("a label name occurs twice")
    return dict(zip(names, table, strict=True))


def _bin_edges(arrays: dict[str, AnyArray]) -> list[AnyArray]:
    found = sorted(int(m[1]) for m in map(BIN_EDGES.match, arrays) if m)
    if found != list(range(len(found))):
        raise ModelError(f"there are bin edges of dimensions {found}; number them from 0 without gaps")
    return [arrays[f"bin_edges_{i}"] for i in found]


def _bin_names(arrays: dict[str, AnyArray]) -> list[list[str]]:
    found = {int(m[1]): key for key in arrays if (m := BIN_NAMES.match(key))}
    edges = sum(BIN_EDGES.match(key) is not None for key in arrays)
    return [_texts(arrays, found.get(i, "")) for i in range(max([edges, *(n + 1 for n in found)]))] if found else []


def _valuation(text: str) -> list[Any]:
    value = json.loads(text)
    if not isinstance(value, list):
        raise ModelError(f"valuation {text[:80]!r} is not a JSON list")
    return value
