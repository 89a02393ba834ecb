"""Bins and numberings, compared with the encoders of live states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.learning.abstraction import MAX_STATES, Numbering, chosen_kind, hardly_revisited
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.bins import SAMPLE, Reservoir, edges_of, parsed_bins
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.companion import load_learner, save_learner
from monitor.authoring.learning.conditions import parsed
from monitor.authoring.learning.cross_fitting import Collected
from monitor.authoring.learning.learner import Learner
from monitor.authoring.proposal.paths import paths_of
from monitor.errors import InputError, ModelError, RecordingError
from monitor.model import encode_state, load_model, model_sha256, save_model


def batch(**columns: object) -> RowBatch:
    return RowBatch({name: np.array(values) for name, values in columns.items()}, 1, "f")


def sample(rows: np.ndarray) -> Reservoir:
    kept = Reservoir(rows.shape[1], np.random.default_rng(0))
    kept.add(rows)
    return kept


def test_bins_are_of_equal_frequency_width_or_as_given() -> None:
    rows = np.random.default_rng(1).exponential(size=(10_000, 4))
    rows[:, 3] = np.random.default_rng(2).integers(0, 3, 10_000)
    specs = parsed_bins("a:4q, b:4w, c:-1|0|1.5")
    a, b, c, d = edges_of(("a", "b", "c", "d"), specs, sample(rows))
    counts = np.histogram(rows[:, 0], a)[0]
    assert counts.max() - counts.min() <= 1
    assert len(b) == 5
    np.testing.assert_allclose(np.diff(b[1:-1]), (rows[:, 1].max() - rows[:, 1].min()) / 4)
    assert c.tolist() == [-np.inf, -1, 0, 1.5, np.inf]
    assert d.tolist() == [-np.inf, 0.5, 1.5, np.inf]
    assert [len(edges) for edges in edges_of(("a", "b", "c", "d"), parsed_bins("3q"), sample(rows))] == [4, 4, 4, 4]


def test_counted_bins_also_have_the_edges_of_conditions() -> None:
    rows = np.random.default_rng(1).normal(size=(10_000, 3))
    also = {"a": {1.5, 99.0}, "b": {0.25}, "c": {0.25}}
    bare = edges_of(("a", "b", "c"), parsed_bins("a:4q,b:4w,c:-1|1"), sample(rows))
    a, b, c = edges_of(("a", "b", "c"), parsed_bins("a:4q,b:4w,c:-1|1"), sample(rows), also)
    assert a.tolist() == sorted([*bare[0].tolist(), 1.5]), "99 was never recorded"
    assert b.tolist() == sorted([*bare[1].tolist(), 0.25])
    assert c.tolist() == bare[2].tolist(), "edges that the user gave are all"


def test_a_bin_is_named_by_the_number_that_its_condition_compares_with() -> None:
    rows = batch(x=np.arange(10.0), a=np.zeros(10, np.int64))
    also = parsed("a: x > 6 or x == 0").edges()
    edges = edges_of(("x",), parsed_bins("x:2q"), sample(np.arange(10.0)[:, None]), also)
    states = Numbering("bins", ("x",), edges)
    learner = Learner.new(Roles(("x",), "a"), states, [], 1.0)
    learner.read(rows)
    names = ["x <= 0", "x > 0 and < 4.5", "x >= 4.5 and <= 6", "x > 6", "elsewhere"]
    assert list(learner.model("m").state_names) == names


@pytest.mark.parametrize("text", ["x < 2", "x <= 2", "2 < x", "x == 2", "x in [0, 2]", "abs(x) > 2", "-x >= -2"])
def test_no_bin_with_the_edges_of_a_condition_is_labelled_in_part(text: str) -> None:
    condition = parsed(f"a: {text}")
    values = np.sort(np.concatenate([np.arange(-4, 5), np.nextafter(np.arange(-4, 5), np.inf), np.linspace(-5, 5, 99)]))
    holds = condition.holds({"x": values}, len(values))
    bins = np.searchsorted(sorted(condition.edges()["x"]), values, side="right")
    assert all(len(set(holds[bins == each].tolist())) == 1 for each in np.unique(bins))


@pytest.mark.parametrize("text", ["x < y", "x + 1 < 2", "x < 1 / 0", "k == 'a'", "x == True", "done"])
def test_other_comparisons_give_no_edges(text: str) -> None:
    assert parsed(f"a: {text}").edges() == {}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("x:8", r"ascend|write COLUMN:8q"),
        ("x:8z", "write COLUMN:8q"),
        ("x:0q", "give 1 to 10,000 bins"),
        ("x:2|1", "must ascend"),
        ("x:nan", "must ascend"),
        ("x:4q,x:4q", "given twice"),
        ("z:4q", "'z' is not a column of the state"),
        ("y:4q", "column 'x' has 100 values; add bins for it, such as x:8q"),
    ],
)
def test_bins_that_do_not_fit_are_refused(spec: str, problem: str) -> None:
    rows = np.random.default_rng(1).normal(size=(100, 2))
    if spec == "x:8":
        assert edges_of(("x",), parsed_bins("x:8"), sample(rows[:, :1]))[0].tolist() == [-np.inf, 8, np.inf]
        return
    with pytest.raises(ModelError, match=problem):
        edges_of(("x", "y"), parsed_bins(spec), sample(rows))


def test_a_sample_of_a_long_stream_is_uniform() -> None:
    kept = Reservoir(1, np.random.default_rng(0))
    for part in np.split(np.arange(4.0 * SAMPLE), 16):
        kept.add(part[:, None])
    kept.add(np.zeros((0, 1)))
    assert kept.rows.shape == (SAMPLE, 1)
    assert (kept.low[0], kept.high[0]) == (0, 4 * SAMPLE - 1)
    quarters = np.histogram(kept.rows, 4, (0, 4 * SAMPLE))[0] / SAMPLE
    np.testing.assert_allclose(quarters, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / SAMPLE))


def test_a_live_state_is_encoded_as_the_recorded_one() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=500).round(1), rng.normal(size=500)
    states = Numbering("bins", ("x", "y"), (np.array([-np.inf, -0.5, 0.5, np.inf]), np.array([-np.inf, 0.0, np.inf])))
    learner = Learner.new(Roles(("x", "y"), "a"), states, [], 1.0)
    rows = batch(x=x, y=y, a=np.zeros(500, np.int64))
    learner.read(rows)
    model = learner.model("m")
    live = [encode_state(model, "bins", (float(u), float(v))) for u, v in zip(x, y, strict=True)]
    assert live == states.encode(rows, ("x", "y")).tolist()
    assert model.state_names[0] == "x < -0.5, y < 0"
    assert model.state_names[3] == "-0.5 <= x < 0.5, y >= 0"


def test_values_and_names_are_numbered_in_order_of_first_sight() -> None:
    rows = batch(x=[3, 1, 3, 2], k=["b", "a", "b", "a"], f=[True, True, True, False], a=[0, 0, 0, 0])
    learner = Learner.new(Roles(("x", "k", "f"), "a"), None, [], 1.0)
    learner.read(rows)
    model = learner.model("m")
    assert model.valuations[:3] == ((3.0, "b", True), (1.0, "a", True), (2.0, "a", False))
    assert encode_state(model, "valuation", (2, "a", False)) == 2
    assert model.state_names[:2] == ("x=3, k=b, f=True", "x=1, k=a, f=True")
    named = Learner.new(Roles(("k",), "a"), None, [], 1.0)
    named.read(rows)
    assert named.model("m").state_names == ("b", "a", "elsewhere")


def test_actions_may_have_names() -> None:
    learner = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    learner.read(batch(x=[0, 1, 0], a=["left", "right", ""]))
    assert learner.model("m").action_names == ("left", "right")
    flags = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    flags.read(batch(x=[0, 1, 0], a=[True, False, True]))
    assert flags.model("m").actions == 2


def test_the_kind_of_a_state_is_that_of_its_columns() -> None:
    rng = np.random.default_rng(0)
    kinds = {"i": [0, 1], "f": [0.0, 1.0], "h": [0.5, 1.0], "t": ["a", "b"], "b": [True, False], "big": [0, 1 << 40]}
    rows = batch(**kinds)
    found = {name: chosen_kind(rows, (name,), "state", "") for name in kinds}
    assert found == {"i": "index", "f": "index", "h": "values", "t": "name", "b": "values", "big": "values"}
    assert chosen_kind(rows, ("i", "t"), "state", "") == "values"
    with pytest.raises(RecordingError, match=r"'x' of the state looks continuous .50 values in 50 rows.; bin it"):
        chosen_kind(batch(x=rng.normal(size=50)), ("x",), "state", "bin it")


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        ("index", ["a", "b"], "is text; whole numbers are needed"),
        ("index", [0, MAX_STATES], "is not an index"),
        ("index", [0, 0.5], "is not an index"),
        ("bins", ["a", "b"], "is text; its bins are for numbers"),
        ("values", [0.0, 2.0**60], "larger than 2"),
    ],
)
def test_values_that_no_number_fits_are_refused(kind: str, values: list[object], problem: str) -> None:
    edges = (np.array([-np.inf, np.inf]),) if kind == "bins" else ()
    states = Numbering(kind, ("x",), edges)  # type: ignore[arg-type]
    with pytest.raises(RecordingError, match=problem):
        states.encode(batch(x=values), ("x",))


def test_too_many_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = np.concatenate([[-np.inf], np.arange(3000.0), [np.inf]])
    with pytest.raises(ModelError, match="9,006,001 states are more than"):
        Numbering("bins", ("x", "y"), (edges, edges))
    monkeypatch.setattr("monitor.authoring.learning.abstraction.MAX_STATES", 3)
    with pytest.raises(ModelError, match="more than 3 different values; use --bins"):
        Numbering("values", ("x",)).encode(batch(x=[0.0, 1.0, 2.0, 3.0]), ("x",))


def test_levels_become_names_in_ascending_order_whatever_came_first() -> None:
    whole = batch(x=[0, 1, 2, 0, 1, 2, 0], a=[100, 0, 40, 0, 100, 40, 0])
    models = []
    for parts in (1, 7):
        learner = Learner.new(Roles(("x",), "a"), None, [], 1.0)
        for rows in np.array_split(np.arange(7), parts):
            learner.read(RowBatch({k: v[rows] for k, v in whole.columns.items()}, 1 + int(rows[0]), "f"))
        models.append(learner.model("m"))
    assert models[0].action_names == models[1].action_names == ("0", "40", "100")
    for state, action, successor in ((0, 2, 1), (1, 0, 2), (2, 1, 0), (0, 0, 1), (1, 2, 2)):
        for model in models:
            assert model.row(state, action)[0].tolist() == [successor]
    assert model_sha256(models[0]) == model_sha256(models[1])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([0, 1, 2], ()),
        ([1.0, np.nan, 0.0], ()),
        ([True, True, True], ()),
        ([1, 2, 3], ("1", "2", "3")),
        ([0, 2, 2], ("0", "2")),
        ([-1, 1, 0], ("-1", "0", "1")),
        ([1.0, 0.5, 0.5], ("0.5", "1")),
        ([0.0, np.nan, 40.0], ("0", "40")),
    ],
)
def test_actions_are_indices_only_if_they_are_all_of_them(values: list[float], names: tuple[str, ...]) -> None:
    learner = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    learner.read(batch(x=[0, 0, 0, 0], a=[*values, values[0]]))
    model = learner.model("m")
    assert model.action_names == names
    assert model.actions == len(names or {0, 1, 2} & {*range(3 if values == [0, 1, 2] else 2)})


def test_the_paths_of_levels_have_the_actions_of_the_model() -> None:
    learner, kept = Learner.new(Roles(("x",), "a"), None, [], 1.0), Collected(0, unsafe=np.zeros(0, np.bool_))
    for first, action in enumerate((40, 0, 100, 40, 0)):
        kept.add(learner.read(batch(x=[first % 2], a=[action])))
    [path] = paths_of(kept.every(), learner.where())
    assert path.actions.tolist() == [1, 0, 2, 1]


def test_actions_that_look_continuous_are_refused_at_once() -> None:
    rows = batch(x=np.zeros(500, np.int64), a=np.random.default_rng(0).normal(size=500))
    with pytest.raises(RecordingError, match=r"column 'a' of the action looks continuous .* name the few"):
        Learner.new(Roles(("x",), "a"), None, [], 1.0).read(rows)
    mixed = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    mixed.read(batch(x=[0, 1], a=[0, 40]))
    with pytest.raises(RecordingError, match="row 1: a = 'off' is text; numbers are needed"):
        mixed.read(batch(x=[0, 1], a=["off", "on"]))


def mixed(count: int = 500, seed: int = 5) -> RowBatch:
    rng = np.random.default_rng(seed)
    phase = rng.choice(["slack", "rush", "normal"], count)
    return batch(
        x=rng.normal(size=count).round(2), phase=phase, n=rng.integers(0, 3, count), a=np.zeros(count, np.int64)
    )


def binned(rows: RowBatch, columns: tuple[str, ...], spec: str) -> Numbering:
    kept = Reservoir(len(columns), np.random.default_rng(0))
    kept.read(rows, columns)
    return Numbering("bins", columns, edges_of(columns, parsed_bins(spec), kept), kept.texts)


def test_text_is_an_axis_of_bins_beside_numbers(tmp_path: Path) -> None:
    rows, columns = mixed(), ("x", "phase", "n")
    states = binned(rows, columns, "4q,n:3q")
    learner = Learner.new(Roles(columns, "a"), states, [], 1.0)
    learner.read(rows)
    save_model(learner.model("m"), tmp_path / "m.npz")
    model = load_model(tmp_path / "m.npz")
    known = tuple(dict.fromkeys(rows.columns["phase"].tolist()))
    assert model.bin_names == ((), known, ())
    assert states.size == 4 * 3 * (len(states.edges[2]) - 1)
    live = [tuple(each) for each in zip(*(rows.columns[name].tolist() for name in columns), strict=True)]
    slow = [
        (int(np.searchsorted(states.edges[0], x, side="right") - 1) * 3 + known.index(phase))
        * (len(states.edges[2]) - 1) + int(np.searchsorted(states.edges[2], n, side="right") - 1)
        for x, phase, n in live
    ]  # fmt: skip
    assert states.encode(rows, columns).tolist() == slow
    assert [encode_state(model, "bins", each) for each in live] == slow
    assert model.state_names[slow[0]].split(", ")[1] == f"phase = {live[0][1]}"
    save_learner(learner, tmp_path / "m.learn.npz")
    again = load_learner(tmp_path / "m.learn.npz").states
    assert again is not None
    assert again.encode(rows, columns).tolist() == slow


@pytest.mark.parametrize("phase", ["holiday", "", 1, True, None])
def test_a_text_that_was_never_recorded_is_no_state(phase: object) -> None:
    rows, columns = mixed(), ("x", "phase")
    learner = Learner.new(Roles(columns, "a"), binned(rows, columns, "4q"), [], 1.0)
    learner.read(rows)
    with pytest.raises(InputError, match="'slack'") as caught:
        encode_state(learner.model("m"), "bins", (0.0, phase))  # type: ignore[arg-type]
    assert caught.value.reason == "unknown_state"
    more = batch(x=[0.0, 0.1], phase=["rush", "holiday"], a=[0, 0])
    with pytest.raises(RecordingError, match="row 2: x, phase = 'holiday' has no bin: it was never recorded"):
        learner.read(more)


def test_text_without_a_value_is_missing_and_bins_for_text_are_refused() -> None:
    rows = batch(x=[0.0, 1.0, 2.0, np.nan], phase=["a", "", "b", "never"])
    states = binned(rows, ("x", "phase"), "2q")
    assert states.names == ((), ("a", "b")), "a text of rows that are left out has no bin"
    assert (states.encode(rows, ("x", "phase")) >= 0).tolist() == [True, False, True, False]
    with pytest.raises(ModelError, match="column 'phase' is text, and each text is a bin; give none for it"):
        binned(rows, ("x", "phase"), "x:2q,phase:2q")
    kept = Reservoir(1, np.random.default_rng(0))
    kept.read(batch(phase=["a"]), ("phase",))
    with pytest.raises(RecordingError, match="'phase' holds text in some places and numbers in others"):
        kept.read(batch(phase=[1.0]), ("phase",))


def test_states_that_hardly_come_again_are_no_states() -> None:
    rng = np.random.default_rng(1)
    many, few = rng.integers(0, 1000, 2000), rng.integers(0, 5, 2000)
    texts = rng.choice(["a", "b"], 2000)
    assert hardly_revisited(batch(x=many, k=texts), ("x", "k"))
    assert not hardly_revisited(batch(x=few, k=texts), ("x", "k"))
    assert not hardly_revisited(batch(x=many[:999], k=texts[:999]), ("x", "k")), "too few rows to say"
