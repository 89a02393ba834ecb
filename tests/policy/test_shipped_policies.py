"""The data in `policies/`: whole, as its provenance says, and made again to the byte by the scripts beside it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml

from monitor.model.io import load_model
from monitor.model.mdp import MDP
from monitor.model.npz import model_sha256
from monitor.policy import network
from monitor.policy.onnx_policy import load_network, load_policy

POLICIES = Path(__file__).parents[2] / "policies"
SEPSIS, LAKE = POLICIES / "icu-sepsis", POLICIES / "frozen-lake"
HOUSE, FOG = POLICIES / "heating", POLICIES / "ice-fog"


@pytest.fixture(scope="module")
def sepsis() -> MDP:
    return load_model(SEPSIS / "model.npz")


@pytest.fixture(scope="module")
def lake() -> MDP:
    return load_model(LAKE / "model.npz")


def script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shipped_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sepsis_model_is_what_its_provenance_says(sepsis: MDP) -> None:
    assert (sepsis.states, sepsis.actions, sepsis.probabilities.size) == (716, 25, 95_045)
    assert np.flatnonzero(sepsis.labels["death"]).tolist() == [713]
    assert np.flatnonzero(sepsis.labels["survival"]).tolist() == [714]
    assert all(sepsis.is_absorbing(s) for s in (713, 714, 715))
    assert sepsis.availability.sum() == 2313
    assert int((sepsis.availability.sum(axis=1) == 1).sum()) == 237
    assert sepsis.observations is not None
    assert sepsis.observations.shape == (716, 47)
    assert sepsis.initial is not None
    assert sepsis.initial[713:].sum() == 0
    for state, action in ((0, 0), (100, int(np.flatnonzero(sepsis.available(100))[0]))):
        successors, probabilities = sepsis.row(state, action)
        assert sepsis.rewards[state, action] == pytest.approx(probabilities[successors == 714].sum(), abs=1e-15)
    assert (SEPSIS / "model.npz").stat().st_size < 2_000_000


@pytest.mark.parametrize(
    ("name", "survival", "decisions"),
    [("deployed", 0.6864, 13.12), ("clinicians", 0.7820, 9.22), ("optimal", 0.8751, 10.99)],
)
def test_survival_is_what_the_provenance_says(sepsis: MDP, name: str, survival: float, decisions: float) -> None:
    found = script(SEPSIS / "make_policies.py").evaluated(sepsis, load_policy(SEPSIS / f"{name}.yaml", sepsis).table)
    assert found == pytest.approx((survival, decisions), abs=5e-3)
    assert found[0] == pytest.approx(survival, abs=5e-5)
    stated = (SEPSIS / "PROVENANCE.md").read_text()
    assert re.search(rf"`{name}` \|.*\| {survival:.4f} \| {decisions:.2f} \|", stated)


def test_the_clinicians_are_stochastic_and_the_others_are_not(sepsis: MDP) -> None:
    clinicians = load_policy(SEPSIS / "clinicians.yaml", sepsis).table.probabilities
    assert clinicians is not None
    assert int(((clinicians > 0).sum(axis=1) > 1).sum()) == 476
    for name in ("deployed", "optimal"):
        assert load_policy(SEPSIS / f"{name}.yaml", sepsis).table.actions is not None


@pytest.mark.parametrize(("name", "goal", "hole"), [("good", 0.8857, 0.0), ("rash", 0.0030, 0.9970)])
def test_the_lake_is_what_its_provenance_says(lake: MDP, name: str, goal: float, hole: float) -> None:
    table = load_policy(LAKE / f"{name}.yaml", lake).table
    assert script(LAKE / "make.py").outcomes(lake, table, 200) == pytest.approx((goal, hole), abs=5e-5)
    assert re.search(rf"`{name}` \|.*\| {goal:.4f} \| {hole:.4f} \|", (LAKE / "PROVENANCE.md").read_text())


def test_the_sepsis_script_makes_the_same_bytes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setattr(sys, "argv", ["make_policies.py", "--out", str(tmp_path)])
    script(SEPSIS / "make_policies.py").main()
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["deployed.onnx", "deployed.yaml", "optimal.onnx", "optimal.yaml"]
    assert all((tmp_path / name).read_bytes() == (SEPSIS / name).read_bytes() for name in made)


def test_the_lake_script_makes_the_same_bytes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("gymnasium")
    monkeypatch.setattr(sys, "argv", ["make.py", "--out", str(tmp_path)])
    script(LAKE / "make.py").main()
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["good.onnx", "good.yaml", "model.npz", "rash.onnx", "rash.yaml"]
    for name in made:
        if name != "model.npz":  # its compressed form is zlib's; the model in it is compared below
            assert (tmp_path / name).read_bytes() == (LAKE / name).read_bytes()
    made_model, shipped = load_model(tmp_path / "model.npz"), load_model(LAKE / "model.npz")
    assert np.array_equal(made_model.probabilities, shipped.probabilities)
    assert np.array_equal(made_model.successors, shipped.successors)


def test_a_wheel_that_was_altered_is_not_converted() -> None:
    pytest.importorskip("onnx")
    with pytest.raises(SystemExit, match="SHA-256 differs"):
        script(SEPSIS / "convert.py").read_wheel(b"something else")


def model_beside(manifest: Path) -> Path:
    """A folder with several models names them as its manifests begin."""
    own = manifest.parent / f"{manifest.stem.split('-')[0]}.npz"
    return own if own.is_file() else manifest.parent / "model.npz"


@pytest.mark.parametrize("batch", [1, 7, 256])
def test_shipped_networks_give_the_same_bits_in_any_batch(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sorted(path for path in POLICIES.glob("*/*.yaml") if path.parent not in (HOUSE, FOG))
    assert len(found) == 15
    models = [load_model(model_beside(path)) for path in found]
    monkeypatch.setattr(network, "_BATCH", 1024)
    wholes = [load_policy(path, model).table for path, model in zip(found, models, strict=True)]
    monkeypatch.setattr(network, "_BATCH", batch)
    for path, model, whole in zip(found, models, wholes, strict=True):
        network_of = load_network(path, model)
        parts = [network_of.choose(np.arange(i, min(i + batch, model.states))) for i in range(0, model.states, batch)]
        expected = whole.actions if whole.probabilities is None else whole.probabilities
        assert expected is not None
        assert np.array_equal(expected, np.concatenate(parts))


def test_every_manifest_names_a_file_beside_it_and_where_it_is_from() -> None:
    for path in sorted(set(POLICIES.glob("*/*.yaml")) - {HOUSE / "world.yaml"}):
        described = yaml.safe_load(path.read_text())
        assert (path.parent / described["file"]).is_file()
        assert "PROVENANCE.md" in described["provenance"]
        assert (path.parent / "PROVENANCE.md").is_file()


def test_the_house_is_what_its_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setattr("sys.argv", ["make.py", "--out", str(tmp_path)])
    script(HOUSE / "make.py").main()
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (HOUSE / made.name).read_bytes(), made.name
    stated = (HOUSE / "PROVENANCE.md").read_text()
    for line in capsys.readouterr().out.splitlines():
        name, cold = re.fullmatch(r"(\w+): cold in (\d+ of \d+) quarters of an hour", line).groups()  # type: ignore[union-attr]
        assert re.search(rf"`{name}` \|.*\| {cold} \|", stated)


def test_the_ice_is_what_its_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setattr("sys.argv", ["make_ice.py", "--out", str(tmp_path)])
    script(FOG / "make_ice.py").main()
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["careful.json", "careful.yaml", "hasty.onnx", "hasty.yaml", "model.npz"]
    for name in made:
        if name != "model.npz":  # its compressed form is zlib's
            assert (tmp_path / name).read_bytes() == (FOG / name).read_bytes(), name
    made_model, shipped = load_model(tmp_path / "model.npz"), load_model(FOG / "model.npz")
    assert model_sha256(made_model) == model_sha256(shipped)
    stated = (FOG / "PROVENANCE.md").read_text()
    for line in capsys.readouterr().out.splitlines():
        found = re.fullmatch(r"(\w+): within 200 steps back at home (\S+), in the water (\S+)", line)
        assert found is not None
        name, home, water = found.groups()
        assert re.search(rf"`{name}` \|.*\| {home} \| {water} \|", stated)
