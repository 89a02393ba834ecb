"""Ends of episodes whose state was not recorded: what is unknown there, and what is not."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import parsed
from monitor.authoring.learning.learner import Learner, labels_of
from monitor.authoring.learning.separation import never_left, unrecorded
from monitor.model import MDP

LEVELS = {"level": np.array([1.0, 2.0]), "done": np.array([True, True]), "reward": np.array([-1.0, 1.0])}


@pytest.mark.parametrize(
    "condition",
    [
        "level >= 2",
        "done and level >= 2",
        "not done and level >= 2",
        "reward < 0 and level >= 2",
        "reward < 0 or not level >= 2",
        "done and not (level >= 2 and reward < 0)",
        "1 <= level < 2",
        "0 < reward < level",
        "level in (1, 2)",
        "not (done and flag)",
    ],
)
def test_a_condition_is_known_only_where_no_unknown_number_changes_it(condition: str) -> None:
    one = parsed(f"x: {condition}")
    known = {name: LEVELS[name] for name in ("done", "reward")}
    surely, maybe = (one.holds(known, 2, otherwise=otherwise) for otherwise in (False, True))
    found = []
    for level, flag in itertools.product((-5.0, 0.5, 1.0, 1.5, 2.0, 9.0), (False, True)):
        values = known | {"level": np.full(2, level), "flag": np.full(2, flag)}
        found.append(one.holds(values, 2))
    assert (surely <= np.all(found, axis=0)).all()
    assert (np.any(found, axis=0) <= maybe).all()
    if condition != "level in (1, 2)":  # no other of these comparisons has a value that decides it
        assert (surely == np.all(found, axis=0)).all()
        assert (maybe == np.any(found, axis=0)).all()


def learned(
    rows: dict[str, list[Any]], labels: list[str], unsafe: list[str], **roles: str | tuple[str, ...]
) -> tuple[Learner, MDP]:
    columns = Roles(("level",), "action", "run", terminated="done", **roles)  # type: ignore[arg-type] # by name
    conditions = labels_of(labels, unsafe, columns, tuple(rows))
    used = tuple(name for condition, _ in conditions for name in condition.columns if name in rows)
    learner = Learner.new(Roles(**(vars(columns) | {"others": used})), None, conditions, 1.0)
    learner.read(RowBatch({name: np.array(values) for name, values in rows.items()}, 1, "rows"))
    learner.end_file()
    return learner, learner.model("rows")


def two_runs(**more: list[Any]) -> dict[str, list[Any]]:
    """Two episodes that end: 0 -> 1 -> (not recorded)."""
    return {"run": [1, 1, 2, 2], "level": [0, 1, 0, 1], "action": [0, 0, 0, 0], "done": [0, 1, 0, 1], **more}


def holds(model: MDP, label: str, state: str) -> str:
    """Whether a label holds in a state, `?` where that is unknown."""
    assert model.counts is not None
    place = model.state_names.index(state)
    unknown = model.counts.unknown.get(label)
    return "?" if unknown is not None and unknown[place] else str(bool(model.labels[label][place]))


def test_conditions_on_the_end_are_known_and_those_on_the_state_are_not() -> None:
    rows = two_runs(reward=[0, -1, 0, -1])
    unsafe = ["full: level >= 1", "over: done", "low: reward < 0", "both: done and level >= 1", "none: not done"]
    learner, model = learned(rows, ["goal: level >= 5"], unsafe, reward="reward")
    end = "unseen_end: over, low, goal unknown, full unknown, both unknown"
    assert model.row(1, 0)[0].tolist() == [model.state_names.index(end)]
    known = {name: holds(model, name, end) for name in ("goal", "full", "over", "low", "both", "none")}
    assert known == {"goal": "?", "full": "?", "over": "True", "low": "True", "both": "?", "none": "False"}
    place = model.state_names.index(end)
    assert [bool(model.labels[name][place]) for name in ("goal", "full", "both")] == [False, True, True]
    assert holds(model, "full", "1") == "True"
    assert holds(model, "both", "1") == "False"
    assert model.labels["unseen_end"].nonzero()[0].tolist() == [place]
    said = unrecorded(learner)
    assert [line.partition(":")[0] for line in said] == ["goal", "full", "both"]
    assert all("UNKNOWN at 2 of 2 ends" in line and "'full: done'" in said[1] for line in said)


def test_a_column_of_the_step_counts_only_beside_its_marker() -> None:
    rows = two_runs(cause=["", "leak", "", "stop"])
    _, model = learned(rows, [], ["leak: done and cause == 'leak'", "odd: cause == 'leak'"])
    assert model.state_names[2:4] == ("unseen_end: odd unknown", "unseen_end: leak, odd unknown")


def test_a_condition_on_no_column_of_the_state_is_suggested_with_the_marker() -> None:
    learner, _ = learned(two_runs(cause=["", "leak", "", "stop"]), [], ["odd: cause == 'leak' or cause == 'x'"])
    assert "'odd: done and (cause == 'leak' or cause == 'x')'" in unrecorded(learner)[0]


@pytest.mark.parametrize("marked", [False, True])
def test_ends_in_states_that_were_never_left_are_reported_where_nothing_marks_them(*, marked: bool) -> None:
    runs = range(8)
    rows: dict[str, list[Any]] = {
        "run": [run for run in runs for _ in range(3)],
        "level": [level for run in runs for level in (0, 1, 7 if run < 6 else 0)],
        "action": [0] * 24,
    }
    rows |= {"done": [0, 0, 1] * 8} if marked else {}
    roles = Roles(("level",), "action", "run", terminated="done" if marked else None)
    learner = Learner.new(roles, None, [], 1.0)
    learner.read(RowBatch({name: np.array(values) for name, values in rows.items()}, 1, "rows"))
    said = never_left(learner)
    assert bool(said) is not marked
    assert marked or said[0].startswith("6 recorded paths, in 8 episodes, end in one of 1 states from")


def test_logs_in_which_some_episodes_have_their_final_state() -> None:
    rows: dict[str, list[Any]] = {
        "run": [1, 1, 1, 2, 2, 3, 3, 3],
        "level": [0, 1, 2, 0, 1, 0, 1, 2],
        "action": [0, 0, np.nan, 0, 0, 0, 0, np.nan],
        "done": [0, 1, 0, 0, 1, 0, 0, 1],  # marked in the last step, not recorded, marked in the final row
    }
    learner, model = learned(rows, [], ["full: level >= 2", "over: done"])
    ended, unseen = model.state_names.index("2, ended"), model.state_names.index("unseen_end: over, full unknown")
    successors, _ = model.row(1, 0)
    assert successors.tolist() == sorted([ended, unseen])
    assert model.counts is not None
    row = slice(model.indptr[model.actions], model.indptr[model.actions + 1])
    assert dict(zip(successors.tolist(), model.counts.visits[row].tolist(), strict=True)) == {ended: 2, unseen: 1}
    assert (holds(model, "full", "2, ended"), holds(model, "over", "2, ended")) == ("True", "True")
    assert model.initial is not None
    assert model.initial[0] == 1.0  # no final state is a start
    assert "UNKNOWN at 1 of 3 ends" in unrecorded(learner)[0]


def test_a_next_state_that_is_empty_at_the_end_was_not_recorded() -> None:
    rows = two_runs(after=[1.0, np.nan, 1.0, 3.0])
    _, model = learned(rows, [], ["full: level >= 3"], next_state=("after",))
    assert {model.state_names[s] for s in model.row(1, 0)[0].tolist()} == {"3, ended", "unseen_end: full unknown"}
    learner, _ = learned(two_runs(after=[np.nan, 1, 1, 3]), [], [], next_state=("after",))
    assert learner.left_out.first == {"'after' is empty or not finite": [("rows", 1)]}
    assert learner.tally.draws == 3, "of four steps"


def test_a_final_row_without_a_state_says_nothing() -> None:
    rows: dict[str, list[Any]] = {
        "run": [1, 1, 1], "level": [1, 1, np.nan], "action": [0, 0, np.nan], "done": [0, 0, 1],
    }  # fmt: skip
    learner, _ = learned(rows, [], [])
    assert learner.left_out.first == {"'level' is empty or not finite": [("rows", 3)]}
    assert learner.tally.draws == 1, "where the second step led is not known"


def test_an_episode_that_is_cut_off_ends_nowhere() -> None:
    rows = two_runs(cut=[0, 1, 0, 0]) | {"done": [0, 0, 0, 1]}
    _, model = learned(rows, [], ["over: done"], truncated="cut")
    assert model.counts is not None
    assert model.counts.visits.tolist()[:2] == [2, 1]  # 0 -> 1 twice, 1 -> the one end
    without = {name: values for name, values in rows.items() if name != "done"} | {"done": [0, 0, 0, 0]}
    _, endless = learned(without, [], ["over: level > 5"], truncated="cut")
    assert "unseen_end" not in endless.labels
    assert "terminal" not in endless.labels
