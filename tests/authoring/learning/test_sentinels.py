"""Sentinel values: which numbers are taken for missing ones, and that they are read as empty cells are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monitor.arrays import AnyArray
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.companion import load_learner, save_learner
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.row_files import open_rows
from monitor.authoring.learning.sentinels import (
    WORDS,
    WithoutSentinels,
    decoded,
    doubtful_values,
    far_values,
    missing_of,
)
from monitor.cli.init_settings import codes_text, read_settings
from monitor.errors import ConfigError

RNG = np.random.default_rng(5)
HALL = RNG.normal(18.0, 2.0, 2_000).round(2)


def taken(values: AnyArray) -> list[float | str]:
    return [each.value for each in far_values(values) if each.sentinel]


@pytest.mark.parametrize(
    ("others", "codes"),
    [
        (HALL, [-999.0, 85.0]),
        (HALL, [-9999.0, 9999.0]),
        (HALL, [-999.0, 999.0]),
        (HALL, [99999.9]),
        (HALL, [9.96921e36]),
        (RNG.integers(0, 60, 500), [255]),
        (RNG.integers(0, 150, 500), [4294967295, -2147483648]),
        (RNG.integers(1, 4, 500), [65535]),
        (np.where(RNG.random(500) < 0.9, 0, RNG.integers(0, 12, 500)), [-999]),
    ],
)
def test_a_conventional_code_that_repeats_far_outside_stands_for_a_missing_value(
    others: AnyArray, codes: list[float]
) -> None:
    assert taken(np.concatenate([others, codes, codes, codes])) == sorted(codes)
    assert taken(np.concatenate([others, *[codes] * len(others)])) == sorted(codes), "however often it is there"
    assert not taken(np.concatenate([others, codes])), "once is an error, and no code"


@pytest.mark.parametrize(
    "values",
    [
        np.concatenate([np.arange(9_000, 9_999), [9_999] * 50]),  # a counter that is capped
        np.concatenate([RNG.integers(0, 400, 500), [999] * 5]),  # not far enough
        np.round(np.exp(RNG.normal(0, 2.5, 20_000)), 2),  # a long tail
        np.concatenate([HALL, [850.0] * 20]),  # of no form that loggers use
        np.array([0, 1] * 100 + [999] * 10),  # two values have no range to speak of
        np.concatenate([np.arange(10), [255] * 5]),  # too few to say
        np.array(["a", "-999"] * 100),
    ],
)
def test_what_may_be_a_reading_is_believed(values: AnyArray) -> None:
    assert not taken(values)


def test_a_value_far_outside_that_is_no_code_is_named_with_the_range_of_the_others() -> None:
    [odd] = far_values(np.concatenate([HALL, [850.0] * 20]))
    assert (odd.value, odd.count) == (850.0, 20)
    assert (odd.low, odd.high) == (HALL.min(), HALL.max())


@pytest.mark.parametrize(
    ("others", "odd", "expected"),
    [
        (RNG.integers(0, 101, 2_000), [255] * 9, [255.0]),  # a charge in percent
        (RNG.integers(0, 101, 2_000), [255], [255.0]),
        (RNG.integers(0, 60, 2_000), [-1, -1, -7], [-7.0, -1.0]),
        (np.abs(HALL), [-1.0], [-1.0]),
        (RNG.integers(-1, 9, 2_000), [-7], []),  # it is negative otherwise
        (RNG.integers(0, 60, 2_000), [-1] * 50, []),  # often
        (RNG.integers(0, 60, 2_000), [-1, -2, -3], []),  # many
        (np.abs(HALL), [-0.4], []),  # noise around zero
        (RNG.integers(0, 250, 2_000), [255], []),  # among the others
        (RNG.integers(0, 101, 2_000), [240], []),  # of no form that loggers use
        (RNG.choice(["av1", "hevc"], 2_000), ["ERR", "unknown", "vp9"], ["ERR", "unknown"]),
        (RNG.choice(["av1", "unknown"], 2_000), [], []),
        (RNG.integers(0, 2, 2_000), [255], []),  # two values have no range to speak of
    ],
)
def test_rare_values_that_a_person_should_look_at_are_named(
    others: AnyArray, odd: list[float | str], expected: list[float | str]
) -> None:
    values = np.concatenate([others, np.array(odd, others.dtype if others.dtype.kind != "U" else "U9")])
    found = doubtful_values(values)
    assert [one.value for one in found] == expected
    assert not any(one.sentinel for one in found), "they may be readings"
    assert {one.value: one.count for one in found} == {value: odd.count(value) for value in expected}
    if expected and values.dtype.kind != "U":
        assert (found[0].low, found[0].high) == (others.min(), others.max())


@pytest.mark.parametrize("state", [("level",), ("level", "flow")])
def test_a_code_is_read_as_an_empty_cell_and_named(state: tuple[str, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [
        [run, step, int(rng.integers(4)), int(rng.integers(3)), int(rng.integers(2))]
        for run in range(30)
        for step in range(12)
    ]
    bad = set(rng.choice(len(rows), 25, replace=False).tolist())
    models = {}
    for name, code in (("coded", "-999"), ("empty", "")):
        file = tmp_path / f"{name}.csv"
        lines = [",".join(map(str, [*row[:2], code if i in bad else row[2], *row[3:]])) for i, row in enumerate(rows)]
        file.write_text("run,step,level,flow,action\n" + "\n".join(lines) + "\n", "utf-8")
        source = WithoutSentinels(open_rows(file), {"level": (-999.0,)} if code else {})
        learner = Learner.new(Roles(state, "action", "run", "step"), None, [], 1.0)
        for batch in source.batches(learner.roles.used):
            learner.read(batch)
        learner.end_file()
        models[name] = learner.model("m")
        reason = "'level' is -999, taken for missing" if code else "'level' is empty or not finite"
        assert learner.left_out.counts == {reason: 25}
        assert learner.left_out.first[reason][0] == (str(file), min(bad) + 1)
    one, other = models["coded"], models["empty"]
    assert one.counts is not None
    assert other.counts is not None
    assert one.state_names == other.state_names
    assert one.valuations == other.valuations
    assert np.array_equal(one.counts.visits, other.counts.visits)
    assert np.array_equal(one.successors, other.successors)


def test_a_text_may_stand_for_a_missing_one_and_a_number_too_among_texts() -> None:
    batch = RowBatch({"mode": np.array(["up", "ERR", "-1"]), "x": np.array([1, 9, 2]), "on": np.ones(3, bool)}, 1, "f")
    found = decoded(batch, {"mode": ("ERR", -1.0), "x": (9.0,), "on": (1.0,), "other": (1.0,)})
    assert found.columns["mode"].tolist() == ["up", "", ""]
    assert np.isnan(found.columns["x"]).tolist() == [False, True, False]
    assert found.columns["on"].all()
    assert decoded(batch, {"x": (7.0,)}).columns["x"].dtype.kind == "i", "nothing changes where there is none"
    with pytest.raises(ConfigError, match=r"f: column 'x' has numbers, so 'ERR' cannot stand"):
        decoded(batch, {"x": ("ERR",)})
    unknown = RowBatch({"x": np.full(2, np.nan)}, 1, "f")
    assert np.isnan(decoded(unknown, {"x": ("ERR",)}).columns["x"]).all(), "its kind is not known yet"


CODES = (
    -999.0,
    0.1,
    1e20,
    -1e30,
    9.969209968386869e36,
    *(2.0**bits - 1 for bits in WORDS),
    *(-(2.0**bits) for bits in WORDS),
)


def test_codes_are_read_again_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "init.yaml"
    file.write_text(f"missing:\n  level: {codes_text((*CODES, 'ERR', '-1'))}\n", "utf-8")
    assert read_settings(file).missing == {"level": (*CODES, "ERR", "-1")}


@pytest.mark.parametrize(
    ("text", "codes"), [("-999, 9999", (-999.0, 9999.0)), ("none", ()), ("ERR", ("ERR",)), ("'-999'", (-999.0,))]
)
def test_a_text_in_a_file_is_read_as_the_option_is(text: str, codes: tuple[float | str, ...], tmp_path: Path) -> None:
    file = tmp_path / "init.yaml"
    file.write_text(f"missing:\n  level: {text}\n", "utf-8")
    assert read_settings(file).missing == {"level": codes}


def test_codes_go_with_the_learner(tmp_path: Path) -> None:
    learner = Learner.new(Roles(("level",), "action"), None, [], 1.0)
    learner.missing = {"level": (-999.0, "ERR"), "flow": ()}
    save_learner(learner, tmp_path / "m.learn.npz")
    assert load_learner(tmp_path / "m.learn.npz").missing == learner.missing


@pytest.mark.parametrize("text", ["level", "level:", ": 3", ""])
def test_an_option_without_a_column_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write COLUMN: VALUE"):
        missing_of([text])
