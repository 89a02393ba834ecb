"""The report: its numbers against slow ones, and its verdict on good and bad abstractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from monitor.authoring.learning import holdout as holding
from monitor.authoring.learning import model_report as reporting
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.holdout import Holdout, held_out
from monitor.authoring.learning.learner import Learner, labels_of
from monitor.authoring.learning.model_report import Gain, LabelCalibration, ModelReport, reported
from monitor.authoring.learning.states import numbered
from monitor.authoring.learning.tally import mixed

ROLES = Roles(("x",), "a", "ep", "t", None, "done", "cut")


def walk(rng: np.random.Generator, episodes: int, *, hidden: bool = False, length: int = 60) -> dict[str, list[int]]:
    """A walk on 0..4 that may fall off at 4; `hidden`: it prefers the direction of its last step."""
    rows: dict[str, list[int]] = {name: [] for name in ("ep", "t", "x", "a", "done", "cut")}
    for episode in range(episodes):
        x, last = 0, 1
        for t in range(length):
            action = int(rng.integers(2))
            up = rng.random() < ((0.9 if last > 0 else 0.1) if hidden else 0.3 + 0.4 * action)
            fell = x == 4 and bool(rng.random() < 0.2)
            for name, value in zip(rows, (episode, t, x, action, fell, t == length - 1), strict=True):
                rows[name].append(int(value))
            if fell:
                break
            last = 1 if up else -1
            x = min(max(x + last, 0), 4)
    return rows


def learned(rows: dict[str, list[int]], size: int = 1000, seed: int = 0) -> tuple[Learner, Holdout]:
    learner = Learner.new(ROLES, None, labels_of(["top: x == 4"], ["fall: done"], ROLES, tuple(rows)), 1.0)
    holdout = Holdout(seed)
    for batch in batches(rows, size):
        holdout.add(learner.read(batch))
    rest = learner.end_file()
    assert rest is not None
    holdout.add(rest)
    return learner, holdout


def batches(rows: dict[str, list[int]], size: int) -> Iterator[RowBatch]:
    for i in range(0, len(rows["x"]), size):
        yield RowBatch({name: np.array(values[i : i + size]) for name, values in rows.items()}, i + 1, "walk")


def report_of(learner: Learner, holdout: Holdout) -> ModelReport:
    assert learner.states is not None
    states = numbered(learner.tally, learner.states)
    return reported(learner.model("walk"), states, holdout, ["top", "fall"], ["fall"])


def test_a_markov_state_is_good_enough() -> None:
    report = report_of(*learned(walk(np.random.default_rng(0), 3000)))
    assert report.problems == ()
    assert (report.coverage.seen, report.coverage.pairs, report.coverage.thin) == (10, 10, 0.0)
    assert sum(report.coverage.classes) == 10
    assert all(gain.difference < -0.05 for gain in report.simpler)
    assert all(abs(gain.difference) < 0.002 for gain in report.histories)
    judged = [each for each in report.calibrations if not each.unjudged]
    assert {(each.label, each.horizon) for each in judged} >= {("top", 1), ("fall", 1), ("fall", 5)}
    for each in judged:
        assert abs(each.gap) < 4 * each.error
        assert sum(count for count, _, _ in each.bins) == each.count
    assert report.scarce[0].visits < report.transitions
    assert [row.score for row in report.scarce] == sorted((row.score for row in report.scarce), reverse=True)


def test_a_state_that_hides_something_is_not() -> None:
    report = report_of(*learned(walk(np.random.default_rng(0), 1000, hidden=True)))
    assert report.problems[0].startswith("the states are not Markov: the previous state")
    assert [gain.real for gain in report.histories] == [False, True, True]


def test_the_likelihoods_are_those_of_a_slow_count() -> None:
    rows = walk(np.random.default_rng(5), 60)
    learner, holdout = learned(rows, size=37, seed=3)
    report = report_of(learner, holdout)
    pairs: Counter[tuple[int, ...]] = Counter()
    firsts, held = [], []
    for i, episode in enumerate(rows["ep"]):
        firsts += [i] if rows["t"][i] == 0 else []
        ends = i + 1 == len(rows["ep"]) or rows["ep"][i + 1] != episode
        after = -1 if rows["done"][i] else None if ends else rows["x"][i + 1]
        if after is None:
            continue
        step = (rows["x"][i], rows["a"][i], after)
        if held_out(np.array([firsts[-1]]), 3, 0.2)[0]:
            held.append(step)
        else:
            pairs[step] += 1
    assert (report.held, report.transitions) == (len(held), pairs.total())
    kinds = len({after for _, _, after in pairs}) + 1
    logs = {"pair": 0.0, "state": 0.0, "nothing": 0.0}
    for x, a, after in held:
        m = (sum(n for (_, _, c), n in pairs.items() if c == after) + 1 / kinds) / (pairs.total() + 1)
        of_pair = sum(n for (s, b, _), n in pairs.items() if (s, b) == (x, a))
        of_state = sum(n for (s, _, _), n in pairs.items() if s == x)
        logs["nothing"] += float(np.log(m))
        logs["pair"] += float(np.log((pairs[x, a, after] + m) / (of_pair + 1)))
        both = sum(n for (s, _, c), n in pairs.items() if (s, c) == (x, after))
        logs["state"] += float(np.log((both + m) / (of_state + 1)))
    state, nothing = report.simpler
    assert nothing.value == pytest.approx(logs["nothing"] / len(held))
    assert state.value == pytest.approx(logs["state"] / len(held))
    assert state.difference == pytest.approx((logs["state"] - logs["pair"]) / len(held))


def test_forecasts_are_those_of_simulation() -> None:
    learner, holdout = learned(walk(np.random.default_rng(0), 2000))
    assert learner.states is not None
    states = numbered(learner.tally, learner.states)
    chain = reporting.Chain(holdout.train, states)
    label = learner.model("walk").labels["fall"]
    dense = chain.matrix.toarray()
    np.testing.assert_allclose(dense.sum(axis=1), 1.0)
    dense[label] = np.eye(states.count)[label]
    expected = np.linalg.matrix_power(dense, 20) @ label
    np.testing.assert_allclose(chain.forecasts(label, 20), expected, atol=1e-12)


def test_forecasts_of_what_was_never_recorded_are_not_calibrated() -> None:
    """A state in which only held-out episodes were recorded: the event is assumed there, and never comes."""
    rows = walk(np.random.default_rng(0), 300)
    learner, _ = learned(rows)
    for i, episode in enumerate(rows["ep"]):
        first = next(n for n in range(i, -1, -1) if rows["t"][n] == 0)
        if rows["x"][i] == 2 and held_out(np.array([first]), 0, 0.2)[0] and episode % 2:
            rows["x"][i] = 9
    learner, holdout = learned(rows)
    report = report_of(learner, holdout)
    (fall,) = (each for each in report.calibrations if (each.label, each.horizon) == ("fall", 1))
    chain = reporting.Chain(holdout.train, learner.where())
    label = learner.model("walk").labels["fall"]
    assert chain.forecasts(label, 1)[9] == chain.assumed(label, 1)[9] == 1.0
    assert not chain.assumed(label, 1)[:5].any()
    held = holdout.held()
    assert fall.assumed == int((held.state == 9).sum()) > 20
    assert not fall.wrong
    assert all(said < 0.5 for _, said, _ in fall.bins)
    assert "rest mostly on what was never recorded" in "".join(report.problems)


def test_wrong_forecasts_and_thin_data_are_problems() -> None:
    learner, holdout = learned(walk(np.random.default_rng(0), 300))
    report = report_of(learner, holdout)
    off = LabelCalibration("fall", 5, 1000, 0.1, 0.01, ((1000, 0.3, 0.2),), 0)
    tenth = LabelCalibration("top", 5, 1000, 0.0, 0.01, ((500, 0.3, 0.2), (500, 0.7, 0.79)), 0)
    few = LabelCalibration("fall", 20, 10, 0.9, 0.01, ((10, 1.0, 0.1),), 90)
    none = LabelCalibration("fall", 5, 0, 0.0, 0.0, (), 0, assumed=3)
    assert [each.wrong for each in (off, tenth, few, none)] == [True, True, False, False]
    assert off.fault == "they say 30.0% on average, and 20.0% of 1,000 came true"
    assert tenth.fault == (
        "of the 500 forecasts from 30 % to 40 %, which say 30.0% on average, 20.0% came true; 2 tenths are wrong"
    )
    bad = replace(report, calibrations=(off, few), coverage=replace(report.coverage, thin=0.2, unseen=0.1), held=0)
    unknown = replace(few, label="top", horizon=20, assumed=1), none
    said = reporting.problems_of(replace(bad, calibrations=unknown))
    assert [each.partition(" rest mostly")[0] for each in said if "never recorded" in each] == [
        "9% of the forecasts of 'top' within 20 steps", "100% of the forecasts of 'fall' within 5 steps"
    ]  # fmt: skip
    problems = "; ".join(reporting.problems_of(bad))
    for words in ("no path was held out", "'fall' within 5 steps are wrong", "20% of held-out", "10.0% of held-out"):
        assert words in problems


def test_nothing_held_out_is_a_problem_and_not_a_crash() -> None:
    rows = walk(np.random.default_rng(0), 1)
    learner, holdout = learned(rows)
    holdout = Holdout(0, fraction=0.0)
    learner = Learner.new(ROLES, None, labels_of(["top: x == 4"], ["fall: done"], ROLES, tuple(rows)), 1.0)
    for batch in batches(rows, 10):
        holdout.add(learner.read(batch))
    report = report_of(learner, holdout)
    assert report.held == 0
    assert report.calibrations == ()
    assert report.simpler[0] == Gain("the state, without the action", 0.0)
    assert report.problems[0].startswith("no path was held out")


def test_everything_held_out_is_not_a_crash_either() -> None:
    rows = walk(np.random.default_rng(0), 5)
    learner = Learner.new(ROLES, None, labels_of(["top: x == 4"], ["fall: done"], ROLES, tuple(rows)), 1.0)
    holdout = Holdout(0, fraction=1.0)
    for batch in batches(rows, 10):
        holdout.add(learner.read(batch))
    states = numbered(learner.tally, learner.states)  # type: ignore[arg-type]
    report = reported(learner.model("walk"), states, holdout, [], [])
    assert report.transitions == 0
    assert report.coverage.thin == 1.0
    assert report.scarce == ()


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "HELD", 100)
    monkeypatch.setattr(holding, "MAX_CONTEXTS", 20)
    learner, holdout = learned(walk(np.random.default_rng(0), 200), size=100)
    report = report_of(learner, holdout)
    assert report.full
    assert report.held < 200


def test_a_hash_is_uniform_and_depends_on_every_part() -> None:
    ids = np.arange(100_000)
    share = held_out(ids, 7, 0.2).mean()
    assert abs(share - 0.2) < 5 * np.sqrt(0.16 / len(ids))
    assert len(np.unique(mixed(ids, ids * 0))) == len(ids)
    assert (mixed(ids, ids * 0) != mixed(ids * 0, ids)).mean() > 0.99
