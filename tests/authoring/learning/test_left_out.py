"""Rows that are left out: named, and a gap in their episodes; no transition is invented."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from monitor.arrays import AnyArray
from monitor.authoring.learning import row_files
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.left_out import DEFAULT, LeftOut, RowLimit
from monitor.authoring.learning.row_files import open_rows
from monitor.errors import RecordingError
from tests.tiers import examples, scaled

Row = tuple[int, int, int, int]
"""Episode, step, state, action."""

BAD = {"empty": "'x' is empty or not finite", "odd": "'x' is no number", "torn": "torn"}
LINES = {"empty": "{0},{1},,{3}", "odd": "{0},{1},no,{3}", "torn": "{0},{1}"}


def log(rng: np.random.Generator, *, interleaved: bool) -> list[Row]:
    """Rows of 12 episodes, in turns if they are interleaved."""
    rows = [
        (e, t, int(rng.integers(4)), int(rng.integers(2))) for e in range(12) for t in range(int(rng.integers(2, 9)))
    ]
    return sorted(rows, key=lambda row: (row[1], row[0])) if interleaved else rows


def expected(rows: list[Row], bad: dict[int, str], *, counts: bool, named: bool) -> tuple[Counter[Row], int]:
    """The transitions (state, action, next state) and the number of starts, by going through pairs of rows."""
    pairs: Counter[Row] = Counter()
    starts = 0
    last: dict[int, int] = {}
    for i, (episode, step, state, _) in enumerate(rows):
        before = last.get(episode)
        last[episode] = i
        if i in bad:
            continue
        gone = named and bad.get(i - 1) == "torn" and not (counts and step == 0)
        if not named:
            gone = bad.get(i - 1) in ("empty", "odd")  # of the one path; a torn row may be of any
        starts += step == 0 and not gone
        if before is None or before in bad:
            continue
        if not counts and any(kind == "torn" and before < k < i for k, kind in bad.items()):
            continue
        pairs[0, rows[before][2], rows[before][3], state] += 1
    return pairs, starts


def counted(learner: Learner) -> Counter[Row]:
    """The transitions that were counted, of the model."""
    model = learner.model("m")
    assert model.counts is not None
    found: Counter[Row] = Counter()
    for state in range(4):
        for action in range(model.actions):
            place = state * model.actions + action
            row = slice(model.indptr[place], model.indptr[place + 1])
            for after, visits in zip(model.row(state, action)[0].tolist(), model.counts.visits[row], strict=True):
                if visits:
                    found[0, state, action, after] += int(visits)
    return found


@scaled
@pytest.mark.parametrize("order", ["step", None])
@pytest.mark.parametrize("layout", ["one by one", "interleaved", "without names"])
def test_no_transition_leads_to_from_or_across_a_row_that_is_left_out(
    layout: str, order: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = layout != "without names"
    if not named and order is None:
        pytest.skip("nothing tells episodes apart")
    rng = np.random.default_rng(0)
    for size in (1, 7, 1000)[-examples(2, 3) :]:
        monkeypatch.setattr(row_files, "ROWS", size)
        for _ in range(examples(4, 40)):
            rows = log(rng, interleaved=layout == "interleaved")
            bad = {int(i): str(rng.choice(list(BAD))) for i in rng.choice(np.arange(20, len(rows)), 5, replace=False)}
            path = tmp_path / "log.csv"
            path.write_text(
                "run,step,x,a\n"
                + "".join(
                    (LINES[bad[i]] if i in bad else "{},{},{},{}").format(*row) + "\n" for i, row in enumerate(rows)
                )
            )
            learner = Learner.new(Roles(("x",), "a", "run" if named else None, order), None, [], 1.0)
            for batch in open_rows(path).batches(learner.roles.used):
                learner.read(batch)
            learner.end_file()
            pairs, starts = expected(rows, bad, counts=order is not None, named=named)
            assert counted(learner) == pairs
            if size == 1000:  # the row left out may be of another batch
                assert learner.tally.visited["starts"].sum() == starts
            assert learner.left_out.rows == len(rows)
            assert learner.left_out.counts == Counter(BAD[kind] for kind in bad.values())
            assert {row for named in learner.left_out.first.values() for _, row in named} <= {i + 1 for i in bad}


@pytest.mark.parametrize("timing", ["step", "state"])
def test_a_step_without_its_reward_is_not_counted(timing: Literal["step", "state"]) -> None:
    lacking = np.nan
    columns: dict[str, AnyArray] = {
        "run": np.zeros(6, np.int64),
        "x": np.array([0, 1, 2, 3, 0, 1]),
        "a": np.zeros(6, np.int64),
        "r": np.array([0, 0, lacking, 0, 0, lacking]),
    }
    if timing == "state":  # the first row of an episode has none
        columns["r"] = np.array([lacking, 0, 0, lacking, 0, 0])
    learner = Learner.new(Roles(("x",), "a", "run", reward="r", timing=timing), None, [], 1.0)
    for at in range(0, 6, 3):
        learner.read(RowBatch({name: values[at : at + 3] for name, values in columns.items()}, 1 + at, "rows"))
    assert counted(learner) == Counter({(0, 0, 0, 1): 2, (0, 1, 0, 2): 1, (0, 3, 0, 0): 1})
    assert learner.left_out.first == {"no reward in 'r'": [("rows", 3 if timing == "step" else 4)]}


def test_a_step_without_its_action_is_named_unless_it_is_the_last() -> None:
    columns = {
        "run": np.array([0, 0, 0, 0, 1, 1]),
        "x": np.array([0, 1, 2, 3, 0, 1]),
        "a": np.array([0, np.nan, 0, np.nan, 0, np.nan]),
    }
    learner = Learner.new(Roles(("x",), "a", "run"), None, [], 1.0)
    learner.read(RowBatch(columns, 1, "rows"))
    assert counted(learner) == Counter({(0, 0, 0, 1): 2, (0, 2, 0, 3): 1})
    assert learner.left_out.first == {"'a' is empty": [("rows", 2)]}


def test_the_limit_is_a_percentage_or_a_number_of_rows() -> None:
    found = LeftOut()
    found.rows = 10
    found.add("torn", "a.csv", np.array([4]))
    for text in ("10%", "12.5%", "1", "7"):
        found.refuse(RowLimit.parsed(text), "a.csv")
    with pytest.raises(RecordingError, match=r"a.csv: left out: 1 of 10 rows: torn \(4\); more .* by --skip-bad 10%"):
        found.refuse(RowLimit.parsed("0.1%"), "a.csv")
    found.add("torn", "b.csv", np.arange(5, 9))
    assert found.listing() == "left out: 5 of 10 rows: torn (a.csv 4; b.csv 5; b.csv 6; 2 more)"
    found.refuse(RowLimit.parsed("0"), "b.csv", LeftOut.of(found.document()))
    for text in ("x", "-1", "200%", "nan%", "", "1e999%"):
        with pytest.raises(RecordingError, match="give a percentage of the rows"):
            RowLimit.parsed(text)


def test_rows_that_lack_a_value_have_a_limit_of_their_own() -> None:
    found = LeftOut(100)
    found.add("'level' is empty or not finite", "a.csv", np.arange(3))
    found.add("'level' is -999, taken for missing", "a.csv", np.arange(3, 5))
    found.refuse(RowLimit.parsed(DEFAULT), "a.csv")
    found.refuse(RowLimit.parsed("0,5"), "a.csv")
    for text in ("0.1%", "4", "0.1%,4%", "5%,4"):
        with pytest.raises(RecordingError, match=f"5 of 100 rows.* more than --skip-bad {text} allows"):
            found.refuse(RowLimit.parsed(text), "a.csv")
    found.add("torn", "a.csv", np.arange(5, 6))
    with pytest.raises(RecordingError, match=r"6 of 100 rows.* leave them out by --skip-bad 6%"):
        found.refuse(RowLimit.parsed(DEFAULT), "a.csv")
    found.refuse(RowLimit.parsed("1%,5%"), "a.csv")
    earlier = LeftOut(50, {"'level' is empty or not finite": 3}, {})
    found.refuse(RowLimit.parsed("1,2"), "a.csv", earlier)
    with pytest.raises(RecordingError):
        found.refuse(RowLimit.parsed("1,1"), "a.csv", earlier)
    for wrong in ("1%,", ",1", "1,2,3", "1%,x"):
        with pytest.raises(RecordingError, match="give a percentage"):
            RowLimit.parsed(wrong)
