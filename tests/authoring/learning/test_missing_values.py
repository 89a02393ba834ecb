"""Labels whose condition uses a value that is missing in some rows: unknown there, and never silently false."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.learner import Learner, labels_of
from monitor.authoring.learning.outcomes import Outcomes
from monitor.authoring.learning.separation import missed, never_held, unrecorded
from monitor.model import MDP

NAN = float("nan")


def learned(ends: list[float], conditions: list[str], *, labels: bool = False) -> tuple[Learner, MDP, Outcomes]:
    """One episode 0 -> 1 -> 2 for each of `ends`: the altitude where it ends; 5 before that."""
    rows: dict[str, list[Any]] = {"ep": [], "x": [], "a": [], "alt": [], "done": []}
    for episode, end in enumerate(ends):
        for x, alt in enumerate((5.0, 5.0, end)):
            for name, value in zip(rows, (episode, x, 0, alt, x == 2), strict=True):
                rows[name].append(value)
    roles = Roles(("x",), "a", "ep", terminated="done", timing="state", others=("alt",))
    given = labels_of(conditions if labels else [], [] if labels else conditions, roles, tuple(rows))
    learner = Learner.new(roles, None, given, 1.0)
    outcomes = Outcomes(0, np.array([unsafe for _, unsafe in given]), fraction=1.0)
    outcomes.add(learner.read(RowBatch({name: np.array(values) for name, values in rows.items()}, 1, "rows")))
    return learner, learner.model("rows"), outcomes


def unknown(model: MDP, label: str) -> list[str]:
    assert model.counts is not None
    states = model.counts.unknown.get(label, np.zeros(model.states, np.bool_))
    return [model.state_names[state] for state in np.flatnonzero(states)]


def test_the_visits_in_which_it_is_known_decide() -> None:
    learner, model, _ = learned([0.0] * 10 + [NAN] * 30, ["crash: alt < 1"])
    assert model.labels["crash"][model.state_names.index("2, ended")]
    assert unknown(model, "crash") == ["2", "elsewhere"]  # no episode goes on in 2
    assert missed(learner.tally, learner.labels) == {"crash": 0.0}
    [said] = unrecorded(learner)
    assert said.startswith("crash: UNKNOWN in 30 of 120 visits of states, because a value")
    assert "the other visits of these states decide" in said
    whole = learned([0.0, 5.0], ["crash: alt < 1"])[0]
    assert unrecorded(whole) == []


@pytest.mark.parametrize("condition", ["alt < 1", "alt != 5", "not alt >= 1"])
@pytest.mark.parametrize("unsafe", [True, False])
def test_a_state_in_which_it_is_never_known_is_unknown(condition: str, *, unsafe: bool) -> None:
    learner, model, _ = learned([NAN] * 4, [f"crash: {condition}"], labels=not unsafe)
    assert unknown(model, "crash") == ["2", "2, ended", "elsewhere"]
    assert bool(model.labels["crash"][model.state_names.index("2, ended")]) is unsafe
    [said] = unrecorded(learner)
    assert f"it counts as {'' if unsafe else 'not '}holding in states in which it is never known (4 of these" in said
    assert never_held(learner) == ["crash: its condition holds in no row in which it is known"]


def test_forecasts_are_judged_only_where_it_is_known_what_happened() -> None:
    outcomes = learned([0.0, NAN, 5.0], ["crash: alt < 1"])[2]
    counts, happened = outcomes.events(5)
    assert counts[:, 0].tolist() == [True, False, False, False, True, False]  # after 0 -> 1; not at ends
    assert happened[counts].tolist() == [True, False]


def test_labels_that_never_hold_are_told_apart_from_the_others() -> None:
    roles = Roles(("x",), "a", others=("alt",))
    given = labels_of(["high: alt > 4"], ["crash: alt < 1"], roles, ("x", "a", "alt"))
    learner = Learner.new(roles, None, given, 1.0)
    learner.read(RowBatch({"x": np.array([0, 1]), "a": np.array([0, 0]), "alt": np.array([5.0, 6.0])}, 1, "rows"))
    (told,) = never_held(learner, unsafe=True)
    assert told.startswith("crash: its condition holds in no row, so")
