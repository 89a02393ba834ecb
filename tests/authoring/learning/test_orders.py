"""Columns that order rows, in every form that logs have: all of them give the counts of one log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.batch import RowBatch, as_moments
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.cross_fitting import Collected
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.left_out import RowLimit
from monitor.errors import RecordingError
from tests.authoring.learning.recorded import batches, random_rows, roles

EPISODES = [[0, 1, 2, 3], [3, 4, 5, 6], [3, 4, 5, 6, 6], [5, 6, 6, 6], [3, 4, 5]]
STARTS = {0: 1, 3: 3, 5: 1}
EPOCH = 1_777_881_600

Column = Sequence[float | str]


def learned(columns: Mapping[str, Column], size: int = 1000, *, named: bool = True, order: str = "t") -> Learner:
    """A learner that has read the columns, in batches of `size`; `named`: with the column of episodes."""
    roles = Roles(("x",), "a", "ep" if named else None, order, terminated="done" if "done" in columns else None)
    learner = Learner.new(roles, None, [], 1.0)
    arrays = {name: np.array(values) for name, values in columns.items()}
    for at in range(0, len(arrays["x"]), size):
        part = {name: values[at : at + size] for name, values in arrays.items()}
        learner.read(RowBatch(part, 1 + at, "rows"))
    return learner


def log(times: Callable[[int, int, int], float | str], order: str = "t") -> dict[str, Column]:
    """The episodes with `times(episode, step, row)` as their order."""
    places = [(e, t) for e, states in enumerate(EPISODES) for t in range(len(states))]
    return {
        "ep": [e for e, _ in places],
        "x": [EPISODES[e][t] for e, t in places],
        "a": [0 for _ in places],
        order: [times(e, t, row) for row, (e, t) in enumerate(places)],
    }


def iso(seconds: float, form: str) -> str:
    whole = np.datetime_as_string(np.datetime64(round(1e6 * (EPOCH + seconds)), "us"))
    return {"zulu": f"{whole}Z", "none": str(whole), "blank": str(whole).replace("T", " ") + "+00:00"}[form]


FORMS: dict[str, Callable[[int, int, int], float | str]] = {
    "from 0": lambda _, t, __: t,
    "from 1": lambda _, t, __: t + 1,
    "floats": lambda _, t, __: float(t),
    "over all episodes": lambda _, __, row: row,
    "over all episodes, from 1": lambda _, __, row: row + 1,
    "over all episodes, with a step between": lambda e, _, row: row + e,
    "over all episodes, from far on": lambda _, __, row: row + 1000,
    "from elsewhere in each": lambda e, t, _: 100 * e + 10 + t,
    "every fourth step": lambda _, t, __: 4 * t,
    "tenths of a second": lambda _, t, __: 0.1 * t,
    "seconds since 1970": lambda _, __, row: EPOCH + row,
    "milliseconds since 1970": lambda _, __, row: 1000 * EPOCH + 33 * row,
    "nanoseconds since 1970": lambda _, __, row: 10**9 * EPOCH + 5 * row,
    "ISO 8601": lambda _, __, row: iso(row, "zulu"),
    "ISO 8601 without zone": lambda _, __, row: iso(row / 3, "none"),
    "ISO 8601 with a blank": lambda _, __, row: iso(row / 8, "blank"),
    "whole numbers as text": lambda _, t, __: str(t + 9),
    "days": lambda _, __, row: f"2026-05-{row + 1:02}",
}


@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_order_gives_the_same_counts(form: str, size: int) -> None:
    learner = learned(log(FORMS[form]), size)
    assert learner.tally.draws == sum(len(states) - 1 for states in EPISODES)
    assert (learner.tally.gaps, learner.tally.alone) == (0, 0)
    model = learner.model("m")
    assert model.initial is not None
    starts = {state: round(5 * share, 9) for state, share in enumerate(model.initial.tolist()) if share}
    assert starts == STARTS
    for state in range(6):
        after = sorted({b for states in EPISODES for a, b in pairwise(states) if a == state})
        assert model.row(state, 0)[0].tolist() == after


@pytest.mark.parametrize("form", ["from 0", "from 1", "floats", "tenths of a second"])
def test_without_a_column_of_episodes_a_counter_that_begins_again_cuts(form: str) -> None:
    both = [learned(log(FORMS[form]), named=named) for named in (True, False)]
    assert both[0].tally.transitions.keys.tolist() == both[1].tally.transitions.keys.tolist()
    assert both[1].tally.visited["starts"].tolist() == both[0].tally.visited["starts"].tolist()


@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize("name", ["time", "timestamp", "t"])
def test_rows_of_one_second_keep_their_order(name: str, size: int) -> None:
    states = [0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 3, 2]
    columns: dict[str, Column] = {"x": states, "a": [0] * 12, name: [n // 3 for n in range(12)]}
    thirds = columns | {name: [n / 3 for n in range(12)]}
    whole, fine = (learned(each, size, named=False, order=name).tally for each in (columns, thirds))
    assert whole.draws == fine.draws == 11
    assert whole.transitions.keys.tolist() == fine.transitions.keys.tolist()
    assert whole.visited["starts"].sum() == 1
    named = learned(columns | {"ep": [0] * 12}, order=name).tally
    assert named.transitions.keys.tolist() == fine.transitions.keys.tolist()


def test_a_time_named_so_may_repeat_now_and_then_and_a_counter_may_not() -> None:
    columns: dict[str, Column] = {"ep": [0] * 6, "x": [0, 1, 2, 3, 2, 1], "a": [0] * 6}
    assert learned(columns | {"time": [0, 1, 2, 2, 3, 4]}, order="time").tally.draws == 5
    for named in (True, False):
        twice = learned(columns | {"t": [0, 1, 2, 2, 3, 4]}, named=named)
        assert twice.left_out.first == {"'t' is there twice": [("rows", 4)]}
        assert twice.tally.draws == 3, "neither 2 -> 3 nor 2 -> 2: which of the two rows is right is not known"


def test_episodes_of_one_row_begin_where_a_counter_is_at_its_start_again() -> None:
    columns: dict[str, Column] = {"x": [0, 1, 2, 3, 3, 1, 2], "a": [0] * 7, "t": [0, 1, 2, 0, 0, 0, 1]}
    for size in (3, 4, 5, 1000):
        tally = learned(columns, size, named=False).tally
        assert (tally.draws, tally.alone) == (3, 2)
        assert tally.visited["starts"].tolist() == [1, 1, 0, 2]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("form", ["from 0", "tenths of a second", "ISO 8601"])
def test_the_newest_first_is_refused(form: str, *, named: bool) -> None:
    columns = {name: list(reversed(values)) for name, values in log(FORMS[form]).items()}
    with pytest.raises(RecordingError, match=r"sort the file by .*f the rows are in order as they are: --order ''"):
        learned(columns, named=named).left_out.refuse(RowLimit.parsed("50%"), "rows")


SPACED: dict[str, Callable[[int], float | str]] = {
    "every fourth step": lambda t: 4 * t,
    "tenths of a second": lambda t: 0.1 * t,
    "half hours": lambda t: iso(1800 * t, "none"),
    "ten a second, with jitter": lambda t: iso(0.1 * t + 0.002 * (7 * t % 3), "zulu"),
}


@pytest.mark.parametrize("size", [40, 1000])
@pytest.mark.parametrize("form", SPACED)
def test_a_row_that_is_missing_from_usual_times_is_a_gap(form: str, size: int) -> None:
    every = [(ep, t) for ep in range(3) for t in range(60)]
    lost = {(0, 20), (1, 5), (1, 6), (2, 0)}
    rows = [each for each in every if each not in lost]
    columns: dict[str, Column] = {
        "ep": [ep for ep, _ in rows], "x": [t % 5 for _, t in rows], "a": [0] * len(rows),
        "t": [SPACED[form](100 * ep + t) for ep, t in rows],
    }  # fmt: skip
    tally = learned(columns, size).tally
    assert (tally.gaps, tally.draws) == (2, len(rows) - 3 - 2)
    assert tally.visited["starts"].sum() == 3


@pytest.mark.parametrize("regular", [0.0, 0.5, 0.9])
def test_irregular_times_have_no_gaps(regular: float) -> None:
    rng = np.random.default_rng(1)
    rises = np.where(rng.random(400) < regular, 1.0, rng.exponential(5.0, 400))
    columns: dict[str, Column] = {
        "ep": [0] * 400, "x": [t % 5 for t in range(400)], "a": [0] * 400, "t": np.cumsum(rises).tolist(),
    }  # fmt: skip
    tally = learned(columns).tally
    assert (tally.gaps, tally.draws) == (0, 399)


def test_a_missing_step_is_a_gap_and_a_late_one_no_start() -> None:
    rows = log(FORMS["from 0"])
    kept = [n for n in range(len(rows["x"])) if n not in (4, 5, 6, 14)]  # the second episode's first three
    learner = learned({name: [values[n] for n in kept] for name, values in rows.items()})
    assert learner.tally.gaps == 1
    assert learner.tally.visited["late"].sum() == 1
    assert not learner.runs_on
    assert learner.model("m").initial is not None
    assert learner.tally.visited["starts"].sum() == 4


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-05-04T07:00:00Z", 0),
        ("2026-05-04 07:00:00.25", 0.25),
        ("2026-05-04T07:00:01,5Z", 1.5),
        ("2026-05-04T09:00:00+02:00", 0),
        ("2026-05-04T03:30:00-0330", 0),
        ("2026-05-04T08:00+01", 0),
        ("2026-05-04", -7 * 3600),
        ("1969-12-31T23:59:59Z", -1_777_878_001),
    ],
)
def test_times_are_seconds_since_1970(text: str, seconds: float) -> None:
    found = as_moments(RowBatch({"t": np.array([text])}, 1, "rows"), "t")
    assert found.tolist() == [1_777_878_000 + seconds]


@pytest.mark.parametrize(
    "text", ["now", "2026-13-01", "2026-04-31", "2026-05-04T25:00:00Z", "2026-05", "20260504T07", "7 am"]
)
def test_what_is_no_time_is_none(text: str) -> None:
    with pytest.raises(RecordingError, match=r"rows, row 2: column 't' is .*, no number and no time such as"):
        as_moments(RowBatch({"t": np.array(["2026-05-04", text])}, 1, "rows"), "t")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["2026-05-04T07:00:00Z", "2026-05-04T07:00:01", "2026-05-04T07:00:02Z"], "row 2: .*some times have a zone"),
        (["04/05/2026", "05/05/2026", "06/05/2026"], "row 1: .*'04/05/2026': it is not known which of day and"),
    ],
)  # fmt: skip
def test_times_that_cannot_be_told_are_refused(values: list[Any], problem: str) -> None:
    columns: dict[str, Column] = {"ep": [0, 0, 0], "x": [0, 1, 2], "a": [0, 0, 0], "t": values}
    with pytest.raises(RecordingError, match=problem):
        learned(columns)


@pytest.mark.parametrize(
    ("values", "reason", "row"),
    [
        (["2026-05-04T07:00:00Z", "soon", "2026-05-04T07:00:02Z"], "'t' is no time", 2),
        (["2026-05-04T07:00:00Z", "", "2026-05-04T07:00:02Z"], "'t' is empty", 2),
        (["2026-05-04T07:00:01Z", "2026-05-04T09:00:00+02:00", "2026-05-04T07:00:02Z"], "'t' falls", 2),
        ([1.0, float("nan"), 2.0], "'t' is empty", 2),
        (["9" * 30, "1", "2"], "'t' is no time", 1),
    ],
)
def test_a_row_whose_place_is_unknown_is_left_out(values: list[Any], reason: str, row: int) -> None:
    columns: dict[str, Column] = {"ep": [0, 0, 0], "x": [0, 1, 2], "a": [0, 0, 0], "t": values}
    learner = learned(columns)
    assert reason in learner.left_out.first
    assert ("rows", row) in learner.left_out.first[reason]
    assert learner.tally.draws == 0


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["04/13/2026 07:00", "04/14/2026 07:00:30"], 86_430),
        (["13/04/2026 07:00", "14/04/2026 7:00:30.5"], 86_430.5),
        (["04.05.2026 07:00:00", "05.05.2026 07:00:00"], 86_400),
        (["2026/05/04 07:00:00", "2026/05/04 07:00:01"], 1),
        (["5/13/2026 11:59:59 AM", "5/13/2026 12:00:01 PM"], 2),
        (["5/13/2026 11:59:59 PM", "5/14/2026 12:00:01 AM"], 2),
        (["2026-05-04 07:00:00 UTC", "2026-05-04 07:00:00.5 UTC"], 0.5),
    ],
)
def test_times_in_other_usual_forms(texts: list[str], seconds: float) -> None:
    found = as_moments(RowBatch({"t": np.array(texts)}, 1, "rows"), "t")
    assert found[1] - found[0] == seconds
    assert np.datetime64(int(found[0]), "s").astype("M8[M]").astype(str) in ("2026-04", "2026-05")


@pytest.mark.parametrize("size", [7, 1_000])
def test_pieces_of_an_episode_are_one_episode(size: int) -> None:
    rows = random_rows(np.random.default_rng(3), episodes=80)
    learner = Learner.new(roles("step"), None, [], 1.0)
    kept = Collected(0, unsafe=np.zeros(0, np.bool_))
    for batch in batches(rows, size):
        kept.add(learner.read(batch))
    rest = learner.end_file()
    assert rest is not None
    kept.add(rest)
    first = {row["ep"]: number for number, row in reversed(list(enumerate(rows)))}
    paths, episodes = kept.outcomes.paths().tolist(), kept.outcomes.episodes().tolist()
    assert episodes == [first[rows[path]["ep"]] for path in paths]
    assert len(set(episodes)) < len(set(paths)), "gaps divide some"
    assert kept.every().episode.tolist() == episodes
