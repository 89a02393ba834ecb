"""`cfmon model learn --signal`: a model with hidden states from recordings that have the state and an observation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from monitor.model import load_model
from tests.authoring.learning.recorded import csv_of
from tests.authoring.learning.test_emissions import assert_counted, sensed

Run = Callable[..., tuple[int, str, str]]
ROLES = ("--state", "x", "--action", "a", "--episode", "ep", "--order", "t", "--terminated", "done", "--signal", "seen")


def test_the_command_says_what_was_recorded_and_adds_to_it(cfmon: Run, tmp_path: Path) -> None:
    paths = [str(csv_of(sensed(np.random.default_rng(seed), 20), tmp_path / f"{seed}.csv")) for seed in range(2)]
    once, more = tmp_path / "once.npz", tmp_path / "more.npz"
    code, out, err = cfmon("model", "learn", *paths, "-o", str(once), *ROLES)
    assert (code, err) == (0, "")
    rows = [row for seed in range(2) for row in sensed(np.random.default_rng(seed), 20)]
    count = sum(row["seen"] != "" for row in rows)
    assert (
        f"{count} observations of 3 kinds recorded in 3 states; none in 1 state, which may show each of these alike"
        in out
    )
    assert "signal      seen: what the sensor shows" in out
    assert_counted(load_model(once), rows)
    assert cfmon("model", "learn", paths[0], "-o", str(more), *ROLES)[0] == 0
    code, out, _ = cfmon("model", "learn", paths[1], "--append", str(more), "--json")
    assert code == 0
    assert json.loads(out)["emissions"] == {"counted": count, "kinds": 3, "states": 3, "states without": 1}
    code, _, err = cfmon("model", "learn", paths[1], "--append", str(more), "--signal", "seen")
    assert (code, "--signal cannot be given with --append" in err) == (2, True)
