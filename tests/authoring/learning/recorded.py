"""Random recordings, and a slow, independent count of what is in them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles, Timing
from monitor.authoring.learning.learner import Learner, labels_of
from monitor.model import MDP

Row = dict[str, Any]


def random_rows(
    rng: np.random.Generator, *, episodes: int, states: int = 4, actions: int = 2, finals: bool = True
) -> list[Row]:
    """Rows of interleaved episodes with gaps, ends and missing last actions.

    `finals`: also rows of final states, behind the end marker. `after`: the next state, in a column.
    """
    paths: list[list[Row]] = []
    for episode in range(episodes):
        length = int(rng.integers(1, 9))
        rows: list[Row] = []
        t = 0
        for _ in range(length):
            t += 1 if rng.random() < 0.9 or not rows else 2
            row = {"ep": episode, "t": t - 1, "x": int(rng.integers(states)), "a": float(rng.integers(actions))}
            rows.append(row | {"r": float(rng.integers(-1, 2)), "done": False, "cut": False})
        ending = rng.random()
        rows[-1]["done" if ending < 0.5 else "cut"] = bool(ending < 0.8)
        if ending > 0.9:
            rows[-1]["a"] = float("nan")
            rows[-1]["done"] = bool(ending > 0.95)
        elif rng.random() < 0.4 and finals:
            final = {"ep": episode, "t": t, "x": int(rng.integers(states)), "a": float("nan")}
            rows.append(final | {"r": float(rng.integers(-1, 2)), "done": bool(rng.random() < 0.5), "cut": False})
        paths.append(rows)
    mixed: list[Row] = []
    while paths:
        path = paths[int(rng.integers(len(paths)))]
        mixed.append(path.pop(0))
        if len(path) == 1 and np.isnan(path[0]["a"]) and rng.random() < 0.7:
            mixed.append(path.pop(0))
        paths = [path for path in paths if path]
    for row in mixed:
        row["after"] = int(rng.integers(states))
    return mixed


def batches(rows: list[Row], size: int) -> list[RowBatch]:
    """The rows in batches of `size`."""
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [
        RowBatch({name: np.array([row[name] for row in part]) for name in part[0]}, 1 + i * size, "rows")
        for i, part in enumerate(parts)
    ]


def roles(timing: Timing, *, after: bool = False) -> Roles:
    """The roles of the columns of random rows."""
    following = ("after",) if after else ()
    return Roles(("x",), "a", "ep", "t", "r", "done", "cut", next_state=following, timing=timing)


LABELS, UNSAFE = ["high: x >= 2"], ["bad: done and r < 0"]


def learned(files: list[list[Row]], size: int, columns: Roles) -> Learner:
    """A learner that has read the files in batches of `size`."""
    names = tuple(files[0][0])
    learner = Learner.new(columns, None, labels_of(LABELS, UNSAFE, columns, names), 1.0)
    for rows in files:
        for batch in batches(rows, size):
            learner.read(batch)
        learner.end_file()
    return learner


@dataclass
class Slow:
    """Counts by definition. A state is `("x", 3)`, its copy `("ended", 3)`, an unrecorded end `("end", labels)`."""

    draws: dict[tuple[int, int], list[tuple[Any, float]]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    visits: dict[Any, list[tuple[bool, bool]]] = field(default_factory=lambda: defaultdict(list))

    def draw(self, row: Row, successor: object, reward: float) -> None:
        """Count one transition."""
        self.draws.setdefault((row["x"], int(row["a"])), []).append((successor, reward))


def slowly(rows: list[Row], timing: Timing, *, after: bool = False) -> Slow:
    """Count row by row, with a dictionary of the last row of each episode, and a look at the next row of the file."""
    slow = Slow()
    last: dict[int, Row] = {}
    for number, row in enumerate(rows):
        before = last.get(row["ep"])
        acts = not np.isnan(row["a"])
        final = timing == "step" and not acts and number > 0 and before is rows[number - 1]
        over = before is None or bool(before["done"] or before["cut"])
        linked = before is not None and row["t"] == before["t"] + 1 and (final or not over)
        begins = not row["done"] if timing == "state" else acts
        if not linked and row["t"] <= 1 and over and begins:
            slow.starts[row["x"]] += 1
        before = before if linked else None
        if timing == "state":
            here = ("ended" if row["done"] else "x", row["x"])
            slow.visits[here].append((row["x"] >= 2, row["done"] and row["r"] < 0))
            if before is not None and not np.isnan(before["a"]):
                slow.draw(before, here, row["r"])
        else:
            follows = rows[number + 1] if number + 1 < len(rows) else None
            has_final = follows is not None and follows["ep"] == row["ep"] and bool(np.isnan(follows["a"]))
            _of_step(slow, row, before, after=after, acts=acts, has_final=has_final)
        last[row["ep"]] = row
    return slow


def _of_step(slow: Slow, row: Row, before: Row | None, *, after: bool, acts: bool, has_final: bool) -> None:
    ended, earned = False, 0.0
    if before is not None:
        ended = not acts and bool(row["done"] or before["done"])
        over = ended or (not acts and bool(row["cut"] or before["cut"]))
        earned = before["r"] + (row["r"] if over and not after else 0.0)
    here = ("ended" if ended else "x", row["x"])
    slow.visits[here].append((row["x"] >= 2, bool(ended and earned < 0)))
    if after:
        if acts:
            _with_next(slow, row, visited=not has_final)
        return
    if before is not None and not np.isnan(before["a"]):
        slow.draw(before, here, earned)
    if row["done"] and acts and not has_final:
        held = (False, row["r"] < 0)  # whether x >= 2 there was not recorded
        slow.visits["end", held].append(held)
        slow.draw(row, ("end", held), row["r"])


def _with_next(slow: Slow, row: Row, *, visited: bool) -> None:
    there = ("ended" if row["done"] else "x", row["after"])
    slow.draw(row, there, row["r"])
    if visited and (row["done"] or row["cut"]):
        slow.visits[there].append((row["after"] >= 2, row["done"] and row["r"] < 0))


def csv_of(rows: list[Row], path: Path) -> Path:
    """Write the rows as CSV; NaN as an empty field."""
    lines = [",".join(rows[0])]
    lines += [",".join("" if value != value else str(value) for value in row.values()) for row in rows]  # noqa: PLR0124
    path.write_text("\n".join(lines) + "\n")
    return path


def same_but_for_numbers(one: MDP, other: MDP) -> None:
    """Both models are the same but for the numbers of states; names tell which is which."""
    assert one.counts is not None
    assert other.counts is not None
    place = [other.state_names.index(name) for name in one.state_names]
    assert sorted(place) == list(range(other.states))
    assert place[one.counts.elsewhere] == other.counts.elsewhere
    for state, there in enumerate(place):
        for action in range(one.actions):
            successors, probabilities = one.row(state, action)
            found = dict(zip([place[s] for s in successors.tolist()], probabilities.tolist(), strict=True))
            wanted = other.row(there, action)
            assert found == dict(zip(wanted[0].tolist(), wanted[1].tolist(), strict=True))
            for successor in successors.tolist():
                assert one.reward(state, action, successor) == other.reward(there, action, place[successor])
            assert one.counts.order[state * one.actions + action] == other.counts.order[there * one.actions + action]
        assert place[one.ended(state)] == other.ended(there)
    for name, mask in one.labels.items():
        assert mask.tolist() == other.labels[name][place].tolist()
    assert one.initial is not None
    assert other.initial is not None
    np.testing.assert_allclose(one.initial, other.initial[place], rtol=1e-12)
    assert (one.observations is None) == (other.observations is None)
    if one.observations is not None and other.observations is not None:
        assert np.array_equal(one.observations, other.observations[place])
