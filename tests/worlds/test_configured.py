"""Worlds in configurations and evidence: Python files, other worlds, policies that fail, damaged bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from monitor import Monitor, load_world
from monitor.errors import ConfigError, ModelError, PolicyError
from monitor.evaluation.models import bytes_of, model_of, sha256_of
from monitor.evaluation.uniform_rows import CELLS, NoiseRows
from monitor.sidecar.config.load import assemble
from monitor.types import FormulaSpec, Step, StreamSettings
from monitor.worlds import CheckedWorld
from monitor.worlds.content import name_in_python, of_manifest, of_python
from monitor.worlds.world_policies import as_world_policy
from tests.worlds.samples import Tank

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "policies" / "heating"
PYTHON = '''
import numpy as np
from monitor import Feature

class House:
    """The room alone, warmed or not."""
    features = (Feature("room"), Feature("store", low=5, high=95), Feature("price", low=0, high=2))
    actions, labels, inputs, noise, version = ("off", "low", "high"), ("cold",), ("outside", "next_price"), 1, "mine 1"

    def step(self, x, a, u, w):
        moved = x.copy()
        moved[:, 0] += 0.02 * a + 0.1 * (u[:, 0] - 0.5)
        return moved

    def invert(self, x, a, x_next, w):
        return (x_next[:1] - x[:1] - 0.02 * a) / 0.1 + 0.5

    def forecast(self, w):
        return w

    def holds(self, label, x):
        return x[:, 0] < 18
'''


def configured(folder: Path, model: str, **changes: str) -> Path:
    """The shipped configuration with another model, in a folder."""
    for file in HOUSE.glob("c*.*"):
        shutil.copy(file, folder)
    text = (ROOT / "config" / "heating.yaml").read_text().replace("../policies/heating/world.yaml", model)
    text = text.replace("../policies/heating/", "").replace("../var/heating/cfmon.sqlite", "null")
    for old, new in changes.items():
        text = text.replace(f"{old}: ", f"{new}: ") if old == new else text.replace(old, new)
    (folder / "config.yaml").write_text(text)
    return folder / "config.yaml"


def test_a_world_in_a_python_file_is_monitored_and_its_source_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PYTHON)
    loaded = assemble(configured(tmp_path, "mine.py:House"), {})
    assert isinstance(loaded.model, CheckedWorld)
    content = loaded.objects()[loaded.identity.model_sha256]
    assert msgpack.unpackb(content) == ["world in Python", "mine.py:House", PYTHON.encode()]
    with pytest.raises(ModelError, match="written in Python, and code that comes with evidence is not run"):
        model_of(content, "evidence")
    with pytest.raises(ConfigError, match="this needs a table"):
        _ = loaded.mdp


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("state_encoder: features", "state_encoder: index", "must be features: it is a world"),
        ("mine.py:House", "../policies/none.yaml", "missing"),
        ("careful@8", "ghost@8", "ghost"),
        ("model: ", "model: ", ""),
    ],
)
def test_mistakes_of_a_configuration_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    (tmp_path / "mine.py").write_text(PYTHON)
    config = configured(tmp_path, "mine.py:House")
    config.write_text(config.read_text().replace(old, new))
    if not words:
        assert assemble(config, {}).formulas
        return
    with pytest.raises((ConfigError, ModelError), match=words):
        assemble(config, {})


def test_formulas_from_a_store_are_those_of_the_configuration() -> None:
    loaded = assemble(HOUSE.parents[1] / "config" / "heating.yaml", {})
    again = loaded.with_formulas(loaded.formulas)
    assert again.formulas == loaded.formulas
    assert again.monitor.queries == loaded.monitor.queries


def test_features_are_for_worlds(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "policies" / "frozen-lake", tmp_path / "policies" / "frozen-lake")
    (tmp_path / "config").mkdir()
    text = (ROOT / "config" / "frozen-lake.yaml").read_text().replace("state_encoder: index", "state_encoder: features")
    (tmp_path / "config" / "lake.yaml").write_text(text)
    with pytest.raises(ConfigError, match="is for worlds with numbers, and the model is a table"):
        assemble(tmp_path / "config" / "lake.yaml", {})


def test_a_manifest_s_world_comes_back_from_its_bytes_alone() -> None:
    world = load_world(HOUSE / "world.yaml")
    again = model_of(bytes_of(world), "evidence")
    assert isinstance(again, CheckedWorld)
    assert sha256_of(again) == sha256_of(world)
    state, noise = np.array([[20.0, 50.0, 0.2]]), np.full((1, 2), 0.3)
    one, other = (each.step(state, np.array([1]), noise, (3.0, 0.2)) for each in (world, again))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xc1", "damaged"),
        (b"\x05", "damaged"),
        (msgpack.packb(["world manifest", 1, {}]), "damaged"),
        (msgpack.packb([1, 2, 3]), "damaged"),
        (of_manifest((HOUSE / "world.yaml").read_bytes(), {}), "missing or altered"),
        (of_python("a.py:A", b""), "code that comes with evidence is not run"),
    ],
)
def test_bytes_that_are_no_world_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        model_of(content, "evidence")


def test_the_name_of_a_world_in_python_is_in_its_bytes() -> None:
    content = of_python("a.py:A", b"source")
    assert name_in_python(content) == "a.py:A"
    assert name_in_python(bytes_of(load_world(HOUSE / "world.yaml"))) == ""
    assert name_in_python(b"PK and a table") == ""
    with pytest.raises(ModelError, match="damaged"):
        name_in_python(content[:-1])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (lambda x: np.full(len(x), 7), "needs an action below 2"),
        (lambda x: np.full((len(x), 3), 1 / 3), "needs an action below 2"),
        (lambda x: x / 0, "fails"),
        (lambda x: {0: 1}[1], "KeyError"),
    ],
)
def test_a_policy_that_does_not_decide_is_named(policy: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words), np.errstate(all="raise"):
        as_world_policy("odd", policy, load_world(Tank)).likely((6.0,))


def test_a_distribution_is_as_likely_as_it_says() -> None:
    mixed = as_world_policy("mixed", lambda x: np.tile([0.25, 0.75], (len(x), 1)), load_world(Tank))
    assert mixed.choices((6.0,)) == [(0, 0.25), (1, 0.75)]
    monitor = Monitor(Tank, {"nominal": mixed}, [FormulaSpec("f", '"overflow"')], StreamSettings(encoder="features"))
    assert monitor.queries[0].spec.causal_model == "world"


class Drawn(Tank):
    """A tank whose noise comes back as draws."""

    def invert(self, x: Any, a: int, x_next: Any, w: Any) -> Any:
        return None

    def posterior(self, x: Any, a: int, x_next: Any, w: Any, rng: np.random.Generator, n: int) -> Any:
        low, high = (np.broadcast_to(each, (1,)) for each in self._ends(x, a, x_next, w))
        return np.clip(low + (high - low) * rng.uniform(size=(n, 1)), 1e-12, 1 - 1e-12), np.full(n, 1.0)

    def _ends(self, x: Any, a: int, x_next: Any, w: Any) -> Any:
        found = Tank.invert(self, x, a, x_next, w)
        return found if isinstance(found, tuple) else (found, found)


def test_the_noise_of_a_posterior_is_tested_by_one_draw() -> None:
    rows = NoiseRows(load_world(Drawn))
    before, after = (Step("e", seq, (level,), 0, 0.0, inputs=(1.0,)) for seq, level in enumerate((5.0, 5.93)))
    assert list(rows.transitions("a", before, after)) == [(0, CELLS // 4)]
    assert rows.state_names[0] == "noise 0"
    full = [Step("e", 0, (9.0,), 0, 0.0, inputs=(1.1,)), Step("e", 1, (10.0,), 0, 0.0, inputs=(1.1,))]
    found = {next(iter(rows.transitions(f"a{k}", *full)))[1] for k in range(40)}
    assert found == {0, 1, 2, 3}
