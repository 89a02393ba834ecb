"""States keep their numbers when a model learns more, and a report says what it covers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.learning.companion import companion_of, load_learner
from monitor.model import encode_state, load_model
from monitor.model.npz import model_sha256
from tests.authoring.learning.recorded import Row, csv_of, random_rows, same_but_for_numbers
from tests.tiers import slow

Run = Callable[..., tuple[int, str, str]]

ROLES = (
    "--action",
    "a",
    "--episode",
    "ep",
    "--order",
    "t",
    "--reward",
    "r",
    "--terminated",
    "done",
    "--truncated",
    "cut",
)
LABELS = ("--label", "high: x >= 2", "--unsafe", "bad: done and r < 0")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def recorded(name: str, seed: int, states: int, *, ends: bool = True) -> str:
    """A recording of so many states, with their names as text, without terminations unless `ends`."""
    rows: list[Row] = random_rows(np.random.default_rng(seed), episodes=60, states=states)
    for row in rows:
        row["name"] = f"room {row['x']}"
        row["done"] = row["done"] and ends
    return str(csv_of(rows, Path(f"{name}.csv")))


@pytest.mark.parametrize(
    ("options", "encoder", "raw"),
    [
        (("--state", "name"), "name", lambda x: f"room {x}"),
        (("--state", "x,name", "--next-state", ""), "valuation", lambda x: (x, f"room {x}")),
        (("--state", "x", "--bins", "x:0.5|1.5|2.5|3.5", "--observation", "x"), "bins", lambda x: (float(x),)),
        *(
            pytest.param(("--state", "x", "--abstraction", "values", *more), "valuation", lambda x: (x,), marks=slow)
            for more in (("--next-state", "after"), ("--timing", "state"))
        ),
    ],
)
def test_old_states_keep_their_numbers_and_new_ones_come_after(
    cfmon: Run, options: tuple[str, ...], encoder: str, raw: Callable[[int], object]
) -> None:
    first, second = recorded("first", 1, 2, ends=False), recorded("second", 2, 5)
    assert cfmon("model", "learn", first, "-o", "m.npz", *ROLES, *options, *LABELS)[0] == 0
    before = load_model("m.npz")
    code, out, _ = cfmon("model", "learn", second, "--append", "m.npz")
    assert code == 0
    after = load_model("m.npz")
    new = after.states - before.states
    assert new > 0
    assert f"{new} new state{'s' * (new > 1)}, after those before, which keep their numbers" in out
    assert after.state_names[: before.states] == before.state_names
    assert after.counts is not None
    assert before.counts is not None
    assert after.counts.elsewhere == before.counts.elsewhere
    for x in range(2):
        state = encode_state(after, encoder, raw(x))  # type: ignore[arg-type]
        assert state == encode_state(before, encoder, raw(x))  # type: ignore[arg-type]
    assert cfmon("model", "learn", first, second, "-o", "once.npz", *ROLES, *options, *LABELS)[0] == 0
    same_but_for_numbers(after, load_model("once.npz"))
    third = recorded("third", 3, 6)
    assert cfmon("model", "learn", third, "--append", "m.npz")[0] == 0
    assert load_model("m.npz").state_names[: after.states] == after.state_names


def test_the_report_of_a_model_that_learned_more_says_what_it_covers(cfmon: Run) -> None:
    first, second = recorded("first", 1, 2, ends=False), recorded("second", 2, 5)
    options = ("--state", "name", *ROLES, *LABELS)
    assert cfmon("model", "learn", first, "-o", "m.npz", *options, "--report", "a.md")[0] == 0
    draws = load_learner(companion_of(Path("m.npz"))).tally.draws
    assert "This covers only what was counted in this run" not in Path("a.md").read_text()
    reports = ("--report", "b.md", "--report", "b.html")
    assert cfmon("model", "learn", first, second, "--append", "m.npz", *reports)[0] == 0
    for name in ("b.md", "b.html"):
        text = Path(name).read_text()
        assert f"This covers only what was counted in this run. The model has {draws} further transitions" in text
    total = load_learner(companion_of(Path("m.npz"))).tally.draws
    counts = re.search(r"Checked on ([0-9,]+) held-out steps .* model of the ([0-9,]+) steps", Path("b.md").read_text())
    assert counts is not None
    assert int(counts[1]) + int(counts[2]) == total - draws


def test_new_indices_are_the_agents_numbers_and_the_command_says_what_moved(cfmon: Run) -> None:
    first, second = recorded("first", 1, 2), recorded("second", 2, 4)
    options = ("--state", "x", *ROLES, *LABELS)
    assert cfmon("model", "learn", first, "-o", "m.npz", *options)[0] == 0
    code, out, _ = cfmon("model", "learn", second, "--append", "m.npz")
    assert code == 0
    assert "new indices have taken the numbers of ends of episodes and of 'elsewhere'" in out
    assert load_model("m.npz").state_names[:4] == ("0", "1", "2", "3")
    assert cfmon("model", "learn", first, second, "-o", "once.npz", *options)[0] == 0
    assert model_sha256(load_model("m.npz")) == model_sha256(load_model("once.npz"))
    code, out, _ = cfmon("model", "learn", recorded("third", 3, 4), "--append", "m.npz")
    assert "which keep their numbers" not in out
    assert "have taken the numbers" not in out
