"""`cfmon init`, from a CSV file or a simulator to an alarm on a replayed recording."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml
from cfmon_client import ClientError
from cfmon_client.takeover_rules import read_rules

from monitor.model import load_model
from monitor.policy.onnx_policy import load_policy
from tests.cli.stages import faults
from tests.tiers import examples, heavy, scaled, slow

Run = Callable[..., tuple[int, str, str]]

UNSAFE = ("--unsafe", "overflow: level >= 9")
BINS = ("--bins", "level:2|4|6|8|9")


def tank(path: Path, *, runs: int = 80, low: float = 3.0, seed: int = 1) -> Path:
    """Recorded steps of a tank: its operator sometimes leaves the valve shut."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["run", "step", "level", "action"])
        for run in range(runs):
            level = rng.uniform(low, low + 4)
            for step in range(30):
                valve = 0 if rng.random() < 0.35 else int(level > 4) + int(level > 6)
                log.writerow([run, step, round(level, 3), valve])
                level = min(max(level + 1 - valve + rng.normal(), 0), 10)
    return path


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def alarms(cfmon: Run, folder: str) -> list[str]:
    code, out, err = cfmon("replay", f"{folder}/config.yaml", f"{folder}/sample.rec")
    assert (code, err.count("\n"), "rejected" in err) == (0, 1, False)
    found = [json.loads(line) for line in out.splitlines()]
    return [each["payload"]["state"] for each in found if each["topic"].startswith("cfmon/alerts/") and each["payload"]]


def test_from_a_csv_to_an_alarm(cfmon: Run, tmp_path: Path) -> None:
    steps = tank(tmp_path / "steps.csv", runs=80, seed=4)
    code, out, err = cfmon("init", "tank", "--recordings", str(steps), *UNSAFE, *BINS, "--steps", "300")
    assert (code, faults(err)) == (0, "")
    for words in (
        "nominal: ESTIMATED",
        "fallback: a SUGGESTION",
        "held-out recordings",
        "quality: Good enough. Forecasts of 'overflow' within",
        "From the start, 'fallback' rests on ",
        "chosen (*)",
        "cfmon run tank",
    ):
        assert words in out
    assert cfmon("config", "check", "tank/config.yaml")[0] == 0
    assert "doubt" not in Path("tank/config.yaml").read_text("utf-8")
    assert "firing" in alarms(cfmon, "tank")
    assert not list(tmp_path.glob(".cfmon-init-*"))
    assert "tank/takeover.yaml: rules for a guard; with hold: " in out
    rules = Path("tank/takeover.yaml")
    with pytest.raises(ClientError, match="when_blind is missing: choose carry_on or fallback"):
        read_rules(rules)  # nobody but the user can choose
    text = rules.read_text("utf-8").replace("# when_blind:", "when_blind: carry_on")
    rules.write_text(text.replace("# when_silent:", "when_silent: fallback"), "utf-8")
    chosen = read_rules(rules)
    assert chosen.hold > 1
    assert f"{chosen.hold:>8}  " in text, "the table has it"
    model = load_model("tank/model.npz")
    nominal = load_policy("tank/nominal.yaml", model).table.probabilities
    assert nominal is not None
    empty = nominal[0]  # level < 2: the valve is shut, always
    np.testing.assert_allclose(empty, [1, 0, 0], atol=1e-6)
    full = load_policy("tank/fallback.yaml", model).table.actions
    assert full is not None
    assert full[4] == 2  # 8 <= level < 9: open the valve
    # further recordings are counted by the companion
    more = tank(tmp_path / "more.csv", seed=2, runs=5)
    assert cfmon("model", "learn", str(more), "--append", "tank/model.npz")[0] == 0


def test_a_model_that_forecasts_no_better_than_the_frequency_is_refused(cfmon: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    lines = ["run,step,level,action,done"]
    for run in range(200):
        for step in range(30):
            done = rng.random() < 0.1  # whatever the level
            lines.append(f"{run},{step},{rng.integers(4)},{rng.integers(2)},{int(done)}")
            if done:
                break
    (tmp_path / "chance.csv").write_text("\n".join(lines))
    asked = ("--recordings", "chance.csv", "--unsafe", "burst: done", "--steps", "100")
    code, out, err = cfmon("init", "chance", *asked)
    assert (code, faults(err)) == (1, "")
    assert "quality: No better than the base rate, as far as these recordings show. Forecasts of 'burst' within" in out
    assert "--abstraction auto" in out
    assert "--accept-model" in out
    code, out, _ = cfmon("init", "chance", *asked, "--json")
    assert (code, json.loads(out)["refused"]) == (1, True)
    assert not (tmp_path / "chance").exists()
    code, out, err = cfmon("init", "chance", *asked, "--accept-model")
    assert (code, faults(err)) == (0, "")
    assert "quality: No better than the base rate, " in out
    assert (tmp_path / "chance" / "config.yaml").exists()
    code, out, err = cfmon("model", "learn", "chance.csv", "-o", "m.npz", "--unsafe", "burst: level >= 3")
    assert (code, "m.npz: the abstraction is NOT good enough" in out) == (0, True)


def tool_calls(path: Path, layout: str) -> int:
    """Tool calls of an agent whose tasks fail at random, logged in one of several layouts; return the failures."""
    rng, failures = np.random.default_rng(12), 0
    tools = ("find_user", "get_order", "calculate", "modify_order", "hand_over")
    with path.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["episode", "step", "last_tool", "tool", "done", "reward" if layout != "outcome" else "success"])
        for episode in range(150):
            last, step, solved, ended = "start", 0, int(rng.random() < 0.7), False
            failures += not solved
            while not ended:
                tool = str(rng.choice(tools))
                ended = tool in tools[3:] and rng.random() < 0.6
                earned = solved if ended and layout != "final" else "" if layout == "outcome" else 0
                log.writerow([episode, step, last, tool, int(ended and layout != "final"), earned])
                last, step = tool, step + 1
            if layout == "final":
                log.writerow([episode, step, last, "", 1, solved])
    return failures


@pytest.mark.parametrize(
    ("layout", "condition"),
    [("step", "done and reward < 1"), ("final", "done and reward < 1"), ("outcome", "done and success < 1")],
)
def test_failures_of_tool_calls_that_nothing_announces_are_refused(
    cfmon: Run, tmp_path: Path, layout: str, condition: str
) -> None:
    """The reward comes with the last call, or in a row of its own, or a column of outcomes is empty until the end."""
    failures = tool_calls(tmp_path / "calls.csv", layout)
    asked = ("--recordings", "calls.csv", "--action", "tool", "--unsafe", f"failed: {condition}")
    code, out, err = cfmon("init", "calls", *asked)
    assert (code, faults(err)) == (1, "")
    assert not (tmp_path / "calls").exists()
    line = next(line for line in out.splitlines() if line.startswith("quality: "))
    assert line.startswith("quality: No better than the base rate, as far as these recordings show")
    found = re.search(r"on (\d+) held-out episodes, (\d+) of which had the event", line)
    assert found is not None
    episodes, eventful = map(int, found.groups())
    assert 0.8 * failures / 150 < eventful / episodes < 1.2 * failures / 150, "solved tasks are no events"
    assert "that of a rule that knows when episodes end but not how by " in line
    assert "to be better than chance, it must be by 1 % or more" in line
    assert "--accept-model" in out


def test_the_forecast_of_an_end_is_no_forecast_of_how_it_ends(cfmon: Run, tmp_path: Path) -> None:
    """The agent writes shortly before the end, so that a forecast knows when the task ends."""
    rng, lines = np.random.default_rng(2), []
    for episode in range(150):
        tools = ["start", *rng.choice(["find", "read", "think"], rng.integers(3, 12)), "write", "check", "close"]
        last, solved = len(tools) - 2, int(rng.random() < 0.7)
        calls = enumerate(pairwise(tools))
        lines += [f"{episode},{k},{a},{b},{int(k == last)},{solved * (k == last)}" for k, (a, b) in calls]
    (tmp_path / "calls.csv").write_text("\n".join(["episode,step,last_tool,tool,done,reward", *lines, ""]))
    asked = ("--recordings", "calls.csv", "--state", "last_tool", "--action", "tool")
    code, out, err = cfmon("init", "calls", *asked, "--unsafe", "failed: done and reward < 1")
    assert (code, faults(err)) == (1, "")
    said = "as far as these recordings show: the forecasts know when episodes end, but not how. "
    assert f"quality: No better than the base rate, {said}" in out


def test_json_names_the_files_and_the_candidates(cfmon: Run, tmp_path: Path) -> None:
    steps = tank(tmp_path / "steps.csv", runs=40)
    code, out, _ = cfmon(
        "init", "t", "--recordings", str(steps), *UNSAFE, *BINS, "--fallback", "do(2)", "--steps", "100",
        "--accept-model", "--json",
    )  # fmt: skip
    facts = json.loads(out)
    assert code == 0
    assert {Path(name).name for name in facts["files"]} == {path.name for path in Path("t").iterdir()}
    assert facts["chosen"] in facts["candidates"]
    assert all(each["events after an alarm"] <= each["unsafe events"] for each in facts["candidates"])
    fallback = load_policy("t/fallback.yaml", load_model("t/model.npz")).table.actions
    assert fallback is not None
    assert set(fallback.tolist()) == {2}


@slow
def test_no_unsafe_event_is_said(cfmon: Run, tmp_path: Path) -> None:
    steps = tank(tmp_path / "steps.csv", runs=30)
    code, out, _ = cfmon(
        "init", "t", "--recordings", str(steps), "--unsafe", "burst: level > 11", *BINS, "--steps", "300"
    )
    assert code == 0
    assert "quality: NOT good enough." in out
    assert "Not judged: forecasts, as 'burst' always or never happens" in out
    assert "\n  burst: its condition holds in no row" in out, "as `cfmon model learn` says"
    assert "WARNING: no step of the paths measured enters 'burst'" in out
    assert "the highest threshold with at most 1 alarm" in out
    doubt = yaml.safe_load(Path("t/config.yaml").read_text("utf-8"))["bands"]["doubt"]
    assert doubt.startswith("burst: its condition holds in no row")
    assert cfmon("config", "check", "t/config.yaml")[0] == 0


def test_a_simulator_with_its_policy(cfmon: Run, tmp_path: Path) -> None:
    (tmp_path / "rush.py").write_text("def act(state):\n    return 2 if state % 4 < 3 else 1\n")
    (tmp_path / "rush.json").write_text(json.dumps([2 if s % 4 < 3 else 1 for s in range(16)]))
    asked = ("--simulator", "gymnasium:FrozenLake-v1", "--unsafe", "wet: state in [5, 7, 11, 12]", "--steps", "300")
    code, out, err = cfmon("init", "lake", *asked, "--nominal", "rush.json")
    assert (code, faults(err)) == (0, "")
    assert "simulated in the model" in out
    assert cfmon("config", "check", "lake/config.yaml")[0] == 0
    assert "firing" in alarms(cfmon, "lake")
    code, _, err = cfmon("init", "lake2", *asked)
    assert (code, "--nominal SOURCE" in err) == (2, True)
    code, _, err = cfmon("init", "lake2", *asked, "--nominal", "rush.json", "--dynamics")
    assert (code, "--dynamics and --inputs are for --recordings" in err) == (2, True)


def test_what_is_missing_is_one_error(cfmon: Run, tmp_path: Path) -> None:
    code, out, err = cfmon("init", "t")
    assert (code, out) == (2, "")
    for words in ("--recordings FILE or --simulator ENV", "--unsafe 'NAME: CONDITION'", "For example: cfmon init"):
        assert words in err
    assert faults(err).count("\n") == 1
    assert not (tmp_path / "t").exists()


def test_bad_input_leaves_nothing(cfmon: Run, tmp_path: Path) -> None:
    steps = tank(tmp_path / "steps.csv", runs=10)
    before = sorted(tmp_path.iterdir())
    wrong: list[tuple[tuple[str, ...], str]] = [
        ((*UNSAFE, "--bins", "depth:3q"), "'depth' is not a column"),
        ((*UNSAFE, *BINS, "--dynamics"), "--bins is for a table, and --dynamics for a world with numbers"),
        ((*UNSAFE, "--abstraction", "auto", "--dynamics"), "--abstraction is for a table, and --dynamics for"),
        ((*UNSAFE, "--no-dynamics", "--inputs", "step"), "--no-dynamics is for a table, and --inputs for"),
        ((*UNSAFE, "--state", "level,step", "--inputs", "rain"), "there is no column 'rain'"),
        (("--unsafe", "late: step > 3", "--dynamics"), "'step > 3' is not on features (level), and no simple"),
        (("--unsafe", "overflow: height > 9", *BINS), "there is no column 'height'"),
        ((*UNSAFE, *BINS, "--fallback", "do(7)"), "--fallback do(7)"),
        ((*UNSAFE, *BINS, "--nominal", "missing.zip"), "there is no such file"),
        ((*UNSAFE, *BINS, "--simulator", "gymnasium:Taxi-v3"), "not both"),
    ]
    for options, words in wrong:
        given = ("--recordings", str(steps), "--steps", "100", "--accept-model")
        code, _, err = cfmon("init", "t", *given, *options)
        assert code == 2, err
        assert words in err
        assert sorted(tmp_path.iterdir()) == before
    code, _, err = cfmon("init", "no/where", "--recordings", str(steps), *UNSAFE, *BINS)
    assert (code, "make it first" in err) == (2, True)
    code, _, err = cfmon("init", "steps.csv", "--recordings", str(steps), *UNSAFE, *BINS)
    assert (code, "is a file" in err) == (2, True)


def test_files_are_overwritten_with_force_only(cfmon: Run, tmp_path: Path) -> None:
    steps = tank(tmp_path / "steps.csv", runs=20)
    (tmp_path / "t").mkdir()
    (tmp_path / "t/config.yaml").write_text("mine")
    given = ("init", "t", "--recordings", str(steps), *UNSAFE, *BINS, "--steps", "100", "--accept-model")
    code, _, err = cfmon(*given)
    assert (code, "already exists; choose another folder, or give --force" in err) == (2, True)
    assert (tmp_path / "t/config.yaml").read_text() == "mine"
    assert cfmon(*given, "--force")[0] == 0
    assert "regret(" in (tmp_path / "t/config.yaml").read_text()


@slow
def test_offset_and_alarm_are_options_of_what_is_measured_and_written(cfmon: Run, tmp_path: Path) -> None:
    given = (
        "--recordings",
        str(tank(tmp_path / "steps.csv", runs=20)),
        *UNSAFE,
        *BINS,
        "--steps",
        "200",
        "--accept-model",
    )
    patient, usual = (
        json.loads(cfmon("init", folder, *given, *options, "--json")[1])
        for folder, options in (("t", ("--offset", "1", "--for", "25", "--keep", "4")), ("u", ()))
    )
    config = (tmp_path / "t/config.yaml").read_text()
    assert "regret(fallback@1, " in config
    assert "taken over 1 step ago" in config
    assert "alarm: {for: 25, keep: 4, severity: critical}" in config
    assert "regret(fallback@2, " in usual["chosen"]["formula"]
    many, few = (sum(row["alarms"] for row in report["candidates"]) for report in (usual, patient))
    assert many > few


@scaled
def test_an_error_after_files_were_replaced_puts_them_back(
    cfmon: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (
        "--recordings",
        str(tank(tmp_path / "steps.csv", runs=20)),
        *UNSAFE,
        *BINS,
        "--steps",
        "100",
        "--accept-model",
    )
    assert cfmon("init", "t", *given)[0] == 0
    (tmp_path / "t/mine.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("monitor.cli.init_parts.written_sample", full)
    for folder in ("t", "new")[: examples(1, 2)]:
        code, _, err = cfmon("init", folder, *given, "--force", "--for", "2")
        assert (code, "cannot be written: No space left on device" in err) == (2, True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["steps.csv", "t"]


def test_on_a_terminal_it_asks(cfmon: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tank(tmp_path / "steps.csv", runs=20)
    answers = iter([str(steps), "", "overflow: level >= 9", "estimate", "do(2)"])
    questions: list[str] = []

    def answer(question: str, default: str | None = None, **_: object) -> str:
        questions.append(f"{question} [{default}]")
        return next(answers)

    monkeypatch.setattr(typer, "prompt", answer)
    monkeypatch.setattr("monitor.cli.init_asking.on_terminals", lambda: True)
    code, out, _ = cfmon("init", "t", "--bins", "6q", "--steps", "100", "--accept-model")
    assert code == 0
    assert "run episode 0 to 19 named so; 20 episodes" in [" ".join(line.split()) for line in out.splitlines()]
    assert "overflow: level >= 9 holds in " in out
    assert [question.rpartition("[")[2] for question in questions] == [
        "None]",
        "]",
        "None]",
        "estimate]",
        "safest]",
    ]
    assert cfmon("config", "check", "t/config.yaml")[0] == 0
    answers = iter(["gymnasium:FrozenLake-v1", "hole", "rush.json", "safest"])
    (tmp_path / "rush.json").write_text(json.dumps([2] * 16))
    assert cfmon("init", "lake", "--steps", "50")[0] == 0


@slow
def test_named_states_and_short_recordings(cfmon: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["episode,t,state,action,reward,done"]
    for episode in range(12):
        for t in range(20):
            falls = t > 2 and rng.random() < 0.2
            action = "run" if falls or rng.random() < 0.5 else "walk"
            lines.append(f"{episode},{t},{'ice' if falls else 'snow'},{action},{-1 if falls else 0},{falls}")
            if falls:
                break
    (tmp_path / "steps.csv").write_text("\n".join(lines))
    code, out, err = cfmon(
        "init", "t", "--recordings", "steps.csv", "--unsafe", "fall: done and reward < 0", "--accept-model"
    )
    assert (code, faults(err)) == (0, "")
    assert "figures are optimistic" in out
    assert "state_encoder: name" in Path("t/config.yaml").read_text()
    assert cfmon("config", "check", "t/config.yaml")[0] == 0


@slow
def test_bounds_that_are_too_large_are_left_out_with_the_reason(
    cfmon: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.exact.evaluators.MAX_LEVELS", 1)
    steps = tank(tmp_path / "steps.csv")
    code, _, err = cfmon("init", "tank", "--recordings", str(steps), *UNSAFE, *BINS, "--steps", "300")
    assert (code, faults(err)) == (0, "")
    text = Path("tank/config.yaml").read_text("utf-8")
    assert "# without `causal_model: any`: " in text
    assert "limit MAX_LEVELS" in text


def walk(path: Path, episodes: int = 60) -> list[tuple[str, str, str, bool]]:
    """Record a robot that walks over four cells with a load, and slips near a cart; return cell, cart, load, ends."""
    rng, rows = np.random.default_rng(4), []
    lines = ["episode,step,cell,cart,load,move,done,fell"]
    for episode in range(episodes):
        place = 0
        for step in range(12):
            cart, load, move = (
                int(rng.integers(4)),
                "heavy" if rng.random() < 0.3 else "light",
                rng.choice(["go", "wait"]),
            )
            fell = cart == place and rng.random() < 0.4
            rows.append((f"c{place}", f"c{cart}", load, fell))
            lines.append(f"{episode},{step},c{place},c{cart},{load},{move},{int(fell)},{int(fell)}")
            if fell:
                break
            place = (place + (move == "go")) % 4
    path.write_text("\n".join(lines))
    return rows


RULES = """
CALLS = []

def keep_away(cell, cart, load):
    CALLS.append((cell, cart, load))
    assert load in ("heavy", "light") and cell.startswith("c") and cart.startswith("c")
    return "wait" if load == "heavy" else "go"

def careful(obs: dict):
    return "wait" if obs["cart"] == obs["cell"] else "go"

def lost(cell, weight):
    return "go"
"""


def test_a_function_of_columns_is_in_a_state_what_it_does_on_the_rows_recorded_there(
    cfmon: Run, tmp_path: Path
) -> None:
    """The policy is finer than the states: the table has the frequencies of its actions on the rows, by hand here."""
    rows = walk(tmp_path / "walk.csv")
    Path("rules.py").write_text(RULES)
    given = ("init", "t", "--recordings", "walk.csv", "--unsafe", "fall: done and fell", "--state", "cell,cart",
             "--action", "move", "--steps", "100", "--accept-model")  # fmt: skip
    code, out, err = cfmon(*given, "--fallback", "rules.py:keep_away", "--nominal", "rules.py:careful")
    assert (code, faults(err)) == (0, "")
    assert f"  fallback: rules.py:keep_away: called on {len(rows)} recorded rows; in each state it" in out
    assert "; 100.0% of the rows are in states with rows on which it acts differently" in out
    assert "in 100% of the recorded steps the state mixes rows on which the fallback acts differently: what it" in out
    assert "the agent acts differently" not in out
    model = load_model("t/model.npz")
    go = model.action_names.index("go")
    policies = [load_policy(f"t/{name}.yaml", model).table for name in ("fallback", "nominal")]
    for state, (cell, cart) in enumerate(model.valuations[:16]):
        loads = [row[2] for row in rows if row[:2] == (cell, cart)]
        found = [dict(policy.choices(state)).get(go, 0.0) for policy in policies]
        assert found[0] == pytest.approx(loads.count("light") / len(loads))
        assert found[1] == (cell != cart)
    calls = sys.modules["rules"].CALLS
    assert set(calls) == {row[:3] for row in rows}, "neither for elsewhere nor for the ends of episodes"
    code, _, err = cfmon(*given, "--force", "--fallback", "rules.py:lost")
    assert code == 2
    assert "no column 'weight'; name parameters like columns, or take one, which gets a dict of all columns" in err
    assert "columns: episode, step, cell, cart, load" in err
    assert cfmon("replay", "t/config.yaml", "t/sample.rec")[0] == 0 or not Path("t/sample.rec").exists()


def test_bins_have_edges_where_the_given_policies_change_their_mind(cfmon: Run, tmp_path: Path) -> None:
    steps = tank(tmp_path / "steps.csv", runs=150, seed=4)
    Path("rules.py").write_text("def drain(level):\n    return 2 if level > 5.3 else 0\n")
    given = ("init", "t", "--recordings", str(steps), *UNSAFE, "--no-dynamics", "--steps", "100", "--accept-model")
    code, out, err = cfmon(*given, "--fallback", "rules.py:drain")
    assert (code, faults(err)) == (0, "")
    tried = [line.split("  ")[1] for line in out.splitlines() if line.startswith("  --bins 'level:")]
    edges = [float(edge) for edge in tried[0].removeprefix("--bins 'level:").partition(",")[0].split("|")]
    assert 9.0 in edges, "that of the unsafe condition"
    level = [float(row["level"]) for row in csv.DictReader(steps.read_text("utf-8").splitlines())]
    for mind in (4.0, 5.3, 6.0):  # those of the operator, whose recorded actions stand for him, and of the fallback
        assert any(not any(min(mind, edge) < each < max(mind, edge) for each in level) for edge in edges), mind
    assert "acts differently" not in out.partition("config.yaml: valid")[0].partition("fallback: rules.py")[2]


def test_a_classifier_sees_the_columns_of_the_state(cfmon: Run, tmp_path: Path) -> None:
    joblib: Any = pytest.importorskip("joblib")
    trees: Any = pytest.importorskip("sklearn.tree")
    steps = tank(tmp_path / "steps.csv")
    rows = [line.split(",") for line in steps.read_text().splitlines()]
    place = rows[0].index("level")
    levels = np.array([[float(row[place])] for row in rows[1:]])
    wanted = np.where(levels[:, 0] > 7.37, 2, 0)
    joblib.dump(trees.DecisionTreeClassifier().fit(levels, wanted), "tree.joblib")
    code, out, err = cfmon("init", "t", "--recordings", str(steps), *UNSAFE, *BINS, "--steps", "100",
                           "--accept-model", "--fallback", "tree.joblib")  # fmt: skip
    assert (code, faults(err).count("\n")) == (0, 1), "the one line is the warning of pickles"
    assert "  fallback: tree.joblib: called on " in out
    model = load_model("t/model.npz")
    table = load_policy("t/fallback.yaml", model).table
    edges = model.bin_edges[0]
    for state in range(len(edges) - 1):
        here = wanted[(levels[:, 0] >= edges[state]) & (levels[:, 0] < edges[state + 1])]
        if len(here):
            assert dict(table.choices(state)).get(2, 0.0) == pytest.approx((here == 2).mean())


@pytest.fixture
def service(tmp_path: Path) -> str:
    """Recorded steps of an autoscaler: whole numbers that hardly come again, beside a text that decides the load."""
    rng = np.random.default_rng(3)
    loads = {"slack": 20, "normal": 60, "rush": 110}
    with (tmp_path / "service.csv").open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["run", "step", "queue", "spare", "phase", "scale"])
        for run in range(150):
            queue, spare, phase = int(rng.integers(0, 200)), int(rng.integers(0, 300)), "normal"
            for step in range(25):
                up = 0 if rng.random() < 0.4 else int(queue > 250)
                log.writerow([run, step, queue, spare, phase, ["hold", "up"][up]])
                spare = min(max(spare + 60 * up - 20 + int(rng.integers(-9, 10)), 0), 300)
                queue = max(queue + loads[phase] + int(rng.integers(-30, 31)) - 60 - 60 * up - spare // 50, 0)
                phase = str(rng.choice(list(loads))) if rng.random() < 0.2 else phase
    return str(tmp_path / "service.csv")


@heavy
@pytest.mark.parametrize("bins", [("--bins", "4q"), ("--abstraction", "auto"), ()])
def test_text_beside_numbers_that_hardly_come_again_is_binned(cfmon: Run, service: str, bins: tuple[str, ...]) -> None:
    asked = ("--recordings", service, "--unsafe", "overload: queue > 400", "--action", "scale", "--steps", "300")
    code, out, err = cfmon("init", "s", *asked, *bins, "--accept-model")
    assert (code, faults(err)) == (0, ""), err
    assert ("Taken: --bins " in out) == (bins != ("--bins", "4q"))
    assert "a world with numbers was not tried: " in out or bins
    model = load_model("s/model.npz")
    assert [set(names) for names in model.bin_names] == [set(), set(), {"slack", "normal", "rush"}]
    assert "state_encoder: bins" in Path("s/config.yaml").read_text("utf-8")
    assert cfmon("config", "check", "s/config.yaml")[0] == 0
    assert "firing" in alarms(cfmon, "s"), "its states are sent as numbers and texts"
    more = Path("more.csv")
    more.write_text("run,step,queue,spare,phase,scale\n0,0,1,2,slack,up\n0,1,3,4,holiday,up\n", "utf-8")
    code, _, err = cfmon("model", "learn", str(more), "--append", "s/model.npz")
    assert (code, "row 2: queue, spare, phase = 'holiday' has no bin: it was never recorded" in err) == (2, True)
