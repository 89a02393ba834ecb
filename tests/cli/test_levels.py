"""A log whose actions are levels such as 0, 40 and 100: from `cfmon init` to `cfmon replay`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from monitor.model import encode_state, load_model
from monitor.policy.onnx_policy import load_policy
from tests.tiers import slow

Run = Callable[..., tuple[int, str, str]]

COLUMNS = ("--state", "temp", "--action", "burner_pct", "--episode", "run", "--order", "k", "--terminated", "cold")
POLICY = "def caretaker(temp):\n    return 100 if temp <= 3 else 40 if temp == 4 else 0\n"
LEVELS = (0, 40, 100)


def boiler(path: Path, levels: tuple[object, ...] = LEVELS, runs: int = 120) -> Path:
    """A hall that cools, and a burner that heats by its level: lazily, so that it freezes now and then."""
    rng = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["run", "k", "temp", "burner_pct", "cold"])
        for run in range(runs):
            temp = int(rng.integers(3, 7))
            for k in range(30):
                level = int(rng.choice(3, p=[0.4, 0.3, 0.3] if temp <= 3 else [0.5, 0.4, 0.1]))
                log.writerow([run, k, temp, levels[level], temp == 0])
                if temp == 0:
                    break
                temp = int(np.clip(temp + (-1, 0, 1)[level] + rng.choice([-1, 0, 1], p=[0.3, 0.4, 0.3]), 0, 7))
    return path


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    boiler(tmp_path / "log.csv")
    (tmp_path / "boiler.py").write_text(POLICY)


def alarms(cfmon: Run, config: str, recording: str) -> list[tuple[object, ...]]:
    """What the replay of a recording says of its alarms, all steps of which were accepted."""
    code, out, err = cfmon("replay", config, recording)
    assert code == 0
    assert "accepted; " in err
    lines = [json.loads(line)["payload"] for line in out.splitlines() if "/alerts/" in line]
    return [(each["episode"], each["seq"], each["state"], each["outcome"], each["value"]) for each in lines]


@slow
def test_a_log_of_levels_is_learned_and_replayed_as_one_of_names(cfmon: Run) -> None:
    boiler(Path("names.csv"), ("off", "low", "high"))
    Path("named.py").write_text(POLICY.replace("100", "'high'").replace("40", "'low'").replace("else 0", "else 'off'"))
    found = {}
    for log, policy in (("log", "boiler"), ("names", "named")):
        options = ("--unsafe", "frozen: temp == 0", *COLUMNS, "--steps", "400", "--accept-model")
        code, _, err = cfmon(
            "init", log, "--recordings", f"{log}.csv", *options, "--fallback", f"{policy}.py:caretaker"
        )
        assert code == 0, err
        assert cfmon("recording", "convert", f"{log}.csv", "--to", f"{log}.rec", *COLUMNS)[0] == 0
        found[log] = alarms(cfmon, f"{log}/config.yaml", f"{log}.rec")
        assert alarms(cfmon, f"{log}/config.yaml", f"{log}/sample.rec"), "the sample raises its alarm"
    model = load_model("log/model.npz")
    assert model.action_names == ("0", "40", "100")
    fallback = load_policy("log/fallback.yaml", model).table
    assert [fallback.distribution(temp, 3).argmax() for temp in (3, 4, 5)] == [2, 1, 0]
    assert found["log"] == found["names"] != []
    code, out, _ = cfmon("replay", "log/config.yaml", "log.rec")
    details = [json.loads(line)["payload"].get("details", []) for line in out.splitlines()]
    assert any("action 100 instead of action 0 at step" in sentence for each in details for sentence in each)


@slow
def test_a_sent_index_is_no_level(cfmon: Run) -> None:
    """A gateway that sends the index of a level in place of the level is refused, not misread."""
    options = ("--unsafe", "frozen: temp == 0", *COLUMNS, "--steps", "200", "--accept-model")
    assert cfmon("init", "log", "--recordings", "log.csv", *options, "--fallback", "do(100)")[0] == 0
    boiler(Path("indices.csv"), (0, 1, 2), runs=3)
    assert cfmon("recording", "convert", "indices.csv", "--to", "indices.rec", *COLUMNS)[0] == 0
    _, _, err = cfmon("replay", "log/config.yaml", "indices.rec")
    assert "unknown_action" in err
    code, _, err = cfmon("init", "other", "--recordings", "log.csv", *options, "--fallback", "do(2)")
    assert (code, "'2' is not an action of the model (one of 0, 40, 100)" in err) == (2, True)


def test_levels_that_come_later_take_their_place_in_the_order(cfmon: Run) -> None:
    rows = Path("log.csv").read_text().splitlines(keepends=True)
    parts = {"early": [row for row in rows if ",40," not in row], "late": rows}
    for name, kept in parts.items():
        Path(f"{name}.csv").write_text("".join(kept))
    options = ("--label", "frozen: temp == 0", *COLUMNS)
    assert cfmon("model", "learn", "early.csv", *options, "-o", "m.npz", "--skip-bad", "100%")[0] == 0
    assert load_model("m.npz").action_names == ("0", "100")
    assert cfmon("model", "learn", "late.csv", "--append", "m.npz")[0] == 0
    both = load_model("m.npz")
    assert both.action_names == ("0", "40", "100")
    assert cfmon("model", "learn", "early.csv", "late.csv", *options, "-o", "n.npz")[0] == 0
    whole = load_model("n.npz")
    for state in range(8):
        for action in range(3):
            assert [part.tolist() for part in both.row(state, action)] == [
                part.tolist() for part in whole.row(state, action)
            ]


def test_codes_of_states_are_sent_as_they_are(cfmon: Run) -> None:
    log = "run,k,code,act\n" + "".join(
        f"{run},{k},{(-1, 404, 5)[(run + k) % 3]},{'go' if k % 2 else 'wait'}\n" for run in range(12) for k in range(5)
    )
    Path("codes.csv").write_text(log)
    columns = ("--state", "code", "--action", "act", "--episode", "run", "--order", "k")
    options = ("--label", "lost: code == 404", "--abstraction", "values", "-o", "codes.npz")
    assert cfmon("model", "learn", "codes.csv", *columns, *options)[0] == 0
    model = load_model("codes.npz")
    for code in (-1, 404, 5):
        assert model.valuations[encode_state(model, "valuation", code)] == (code,)


def test_many_indices_that_never_occur_are_said(cfmon: Run) -> None:
    Path("codes.csv").write_text("run,k,code,act\n" + "".join(f"0,{k},{200 + k % 2},go\n" for k in range(9)))
    columns = ("--state", "code", "--action", "act", "--episode", "run", "--order", "k")
    _, out, _ = cfmon("model", "learn", "codes.csv", *columns, "-o", "codes.npz")
    assert "states are the numbers 0 to 201, as code holds them, and 2 of these occur: --abstraction values" in out
