"""Worlds learned from recordings of plants whose steps are known."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("sklearn")

import monitor
from monitor.cli import main
from monitor.cli.learn_dynamics import write_world
from monitor.runtime.monitor import Monitor
from monitor.sidecar.events import Message
from monitor.sidecar.recording import Header, Recorder
from monitor.types import Alert, Bands, FormulaSpec, Instant, Observation, StreamSettings
from monitor.worlds import CheckedWorld, Moment
from monitor.worlds.location_scale import LocationScale, read_world
from tests.authoring.dynamics.plants import COLUMNS, NOISE, PLANTS, linear, record, recorded, spread
from tests.tiers import first, slow
from tests.worlds import graphs

Learn = Callable[..., tuple[int, str, str]]
Learned = Callable[[str], tuple[Path, dict[str, Any]]]
ROLES = ("--action", "valve", "--inputs", "rain", "--label", "overflow: level >= 9")
SHUT, OPEN = 0, 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture
def learn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Learn:
    """Run the command in this process; gives exit code, stdout, stderr."""

    def call(source: Path, target: Path, *options: str, fits: int = 0) -> tuple[int, str, str]:
        command = ["cfmon", "model", "learn", str(source), "-o", str(target), "--dynamics", "--fits", str(fits)]
        monkeypatch.setattr(sys, "argv", [*command, *options])
        monkeypatch.setattr("monitor.cli.exit_immediately", lambda: None)  # this process is the tests'
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


@pytest.fixture
def learned(folder: Path, learn: Learn) -> Learned:
    """Learn a plant, once for all tests; gives the manifest and the facts of --json."""

    def found(plant: str) -> tuple[Path, dict[str, Any]]:
        target, facts = folder / f"{plant}.yaml", folder / f"{plant}.json"
        if not facts.exists():
            rows = record(PLANTS[plant], 1, 120, full=9.0 if plant == "whole" else 6.0)
            code, out, err = learn(recorded(folder / f"{plant}.csv", rows), target, *ROLES, "--json")
            assert (code, err) == (0, "")
            facts.write_text(out)
        return target, json.loads(facts.read_text())

    return found


def states(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, actions and rain as they are recorded often."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(3, 6.5, count), rng.uniform(18, 23, count)])
    return x, rng.integers(0, 2, count), rng.uniform(0.3, 2, (count, 1))


def located(world: LocationScale, plant: str, count: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The true locations of some states, those of the world, and its scales."""
    x, a, w = states(count, 3)
    true = np.array([PLANTS[plant](*x[n].tolist(), int(a[n]), float(w[n, 0]), 0.0, 0.0, 0.0) for n in range(count)])
    return true, *world.located(x, a, w)


def test_a_linear_plant_gives_its_coefficients(learned: Learned) -> None:
    path, facts = learned("linear")
    assert facts["chosen"] == "linear, constant scale"
    assert facts["checks"]["problems"] == []
    world = read_world(path)
    base = np.array([[5.0, 20.0]]), np.array([SHUT]), np.array([[1.0]])
    here = world.located(*base)[0][0]
    slopes = [
        world.located(base[0] + [[1.0, 0.0]], *base[1:])[0][0] - here,
        world.located(base[0] + [[0.0, 1.0]], *base[1:])[0][0] - here,
        world.located(base[0], np.array([OPEN]), base[2])[0][0] - here,
        world.located(base[0], base[1], base[2] + 1.0)[0][0] - here,
    ]
    # Four standard errors of least squares on 3,500 steps are about 0.02 of these slopes' noise.
    assert np.allclose(slopes, [[0.9, 0.3], [0.0, 0.8], [-0.8, 0.0], [0.5, 0.0]], atol=[0.03, 0.06])
    assert np.allclose(world.located(*base)[1], NOISE, rtol=0.06)


@slow
def test_a_curved_plant_is_predicted_better_than_a_linear_fit_could(learned: Learned) -> None:
    path, facts = learned("curved")
    assert facts["chosen"] != "linear, constant scale"
    assert facts["checks"]["problems"] == []
    true, found, _ = located(read_world(path), "curved")
    error = np.sqrt(((true - found) ** 2).mean(axis=0))
    assert (error < [0.08, 0.2]).all()  # a linear fit comes to 0.09 and 0.66; the noise is about 0.3 and 0.5


@slow
def test_noise_that_depends_on_the_state_is_learned(folder: Path, learn: Learn) -> None:
    rng, rows = random.Random(4), []
    for episode in range(80):
        level = rng.uniform(1, 9)
        for step in range(50):
            rows.append([episode, step, level, rng.randrange(2)])
            level = 5 + 0.9 * (level - 5) + 0.15 * spread(3 * level) / 0.1 * rng.gauss(0, 1)
    source = recorded(folder / "noisy.csv", rows, ("episode", "step", "level", "action"))
    assert learn(source, folder / "noisy.yaml")[0] == 0
    world = read_world(folder / "noisy.yaml")
    scale = world.located(np.array([[2.0], [8.0]]), np.array([0, 0]), np.zeros((2, 0)))[1]
    assert 0.7 < (scale[1, 0] / scale[0, 0]) / (spread(24.0) / spread(6.0)) < 1.4


def test_its_noise_and_its_forecasts_are_calibrated_on_other_recordings(learned: Learned) -> None:
    world = read_world(learned("linear")[0])
    rows = record(linear, 77, 60)
    pairs = [(one, two) for one, two in pairwise(rows) if one[0] == two[0]]
    x, x_next = (np.array([[float(str(r[2])), float(str(r[3]))] for r in each]) for each in zip(*pairs, strict=True))
    a = np.array([int(one[5] == "open") for one, _ in pairs])
    w = np.array([[float(str(one[4]))] for one, _ in pairs])
    low, high = world.intervals(x, a, x_next, w)
    assert (low == high).all()
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        # 2,940 steps: three standard errors are 0.028 at the most, and the learned noise has half of this itself.
        assert np.allclose((low < level).mean(axis=0), level, atol=0.04)


@slow
def test_rounding_and_overflow_are_recognised(learned: Learned) -> None:
    path, facts = learned("whole")
    assert facts["checks"]["problems"] == []
    level, warmth = read_world(path).features
    assert (level.high, level.whole) == (10.0, False)
    assert level.low < 3.0
    assert (warmth.low, warmth.whole) == (0.0, True)
    world = monitor.load_world(path)
    full = world.abduce(Moment((9.9, 15.0), SHUT, (2.0,)), (10.0, 14.0))
    assert full.high[0] == 1.0
    assert (full.low < full.high).all()
    x = np.array([[5.0, 15.0], [8.0, 20.0]])
    where, scale = read_world(path).located(x, np.array([SHUT, OPEN]), np.ones((2, 1)))
    true = [[5.6, 0.7 * 15 + 2.5 - 1.5], [7.4, 0.7 * 20 + 4 - 1.5]]
    assert np.allclose(where, true, atol=[0.1, 0.3])  # a quarter of the noise
    assert np.allclose(scale[:, 0], 0.4, rtol=0.1)


@slow
def test_a_hidden_state_is_noticed(learned: Learned) -> None:
    problems = learned("hidden")[1]["checks"]["problems"]
    assert any("level: its noise is correlated with that of the step before" in each for each in problems)


@slow
def test_nothing_is_learned_from_noise(folder: Path, learn: Learn) -> None:
    rng = random.Random(2)
    rows = []
    for episode in range(40):
        level = 5.0
        for step in range(40):
            rows.append([episode, step, level, rng.randrange(2)])
            level += rng.gauss(0, 1)
    source = recorded(folder / "walk.csv", rows, ("episode", "step", "level", "action"))
    code, out, _ = learn(source, folder / "walk.yaml")
    assert code == 0
    assert "no better than the last state does" in out
    assert out.splitlines()[-1].endswith("the world is NOT good enough")


@pytest.mark.parametrize("plant", first(1, ["linear", "curved"]))
def test_a_counterfactual_with_the_noise_of_the_path_has_half_the_error(learned: Learned, plant: str) -> None:
    """Ten steps with the valve open above 5, not 6, in the plant with the same noise; else its median is taken."""
    world, step = monitor.load_world(learned(plant)[0]), PLANTS[plant]
    rng, errors = random.Random(9), []
    for _ in range(100):
        real = other = rng.uniform(4, 6), rng.uniform(18, 22)
        kept = lost = np.array([real])
        for _ in range(10):
            rain, z = (rng.gammavariate(2, 0.5),), (rng.gauss(0, 1), rng.gauss(0, 1), 0.0)
            valve = int(real[0] > 6)
            after = step(*real, valve, *rain, *z)
            noise = world.abduce(Moment(real, valve, rain), after).low[np.newaxis]
            kept = world.step(kept, (kept[:, 0] > 5).astype(int), noise, rain)
            lost = world.step(lost, (lost[:, 0] > 5).astype(int), np.full((1, 2), 0.5), rain)
            real, other = after, step(*other, int(other[0] > 5), *rain, *z)
        errors.append([np.abs(each[0] - other) for each in (kept, lost)])
    with_noise, without = np.mean(errors, axis=0)
    assert (with_noise <= 0.5 * without).all()


@slow
def test_claims_of_alarms_come_true_in_the_plant_run_again_with_the_same_noise(learned: Learned) -> None:
    """At each alarm the plant goes on, and again from two steps ago with the valve open above 6.2, not 6.8."""
    path = learned("linear")[0].with_name("flood.yaml")
    path.write_text(learned("linear")[0].read_text().replace("level >= 9", "level >= 7"))
    claims, came_true, horizon, rng = [], [], 10, random.Random(1)
    spec = FormulaSpec("flood", f'regret(careful@2, P>=0.9 [ G<={horizon} !"overflow" ])')
    policies = {"nominal": lambda x: (x[:, 0] > 6.8).astype(int), "careful": lambda x: (x[:, 0] > 6.2).astype(int)}
    watching = Monitor(path, policies, [spec], StreamSettings(encoder="features"))
    for episode in range(90):
        states, chance, fired = [(rng.uniform(4, 6.9), rng.uniform(18, 22))], [], None
        for k in range(24):
            x, rain, z = states[-1], rng.gammavariate(2, 0.5), (rng.gauss(0, 1), rng.gauss(0, 1), 0.0)
            chance.append((rain, *z))
            valve = int(x[0] > 6.8)
            states.append(linear(*x, valve, *chance[-1]))
            if fired is None and k < 24 - horizon:
                now = Instant(100.0 * episode + k, 100.0 * episode + k)
                watching.observe(Observation("it", episode, k, x, ("shut", "open")[valve], inputs=(rain,)), now)
                said = [each for each in watching.evaluate(now) if isinstance(each, Alert) and each.state == "firing"]
                mine = [each for each in said if each.episode == episode]
                fired = (max(mine[0].seq - 2, 0), mine[0].verdict) if mine else None
        if fired is None:
            continue
        begin, verdict = fired
        other = [states[begin]]
        for noise in chance[begin : begin + horizon]:
            other.append(linear(*other[-1], int(other[-1][0] > 6.2), *noise))
        claims.append([each.value for each in verdict.quantities])
        came_true.append([max(level for level, _ in run) < 7 for run in (states[begin : begin + horizon + 1], other)])
    claimed, happened = np.array(claims), np.array(came_true)
    assert len(claimed) > 40
    error = np.sqrt((claimed * (1 - claimed)).sum(axis=0)) / len(claimed)
    # A probability of the world is itself wrong by up to about 0.03, from the 120 episodes that it was learned from.
    assert (np.abs(claimed.mean(axis=0) - happened.mean(axis=0)) < 3.5 * error + 0.03).all()
    assert claimed.mean(axis=0)[1] > claimed.mean(axis=0)[0] + 0.03, "careful would have been safer"


def test_formulas_are_answered_on_it(learned: Learned) -> None:
    path, facts = learned("linear")
    world = monitor.load_world(path)
    assert isinstance(world, CheckedWorld)
    assert (world.action_names, world.labels, facts["inputs"]) == (("shut", "open"), ("overflow",), ["rain"])
    steps = [([8.0, 22.0], "shut", [2.0]), ([8.3, 24.1], "shut", [2.0]), ([8.6, 25.8], "shut", [2.0])]
    policies = {
        "nominal": lambda x: np.zeros(len(x), dtype=int),
        "careful": lambda x: np.ones(len(x), dtype=int),
    }
    verdict = monitor.check(
        'regret(careful@2, P>=0.9 [ G<=5 !"overflow" ])', model=world, path=steps, policies=policies
    )
    assert verdict.outcome == "regret"
    assert verdict.tiers == ("recorded", "point", "learned")


def test_inputs_to_come_are_those_of_episodes_that_do_not_check_it(learned: Learned) -> None:
    path, facts = learned("linear")
    header, *lines = (path.parent / "linear.inputs.csv").read_text().splitlines()
    kept = [line.split(",") for line in lines]
    assert header == "episode,rain"
    episodes = [[rain for episode, rain in kept if episode == str(n)] for n in range(96)]
    assert len(kept) == facts["recorded inputs"] == 96 * 49
    rain = [repr(row[4]) for row in record(linear, 1, 120)]
    known = [rain[50 * n : 50 * n + 49] for n in range(120)]  # where the last step led to is not recorded
    assert episodes == [each for each in known if each in episodes]
    assert [(each["name"], each["problems"]) for each in facts["checks"]["inputs"]] == [("rain", [])]
    assert abs(facts["checks"]["inputs"][0]["covered"] - 0.8) < 0.15  # 96 forecasts: three standard errors are 0.12
    world = monitor.load_world(path)
    drawn = world.resample((1.0,), 5, (np.arange(2000) + 0.5) / 2000)
    assert abs(drawn.mean() - 1.0) < 0.3  # rain does not depend on the rain before: its mean is 1, its deviation 0.7


@slow
def test_inputs_that_follow_what_is_not_recorded_are_noticed(folder: Path, learn: Learn) -> None:
    rows = [[*row[:4], 4.0 if n % 10 == 9 else row[4], *row[5:]] for n, row in enumerate(record(linear, 5, 100))]
    source = recorded(folder / "storms.csv", rows)
    code, out, _ = learn(source, folder / "storms.yaml", *ROLES)
    assert code == 0
    assert "storms.yaml: inputs to come are resampled from 3,920 recorded steps" in out
    assert "rain: inputs resampled for 9 steps ahead are miscalibrated" in out


@slow
def test_the_same_seed_gives_the_same_files(folder: Path, learn: Learn) -> None:
    source = recorded(folder / "twice.csv", record(PLANTS["curved"], 5, 12, 30))
    for name in ("one", "two"):
        (folder / name).mkdir()
        assert learn(source, folder / name / "plant.yaml", *ROLES, fits=2)[0] == 0
    one, two = (
        {file.name: file.read_bytes() for file in (folder / name).rglob("*.*") if file.is_file()}
        for name in ("one", "two")
    )
    assert len(one) >= 6
    assert one == two


def test_fits_to_resampled_episodes_are_written_and_give_a_band(folder: Path, learn: Learn) -> None:
    source, target = recorded(folder / "fitted.csv", record(linear, 2, 15, 20)), folder / "fitted.yaml"
    code, out, _ = learn(source, target, *ROLES, fits=3)
    assert code == 0
    assert "fitted.yaml: 3 fits to resampled episodes, for the credible band of answers" in out
    world = monitor.load_world(target)
    later = [each.resample((2.0,), 3, np.linspace(0.1, 0.9, 5)).tolist() for each in (world, *world.fits)]
    assert all(inputs == later[0] for inputs in later), "inputs to come are the same in all fits"
    steps = [([6.0, 22.0], "shut", [2.0]), ([6.5, 23.4], "shut", [2.0])]
    policies = {"nominal": lambda x: np.zeros(len(x), dtype=int)}
    verdict = monitor.check('P=? [ F<=3 "overflow" ]', model=world, path=steps, policies=policies)
    assert verdict.bands == Bands(level=0.5, fits=3)
    assert verdict.credible is not None
    assert verdict.credible[0] <= verdict.quantities[0].value <= verdict.credible[1]


@slow
def test_its_report(folder: Path, learn: Learn) -> None:
    source = recorded(folder / "reported.csv", record(PLANTS["hidden"], 5, 40))
    page, text = folder / "report.html", folder / "report.md"
    code, out, _ = learn(source, folder / "reported.yaml", *ROLES, "--report", str(page), "--report", str(text))
    assert code == 0
    assert "inputs      rain" in out
    assert out.splitlines()[-2:] == [f"{each}: the world is NOT good enough" for each in (page, text)]
    lines = text.read_text().splitlines()
    assert any("Answers have no credible band (--fits 0)." in line for line in lines)
    assert lines[2] == "**The world is not good enough:**"
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert headings == [
        "Worlds compared",
        "Prediction of the next state",
        "Noise of held-out steps",
        "Forecasts of 10 steps",
    ]
    assert sum("(taken)" in line for line in lines) == 1
    shown = page.read_text()
    assert shown.count("<svg") == 2
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", shown)


def changed(rows: list[list[object]], column: str, value: Callable[[int, object], object]) -> list[list[object]]:
    place = COLUMNS.index(column)
    return [[*row[:place], value(n, row[place]), *row[place + 1 :]] for n, row in enumerate(rows)]


ROWS = record(linear, 3, 12, 20)


def test_a_world_leaves_no_files_of_the_one_before(tmp_path: Path) -> None:
    old = ("plant.scale.onnx", "plant.fits/plant.fit1.yaml", "plant.fits/plant.fit12.location.onnx")
    others = ("plant.html", "plants.scale.onnx", "mine.onnx")
    (tmp_path / "plant.fits").mkdir()
    for name in (*old, *others):
        (tmp_path / name).write_bytes(b"old")
    manifest = {"features": [{"name": "level"}], "actions": ["shut"], "location": "file:location", "scale": [0.1]}
    text = graphs.world_files(tmp_path, manifest, location=graphs.linear({"x": [[0.9]]}, [0.0])).read_text()
    files = {"location.onnx": (tmp_path / "location.onnx").read_bytes()}
    write_world(SimpleNamespace(files=files, text=text), tmp_path / "plant.yaml")  # type: ignore[arg-type]
    assert not (tmp_path / "plant.fits").exists()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"plant.yaml", "world.yaml", "location.onnx", *others}


def test_a_rotated_log_with_a_missing_row_is_read_as_one_with_a_gap(learn: Learn, tmp_path: Path) -> None:
    step = COLUMNS.index("step")
    timed = [[*row[:step], f"2026-05-04T07:00:{2 * int(str(row[step])):02}", *row[step + 1 :]] for row in ROWS]
    kept = timed[:33] + timed[34:]
    (tmp_path / "log").mkdir()
    for name, part in (("log/1.csv", kept[:107]), ("log/2.csv", kept[107:]), ("whole.csv", kept)):
        written: list[list[object]] = [list(COLUMNS), *part]
        lines = [",".join(map(str, row)) for row in written]
        (tmp_path / name).write_text("\n".join(lines))
    facts = []
    for source in ("log", "whole.csv"):
        code, out, err = learn(tmp_path / source, tmp_path / f"{source}.yaml", *ROLES, "--order", "step", "--json")
        assert (code, err) == (0, "")
        facts.append(json.loads(out))
    assert facts[0]["steps"] == facts[1]["steps"] == len(kept) - 12 - 1
    [gap] = facts[1]["notes on rows"]
    assert gap.startswith("1 gap in step: over 1.5 times the usual step of 2, so a step is missing there")
    assert facts[0]["notes on rows"][1].startswith("1 file joined with the next")


BAD: dict[str, tuple[list[list[object]], tuple[str, ...], str]] = {
    "text": (
        changed(ROWS, "level", lambda n, v: "high" if n % 15 == 7 else v),
        (),
        "left out: 16 of 240 rows: 'level' is no number (8; 23; 38; 13 more); more than --skip-bad 0.1%,5% allows",
    ),
    "all text": (
        changed(ROWS, "warmth", lambda _n, _v: "warm"),
        (),
        "row 1: column 'warmth' is 'warm'; numbers are needed",
    ),
    "missing": (
        changed(ROWS, "level", lambda n, v: "" if n % 19 == 7 else v),
        (),
        "left out: 13 of 240 rows: 'level' is empty or not finite (8; 27; 46; 10 more); more than --skip-bad 0.1%,5%",
    ),
    "missing input": (
        changed(ROWS, "rain", lambda n, v: "" if n % 19 == 7 else v),
        (),
        "'rain' is empty or not finite (8; 27; 46; 10 more); more than --skip-bad 0.1%,5% allows",
    ),
    "constant": (changed(ROWS, "warmth", lambda _n, _v: 20.0), (), "column 'warmth' is 20 in every row"),
    "one action": (changed(ROWS, "valve", lambda _n, _v: "shut"), (), "every action is 'shut'"),
    "an action of last rows only": (
        changed(ROWS, "valve", lambda n, v: "stuck" if n == 19 else v),
        (),
        "action stuck of 'valve' was recorded only where no next state follows",
    ),
    "few episodes": (record(linear, 3, 4, 20), (), "4 episodes with steps; at least 10 are needed"),
    "no steps": (record(linear, 3, 12, 1), (), "there are no steps"),
    "nothing": ([], (), "has no rows"),
    "an input that is not there": (ROWS, ("--inputs", "snow"), "there is no column 'snow'"),
    "only inputs": (ROWS, ("--inputs", "rain,level,warmth"), "every column of the state is an input"),
    "a label of an input": (
        ROWS,
        ("--label", "wet: rain > 2"),
        "label 'wet': 'rain > 2' is not on features (level, warmth), and no simple rule on them replaces it: the best",
    ),
    "a label that never holds": (ROWS, ("--label", "wet: rain > 99"), "label 'wet': 'rain > 99' holds in no recorded"),
    "a label of no column": (ROWS, ("--label", "wet: level > 2 or snow > 2"), "label 'wet': there is no column 'snow'"),
    "one fit": (ROWS, ("--fits", "1"), "--fits is 1; give 2 to 100, or 0 for no credible band"),
    "bins": (ROWS, ("--bins", "8q"), "--bins cannot be given with --dynamics"),
    "unsafe": (ROWS, ("--unsafe", "full: level > 9"), "--unsafe cannot be given with --dynamics"),
    "report": (ROWS, ("--report", "report.pdf"), "the name ends with .html or .md"),
}


@pytest.mark.parametrize("case", BAD)
def test_each_mistake_is_one_clear_line(case: str, tmp_path: Path, learn: Learn) -> None:
    rows, options, message = BAD[case]
    source = recorded(tmp_path / "steps.csv", rows)
    code, _, err = learn(source, tmp_path / "plant.yaml", "--action", "valve", "--inputs", "rain", *options)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "plant.yaml").exists()


def test_a_world_is_a_manifest(tmp_path: Path, learn: Learn) -> None:
    source = recorded(tmp_path / "steps.csv", ROWS)
    assert "ends with .yaml" in learn(source, tmp_path / "plant.npz", *ROLES)[2]


@pytest.mark.parametrize("package", ["onnx", "sklearn.ensemble"])
def test_what_is_missing_is_named(package: str, tmp_path: Path, learn: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    err = learn(recorded(tmp_path / "steps.csv", ROWS), tmp_path / "plant.yaml", *ROLES)[2]
    assert "pip install '.[dynamics]'" in err


def test_odd_names_and_few_actions(tmp_path: Path, learn: Learn) -> None:
    rows = [[*row, row[2]] for row in record(linear, 3, 12, 30)]
    rows = [[*row[:5], "full" if n in (40, 41) else row[5], *row[6:]] for n, row in enumerate(rows)]
    source = recorded(
        tmp_path / "steps.csv",
        rows,
        ("episode", "step", "tank level", "warmth", "rain", "valve", "reward", "done", "x"),
    )
    options = ("--action", "valve", "--state", "tank level,warmth", "--label", "full: tank_level > 8")
    code, out, err = learn(source, tmp_path / "plant.yaml", *options)
    assert (code, err) == (0, "")
    assert "action 'full' was taken in " in out
    assert [each.name for each in read_world(tmp_path / "plant.yaml").features] == ["tank_level", "warmth"]


def test_a_next_state_may_have_columns_of_its_own_and_inputs_none(tmp_path: Path, learn: Learn) -> None:
    after = [[*row, *(("", "") if row[-1] else following[2:4])] for row, following in pairwise([*ROWS, ROWS[0]])]
    known = recorded(tmp_path / "after.csv", after, [*COLUMNS, "next_level", "next_warmth"])
    table = recorded(tmp_path / "steps.csv", ROWS)
    for name, source in (("a", table), ("b", known)):
        (tmp_path / name).mkdir()
        code, out, err = learn(source, tmp_path / name / "plant.yaml", *ROLES, "--state", "level,warmth")
        assert (code, err) == (0, "")
    assert re.search("next state +next_level, next_warmth", out)
    assert (tmp_path / "a/plant.yaml").read_text() == (tmp_path / "b/plant.yaml").read_text()


@pytest.mark.parametrize("named", [True, False])
def test_a_recording_gives_what_a_table_of_the_same_steps_gives(tmp_path: Path, learn: Learn, named: bool) -> None:  # noqa: FBT001
    table = recorded(tmp_path / "steps.csv", ROWS)
    recorder = Recorder(tmp_path / "steps.rec", Header("one", "c" * 64, "m" * 64, "0"))
    for episode, step, level, warmth, rain, valve, _, done in ROWS:
        numbers: dict[str, Any] = {"state": {"warmth": warmth, "level": level}, "inputs": {"rain": rain}}
        if not named:
            numbers = {"state": [level, warmth], "inputs": [rain]}
        message = {"v": 1, "episode": episode, "seq": step, **numbers, "action": valve, "truncated": bool(done)}
        recorder.write(Message(Instant(0.0, 0.0), "agents/tank/steps", json.dumps(message).encode()))
    recorder.close()
    names = ("--label", "overflow: level >= 9") if named else ("--label", "overflow: state_0 >= 9")
    assert learn(table, tmp_path / "a.yaml", *ROLES)[0] == 0
    code, out, err = learn(tmp_path / "steps.rec", tmp_path / "b.yaml", *names)
    assert (code, err) == (0, "")
    assert re.search(r"inputs +inputs[.[]", out)
    one, other = (read_world(tmp_path / name) for name in ("a.yaml", "b.yaml"))
    assert (tmp_path / "a.location.onnx").read_bytes() == (tmp_path / "b.location.onnx").read_bytes()
    if named:
        assert (other.features, other.inputs) == (one.features, one.inputs)
