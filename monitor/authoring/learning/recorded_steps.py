"""Transitions and visits of linked rows, for both kinds of timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.authoring.learning.batch import RowBatch, as_numbers
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import Condition
from monitor.authoring.learning.linked_rows import LinkedRows
from monitor.authoring.learning.state_codes import MAX_LABELS, code_of

MARKERS: Final = ("@terminated", "@truncated")


@dataclass(frozen=True)
class Steps:
    """Transitions [n], in the order of their rows, and visits [m] of one batch.

    Attributes:
        state, action, code, reward: parts of a transition; `code` is the code of the successor.
        segment: number of the path of a transition; a path is an episode, or a part of an episode between gaps.
        episode: number of the episode of a transition.
        earlier: [n, 2] state and action one step earlier on the same path; -1: not known.
        arrived: [n, L] whether the labels' conditions hold after the transition, independent of its state.
        unmeasured: [n, L] whether the labels' conditions are unknown because a recorded state lacks a value.
        visited: codes of visited states.
        holds: [m, L] whether the labels hold there.
        known: [m, L] whether it is known if they hold.
        features: [m, D] a policy's input there.
        shown: [q, 2] the states in which an observation was recorded, and the observation.
        starts: codes of first states of episodes.
        late: codes of first states of episodes that begin later than at step 1, so that their beginning may be missing.
        continued: number of late episodes that continue the count of the previous row, which is of another episode.
        alone: number of episodes that begin here, minus the number of episodes with a transition from their first row.
        gaps: number of places where steps are missing.
        mismatches: number of recorded next states that differ from the state of the next row.
    """

    state: Ints
    action: Ints
    code: Ints
    reward: Floats
    segment: Ints
    episode: Ints
    earlier: Ints
    arrived: Bools
    unmeasured: Bools
    visited: Ints
    holds: Bools
    known: Bools
    features: Floats
    shown: Ints
    starts: Ints
    late: Ints
    continued: int
    alone: int
    gaps: int
    mismatches: int


def no_steps(roles: Roles, conditions: Sequence[Condition]) -> Steps:
    """Return an empty batch of steps."""
    none = np.zeros(0, np.int64)
    marks, features = np.zeros((0, len(conditions)), np.bool_), np.zeros((0, len(roles.observation)))
    return Steps(
        state=none, action=none, code=none, reward=np.zeros(0), segment=none, episode=none,
        earlier=np.zeros((0, 2), np.int64),
        arrived=marks, unmeasured=marks, visited=none, holds=marks, known=marks, features=features,
        shown=np.zeros((0, 2), np.int64), starts=none,
        late=none, continued=0, alone=0, gaps=0, mismatches=0,
    )  # fmt: skip


def steps_of(rows: LinkedRows, conditions: Sequence[Condition]) -> Steps:
    """Return the transitions and visits of rows, with the known values of the labels' conditions."""
    if rows.roles.timing == "state":
        return _of_arrivals(rows, conditions)
    return _of_steps(rows, conditions)


def _of_arrivals(rows: LinkedRows, conditions: Sequence[Condition]) -> Steps:
    """Return the steps of rows whose reward and end markers belong to the arrival in their state."""
    codes = code_of(rows.state, rows.terminated)
    fresh = np.flatnonzero(rows.fresh)
    holds, unknown = _holds(rows, conditions, fresh, {})
    at = fresh[rows.before[fresh] >= 0]
    at = at[rows.action[rows.before[at]] >= 0]
    taken = rows.before[at]
    draws = taken, codes[at], rows.reward[at], 2 * at
    arrived = holds[at - rows.carried], unknown[at - rows.carried]
    return _made(rows, draws, arrived, (codes[fresh], holds, ~unknown, fresh))


def _of_steps(rows: LinkedRows, conditions: Sequence[Condition]) -> Steps:
    """Return the steps of rows whose reward and end markers belong to the step from their state.

    A final row without an action is the end of the previous step. If the state at an end is missing, only the recorded
    values of the step are known at this end.
    """
    fresh = np.flatnonzero(rows.fresh)
    before = rows.before[fresh]
    after_end = (before >= 0) & rows.final_state[fresh]
    marked = {name: after_end & (rows.columns[name][fresh] | rows.columns[name][before]) for name in MARKERS}
    arrival = {"@reward": np.where(before >= 0, rows.reward[before], 0.0)} | marked
    holds, unknown = _holds(rows, conditions, fresh, arrival)
    codes = code_of(rows.state[fresh], marked["@terminated"])
    acted = rows.action >= 0
    own = np.flatnonzero(rows.fresh & acted & rows.recorded)
    unseen = np.flatnonzero(rows.fresh & acted & rows.terminated & ~rows.recorded & ~rows.has_final_state)
    at_unseen, open_there = _holds(rows, conditions, unseen, None)
    bits = 1 << np.arange(len(conditions), dtype=np.int64)
    unseen_codes = at_unseen @ bits + (open_there @ bits << MAX_LABELS)
    own_codes = code_of(rows.next[own], rows.terminated[own])
    at_own, open_own = _holds(rows, conditions, own, _next_columns(rows, own))
    at = np.flatnonzero((before >= 0) & acted[before] & ~rows.recorded[before])
    draws = (
        np.concatenate([before[at], own, unseen]),
        np.concatenate([codes[at], own_codes, unseen_codes]),
        rows.reward[np.concatenate([before[at], own, unseen])],
        np.concatenate([2 * fresh[at], 2 * own + 1, 2 * unseen + 1]),
    )
    arrived = (
        np.concatenate([holds[at], at_own, at_unseen]),
        np.concatenate([unknown[at], open_own, np.zeros_like(open_there)]),
    )
    last = rows.last[own] & ~rows.has_final_state[own]  # other successors are visited in their own rows
    visits = (
        np.concatenate([codes, own_codes[last], unseen_codes]),
        np.concatenate([holds, at_own[last], at_unseen]),
        ~np.concatenate([unknown, open_own[last], open_there]),
        np.concatenate([fresh, own[last], unseen]),
    )
    return _made(rows, draws, arrived, visits)


def _made(
    rows: LinkedRows,
    draws: tuple[Ints, Ints, Floats, Ints],
    arrived: tuple[Bools, Bools],
    visits: tuple[Ints, Bools, Bools, Ints],
) -> Steps:
    """Return the steps.

    `draws`: row of the action, code of the successor, reward, time. `arrived`: labels after each transition, and
    whether a value for them is missing. `visits`: codes, labels, whether the labels are known, rows.
    """
    taken, codes, rewards, times = draws
    order = np.argsort(times, kind="stable")
    taken, codes, rewards = taken[order], codes[order], rewards[order]
    linked = np.flatnonzero(rows.before >= 0)
    begins = code_of(rows.state, rows.terminated if rows.roles.timing == "state" else False)
    differs = rows.next[rows.before[linked]] != rows.state[linked] if rows.roles.next_state else np.zeros(0, np.bool_)
    return Steps(
        state=rows.state[taken],
        action=rows.action[taken],
        code=np.asarray(codes, np.int64),
        reward=rewards,
        segment=rows.segment[taken],
        episode=rows.episode[taken],
        earlier=_earlier(rows, taken),
        arrived=arrived[0][order],
        unmeasured=arrived[1][order],
        visited=np.asarray(visits[0], np.int64),
        holds=visits[1],
        known=visits[2],
        features=_features(rows, visits[3]),
        shown=_shown(rows),
        starts=begins[rows.start & ~rows.late],
        late=begins[rows.late],
        continued=rows.continued,
        alone=int(rows.start.sum() - (rows.start | rows.columns["@start"])[taken].sum()),
        gaps=rows.gaps,
        mismatches=int(differs.sum()),
    )


def _earlier(rows: LinkedRows, taken: Ints) -> Ints:
    before = rows.before[taken]
    known = (before >= 0) & (rows.action[before] >= 0)
    return np.where(known[:, None], np.column_stack([rows.state[before], rows.action[before]]), -1)


def _shown(rows: LinkedRows) -> Ints:
    signals = rows.columns.get("@signal", np.full(rows.count, -1))
    at = np.flatnonzero(rows.fresh & (signals >= 0))
    return np.column_stack([rows.state[at], signals[at]])


def _features(rows: LinkedRows, at: Ints) -> Floats:
    names = rows.roles.observation
    if not names:
        return np.zeros((len(at), 0))
    batch = RowBatch(rows.columns, 1, rows.source)
    return np.column_stack([as_numbers(batch, name)[at] for name in names])


def _next_columns(rows: LinkedRows, at: Ints) -> dict[str, AnyArray]:
    pairs = zip(rows.roles.state, rows.roles.next_state, strict=True) if rows.roles.next_state else ()
    return {name: rows.columns[after][at] for name, after in pairs}


def _holds(
    rows: LinkedRows, conditions: Sequence[Condition], at: Ints, instead: Mapping[str, AnyArray] | None
) -> tuple[Bools, Bools]:
    """Return where the labels surely hold in the rows `at`, [n, L], and where it is unknown whether they hold.

    `instead`: columns in place of the recorded ones. If `instead` is None, the rows stand for the ends of their steps,
    whose states are unknown. Only the reward and the markers are then known. A condition that uses one of these may
    also use the columns of the row that do not belong to the state.
    """
    if not conditions:
        return np.zeros((len(at), 0), np.bool_), np.zeros((len(at), 0), np.bool_)
    roles = rows.roles
    columns = {name: values[at] for name, values in rows.columns.items()} | dict(instead or {})
    columns["@reward"] = np.nan_to_num(columns["@reward"], nan=0.0)
    named = {"@reward": ("reward", roles.reward), "@terminated": ("terminated", "done", roles.terminated),
             "@truncated": ("truncated", roles.truncated)}  # fmt: skip
    shown = {name: values for name, values in columns.items() if not name.startswith("@")}
    of_step: dict[str, AnyArray] = {}
    for own, names in named.items():
        of_step |= {n: columns[own] for n in names if n is not None and (n not in shown or n == names[-1])}
    shown |= of_step
    found = []
    for condition in conditions:
        given: Mapping[str, AnyArray] = shown
        if instead is None:
            hidden = {*shown} - {*of_step} if of_step.keys().isdisjoint(condition.columns) else roles.of_state
            given = {name: values for name, values in shown.items() if name not in hidden}
        found.append([condition.holds(given, len(at), otherwise=otherwise) for otherwise in (False, True)])
    surely, maybe = (np.column_stack(each) for each in zip(*found, strict=True))
    return surely, maybe & ~surely
