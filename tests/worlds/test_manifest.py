"""Worlds from manifests: the same as the same world written in Python, and each mistake one clear line."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from onnx import TensorProto
from scipy.stats import kstest, norm, t

from monitor.errors import ConfigError, ModelError, PathError
from monitor.evaluation import check, recourse
from monitor.runtime.monitor import Monitor
from monitor.types import StreamSettings
from monitor.worlds import Moment, load_world
from monitor.worlds.distributions import Empirical, Normal, Student
from monitor.worlds.feature_conditions import compiled
from monitor.worlds.location_scale import world_of
from tests.worlds.graphs import linear, network, world_files
from tests.worlds.samples import NumberLine, number_rule

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "reference/dynamics_cases.json").read_text())


def number_line(folder: Path, case: dict[str, Any]) -> Path:
    whole = case["family"] == "whole"
    x: dict[str, Any] = {"name": "x"} | ({"low": 0, "high": case["N"], "whole": True, "clip": True} if whole else {})
    manifest = {"features": [x], "actions": ["hold", "push"], "location": "file:location", "scale": [case["s"]]}
    push = np.array(case["push"])[:, np.newaxis]
    location = linear({"x": [[case["keep"]]], "a": push}, [case["base"]])
    return world_files(folder, manifest | {"labels": {"hot": f"x >= {case['hot']}"}}, location=location)


@pytest.mark.parametrize("family", ["whole", "real"])
def test_a_manifest_is_the_same_world_as_its_class(tmp_path: Path, family: str) -> None:
    case = next(each for each in CASES if each["family"] == family and each["offset"] > 1)
    policies = {name: number_rule(case, name) for name in ("nominal", "alternative")}
    text = f'alternative@{case["offset"]}.P=? [ F<={case["horizon"]} "hot" ]'
    path = [([x], a) for x, a in case["path"]]
    files = load_world(number_line(tmp_path, case))
    written, given = (check(text, model=each, path=path, policies=policies) for each in (files, NumberLine(case)))
    assert written.value == pytest.approx(given.value, abs=2e-3)
    assert written.tiers == given.tiers


def test_a_path_is_taken_wherever_a_world_is(tmp_path: Path) -> None:
    case = next(each for each in CASES if each["family"] == "real")
    manifest = number_line(tmp_path, case)
    policies = {"nominal": number_rule(case, "nominal")}
    about: dict[str, Any] = {"path": [([x], a) for x, a in case["path"]], "policies": policies}
    world = check('P=? [ X "hot" ]', model=load_world(manifest), **about)
    for given in (manifest, str(manifest)):
        assert check('P=? [ X "hot" ]', model=given, **about) == world
        assert Monitor(given, policies, ["true"], StreamSettings(encoder="features")).queries
    with pytest.raises(ModelError, match=r"there is no .*other\.yaml"):
        check("true", model=tmp_path / "other.yaml", **about)


@pytest.mark.parametrize(
    ("model", "given"), [("tank.npz", "str 'tank.npz'"), (Path("x"), "Path"), (dict, "the class dict"), (5, "int 5")]
)
def test_what_is_no_model_is_said_alike(model: Any, given: str) -> None:
    about: dict[str, Any] = {"model": model, "policies": {"nominal": [0]}}
    says = f"model: .* an MDP.*, not .*{given}.*; monitor.load_model reads an MDP from a file"
    with pytest.raises(ConfigError, match=says):
        check("true", path=[(0, 0)], **about)
    with pytest.raises(ConfigError, match=says):
        recourse("P>=1 [ true ]", path=[(0, 0)], **about)
    with pytest.raises(ConfigError, match=says):
        Monitor(formulas=["true"], **about)


MIXED: dict[str, Any] = {
    "features": [
        {"name": "level", "unit": "m", "low": 0, "high": 10, "clip": True},
        {"name": "mode", "values": ["idle", "busy", "down"], "probabilities": "file:mode"},
        {"name": "count", "low": 0, "high": 30, "whole": True, "clip": True},
    ],
    "actions": ["shut", "open"],
    "inputs": [{"name": "rain", "low": 0}],
    "location": "file:location",
    "scale": "file:scale",
    "noise": {"level": {"student": 4}, "count": {"residuals": [-1.0, -0.2, 0.1, 0.3, 1.2, 2.0]}},
    "labels": {"late": "level >= 9 and not mode == 'down'", "calm": "0 < count <= 3 or mode != 'busy'"},
    "learned": True,
}
MIXED_GRAPHS = {
    "location": linear({"x": [[0.9, 0], [0.1, 1], [0, 0.8]], "a": [[0, 0], [-1, 1]], "w": [[1, 0.5]]}, [0.1, 0.2]),
    "scale": linear({"a": [[0.3, 1.0], [0.5, 0.0]]}, [0, 0]),  # by the second action the count has no noise
    "mode": linear(
        {"x": [[0, 0.1, 0.2], [0.5, 0, 0], [0, 0, 0]], "a": [[0, 0, 1], [1, 0, 0]]}, [0, 0, 0], softmax=True
    ),
}


def mixed(folder: Path, **other: Any) -> Path:
    graphs = {key: value for key, value in other.items() if isinstance(value, bytes)}
    parts = {key: value for key, value in other.items() if key not in graphs}
    return world_files(folder, MIXED | parts, **(MIXED_GRAPHS | graphs))


def test_a_step_that_no_noise_explains_names_the_feature_and_what_to_do(tmp_path: Path) -> None:
    world = load_world(mixed(tmp_path, scale=linear({"a": [[0.3, 0.2], [0.5, 0.0]]}, [0, 0])))
    before = Moment((3.0, 0.0, 10.0), 0, (1.0,))  # location: level 0.9 * 3 + 1 + 0.1, count 0.8 * 10 + 0.5 + 0.2
    assert world.abduce(before, (3.9, 0.0, 9.0)).low[0] == pytest.approx(t.cdf(0.1 / 0.3, 4))
    reach = t.ppf(2.0**-53, 4)
    for after, says in (
        (
            (3.9, 0.0, 29.0),
            r"count=29 is \+102 scales from its location 8.7, outside its noise \(-.* to .*\), as learned",
        ),
        ((9.8, 0.0, 29.0), r"count=29 is"),
    ):
        with pytest.raises(PathError, match=says) as found:
            world.abduce(before, after)
        assert str(found.value).startswith(
            "no noise of world 'test 1' leads from level=3 m mode=idle count=10 by 'shut' to"
        )
        assert str(found.value).endswith(
            "; check the sensor, learn again with such steps, or widen scale or noise in the manifest"
        )
    assert reach < -1000.0, "a Student's noise reaches far, so the level is not what is impossible above"
    with pytest.raises(PathError, match=r"count=8 is not 9.7\d*, and has no noise, as learned"):
        world.abduce(before._replace(action=1), (3.0, 0.0, 8.0))


def test_a_value_without_probability_is_named(tmp_path: Path) -> None:
    never = linear({"x": [[0, 0, 0]] * 3}, [0.5, 0.5, 0])
    world = load_world(mixed(tmp_path, mode=never, learned=False))
    with pytest.raises(PathError, match="its graph gives mode=down no probability; check the sensor or wid"):
        world.abduce(Moment((3.0, 0.0, 10.0), 0, (1.0,)), (3.9, 2.0, 9.0))


def test_all_that_a_manifest_can_say(tmp_path: Path) -> None:
    world = load_world(mixed(tmp_path))
    rng = np.random.default_rng(0)
    states = np.column_stack([rng.uniform(0, 10, 50), rng.integers(0, 3, 50), rng.integers(0, 31, 50)])
    noise, tiers = rng.uniform(1e-3, 1 - 1e-3, (50, 3)), set()
    for action in (0, 1):
        moved = world.step(states, np.full(50, action), noise, (1.0,))
        for n in range(50):
            found = world.abduce(Moment(tuple(states[n].tolist()), action, (1.0,)), tuple(moved[n].tolist()))
            assert (found.low - 1e-7 <= noise[n]).all()
            assert (noise[n] <= found.high + 1e-7).all()
            assert action == 0 or (found.low[2], found.high[2]) == (0.0, 1.0)  # its scale is 0: no noise moved it
            tiers.add(bool(found.low[0] == found.high[0]))
    assert tiers == {True, False}  # a point, or where it was clipped an interval
    assert world.learned
    assert world.holds("late", np.array([[9.0, 1, 0], [9.0, 2, 0]])).tolist() == [True, False]
    assert world.holds("calm", np.array([[0.0, 1, 3], [0.0, 1, 4], [0.0, 0, 4]])).tolist() == [True, False, True]


def test_paths_may_name_values_and_features(tmp_path: Path) -> None:
    world = load_world(mixed(tmp_path))
    policies = {"nominal": lambda x: np.zeros(len(x), dtype=int)}
    numbers = [([5.0, 0, 3], "shut", [1.0]), ([5.8, 1, 4], "shut", [0.0])]
    named = [
        ({"mode": "idle", "count": 3, "level": 5.0}, "shut", {"rain": 1.0}),
        ([5.8, "busy", 4], "shut", {"rain": np.float64(0.0)}),
    ]
    one, other = (check('@1.P=? [ F<=2 "calm" ]', model=world, path=p, policies=policies) for p in (numbers, named))
    assert one == other
    assert world.shown((5.0, 2.0, 3.0)) == "level=5 m mode=down count=3"
    assert world.outside((5.0, 0.5, 3.0)) == "mode=0.5, which is no whole number"
    with pytest.raises(PathError, match="mode='lazy', which is no number, and none of idle, busy, down"):
        check('"calm"', model=world, path=[([5.0, "lazy", 3], "shut", [1.0])], policies=policies)


def test_named_values_alone_need_no_location(tmp_path: Path) -> None:
    manifest = {"features": [MIXED["features"][1]], "actions": ["go"], "labels": {"down": "mode == 'down'"}}
    mode = linear({"x": [[0.1, 0.2, 0.3]], "a": [[0, 0, 1]]}, [0] * 3, softmax=True)
    world = load_world(world_files(tmp_path, manifest, mode=mode))
    chances = np.exp([0.1, 0.2, 1.3]) / np.exp([0.1, 0.2, 1.3]).sum()
    count = 5_000  # more than a batch
    noise = (np.arange(count)[:, np.newaxis] + 0.5) / count
    moved = world.step(np.ones((count, 1)), np.zeros(count, dtype=np.int64), noise, ())
    assert np.allclose(np.bincount(moved[:, 0].astype(int)) / count, chances, atol=1e-3)
    found = world.abduce(Moment((1.0,), 0), (1.0,))
    assert (found.low[0], found.high[0]) == (pytest.approx(chances[0]), pytest.approx(chances[:2].sum()))


def test_a_verdict_says_all_that_is_known_of_the_noise(tmp_path: Path) -> None:
    world = load_world(mixed(tmp_path))
    path = [([5.0, 0, 3], "shut", [1.0]), ([5.8, 1, 4], "shut", [0.0]), ([5.4, 1, 3], "shut", [0.0])]
    policies = {"nominal": lambda x: np.zeros(len(x), dtype=int), "other": lambda x: np.ones(len(x), dtype=int)}
    verdict = check('other@2.P=? [ F<=4 "late" ]', model=world, path=path, policies=policies)
    assert verdict.tiers == ("recorded", "interval", "learned")


def test_networks_as_step_and_policy(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    manifest = {
        "features": [{"name": name} for name in "abcd"],
        "actions": ["n", "p"],
        "location": "file:location",
        "scale": [0.2] * 4,
        "labels": {"far": "a > 1"},
    }
    world = load_world(world_files(tmp_path, manifest, location=network(rng, {"x": 4, "a": 2}, 4)))
    content = network(rng, {"x": 4}, 2)
    (tmp_path / "policy.onnx").write_bytes(content)
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"file: policy.onnx\nsha256: {sha256(content).hexdigest()}\ninput: {{name: x, kind: observation}}\n"
        "output: {name: y, kind: logits}\nmode: greedy\n"
    )
    policies = {"careful": path, "nominal": lambda x: np.zeros(len(x), dtype=int)}
    states = [np.zeros(4)]
    for _ in range(3):
        moved = world.step(states[-1][np.newaxis], np.array([0]), rng.uniform(size=(1, 4)), ())
        states.append(moved[0])
    text = 'careful@2.P=? [ F<=6 "far" ]'
    verdict = check(text, model=world, path=[(x, 0) for x in states], policies=policies)
    again = check(text, model=world, path=[(x, 0) for x in states], policies=policies)
    assert verdict == again
    assert (verdict.method, verdict.tiers) == ("sampled", ("point",))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"actions": ["a", "a"]}, "each name of features and inputs, and of actions, is needed once"),
        ({"noise": {"flow": "normal"}}, "noise of flow: no such feature"),
        ({"noise": {"level": {"student": 4, "residuals": [1, 2]}}}, "give one of student and residuals"),
        ({"noise": {"level": {"residuals": [1.0, 1.0]}}}, "two or more different numbers, or a bandwidth"),
        ({"scale": [1.0]}, "scale has 1 numbers for 2 features"),
        ({"speed": 3}, "speed: Extra inputs are not permitted"),
        ({"location": {"file": "../x.onnx", "sha256": "0" * 64}}, "must name a file inside the manifest's own folder"),
        ({"location": {"file": "location.onnx", "sha256": "0" * 64}}, "location.onnx was altered: its SHA-256 is"),
        ({"location": {"file": "none.onnx", "sha256": "0" * 64}}, "its file is missing: there is no"),
        (
            {"inputs": [], "recorded_inputs": {"file": "r.csv", "sha256": "0" * 64}},
            "recorded_inputs are those of inputs",
        ),
        ({"recorded_inputs": {"file": "none.csv", "sha256": "0" * 64}}, "its file is missing: there is no .*none.csv"),
        ({"labels": {"late": "level >="}}, "label 'late': 'level >=' is not a condition"),
        ({"labels": {"late": "depth >= 3"}}, "'depth' is no number, no feature .level, mode, count."),
        ({"labels": {"late": "mode == 'off'"}}, "\"'off'\" is no number"),
        ({"labels": {"late": "level + 1"}}, "'level . 1' is not a comparison; write one such as level >= 9"),
        ({"labels": {"late": "level < " + "1" * 5000}}, "at most 4,096 characters"),
        ({"features": [{"name": "x", "low": 2, "high": 1}]}, "low comes first"),
        ({"features": [{"name": "x", "values": ["a", "b"]}]}, "values and probabilities belong together"),
        ({"location": linear({"z": [[1]]}, [0])}, "its input 'z' is tensor.double. of shape"),
        ({"location": linear({"w": [[1]]}, [0])}, r"its output has shape \(8, 1\), not \(8, 2\)"),
        ({"location": linear({"w": [[np.inf, 1]]}, [0, 0])}, "not .8, 2. finite numbers"),
        ({"location": linear({"w": [[1, 1]]}, [0, 0], kind=TensorProto.INT64)}, "its input 'w' is tensor.int64."),
        ({"location": b"no graph"}, "not an ONNX file"),
        ({"location": linear({"w": [[1, 1]]}, [0, 0], twice=True)}, "1 inputs and 2 outputs; one output is needed"),
        ({"location": linear({"w": [[1, 1]]}, np.zeros((3, 2)))}, "onnxruntime cannot evaluate it"),
        (
            {"features": [{"name": "x", "values": ["a", "a"], "probabilities": "file:mode"}]},
            "two or more different names",
        ),
        ({"features": [MIXED["features"][1] | {"low": 0}]}, "named values are not rounded, clipped or bounded"),
        ({"location": None}, "location is for the features without named values"),
        ({"reward": linear({"w": [[1]]}, [0])}, "its input 'w' is .*; inputs are floats among x .*, x_next"),
        ({"reward": linear({"x_next": [[1, 1]] * 3}, [0, 0])}, r"reward.onnx: its output has shape .8, 2., not .8, 1."),
        ({"scale": linear({"w": [[-1, 0]]}, [-1, 0])}, "the scale graph gives -.*; a scale is 0 or more"),
        ({"mode": linear({"w": [[1, 1, 1]]}, [0, 0, 0])}, "end the graph with a softmax"),
    ],
)
def test_each_mistake_is_one_clear_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    parts = {
        key: f"file:{key}" if isinstance(value, bytes) and key != "mode" else value for key, value in change.items()
    }
    graphs = {key: value for key, value in change.items() if isinstance(value, bytes)}
    parts = {key: value for key, value in parts.items() if not isinstance(value, bytes)}
    with pytest.raises(ModelError, match=says) as found:
        load_world(world_files(tmp_path, MIXED | parts, **(MIXED_GRAPHS | graphs)))
    assert str(found.value).startswith("world ")
    assert "\n" not in str(found.value)


def test_a_file_that_is_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"world .*none.yaml is missing"):
        load_world(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ModelError, match="the top of the file must be"):
        load_world(str(tmp_path / "list.yaml"))


def test_a_table_of_the_same_residuals_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    residuals, u = np.random.default_rng(44).normal(size=50).tolist(), np.linspace(0.01, 0.99, 20)
    first, others = Empirical(residuals), Empirical(residuals, 0.3)
    monkeypatch.setattr("monitor.worlds.distributions.ndtr", None)
    assert np.array_equal(Empirical(list(residuals)).quantile(u), first.quantile(u))
    assert np.array_equal(Empirical(residuals, 0.3).quantile(u), others.quantile(u))
    assert not np.array_equal(first.quantile(u), others.quantile(u))
    with pytest.raises(TypeError):
        Empirical([*residuals, 1.0])


def test_distributions_invert_their_quantiles() -> None:
    u = np.linspace(1e-4, 1 - 1e-4, 999)
    residuals = np.random.default_rng(1).normal(size=400)
    for each in (Normal(), Student(3.0), Empirical(residuals.tolist()), Empirical([0.0, 0.0, 50.0], 0.1)):
        assert np.allclose(each.cumulative(each.quantile(u)), u, atol=1e-9)
        assert each.cumulative(np.array([-np.inf, np.inf])).tolist() == [0.0, 1.0]
    for each in (Empirical(residuals.tolist()), Empirical([-1, -0.5, 0, 0.5, 1, 20], 0.4)):  # also where none was seen
        reach = 15 * max(residuals.std(), 1)
        z = np.linspace(-reach, reach, 999)
        assert np.allclose(each.quantile(each.cumulative(z)), z, rtol=0, atol=1e-6)
        assert (np.diff(each.cumulative(z)) > 0).all()
    assert np.allclose(Normal().quantile(u), norm.ppf(u))
    assert np.allclose(Student(3.0).quantile(u), t(3).ppf(u))
    smoothed = Empirical(residuals.tolist()).quantile(np.random.default_rng(2).uniform(size=2_000))
    assert kstest(smoothed, "norm").statistic < 0.08


def test_a_condition_is_no_code() -> None:
    for text in ("__import__('os')", "x.y > 1", "x[0] > 1", "True", "x > True", "x in (1, 2)", "lambda: 1"):
        with pytest.raises(ModelError, match="label"):
            compiled(text, ["x"], {}, "label")


def with_fits(folder: Path, keeps: list[float], **changes: Any) -> Path:
    """A plant whose level falls to a part of what it was, and fits of that part in a folder of their own."""
    (folder / "fits").mkdir()
    plain = {"features": [{"name": "level"}], "actions": ["shut", "open"], "location": "file:location", "scale": [0.1]}
    pinned = []
    for n, keep in enumerate(keeps):
        (folder / "fits" / str(n)).mkdir()
        path = world_files(folder / "fits" / str(n), plain | changes, location=linear({"x": [[keep]]}, [0.0]))
        pinned.append({"file": str(path.relative_to(folder)), "sha256": sha256(path.read_bytes()).hexdigest()})
    return world_files(folder, plain | {"learned": True, "fits": pinned}, location=linear({"x": [[0.9]]}, [0.0]))


def test_fits_are_worlds_and_are_kept_in_the_bytes_of_the_world(tmp_path: Path) -> None:
    world = load_world(with_fits(tmp_path, [0.8, 0.85]))
    for each in (world, load_world(world_of(world.content, "evidence"))):
        moved = [fit.step(np.array([[10.0]]), np.array([0]), np.array([[0.5]]), ())[0, 0] for fit in each.fits]
        assert moved == pytest.approx([8.0, 8.5])
        assert each.content == world.content


def test_ranges_and_labels_are_those_of_the_world_which_its_user_may_correct(tmp_path: Path) -> None:
    path = with_fits(tmp_path, [0.8, 0.85], labels={"low": "level < 1"})
    given = yaml.safe_load(path.read_text())
    given |= {"features": [{"name": "level", "low": 0, "high": 9, "clip": True}], "labels": {"low": "level < 5"}}
    path.write_text(yaml.safe_dump(given))
    world = load_world(path)
    for fit in world.fits:
        assert fit.features == world.features
        assert fit.step(np.array([[0.0]]), np.array([0]), np.array([[0.1]]), ())[0, 0] == 0.0, "cut off"
        assert fit.holds("low", np.array([[4.0], [6.0]])).tolist() == [True, False]


def test_each_mistake_of_a_fit_is_reported(tmp_path: Path) -> None:
    path = with_fits(tmp_path, [0.8, 0.85])
    graph = tmp_path / "fits" / "1" / "location.onnx"
    original = graph.read_bytes()
    graph.write_bytes(linear({"x": [[0.7]]}, [0.0]))
    with pytest.raises(ModelError, match=r"fits/1/location.onnx was altered"):
        load_world(path)
    graph.unlink()
    with pytest.raises(ModelError, match=r"is missing: there is no .*fits/1/location.onnx"):
        load_world(path)
    graph.write_bytes(original)
    manifest = tmp_path / "fits" / "0" / "world.yaml"
    manifest.write_text(manifest.read_text().replace("0.1", "0.2"))
    with pytest.raises(ModelError, match=r"fits/0/world.yaml was altered"):
        load_world(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"actions": ["shut"]}, "fit 1 has other action names than the world"),
        ({"features": [{"name": "volume"}]}, "fit 1 has other features than the world"),
        ({"scale": [0]}, "fit 1 has other noise than the world"),
        (
            {"fits": [{"file": "a.yaml", "sha256": "0" * 64}] * 2},
            "it is a fit; take fits, recorded_inputs and reward out",
        ),
    ],
)
def test_a_fit_is_of_the_same_world(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load_world(with_fits(tmp_path, [0.8, 0.85], **changes))
