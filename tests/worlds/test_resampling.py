"""Inputs beyond the recorded ones, resampled: against the definition in plain Python, enumeration, and simulation."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from statistics import pstdev
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import kstest

from monitor.errors import ModelError
from monitor.evaluation import check
from monitor.evaluation.worlds import WorldChecker
from monitor.logic import parse
from monitor.logic.syntax import Goal, InterventionRef
from monitor.referee.numbers import Given, drawn_states
from monitor.sampled import Sampler
from monitor.types import Sampling
from monitor.worlds import Feature, Moment, load_world
from monitor.worlds.resampling import ResampledInputs
from tests.tiers import examples, heavy, scaled, slow
from tests.worlds.graphs import linear, world_files
from tests.worlds.samples import ResampledTank, Tank

Row = tuple[float, ...]
Episodes = list[list[Row]]
INPUTS = Feature("sun"), Feature("wind", low=0.0, high=9.0)
POLICIES = {
    "nominal": lambda x: np.zeros(len(x), dtype=int),
    "careful": lambda x: (x[:, 0] > 5).astype(int),
}


def file_of(episodes: Episodes, names: str = "sun,wind") -> bytes:
    lines = [f"{7 * n},{','.join(map(repr, row))}" for n, rows in enumerate(episodes) for row in rows]
    return "\n".join([f"episode,{names}", *lines]).encode()


def days(seed: int, *, coarse: bool = False) -> Episodes:
    """Episodes of 1 to 9 rows; `coarse`: of few different numbers, so that many are as near."""
    rng = random.Random(seed)
    one: Callable[[], Row] = lambda: (float(rng.randint(0, 2)), float(rng.randint(0, 1)))  # noqa: E731
    other: Callable[[], Row] = lambda: (rng.gauss(0, 3), rng.uniform(0, 9))  # noqa: E731
    return [[(one if coarse else other)() for _ in range(rng.randint(1, 9))] for _ in range(rng.randint(2, 12))]


def later_inputs(episodes: Episodes, w: Row, ahead: int) -> list[Row]:
    """All inputs that may come `ahead` steps after w, in the order of the recording, by the definition."""
    rows = [row for each in episodes for row in each]
    ends = [len(each) for each in episodes]
    last = {sum(ends[: n + 1]) - 1: n for n in range(len(ends))}
    units = [float(f"{pstdev(column):.4g}") or 1.0 for column in zip(*rows, strict=True)]

    def nearest(to: Row) -> list[int]:
        apart = {
            n: sum(((row[j] / units[j] - to[j] / units[j]) ** 2) for j in range(2))
            for n, row in enumerate(rows)
            if n not in last
        }
        count = round(math.sqrt(len(apart)))
        bound = sorted(apart.values())[count - 1]
        nearer, ties = ([n for n, d in apart.items() if holds(d, bound)] for holds in (operator.lt, operator.eq))
        rest = count - len(nearer)
        return sorted(nearer + [ties[k * len(ties) // rest] for k in range(rest)])

    places = [n + 1 for n in nearest(w)]
    for _ in range(ahead - 1):
        places = [n + 1 if n not in last else (near := nearest(rows[n]))[last[n] % len(near)] + 1 for n in places]
    return [rows[n] for n in places]


@scaled
def test_inputs_are_drawn_as_defined() -> None:
    for seed in range(examples(30, 120)):
        episodes, rng = days(seed, coarse=seed % 2 == 0), random.Random(seed)
        if all(len(each) < 2 for each in episodes):
            continue
        source = ResampledInputs(file_of(episodes), INPUTS, "x")
        assert source.steps == sum(map(len, episodes))
        for w in [rng.choice(rng.choice(episodes)), (rng.gauss(0, 3), 4.0)]:
            for ahead in (1, 2, rng.randint(3, 30)):
                wanted = later_inputs(episodes, w, ahead)
                u = (np.arange(len(wanted)) + 0.5) / len(wanted)  # the middle of each part of (0, 1)
                assert source.resample(np.array(w), ahead, u).tolist() == [list(row) for row in wanted]
                ends = source.resample(np.array(w), ahead, np.array([2.0**-53, 1 - 2.0**-53]))
                assert ends.tolist() == [list(wanted[0]), list(wanted[-1])]


def test_one_draw_is_one_stretch_of_a_recording() -> None:
    episodes: Episodes = [[(100.0 * n + k, 1.0) for k in range(40)] for n in range(30)]
    source = ResampledInputs(file_of(episodes), INPUTS, "x")
    u = np.random.default_rng(0).uniform(size=500)
    steps = np.array([source.resample(np.array([1500.0, 1.0]), ahead, u)[:, 0] for ahead in range(1, 20)])
    assert (np.diff(steps, axis=0)[:, steps[0] % 100 < 20] == 1.0).all()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "its first line is ''; it must be sun,wind, or episode,sun,wind"),
        (b"wind,sun\n1,2\n1,2", "its first line is 'wind,sun'; it must be sun,wind"),
        (b"sun,wind\n1,2\n", "it has 1 rows; give 2 at least"),
        (b"sun,wind\n1,2\n1,wet\n", "it is no table of numbers"),
        (b"sun,wind\n1,2\n1\n", "it is no table of numbers"),
        (b"sun,wind\n1\n1\n", "its rows have 1 numbers, its first line 2 names"),
        (b"\xff\xfe", "it is no table of numbers"),
        (b"sun,wind\n" + b"1,2\n" * 100_001, "it has more than 100,000 rows"),
        (b"sun,wind\n1,2\n1,9.5\n", "row 2: wind=9.5, outside 0 to 9"),
        (b"sun,wind\n1,2\nnan,2\n", "row 2: sun=nan, outside -inf to inf"),
        (b"sun,wind\n1e200,2\n1,2\n", "its numbers are too large to be compared"),
        (b"episode,sun,wind\n1,1,2\n2,1,2\n", "no row follows another one of its episode; record inputs step by step"),
    ],
)
def test_each_mistake_in_a_recording_is_one_clear_line(content: bytes, says: str) -> None:
    with pytest.raises(ModelError) as found:
        ResampledInputs(content, INPUTS, "w.yaml, inputs.csv")
    assert str(found.value).startswith("world w.yaml, inputs.csv: ")
    assert says in str(found.value)
    assert "\n" not in str(found.value)


# ---- answers ----


def plant(folder: Path, content: bytes, scale: float) -> Path:
    """x' = 0.8 x + sun - 2 a + scale z, warm from 5 on, with recorded inputs."""
    (folder / "inputs.csv").write_bytes(content)
    manifest = {
        "features": [{"name": "x"}],
        "actions": ["off", "on"],
        "inputs": [{"name": "sun"}, {"name": "wind"}],
        "recorded_inputs": {"file": "inputs.csv", "sha256": sha256(content).hexdigest()},
        "location": "file:location",
        "scale": [scale],
        "labels": {"warm": "x >= 5"},
    }
    location = linear({"x": [[0.8]], "a": [[0], [-2]], "w": [[1], [0]]}, [0])
    return world_files(folder, manifest, location=location)


def walked(x: float, inputs: list[float], noise: list[float], careful: int) -> list[float]:
    states = [x]
    for sun, z in zip(inputs, noise, strict=True):
        action = careful * (states[-1] > 5)
        states.append(0.8 * states[-1] + sun - 2 * action + z)
    return states


EPISODES: Episodes = [[(3 * math.sin(k / 4 + n) + n % 3, 4.0 + n % 2) for k in range(30)] for n in range(20)]
PATH = [([3.0], 0, [1.0, 4.0]), ([3.4], 0, [1.6, 4.0]), ([4.32], 0, [1.9, 5.0])]


@heavy
@pytest.mark.parametrize(("policy", "offset", "steps"), [("nominal", 0, 6), ("careful", 2, 9), ("careful", 1, 40)])
def test_without_noise_a_value_is_a_fraction_of_the_stretches(
    tmp_path: Path, policy: str, offset: int, steps: int
) -> None:
    checker = WorldChecker(plant(tmp_path, file_of(EPISODES), 0.0), POLICIES, {})
    path, held = checker.path(PATH), [row[2][0] for row in PATH[2 - offset :]]
    sun = [[row[0] for row in later_inputs(EPISODES, (1.9, 5.0), k)] for k in range(1, steps - len(held) + 1)]
    count = len(sun[0])
    met = [
        any(
            x >= 5
            for x in walked(
                PATH[2 - offset][0][0], held + [each[n] for each in sun], [0.0] * steps, policy == "careful"
            )[steps // 2 :]
        )
        for n in range(count)
    ]
    goal = parse(f'{policy}@{offset}.P=? [ F[{steps // 2},{steps}] "warm" ]')
    assert isinstance(goal, Goal)
    draws = 20_000
    outcomes = Sampler(checker.scene, 5).question(goal, path).outcomes(range(draws))
    share = Fraction(sum(met), count)
    assert 0 < share < 1
    assert outcomes.mean() == pytest.approx(float(share), abs=4 * math.sqrt(share * (1 - share) / draws))
    given = Given(path, 0, terminated=False, worlds={"": checker.model}, policies=POLICIES, seed=5, draws=300)
    begins, states = drawn_states(goal.world.change, offset, given, steps)
    assert begins == 2 - offset
    assert np.array_equal(outcomes[:300] == 1.0, (np.hstack(states[steps // 2 :]) >= 5).any(axis=1))


def test_with_noise_a_value_is_that_of_a_simulation(tmp_path: Path) -> None:
    checker = WorldChecker(plant(tmp_path, file_of(EPISODES), 0.5), POLICIES, {})
    path, steps, draws, rng = checker.path(PATH), 8, 20_000, np.random.default_rng(1)
    goal = parse(f'careful@2.P=? [ G[5,{steps}] !"warm" ]')
    assert isinstance(goal, Goal)
    held = [PATH[k + 1][0][0] - 0.8 * PATH[k][0][0] - PATH[k][2][0] for k in range(2)]
    sun = np.array([[row[0] for row in later_inputs(EPISODES, (1.9, 5.0), k)] for k in range(1, steps - 2)])
    met = 0
    for _ in range(draws):
        inputs = [1.0, 1.6, 1.9, *sun[:, rng.integers(sun.shape[1])].tolist()]
        states = walked(3.0, inputs, held + rng.normal(0, 0.5, steps - 2).tolist(), 1)
        met += all(x < 5 for x in states[5:])
    outcomes = Sampler(checker.scene, 9).question(goal, path).outcomes(range(draws))
    assert 0.1 < met / draws < 0.9
    assert outcomes.mean() == pytest.approx(met / draws, abs=4 * math.sqrt(0.5 / draws))


def test_only_what_depends_on_later_inputs_is_drawn(tmp_path: Path) -> None:
    world = load_world(plant(tmp_path, file_of(EPISODES), 0.0))

    def ask(text: str) -> tuple[str, int | None]:
        verdict = check(text, model=world, path=PATH, policies=POLICIES, sampling=Sampling(limit=5_000))
        return verdict.method, verdict.resampled_from

    # The last recorded inputs lead to the state 3 steps after the first; those of the step after it are drawn.
    assert ask('careful@2.P=? [ F<=3 "warm" ]') == ("exact", None)
    assert ask('careful@2.P=? [ F=4 "warm" ]') == ("sampled", 600)
    assert ask('careful@2.P=? [ "warm" U<=4 !"warm" ]') == ("exact", None), "decided before"
    assert ask('nominal@0.P=? [ F=1 "warm" ]') == ("exact", None)
    assert ask('nominal@0.P=? [ F=2 "warm" ]') == ("sampled", 600)
    regret = ask('regret(careful@2, P>=0.5 [ G[3,3] !"warm" ])')
    assert regret == ("exact", 600), "what handing over now gives is drawn"


def test_worlds_that_are_compared_have_the_same_inputs(tmp_path: Path) -> None:
    checker = WorldChecker(plant(tmp_path, file_of(EPISODES), 0.0), POLICIES | {"same": POLICIES["nominal"]}, {})
    path = checker.path(PATH)
    goal = parse('delta(same,nominal)@1.P=? [ F[4,9] "warm" ]')
    assert isinstance(goal, Goal)
    question = Sampler(checker.scene, 5).question(goal, path)
    assert not question.outcomes(range(2_000)).any()
    alone = parse('same@1.P=? [ F[4,9] "warm" ]')
    assert isinstance(alone, Goal)
    assert 0 < Sampler(checker.scene, 5).question(alone, path).outcomes(range(2_000)).mean() < 1


# ---- worlds in Python ----


def changed(**parts: Any) -> Any:
    return type("Changed", (ResampledTank,), parts)


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (changed(recorded_steps=0), "recorded_steps is 0; it counts what resample draws from"),
        (changed(recorded_steps="all"), "recorded_steps is 'all'"),
        (changed(resample=lambda self, w, ahead, u: w), r"resample gives shape \(1,\)"),
        (
            changed(resample=lambda self, w, ahead, u: -u[:, np.newaxis]),
            r"resample\(\[.*\], 1, 0.01\) gives rain=-0.01",
        ),
        (changed(resample=lambda self, w, ahead, u: np.full((len(u), 1), u.sum())), "resample gives two answers"),
        (changed(resample=lambda self, w, ahead, u: 1 / 0), "resample fails .ZeroDivisionError"),
    ],
)
def test_each_fault_of_resample_is_one_clear_error(world: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        load_world(world)


def test_resample_takes_the_place_of_forecast() -> None:
    text, path = 'nominal@1.P=? [ F<=6 "overflow" ]', [([6.0], 0, [0.4]), ([6.3], 0, [0.4])]
    policies = {"nominal": lambda x: np.zeros(len(x), dtype=int)}
    kept, drawn = (check(text, model=each, path=path, policies=policies) for each in (Tank, ResampledTank))
    assert (kept.value, kept.resampled_from) == (0.0, None), "0.4 a step for five steps comes to 8.3"
    assert drawn.value == pytest.approx(0.75, abs=0.04)
    assert drawn.resampled_from == ResampledTank.recorded_steps
    other = check(
        f"model:rainy{text.removeprefix('nominal')}",
        model=Tank,
        path=path,
        policies=policies,
        models={"rainy": ResampledTank},
    )
    assert (other.value, other.resampled_from) == (drawn.value, 40)


# ---- what it is for ----


class Room:
    """A room that follows the temperature outside, which comes with the time of day."""

    features = ("room",)
    actions = ("none",)
    labels = ("cold",)
    inputs = ("outside", "sine", "cosine")
    noise = 1
    version = "room 1"

    def step(self, x: Any, a: Any, u: Any, w: Any) -> Any:
        return 0.8 * x + 0.2 * w[:, :1] + 0.1 * ndtri(u)

    def invert(self, x: Any, a: int, x_next: Any, w: Any) -> Any:
        return ndtr((x_next - 0.8 * x - 0.2 * w[:1]) / 0.1)

    def forecast(self, w: Any) -> Any:
        return w

    def holds(self, label: str, x: Any) -> Any:
        return x[:, 0] < 5


def outside(steps: int, rng: np.random.Generator) -> Any:
    """Temperatures with a cycle of 24 steps and lasting departures from it, sine and cosine of the time: [steps, 3]."""
    turn, departure = 2 * np.pi * (np.arange(steps) + rng.integers(24)) / 24, rng.normal(0, 1.5)
    rows = []
    for sine, cosine in zip(np.sin(turn), np.cos(turn), strict=True):
        departure = 0.9 * departure + rng.normal(0, 0.65)
        rows.append((10 + 5 * sine + departure, sine, cosine))
    return np.array(rows)


@slow
def test_seasonal_inputs_kept_are_miscalibrated_and_resampled_calibrated() -> None:
    """Ranks, among the draws of 12 steps ahead, of what a room does that is simulated here."""
    rng, horizon, draws = np.random.default_rng(3), 12, 200
    recorded = [[tuple(row) for row in outside(200, rng).tolist()] for _ in range(40)]
    content = file_of(recorded, ",".join(Room.inputs))
    source = ResampledInputs(content, [Feature(name) for name in Room.inputs], "room")
    known = type(
        "Known", (Room,), {"recorded_steps": source.steps, "resample": lambda self, *given: source.resample(*given)}
    )
    policies, ranks = {"nominal": lambda x: np.zeros(len(x), dtype=int)}, np.zeros((2, 200))
    worlds = [load_world(each) for each in (Room, known)]
    for case in range(ranks.shape[1]):
        weather, start = outside(horizon, rng), float(rng.normal(10, 3))
        room = start
        for sun in weather[:, 0].tolist():
            room = 0.8 * room + 0.2 * sun + 0.1 * rng.normal()
        for place, world in enumerate(worlds):
            path = [Moment((start,), None, tuple(weather[0].tolist()))]
            given = Given(path, case, terminated=False, worlds={"": world}, policies=policies, seed=case, draws=draws)
            states = drawn_states(InterventionRef("nominal"), 0, given, horizon)[1][horizon]
            ranks[place, case] = ((states < room).sum() + rng.uniform()) / (draws + 1)
    kept, resampled = (kstest(each, "uniform").statistic for each in ranks)
    covered = (np.abs(ranks - 0.5) <= 0.4).mean(axis=1)
    assert kept > 0.3
    assert covered[0] < 0.4
    assert resampled < 0.115  # by chance above it in 1 of 100 samples of this size
    assert 0.7 < covered[1] < 0.9
