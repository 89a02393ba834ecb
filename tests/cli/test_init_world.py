"""`cfmon init` and worlds with numbers: which model is taken, what is written, and that it runs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("sklearn")

import monitor
from monitor.worlds.world_policies import as_world_policy
from tests.cli.stages import faults
from tests.tiers import slow

joblib: Any = pytest.importorskip("joblib")
sklearn_tree: Any = pytest.importorskip("sklearn.tree")
Run = Callable[..., tuple[int, str, str]]

CRASH = ("--unsafe", "crash: x >= 4")


def cart(path: Path, episodes: int = 60) -> Path:
    """A cart that is pushed left or right, mostly back to the middle: its speed matters as much as its place."""
    rng = np.random.default_rng(2)
    with path.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["episode", "step", "x", "v", "wind", "action", "cut"])
        for episode in range(episodes):
            x, v, wind = rng.uniform(-2, 2), 0.0, rng.normal()
            for step in range(30):
                push = rng.choice(["left", "right"]) if rng.random() < 0.4 else ("left" if x + 2 * v > 0 else "right")
                wind = 0.97 * wind + rng.normal(0, 0.25)
                log.writerow([episode, step, round(x, 4), round(v, 4), round(wind, 4), push, step == 29])
                x, v = x + v, v + (0.3 if push == "right" else -0.3) + 0.05 * wind + rng.normal(0, 0.1)
    return path


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def given(*options: str) -> tuple[str, ...]:
    return (
        "init",
        "t",
        "--recordings",
        "steps.csv",
        *CRASH,
        "--truncated",
        "cut",
        "--steps",
        "90",
        "--fits",
        "0",
        *options,
    )


@slow
def test_a_world_is_written_that_runs(cfmon: Run, tmp_path: Path) -> None:
    cart(tmp_path / "steps.csv", 40)
    code, out, err = cfmon(
        *given(
            "--dynamics",
            "--state",
            "x,v",
            "--inputs",
            "wind",
            "--fallback",
            "do(left)",
            "--fits",
            "4",
            "--accept-model",
        )
    )
    assert (code, faults(err)) == (0, "")
    assert "t/world.yaml: 2 features, 1 input, 2 actions" in out
    assert "nominal: ESTIMATED from the recordings, probabilities of the actions by" in out
    assert "measured on" in out
    assert "4 fits to resampled episodes for the credible band, in " in out
    assert len(list(Path("t/world.fits").glob("*.yaml"))) == 4
    assert "t/takeover.yaml: rules for a guard; with hold: " in out
    assert "2,000 simulated in the world for each `hold`" in Path("t/takeover.yaml").read_text("utf-8")
    assert cfmon("config", "check", "t/config.yaml")[0] == 0
    code, out, err = cfmon("replay", "t/config.yaml", "t/sample.rec")
    assert (code, err.count("\n"), "rejected" in err) == (0, 1, False)
    sent = [json.loads(line) for line in out.splitlines()]
    alerts = [each["payload"] for each in sent if each["topic"].startswith("cfmon/alerts/") and each["payload"]]
    assert "firing" in [each["state"] for each in alerts]
    world = monitor.load_world("t/world.yaml")
    fallback, nominal = (as_world_policy(name, f"t/{name}.yaml", world) for name in ("fallback", "nominal"))
    places = np.array([[-3.0, -0.5], [0.0, 0.0], [3.0, 0.5]])
    left = world.action_names.index("left")
    assert fallback.decide(places).tolist() == [left] * 3
    assert nominal.likely((3.0, 0.5, 0.0))[left] == pytest.approx(0.8, abs=0.15)
    assert nominal.likely((-3.0, -0.5, 0.0))[left] == pytest.approx(0.2, abs=0.15)


@slow
def test_the_better_model_is_taken_and_the_fallback_steers_away(cfmon: Run, tmp_path: Path) -> None:
    cart(tmp_path / "steps.csv", 120)
    code, out, err = cfmon(*given("--state", "x,v", "--accept-model"))
    assert (code, faults(err)) == (0, "")
    assert "--abstraction auto: losses" in out, "tables were compared"
    (line,) = [line for line in out.splitlines() if line.startswith("  taken: ")]
    assert line.startswith("  taken: a world with numbers. Loss (negative log score) of forecasts of 'crash'")
    assert not list(tmp_path.glob("t/model*"))
    world = monitor.load_world("t/world.yaml")
    fallback = as_world_policy("fallback", "t/fallback.yaml", world)
    assert fallback.decide(np.array([[2.5, 0.3], [1.5, 0.8]])).tolist() == [world.action_names.index("left")] * 2
    Path("rule.py").write_text("def act(x, v):\n    return 'left' if x + 2 * v > 0 else 'right'\n")
    code, out, err = cfmon(
        *given("--state", "x,v", "--dynamics", "--force", "--fallback", "rule.py:act", "--accept-model")
    )
    assert (code, faults(err)) == (0, "")
    (said,) = [line for line in out.splitlines() if line.startswith("  fallback: rule.py:act: IMITATED by ")]
    assert " of x, v; it takes another action on " in said
    fallback = as_world_policy("fallback", "t/fallback.yaml", monitor.load_world("t/world.yaml"))
    actions = [world.action_names.index(name) for name in ("left", "right")]
    assert fallback.decide(np.array([[2.0, 0.3], [-2.0, -0.3]])).tolist() == actions
    code, out, err = cfmon(*given("--state", "x,v", "--no-dynamics", "--force", "--accept-model"))
    assert (code, faults(err)) == (0, "")
    assert "world" not in out
    assert sorted(path.name for path in Path("t").glob("*[dl].*")) == ["model.learn.npz", "model.npz", "nominal.onnx",
                                                                      "nominal.yaml"]  # fmt: skip


@slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "--dynamics needs scikit-learn: pip install '.[dynamics]'"),
        (("--unsafe", "crash: x >= 4 or cut"), "'cut' holds in no recorded state, so a world cannot predict it"),
    ],
)
def test_without_a_world_it_goes_on_with_a_table(
    cfmon: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], reason: str
) -> None:
    cart(tmp_path / "steps.csv")
    if not options:
        monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    code, out, err = cfmon(*given("--state", "x,v", "--accept-model", *options))
    assert (code, faults(err)) == (0, "")
    assert "a world with numbers was not tried: " in out
    assert reason in out
    assert "state_encoder: bins" in Path("t/config.yaml").read_text() or "nearest" in Path("t/config.yaml").read_text()
    code, out, err = cfmon(*given("--state", "x,v", "--dynamics", "--force", *options))
    assert code == 2
    assert reason in err


def test_a_world_that_forecasts_no_better_than_the_frequency_is_refused(cfmon: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = [f"{e},{t},{rng.normal():.4f},{rng.integers(2)}" for e in range(40) for t in range(20)]
    (tmp_path / "steps.csv").write_text("\n".join(["episode,step,x,action", *rows]))
    asked = ("init", "t", "--recordings", "steps.csv", "--unsafe", "high: x >= 1.5", "--dynamics", "--steps", "60")
    code, out, _ = cfmon(*asked)
    assert code == 1
    assert "quality: No better than the base rate, as far as these recordings show. Forecasts of 'high'" in out
    assert "  a world with numbers, learned from 760 steps: " in out
    assert "--accept-model" in out
    assert not (tmp_path / "t").exists()


def test_a_flag_of_what_happened_may_be_the_unsafe_event(cfmon: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows, limit = [], 3.0
    for episode in range(120):
        x = rng.uniform(-1, 1)
        for step in range(25):
            off, push = int(x > limit), rng.choice(["left", "right"])
            at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=episode, seconds=20 * step)
            rows.append(f"{episode},{at.isoformat()},{x:.3f},{'' if off else push},{off}")
            if off:
                break
            x += (0.5 if push == "right" else -0.3) + rng.normal(0, 0.3)
    (tmp_path / "steps.csv").write_text("\n".join(["episode,at,x,action,out", *rows]))
    asked = ("init", "t", "--recordings", "steps.csv", "--unsafe", "off: out == 1", "--dynamics", "--steps", "90")
    code, out, err = cfmon(*asked, "--fits", "0", "--accept-model")
    assert (code, faults(err)) == (0, "")
    ended = sum(row.endswith(",1") for row in rows)
    assert f"'off' holds after {ended} of them" in out
    assert "Expect " in out
    assert " alarms a day, " in out
    assert "label 'off': 'out == 1' is not on features; the world uses the rule 'x > " in out
    world = monitor.load_world("t/world.yaml")
    near = np.array([[-3.1], [-2.9], [2.9], [3.1]])
    assert world.holds("off", near).tolist() == [False, False, False, True]
    assert cfmon("config", "check", "t/config.yaml")[0] == 0


@slow
def test_what_a_given_policy_sees_and_how_it_is_written(cfmon: Run, tmp_path: Path) -> None:
    cart(tmp_path / "steps.csv")
    rows = np.loadtxt("steps.csv", delimiter=",", skiprows=1, usecols=(2, 3, 4))
    wanted = np.where(rows[:, 0] + 2 * rows[:, 1] + rows[:, 2] > 0, "left", "right")
    tree = sklearn_tree.DecisionTreeClassifier(max_leaf_nodes=20, random_state=0).fit(rows, wanted)
    joblib.dump(tree, "tree.joblib")
    Path("rule.py").write_text(
        "def windy(obs):\n    return 'left' if obs['x'] + 2 * obs['v'] + obs['wind'] > 0 else 'right'\n"
        "def odd(step):\n    return ['left', 'right'][step % 2]\n"
    )
    sees = ("--dynamics", "--state", "x,v", "--inputs", "wind", "--fits", "0", "--accept-model", "--force")
    code, out, err = cfmon(*given(*sees, "--fallback", "tree.joblib", "--nominal", "rule.py:windy"))
    assert (code, faults(err).count("\n")) == (0, 1), "the one line is the warning of pickles"
    assert "fallback: tree.joblib: written as it is; it chooses the same on 1,800 recorded rows" in out
    (said,) = [line for line in out.splitlines() if line.startswith("  nominal: rule.py:windy: IMITATED by ")]
    world = monitor.load_world("t/world.yaml")
    fallback, nominal = (as_world_policy(name, f"t/{name}.yaml", world) for name in ("fallback", "nominal"))
    assert fallback.sees_inputs
    assert nominal.sees_inputs
    assert [world.action_names[a] for a in fallback.decide(rows)] == tree.predict(rows).tolist()
    differs = np.mean(np.array(world.action_names)[nominal.decide(rows)] != wanted)
    assert differs < 0.05
    stages = [line for line in err.splitlines() if line.startswith("init: ")]
    assert stages[:2] == ["init: reading the recordings", "init: fitting worlds with numbers"]
    assert "init: imitating rule.py:windy" in stages
    assert " of x, v, wind; it takes another action on " in said
    assert cfmon("replay", "t/config.yaml", "t/sample.rec")[0] == 0
    code, out, err = cfmon(*given(*sees, "--fallback", "rule.py:odd"))
    assert code == 2
    assert (
        "rule.py:odd: it must be a network of numbers here, and the best imitation of it by x, v takes another" in err
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("rule.py:act", "its parameters are x, speed, and the recordings have no column 'speed'; name parameters like"),
        ("rule.py:fails", "called with a dict of all columns episode=0, step=0, x="),
        ("tree.joblib", "it takes 3 features, and the recordings give it 2 (x, v). Name the columns that it takes as"),
        ("none.onnx", "policy none.onnx: there is no such file"),
    ],
)
@pytest.mark.parametrize("kind", ["--dynamics", "--no-dynamics"])
def test_a_policy_that_does_not_fit_is_refused_before_anything_is_learned(
    cfmon: Run, monkeypatch: pytest.MonkeyPatch, source: str, problem: str, kind: str
) -> None:
    cart(Path("steps.csv"), 12)
    Path("rule.py").write_text("def act(x, speed): ...\ndef fails(obs): return obs['speed']\n")
    joblib.dump(sklearn_tree.DecisionTreeClassifier().fit(np.eye(3), ["left", "right", "left"]), "tree.joblib")

    def learned(*_: object, **__: object) -> None:
        raise AssertionError("nothing is learned before")

    monkeypatch.setattr("monitor.cli.init_learned.proposed_world", learned)
    monkeypatch.setattr("monitor.cli.init_learned.counted", learned)
    code, _, err = cfmon(*given("--state", "x,v", kind, "--fallback", source))
    assert code == 2
    assert problem in err
    assert not Path("t").exists()
