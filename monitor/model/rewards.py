"""Rewards of transitions: R(s, a, s') = r(s, a) + r'(s, a, s'), with r' stored beside the entries of the rows.

Kazemi & Paoletti define R(s, a), but in environments the reward often depends on the successor. r' is aligned with
`MDP.successors`; the reward of a transition that the model lacks is r(s, a).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ModelError
from monitor.model.sparse_rows import Rows, as_floats, as_indices, frozen
from monitor.model.tuples import columns

MAX_REWARD = 1e140
"""Largest |r| + |r'|. Then the sum over a million steps (the longest horizon) and its square are finite."""

NO_REWARDS = "none"
"""Name that selects none of the reward structures of a file."""


def chosen_structure(names: Sequence[str], wanted: str | None) -> int | None:
    """Return the index of the reward structure to read from a file; None if no structure is to be read.

    `names`: names of the file's structures, at most one of which is empty. `wanted`: a name, `NO_REWARDS`, or None for
    the only structure. Raises ModelError if there is no such name, or if `wanted` is None and there are several names.
    """
    there = ", ".join(name or "one without a name" for name in names) or "none"
    if wanted in names:
        return names.index(wanted)
    if wanted not in (None, NO_REWARDS):
        raise ModelError(f"there are no rewards {wanted!r}; there are: {there}")
    if wanted is None and len(names) > 1:
        raise ModelError(
            f"there are several reward structures ({there}): choose one with "
            f"cfmon model convert FILE TARGET --rewards NAME ({NO_REWARDS}: leave them out)"
        )
    return 0 if wanted is None and names else None


def checked_rewards(states: int, actions: int, rewards: object) -> Floats:
    """Return r(s, a) as [S, A] float64, read-only; zeros if None."""
    if rewards is None:
        return frozen(np.zeros((states, actions)))
    table = as_floats(rewards, "rewards")
    if table.shape != (states, actions):
        raise ModelError(f"rewards have shape {table.shape}, not [{states}, {actions}]")
    return frozen(table + 0.0)  # -0.0 becomes 0.0, so that equal models have equal bytes


def checked_transition_rewards(
    given: tuple[Any, Any, Any], rewards: object, spread: object, rows: Rows
) -> tuple[Floats | None, Floats | None]:
    """Return r' and `reward_spread` for the entries of checked rows, read-only; None if all are 0.

    Args:
        given: indptr, successors and probabilities before `checked_rows`, [N'] entries.
        rewards: [N'] r' of these entries, or None.
        spread: [N'] largest difference of an observed reward of the entry from its mean, or None.
        rows: the result of `checked_rows`, [N] entries.

    Entries of one transition are merged: r' is their mean, weighted by probability, and the spread covers all entries.

    Raises ModelError for a wrong shape, a number that is not finite, or a negative spread.
    """
    if rewards is None and spread is None:
        return None, None
    indptr, successors, probabilities = given
    chances = as_floats(probabilities, "probability")
    extra = _entries(rewards, "transition_rewards", chances.shape)
    around = _entries(spread, "reward_spread", chances.shape)
    if (around < 0).any():
        raise ModelError(f"reward_spread: entry {int(np.flatnonzero(around < 0)[0])} is negative")
    kept = chances > 0
    places = np.searchsorted(transition_keys(rows), transition_keys((indptr, successors, chances), kept))
    mean, width = _means(places, chances[kept], extra[kept], around[kept], len(rows[1]))
    return _none_if_zero(mean), _none_if_zero(width)


def _entries(values: object, what: str, shape: tuple[int, ...]) -> Floats:
    if values is None:
        return np.zeros(shape)
    numbers = as_floats(values, what)
    if numbers.shape != shape:
        raise ModelError(f"{what} have shape {numbers.shape}; give one for each of the {shape[0]} successors")
    return numbers


def _means(places: Ints, weights: Floats, extra: Floats, around: Floats, count: int) -> tuple[Floats, Floats]:
    """Return, for each place [count], the weighted mean of its entries, and the largest distance from this mean.

    `places` [n]: the place of each entry.
    """
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, places, extra - around)
    np.maximum.at(high, places, extra + around)
    least, most, widest = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    np.minimum.at(least, places, extra)
    np.maximum.at(most, places, extra)
    np.maximum.at(widest, places, around)
    mass = np.bincount(places, weights, count)
    mean = np.bincount(places, weights / mass[places] * extra, count)
    single = least == most  # a single value and its spread stay exact, so that a saved model is read back to the bit
    mean = np.where(single, least, np.clip(mean, least, most))
    width = np.where(single, widest, np.maximum(high - mean, mean - low)) + 0.0
    return np.asarray(mean + 0.0, dtype=np.float64), np.asarray(width, dtype=np.float64)


def _none_if_zero(values: Floats) -> Floats | None:
    return frozen(values) if values.any() else None


def transition_keys(rows: tuple[Any, Any, Any], kept: Bools | None = None) -> Ints:
    """Return for each entry a number that combines row and successor. The numbers are ascending for checked rows.

    Row and successor have 32 bits each. This is enough, because a model of 2^31 rows takes 16 GB for its index alone.
    """
    indptr, successors = np.asarray(rows[0], dtype=np.int64), np.asarray(rows[1], dtype=np.int64)
    at = np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))
    keys: Ints = (at << 32) + successors
    return keys if kept is None else keys[kept]


def aligned_rewards(rows: Rows, extra: Floats | None, others: Rows) -> Floats | None:
    """Return `extra`, the r' of the entries of `rows`, for the entries of `others`; 0 if `rows` lack a transition."""
    if extra is None:
        return None
    keys, wanted = transition_keys(rows), transition_keys(others)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return _none_if_zero(np.where(keys[places] == wanted, extra[places], 0.0))


def expected_rewards(rewards: Floats, extra: Floats | None, rows: Rows) -> Floats:
    """Return the mean of R over each row, [S, A], read-only; r(s, a) if the row is empty."""
    if extra is None:
        return rewards
    indptr, _, probabilities = rows
    of = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    means = np.bincount(of, probabilities * extra, len(indptr) - 1).reshape(rewards.shape)
    return frozen(rewards + means)


def checked_magnitude(rewards: Floats, extra: Floats | None, actions: int, rows: Rows) -> None:
    """Raise ModelError if a reward exceeds `MAX_REWARD`, naming its row."""
    totals = np.abs(rewards).reshape(-1)
    if extra is not None:
        of = np.repeat(np.arange(len(rows[0]) - 1), np.diff(rows[0]))
        with np.errstate(over="ignore"):  # infinity is too large
            np.maximum.at(totals, of, totals[of] + np.abs(extra))
    bad = np.flatnonzero(totals > MAX_REWARD)
    if bad.size:
        where = f"(state {bad[0] // actions}, action {bad[0] % actions})"
        raise ModelError(
            f"the reward of {where} exceeds {MAX_REWARD:g}: sums of such rewards overflow; scale them down"
        )


def common_rewards(rows: Ints, paid: Floats, possible: Bools, count: int) -> Floats:
    """Return for each row [count] the reward that all its possible entries have; 0 if they differ or there are none.

    Args:
        rows: [N] row of each entry.
        paid: [N] R(s, a, s').
        possible: [N] entries with positive probability.
        count: number of rows.
    """
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, rows[possible], paid[possible])
    np.maximum.at(most, rows[possible], paid[possible])
    return np.where(least == most, most, 0.0)


def reward_tables(
    states: int, actions: int, rewards: Iterable[Sequence[Any]], transitions: tuple[Ints, Ints]
) -> tuple[Floats, Floats | None]:
    """Return r [S, A] from tuples (s, a, r), and r' [N] of the transitions from tuples (s, a, s', r').

    Args:
        states: S.
        actions: A.
        rewards: at most one tuple for each pair and one for each transition. The default reward is 0.
        transitions: rows s * A + a, and successors, [N] each.

    Raises ModelError for a reward that is given twice, or for a transition that the model lacks.
    """
    given = list(rewards)
    try:
        pairs, triples = [r for r in given if len(r) != 4], [r for r in given if len(r) == 4]
    except TypeError as error:
        raise ModelError(f"rewards: a list of tuples is needed ({error})") from error
    table = _of_pairs(states, actions, pairs)
    return table, _of_transitions(states, actions, triples, transitions) if triples else None


def _of_pairs(states: int, actions: int, rewards: Sequence[Sequence[Any]]) -> Floats:
    at, taken, values = columns(rewards, 3, "rewards")
    rows = as_indices(at, states, "reward: state") * actions + as_indices(taken, actions, "reward: action")
    twice = np.flatnonzero(np.bincount(rows, minlength=1) > 1)
    if twice.size:
        raise ModelError(f"the reward of (state {twice[0] // actions}, action {twice[0] % actions}) is given twice")
    table = np.zeros(states * actions)
    table[rows] = as_floats(values, "reward")
    return table.reshape(states, actions)


def _of_transitions(
    states: int, actions: int, rewards: Sequence[Sequence[Any]], transitions: tuple[Ints, Ints]
) -> Floats:
    at, taken, after, values = columns(rewards, 4, "rewards")
    rows = as_indices(at, states, "reward: state") * actions + as_indices(taken, actions, "reward: action")
    keys = rows * states + as_indices(after, states, "reward: successor")
    order = np.argsort(keys, kind="stable")
    keys, numbers = keys[order], as_floats(values, "reward")[order]
    twice = np.flatnonzero(np.diff(keys) == 0)
    if twice.size:
        raise ModelError(f"the reward of {_transition(int(keys[twice[0]]), states, actions)} is given twice")
    wanted = transitions[0] * states + transitions[1]
    lost = np.setdiff1d(keys, wanted)
    if lost.size:
        where = _transition(int(lost[0]), states, actions)
        raise ModelError(
            f"a reward is given for {where}, which is not a transition of the model: correct it or leave it out"
        )
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Floats = np.where(keys[places] == wanted, numbers[places], 0.0)
    return found


def _transition(key: int, states: int, actions: int) -> str:
    row, successor = divmod(key, states)
    return f"(state {row // actions}, action {row % actions}) -> {successor}"
