"""Recorded steps as numbers: state, action, inputs and next state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.authoring.learning.abstraction import numbered_actions
from monitor.authoring.learning.batch import RowBatch, as_numbers
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import Condition
from monitor.authoring.learning.episodes import Episodes
from monitor.authoring.learning.left_out import LeftOut, RowLimit
from monitor.authoring.learning.recorded_steps import Steps
from monitor.authoring.learning.row_files import FileRows, RowFile, goes_on
from monitor.authoring.learning.state_codes import MAX_LABELS, base_of, is_end
from monitor.errors import RecordingError

MOST_ROWS: Final = 1_000_000
"""Largest number of rows that are read. Further rows are left out."""
LEAST_EPISODES: Final = 10


class Visits(NamedTuple):
    """Visited states [v, f] with the values of conditions on the columns of their rows: `holds`, `known`, [v, c]."""

    x: Floats
    holds: Bools
    known: Bools


class UnseenEnds(NamedTuple):
    """Last steps [m] of episodes whose final state was not recorded.

    `x`, `a`, `w`, `path`, `episode`: as in `RecordedSteps`. `may`: [m, c] whether each condition may hold there.
    """

    x: Floats
    a: Ints
    w: Floats
    path: Ints
    episode: Ints
    may: Bools


@dataclass(frozen=True)
class RecordedSteps:
    """Steps [n], in the order of their rows.

    `x`, `x_next`: [n, f] state and next state. `a`: [n] action. `w`: [n, i] inputs. `path`: [n] number of the path,
    which is an episode or a part of an episode between gaps; `episode`: [n] number of the episode. `actions`: names of
    the actions. `full`: True if there were more rows than `MOST_ROWS`. `gaps`, `step`, `joined`: as in `Learner`.
    `visits`: the values of the conditions that were read. `unseen`: the ends whose state was not recorded. `ended`: [n]
    whether the episode terminated in the next state; None: no episode did.
    """

    x: Floats
    a: Ints
    w: Floats
    x_next: Floats
    path: Ints
    episode: Ints
    actions: tuple[str, ...]
    full: bool = False
    gaps: int = 0
    step: float | None = None
    joined: int = 0
    visits: Visits | None = None
    unseen: UnseenEnds | None = None
    ended: Bools | None = None

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.a)

    def __getitem__(self, rows: AnyArray | slice) -> RecordedSteps:
        """Return the steps at these rows."""
        picked = {name: getattr(self, name)[rows] for name in ("x", "a", "w", "x_next", "path", "episode")}
        return replace(self, **picked, ended=None if self.ended is None else self.ended[rows])

    def by_path(self) -> dict[int, Ints]:
        """Return path -> indices of its steps, in order."""
        order = np.argsort(self.path, kind="stable")
        paths, begins = np.unique(self.path[order], return_index=True)
        return dict(zip(paths.tolist(), np.split(order, begins[1:]), strict=True))

    @property
    def linked(self) -> Ints:
        """The number of the run of each step, [n].

        In a run, each step begins in the state in which the previous step ended.

        A path is one run, or several runs if steps were removed from it.
        """
        order = np.argsort(self.path, kind="stable")
        path, ends, begins = self.path[order], self.x_next[order], self.x[order]
        apart = (np.diff(path) != 0) | (ends[:-1] != begins[1:]).any(axis=1)
        found = np.empty(len(self), np.int64)
        found[order] = np.concatenate([np.zeros(min(len(self), 1), np.int64), np.cumsum(apart)])
        return found

    @property
    def given(self) -> Floats:
        """The values that the next state depends on, [n, f + A + i]: the state, the one-hot action, the inputs."""
        return np.concatenate([self.x, np.eye(len(self.actions))[self.a], self.w], axis=1)


class _Rows:
    """An `Encoder` that numbers the rows consecutively and keeps their values.

    A missing value gives -1.
    """

    def __init__(self) -> None:
        self._parts: list[Floats] = []
        self.count = 0

    def encode(self, batch: RowBatch, names: tuple[str, ...]) -> Ints:
        values = np.column_stack([as_numbers(batch, name) for name in names])
        self._parts.append(values)
        rows = np.arange(self.count, self.count + len(values))
        self.count += len(values)
        return np.where(np.isfinite(values).all(axis=1), rows, -1)

    def values(self) -> Floats:
        return np.concatenate(self._parts)


def read_steps(
    sources: Sequence[RowFile],
    roles: Roles,
    left_out: LeftOut,
    limit: RowLimit,
    conditions: Sequence[Condition] = (),
) -> RecordedSteps:
    """Return the steps of recordings, without rewards. Rows that are left out are added to `left_out`.

    `conditions`: conditions on the columns of the rows, for the visits.

    Raises RecordingError if more rows are left out than the limit allows, if a column that must have numbers has text
    or is constant, if only one action occurs, or if there are too few episodes.
    """
    # Inputs are read as the last columns of the state. They have no columns for the next step.
    width, after = len(roles.state), (*roles.next_state, *roles.inputs) if roles.next_state else ()
    roles = replace(
        _with_columns(roles, conditions, sources[0]), state=(*roles.state, *roles.inputs), next_state=after, inputs=()
    )
    rows, actions, read = _Rows(), None, 0
    found: list[Steps] = []
    full, gaps, joined = False, 0, 0
    step: float | None = None
    episodes: Episodes | None = None
    files = [FileRows(source, roles.used) for source in sources]
    for file, following in zip(files, [*files[1:], None], strict=True):
        source, before = file.source, left_out.rows
        for batch in file:
            if actions is None:
                usable = batch.whole()
                if not len(usable):
                    left_out.take(usable)
                    continue
                actions = numbered_actions(usable, roles.action)
            episodes = episodes or Episodes(roles, rows, actions, conditions, read, left_out=left_out)
            steps = episodes.read(batch)
            gaps += steps.gaps
            step = step if episodes.counts_up else episodes.step or step
            found.append(steps)
            read += batch.rows
            full = full or read >= MOST_ROWS
            if full:
                break
        if left_out.rows == before:
            raise RecordingError(f"{source.path}: has no rows")
        if episodes is None:
            continue
        part = following is not None and not full and goes_on(source, following.source)
        first = None if part or following is None or full else following.first()
        if first is not None and episodes.goes_on(first):
            joined += 1
        elif not part:
            steps = episodes.finish()
            gaps += steps.gaps
            found.append(steps)
            episodes = None
        if full:
            break
    left_out.refuse(limit, str(sources[0].path))
    if actions is None:
        raise RecordingError(f"{sources[0].path}: no row can be read")
    state, action, code, path, episode, visited, holds, clear = (
        np.concatenate([getattr(each, name) for each in found])
        for name in ("state", "action", "code", "segment", "episode", "visited", "holds", "known")
    )
    successor, visited, values = base_of(code), base_of(visited), rows.values()
    known, seen = successor >= 0, visited >= 0
    _refuse_constant(values, roles.state, str(sources[0].path))
    here = values[state[known]]
    got = RecordedSteps(
        here[:, :width], actions.places[action[known]], here[:, width:], values[successor[known], :width], path[known],
        episode[known], actions.action_names or tuple(str(number) for number in range(actions.size)), full, gaps, step,
        joined, Visits(values[visited[seen], :width], holds[seen], clear[seen]) if conditions else None,
        _unseen(code, (values[state], actions.places[action], path, episode), width, len(conditions)),
        is_end(code[known]),
    )  # fmt: skip
    _refuse_too_little(got, roles, str(sources[0].path))
    return got


def _unseen(codes: Ints, of: tuple[Floats, Ints, Ints, Ints], width: int, conditions: int) -> UnseenEnds:
    """Return the ends whose state was not recorded. `of`: numbers, actions, paths and episodes of all transitions."""
    lost = np.flatnonzero(is_end(codes) & (base_of(codes) < 0))
    x, a, path, episode = of
    bits = codes[lost, np.newaxis] >> np.arange(conditions)
    may = (bits | bits >> MAX_LABELS) & 1 == 1  # the condition holds, or may hold
    here = x[lost]
    return UnseenEnds(here[:, :width], a[lost], here[:, width:], path[lost], episode[lost], np.asarray(may))


def _with_columns(roles: Roles, conditions: Sequence[Condition], source: RowFile) -> Roles:
    """Return the roles with the columns of the conditions. A reward is read only if a condition uses its column."""
    columns = {column for condition in conditions for column in condition.columns}
    others = dict.fromkeys((*roles.others, *(name for name in source.names() if name in columns)))
    return replace(roles, others=tuple(others), reward=roles.reward if columns & {"reward", roles.reward} else None)


def _refuse_constant(values: Floats, names: Sequence[str], source: str) -> None:
    for name, column in zip(names, values.T, strict=True):
        if np.nanmin(column) == np.nanmax(column):
            raise RecordingError(
                f"{source}: column {name!r} is {column[0]:g} in every row, so nothing can be learned of it; leave it "
                "out: name the others with --state (and --inputs)"
            )


def _refuse_too_little(steps: RecordedSteps, roles: Roles, source: str) -> None:
    taken = np.bincount(steps.a, minlength=len(steps.actions))
    if (taken > 0).sum() < 2:
        only = f"every action is {steps.actions[int(taken.argmax())]!r}" if len(steps) else "there are no steps"
        raise RecordingError(f"{source}: {only}; what another action would do cannot be learned from that")
    if not taken.all():
        never = steps.actions[int(np.flatnonzero(taken == 0)[0])]
        raise RecordingError(
            f"{source}: action {never} of {roles.action!r} was recorded only where no next state follows, so "
            "what it leads to cannot be learned; leave these rows out, or record more"
        )
    episodes = len(np.unique(steps.episode))
    if episodes < LEAST_EPISODES:
        raise RecordingError(
            f"{source}: {episodes} episodes with steps; at least {LEAST_EPISODES} are needed, some to learn from and "
            "others to check. Cut a long recording, such as into days, by a column that differs between the parts "
            "(--episode)"
        )
