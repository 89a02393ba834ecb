"""Check the data of a model other than its rows, such as labels, observations, names, bins and valuations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from monitor.arrays import Bools, Floats, Ints, Reals, single_if_exact
from monitor.errors import ModelError
from monitor.model.sparse_rows import as_array, as_floats, as_indices, frozen

Valuation = tuple[float | str | bool, ...]

_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
LONGEST_NAME = 256


def checked_labels(labels: Mapping[str, Any] | None, states: int) -> Mapping[str, Bools]:
    """Return label name -> [S] bool, read-only, sorted by name. A value is a [S] bool array or a list of states."""
    checked: dict[str, Bools] = {}
    for name in sorted(labels or {}, key=str):
        if not isinstance(name, str) or not _LABEL.match(name):
            raise ModelError(f"label {name!r}: a name has 1 to 64 of the characters A-Z a-z 0-9 _ . -")
        given = as_array((labels or {})[name], f"label {name!r}")
        if given.dtype == np.bool_ and given.shape == (states,):
            mask = given
        else:
            mask = np.zeros(states, dtype=np.bool_)
            mask[as_indices(given, states, f"label {name!r}: state")] = True
        checked[name] = frozen(mask)
    return MappingProxyType(checked)


def checked_observations(observations: object, states: int) -> Reals | None:
    """Return the observations of each state, [S, D], read-only, as float32 if every number fits; or None."""
    if observations is None:
        return None
    given = as_array(observations, "observations")
    as_floats(given, "observations")
    if given.ndim != 2 or given.shape[0] != states or given.shape[1] < 1:
        raise ModelError(f"observations have shape {given.shape}, not [{states}, D]")
    if given.dtype == np.float32:
        return frozen(given)
    with np.errstate(over="ignore"):
        as_floats(given.astype(np.float32), "observations as 32-bit floats")  # most networks take 32-bit floats
    return frozen(single_if_exact(given.astype(np.float64, copy=False)))


def checked_names(names: Iterable[str], count: int, what: str) -> tuple[str, ...]:
    """Return the names: none, or `count` different printable texts of 1 to 256 characters."""
    given = tuple(names)
    if given and len(given) != count:
        raise ModelError(f"{len(given)} {what} names for {count} {what}s: name all or none")
    for name in given:
        if not is_name(name):
            raise ModelError(f"{what} name {name!r}: a name is printable text of 1 to {LONGEST_NAME} characters")
    if len(set(given)) != len(given):
        twice = Counter(given).most_common(1)[0][0]
        raise ModelError(f"{what} name {twice!r} is given twice")
    return given


def is_name(name: object) -> bool:
    """Return whether a value is a name: printable text of 1 to `LONGEST_NAME` characters."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()


def checked_bins(edges: Iterable[object], states: int) -> tuple[Floats, ...]:
    """Return one strictly ascending array of at least two edges for each dimension. There are at most S bins in all.

    The outermost edges may be infinite. The state of a bin is its index, so states with higher indices, such as a sink,
    have no bin.
    """
    checked = tuple(_edges(array, f"bin edges of dimension {i}") for i, array in enumerate(edges))
    if checked and math.prod(len(array) - 1 for array in checked) > states:
        sizes = " x ".join(str(len(array) - 1) for array in checked)
        raise ModelError(f"{sizes} bins are more than the {states} states")
    return checked


def checked_bin_names(names: Iterable[Sequence[str]], edges: Sequence[Floats]) -> tuple[tuple[str, ...], ...]:
    """Return the names of the bins in each dimension, () for a dimension of numbers; empty if no dimension has names.

    A named dimension has a different text for each of its bins.
    """
    given = tuple(map(tuple, names))
    if not any(given):
        return ()
    if len(given) != len(edges):
        raise ModelError(f"bin names of {len(given)} dimensions for bins of {len(edges)}: give each, or () for numbers")
    for i, (each, cuts) in enumerate(zip(given, edges, strict=True)):
        if each and (len(each) != len(cuts) - 1 or len(set(each)) != len(each)):
            raise ModelError(f"bin names of dimension {i}: its {len(cuts) - 1} bins need one different name each")
        if not all(isinstance(name, str) and name for name in each):
            raise ModelError(f"bin names of dimension {i}: a name is text that is not empty")
    return given


def checked_ranges(ranges: object, dimensions: int) -> Floats | None:
    """Return the ranges, [D, 2], read-only, or None: the least and greatest number in each dimension."""
    if ranges is None:
        return None
    given = as_floats(ranges, "ranges")
    if given.shape != (dimensions, 2) or not dimensions or bool((given[:, 0] > given[:, 1]).any()):
        raise ModelError(
            f"ranges have shape {given.shape}; give the least and the greatest number for each of the {dimensions} "
            "dimensions of the bins or centres"
        )
    return frozen(given)


def checked_samples(samples: object, of: object, states: int, width: int) -> tuple[Reals | None, Ints | None]:
    """Return recorded inputs [M, D] of a policy and the state [M] of each input, ascending, read-only; or two Nones."""
    if samples is None and of is None:
        return None, None
    if samples is None or of is None or not width:
        raise ModelError(
            "samples need sample_states and observations, and sample_states need samples: give all or none"
        )
    where = as_indices(of, states, "sample_states: state")
    given = checked_observations(samples, where.size)
    if given is None or given.shape[1] != width or where.ndim != 1 or bool((np.diff(where) < 0).any()):
        raise ModelError(f"samples need {width} numbers each, as observations have, and ascending sample_states")
    return given, frozen(where)


def checked_valuations(valuations: Iterable[Sequence[object]], states: int) -> tuple[Valuation, ...]:
    """Return the valuations: none, or S different tuples of equal length, of numbers, text and Booleans."""
    given = tuple(tuple(_variable(x) for x in valuation) for valuation in valuations)
    if given and len(given) != states:
        raise ModelError(f"{len(given)} valuations for {states} states: give all or none")
    if len({len(valuation) for valuation in given}) > 1:
        raise ModelError("valuations must all have the same number of variables")
    if len(set(given)) != len(given):
        twice = Counter(given).most_common(1)[0][0]
        raise ModelError(f"the valuation {list(twice)} names two states")
    return given


def checked_ended_as(copies: object, states: int) -> Ints | None:
    """Return, for each state, its copy for an episode that has terminated there, [S] int64, read-only.

    The entry of a copy, and of a state without a copy, is the state itself. Return None if no state has a copy.
    """
    if copies is None:
        return None
    given = as_indices(copies, states, "ended_as: state")
    if given.shape != (states,):
        raise ModelError(f"ended_as names {given.size} states, not one for each of the {states} states")
    moved = np.flatnonzero(given[given] != given)
    if moved.size:
        state = int(moved[0])
        copy = int(given[state])
        raise ModelError(f"ended_as: state {state} ends as {copy}, which itself ends as {int(given[copy])}")
    return None if np.array_equal(given, np.arange(states)) else frozen(given)


def _edges(given: object, what: str) -> Floats:
    try:
        array = np.array(given, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{what}: not numbers ({error})") from error
    if array.ndim != 1 or array.size < 2 or not bool((array[1:] > array[:-1]).all()):
        raise ModelError(f"{what}: at least two numbers in strictly ascending order are needed")
    return frozen(array)


def _variable(value: object) -> float | str | bool:
    match value:
        case bool() | str():
            return value
        case int() | float() if math.isfinite(value) and abs(value) <= 2**53:
            return float(value)
        case _:
            raise ModelError(f"valuation entry {value!r}: give a finite number up to 2^53, text or a Boolean")
