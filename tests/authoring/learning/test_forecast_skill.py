"""Forecasts beside what happened: against slow counts, and which models are better than simple rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.authoring.learning.abstraction_scores import CandidateAbstraction
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.cross_fitting import FOLDS, Collected, CrossFitted, ForecastJudge, folds_of
from monitor.authoring.learning.forecast_skill import Events, ForecastSet, ForecastSkill, of_ends, skill
from monitor.authoring.learning.holdout import held_out
from monitor.authoring.learning.learner import Learner, labels_of
from monitor.authoring.learning.outcomes import Outcomes
from tests.authoring.learning.recorded import Row, batches
from tests.tiers import examples

COLUMNS = Roles(("x",), "a", "ep", "t", "r", "done")


def table_of(
    rows: list[Row], condition: str, *, size: int = 500, seed: int = 0, roles: Roles = COLUMNS
) -> tuple[CrossFitted, Collected]:
    labels = labels_of([], [condition], roles, tuple(rows[0]))
    learner = Learner.new(roles, None, labels, 1.0)
    kept = Collected(seed, unsafe=np.ones(1, np.bool_))
    for batch in batches(rows, size):
        kept.add(learner.read(batch))
    rest = learner.end_file()
    assert rest is not None
    kept.add(rest)
    return CrossFitted("", learner, kept), kept


def judge(rows: list[Row], condition: str) -> ForecastJudge:
    table, kept = table_of(rows, condition)
    return ForecastJudge(table.forecasts, kept.outcomes, ["bad"], lambda episodes: folds_of(episodes, kept.seed))


def tasks(rng: np.random.Generator, episodes: int, *, telling: bool) -> list[Row]:
    """Tasks of five stages, each passed or not, that end with success or failure; `telling`: 10 and more end badly."""
    rows: list[Row] = []
    for episode in range(episodes):
        fails, stage, t = bool(rng.random() < 0.5), 0, 0
        while True:
            done = stage == 4 and bool(rng.random() < 0.5)
            x = stage + 10 * (fails and telling)
            rows.append({"ep": episode, "t": t, "x": x, "a": 0, "r": -1.0 if done and fails else 0.0, "done": done})
            if done:
                break
            stage, t = min(stage + int(rng.random() < 0.5), 4), t + 1
    return rows


def test_a_model_that_knows_only_when_episodes_end_is_no_better() -> None:
    rows = tasks(np.random.default_rng(1), 300, telling=False)
    (found,) = judge(rows, "bad: done and r < 0").skills("bad", [4])
    assert found.log_gain.low > 0.05, "it beats always saying the base rate"
    assert found.end_gain is not None
    assert abs(found.end_gain.value) < 0.02
    assert (found.known, found.better, found.calibrated) == (True, False, True)
    assert (found.episodes, found.eventful) == (300, len({row["ep"] for row in rows if row["r"] < 0}))


def test_a_model_that_knows_how_they_end_is_better() -> None:
    (found,) = judge(tasks(np.random.default_rng(1), 300, telling=True), "bad: done and r < 0").skills("bad", [4])
    assert found.end_gain is not None
    assert found.end_gain.low > 0.3
    assert found.better


def test_where_each_end_is_the_event_to_know_ends_is_to_know_it() -> None:
    (found,) = judge(tasks(np.random.default_rng(2), 300, telling=False), "bad: done").skills("bad", [4])
    assert found.end_gain is None
    assert found.better


def test_states_that_say_nothing_are_seldom_better() -> None:
    rng, accepted, tries = np.random.default_rng(3), 0, examples(20, 200)
    for _ in range(tries):
        rows: list[Row] = [
            {"ep": e, "t": t, "x": int(rng.integers(3)), "a": 0, "r": 0.0, "done": False}
            for e in range(40)
            for t in range(20)
        ]
        for row in rows:
            row["r"] = float(rng.random() < 0.1)
        accepted += any(each.better for each in judge(rows, "bad: r > 0").skills("bad", [2, 8]))
    # An error of 1 % in both directions, in two intervals: 1 % together if both are right.
    assert accepted <= 1 + 0.03 * tries


def test_each_fold_is_forecast_by_the_others_and_the_first_is_what_a_holdout_holds_out() -> None:
    episodes = np.arange(10_000)
    fold = folds_of(episodes, 3)
    assert ((fold == 0) == held_out(episodes, 3, 0.2)).all()
    assert np.abs(np.bincount(fold) / 10_000 - 1 / FOLDS).max() < 0.03
    whole, kept = table_of(tasks(np.random.default_rng(4), 60, telling=True), "bad: done and r < 0", size=37)
    every = kept.every()
    assert (kept.outcomes.paths() == every.path).all()
    one = CandidateAbstraction("", whole.learner, whole.holdout).forecasts("bad", 3)
    first = folds_of(every.episode, 0) == 0
    made = whole.forecasts("bad", 3)
    np.testing.assert_array_equal(made.said[first], one.said)
    assert not np.isnan(made.said).any()
    part = CrossFitted("", whole.learner, whole.holdout, range(1)).forecasts("bad", 3)
    assert (np.isnan(part.said) == ~first).all()


def test_an_episode_is_held_out_as_a_whole_even_if_gaps_divide_it() -> None:
    rows = [row for row in tasks(np.random.default_rng(6), 80, telling=True) if row["t"] != 2]
    _, kept = table_of(rows, "bad: done and r < 0", size=37)
    every, held = kept.every(), kept.held()
    assert len(set(every.path.tolist())) > len(set(every.episode.tolist())) > 60
    assert 0 < np.isin(every.episode, held.episode).sum() == len(held.state)
    assert kept.train.draws == len(every.state) - len(held.state)
    assert set(kept.outcomes.episodes().tolist()) == set(every.episode.tolist())


def test_a_log_without_episodes_is_divided_at_gaps() -> None:
    rows: list[Row] = [{"t": n + 100 * (n // 20), "x": n % 7, "a": n % 2, "r": 0.0} for n in range(800)]
    _, kept = table_of(rows, "bad: x > 5", size=37, roles=replace(COLUMNS, episode=None, terminated=None))
    every, held = kept.every(), kept.held()
    assert len(set(every.episode.tolist())) == 40
    assert 0 < len(held.state) < len(every.state)


def test_the_numbers_are_those_of_a_slow_count() -> None:
    rng = np.random.default_rng(6)
    said, happened, paths = rng.uniform(size=300), rng.random(300) < 0.3, rng.integers(0, 25, 300)
    base, support = np.full(300, 0.3), np.full(300, 9.0)
    events = Events(happened, paths, base, np.full(300, np.nan), base)
    found = skill(("bad", 4), ForecastSet(said, support, np.full(300, 0.5)), events)
    losses = usual = 0.0
    for p, came in zip(said.tolist(), happened.tolist(), strict=True):
        smooth = (9 * p + 0.3) / 10
        losses -= np.log(smooth if came else 1 - smooth)
        usual -= np.log(0.3 if came else 0.7)
    assert found.log_gain.value == pytest.approx((usual - losses) / usual)
    assert found.brier == pytest.approx(np.mean((said - happened) ** 2))
    assert found.end_gain is None
    assert (found.count, found.episodes, found.eventful) == (300, 25, len(set(paths[happened].tolist())))
    assert sum(each.count for each in found.classes) == 300
    tenth = [each for each in found.classes if each.said < 0.1]
    assert tenth[0].happened.value == pytest.approx(happened[said < 0.1].mean())


def test_without_a_forecast_nothing_is_known() -> None:
    none = np.zeros(0)
    found = skill(("bad", 4), ForecastSet(none, none), Events(none > 0, none.astype(np.int64), none, none, none))
    assert isinstance(found, ForecastSkill)
    assert (found.count, found.known, found.better, found.classes) == (0, False, False, ())


def test_an_end_says_something_if_ends_differ_and_nothing_else_is_the_event() -> None:
    ended, half = np.array([True] * 8 + [False] * 8), np.array([True] * 4 + [False] * 12)
    assert of_ends(half, ended) == 0.5
    assert np.isnan(of_ends(ended, ended)), "an end is the event"
    assert np.isnan(of_ends(np.roll(half, 6), ended)), "it happens before an end"
    assert np.isnan(of_ends(half, np.zeros(16, np.bool_)))


def test_forecasts_that_rest_mostly_on_what_was_never_recorded_are_kept_apart() -> None:
    rng = np.random.default_rng(7)
    known, paths = rng.uniform(0, 0.3, 400), rng.integers(0, 30, 400)
    happened = rng.random(400) < known
    assumed = np.where(rng.random(400) < 0.1, 0.7, 0.0)
    assumed[:3] = 0.015  # over half of these forecasts, and yet too small to matter
    known[:3] = 0.0
    said, base, support = known + assumed, np.full(400, 0.15), np.full(400, 9.0)
    events = Events(happened, paths, base, np.full(400, np.nan), base)
    apart = assumed > 0.5
    found = skill(("bad", 4), ForecastSet(said, support, assumed=assumed), events)
    rest = Events(happened[~apart], paths[~apart], base[~apart], np.full(int((~apart).sum()), np.nan), base[~apart])
    alone = skill(("bad", 4), ForecastSet(said[~apart], support[~apart]), rest)
    assert found.assumed is not None
    assert alone.assumed is None
    assert replace(found, assumed=None, end_gain=None) == replace(alone, end_gain=None)
    assert (found.assumed.count, found.count) == (int(apart.sum()), int((~apart).sum()))
    assert found.assumed.said == pytest.approx(said[apart].mean())
    assert found.assumed.happened.value == pytest.approx(happened[apart].mean())
    assert found.calibrated
    assert not skill(("bad", 4), ForecastSet(said, support), events).calibrated
    assert found.problem == (
        f"{apart.mean():.0%} of the forecasts of 'bad' within 4 steps rest mostly on what was never recorded: nothing "
        "is known there; record more, or use coarser bins"
    )
    few = np.where(np.arange(400) < 8, assumed, 0.0)
    assert skill(("bad", 4), ForecastSet(known + few, support, assumed=few), events).problem is None


def test_what_follows_a_state_that_only_the_forecast_episode_leaves_is_assumed() -> None:
    """One episode visits states that no other visits: its forecasts there are assumptions, slowly counted here."""
    rows = tasks(np.random.default_rng(8), 60, telling=True)
    for row in rows:
        row["x"] += 100 if row["ep"] == 7 else 0
    labels = labels_of([], ["bad: done and r < 0"], COLUMNS, tuple(rows[0]))
    learner = Learner.new(COLUMNS, None, [(condition, True) for condition, _ in labels], 1.0)
    kept = Collected(0, unsafe=np.ones(1, np.bool_))
    for batch in batches(rows, 500):
        kept.add(learner.read(batch))
    rest = learner.end_file()
    assert rest is not None
    kept.add(rest)
    made = CrossFitted("", learner, kept).forecasts("bad", 3)
    every = kept.every()
    strange = learner.where().of(every.code) >= 100
    strange &= every.state >= 100
    assert made.assumed is not None
    assert strange.any()
    assert (made.assumed[strange & ~kept.outcomes.ends(1)] == 1.0).all()
    assert (made.assumed[~strange] == 0.0).all()


def test_a_path_that_ends_by_its_event_is_judged_if_no_column_marks_cuts() -> None:
    holds = np.array([False, False, True, False, False, False, False, True, True])  # paths of 3, 3 and 3 transitions
    path, never = np.repeat(np.arange(3), 3), np.zeros(9, np.bool_)
    judged, came = {}, {}
    for unmarked in (False, True):
        found = Outcomes.of_label(holds, never, path, path, unmarked=unmarked)
        judged[unmarked], came[unmarked] = (each[:, 0].tolist() for each in found.events(2))
    assert judged[False] == [True, *[False] * 2, True, *[False] * 2, True, *[False] * 2]
    assert judged[True] == [True, True, False, True, *[False] * 2, True, *[False] * 2], "only the first path ends by it"
    assert came[True][:2] == [True, True]
