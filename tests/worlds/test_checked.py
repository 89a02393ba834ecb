"""What is wrong with a world is one error that says what, where and how to fix it, before anything is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from monitor import load_policy, save_model
from monitor.errors import LimitError, ModelError, PathError, PolicyError
from monitor.evaluation.uniform_rows import NoiseRows
from monitor.worlds import Feature, Moment, load_world
from tests.worlds.samples import Tank

Floats = Any


class Drift:
    """x' = x + a + z, z normal."""

    features = ("x",)
    actions = ("stay", "go")
    labels = ("far",)
    noise = 1
    version = "drift 1"

    def step(self, x: Floats, a: Any, u: Floats, w: Floats) -> Any:
        return x + a[:, np.newaxis] + ndtri(u)

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Any:
        return ndtr(x_next - x - a)

    def holds(self, label: str, x: Floats) -> Any:
        return x[:, 0] > 2.0


def changed(**parts: Any) -> Any:
    return type("Changed", (Drift,), parts)


def test_a_class_and_an_instance_are_the_same_world() -> None:
    world = load_world(Drift)
    assert load_world(world) is world
    assert (world.features, world.actions, world.noise) == (load_world(Drift()).features, 2, 1)
    assert world.features == (Feature("x"),)


@pytest.mark.parametrize("given", [("x",), [0], (np.int64(0),)])
def test_noise_names_the_feature_that_it_drives(given: Any) -> None:
    world = load_world(changed(noise_features=given))
    assert world.noise_features == (0,)
    assert NoiseRows(world).state_names == ("x",) * 3
    assert NoiseRows(load_world(Drift)).state_names == ("noise 0",) * 3


class Counting(Drift):
    """Not a function of its arguments."""

    calls = 0

    def step(self, x: Floats, a: Any, u: Floats, w: Floats) -> Any:
        Counting.calls += 1
        return super().step(x, a, u, w) + Counting.calls


class Mixing(Drift):
    """Depends on its neighbours."""

    def step(self, x: Floats, a: Any, u: Floats, w: Floats) -> Any:
        return super().step(x, a, u, w) + x.mean()


class Sum(Drift):
    """The sum of two noises, of which it gives back one of many."""

    noise = 2

    def step(self, x: Floats, a: Any, u: Floats, w: Floats) -> Any:
        return x + ndtri(u[:, :1]) + ndtri(u[:, 1:])

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Any:
        half = ndtr((x_next - x) / 2)
        return np.concatenate([half, half])


class Wide(Drift):
    """Gives back too much."""

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Any:
        return np.zeros(1), np.ones(1)


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (changed(version=None, features="x"), "features are a tuple of names, not 'x'"),
        (changed(features=("x", "x")), "1 or more different names"),
        (changed(features=(Feature("x", values=("on", "on")),)), "a world's named values are 2 or more different"),
        (changed(features=(Feature("x", values=("on",)),)), "a world's named values are 2 or more different"),
        (changed(features=(Feature("x", low=2, high=1),)), "feature 'x': low is 2 and high 1; low comes first"),
        (changed(actions=()), "actions are 1 or more different names"),
        (changed(noise=0.5), "noise is 0.5; it counts the uniform numbers of a step"),
        (
            changed(noise_features=("y",)),
            r"noise_features is \('y',\); give for each of the 1 numbers .*, of x, or leave",
        ),
        (changed(noise_features=(1,)), r"noise_features is \(1,\)"),
        (changed(noise_features=("x", 0)), r"noise_features is \('x', 0\)"),
        (changed(noise_features=0), "noise_features is 0; give for each"),
        (changed(noise=0, invert=None, noise_features=("x",)), "for each of the 0 numbers"),
        (changed(holds=None), "holds is not a function"),
        (changed(invert=None), r"it has noise and no way back: add invert\(x, a, x_next, w\)"),
        (changed(inputs=("wind",)), r"add forecast\(w\)"),
        (changed(step=lambda self, x, a, u, w: x[0]), r"step gives shape \(1,\) of float64, not \(8, 1\) numbers"),
        (changed(step=lambda self, x, a, u, w: x * np.nan), "gives x=nan, outside -inf to inf"),
        (changed(step=lambda self, x, a, u, w: 1 / 0), "step fails .ZeroDivisionError: division by zero"),
        (changed(step=lambda self, x, a, u, w: x * np.inf), "gives x=inf, outside -inf to inf; clip it in step"),
        (changed(features=(Feature("x", low=0, high=1),)), "outside 0 to 1; clip it in step, or declare"),
        (changed(features=(Feature("x", whole=True),)), "which is no whole number"),
        (changed(step=lambda self, x, a, u, w: [[0.0], [0.0, 1.0]]), "step gives .* which is no array"),
        (changed(features=(Feature("x", high=3),)), "outside -inf to 3; clip it in step"),
        (changed(holds=lambda self, label, x: True), r"holds gives shape \(\) of bool, not \(8,\)"),
        (changed(invert=lambda self, x, a, x_next, w: "u"), "invert gives 'u', which are no numbers"),
        (changed(invert=lambda self, x, a, x_next, w: [0.5, 0.5]), r"invert gives shape \(2,\)"),
        (changed(invert=lambda self, x, a, x_next, w: 1.5), r"not within \(0, 1\)"),
        (changed(invert=lambda self, x, a, x_next, w: 0.5), "no noise of world 'drift 1' leads"),
        (changed(invert=lambda self, x, a, x_next, w: None), "invert gives None for x=.*, and there is no posterior"),
        (changed(__init__=lambda self, size: None), "cannot be made without arguments .*give an instance"),
        (Counting, "step gives two answers to one call"),
        (Mixing, "row k of the result may depend on row k of the arguments only"),
        (Sum, "it must give back all noise that leads to the observed state"),
        (Wide, "noise does not come back from its own step"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_each_fault_is_one_clear_error(world: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says) as found:
        load_world(world)
    assert "\n" not in str(found.value)


def test_a_missing_part_is_named() -> None:
    with pytest.raises(ModelError, match="it has no 'version', which every world needs"):
        load_world(type("Empty", (), {"features": ("x",), "step": None}))


class Drawn(Drift):
    """The sum of two noises, given back by draws of one and what that leaves for the other."""

    noise = 2
    weights: Any = None
    invert = None  # type: ignore[assignment]

    def step(self, x: Floats, a: Any, u: Floats, w: Floats) -> Any:
        return x + ndtri(u[:, :1]) + ndtri(u[:, 1:])

    def posterior(self, x: Floats, a: int, x_next: Floats, w: Floats, rng: np.random.Generator, n: int) -> Any:
        total = x_next[0] - x[0]
        one = total / 2 + rng.normal(size=n) / np.sqrt(2)
        draws = ndtr(np.stack([one, total - one], axis=1))
        return draws if self.weights is None else (draws, self.weights(n))


def test_a_posterior_stands_in_where_the_noise_is_no_box() -> None:
    noise = load_world(Drawn).abduce(Moment((0.0,), 0), (1.0,))
    assert noise.posterior is not None
    draws, weights = noise.posterior(np.random.default_rng(0), 1000)
    assert draws.shape == (1000, 2)
    assert weights is None
    assert abs(float(ndtri(draws).mean()) - 0.5) < 0.1


@pytest.mark.parametrize(
    ("weights", "error", "says"),
    [
        (lambda n: -np.ones(n), ModelError, "numbers >= 0"),
        (lambda n: np.ones(3), ModelError, r"weights of shape \(3,\)"),
        (lambda n: np.eye(n)[0], LimitError, "worth 1 draws of 256, too few to rely on"),
    ],
)
def test_weights_are_checked(weights: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        load_world(type("Weighted", (Drawn,), {"weights": staticmethod(weights)}))


def test_draws_of_a_wrong_shape_are_an_error() -> None:
    few = type("Few", (Drawn,), {"posterior": lambda self, x, a, x_next, w, rng, n: np.full((n, 1), 0.5)})
    with pytest.raises(ModelError, match=r"posterior gives shape \(256, 1\), not \(256, 2\) numbers in \(0, 1\)"):
        load_world(few)


def test_inputs_and_clipping() -> None:
    world = load_world(Tank)
    point = world.abduce(Moment((3.0,), 0, (1.0,)), (3.9,))
    clipped = world.abduce(Moment((9.9,), 0, (2.0,)), (10.0,))
    assert point.is_point
    assert point.low[0] == pytest.approx(0.5)
    assert (clipped.low[0], clipped.high[0]) == (0.0, 1.0)
    assert world.forecast((2.0,)) == (2.0,)
    with pytest.raises(PathError, match="practically impossible, or its invert is wrong"):
        world.abduce(Moment((3.0,), 0, (1.0,)), (8.0,))


def test_a_forecast_outside_of_its_range_is_an_error() -> None:
    falling = type("Falling", (Tank,), {"forecast": lambda self, w: w - 5.0})
    with pytest.raises(ModelError, match=r"forecast\(.*\) gives rain=.*, outside 0 to inf"):
        load_world(falling)


def test_what_takes_a_table_says_so_of_a_world(tmp_path: Path) -> None:
    world = load_world(Tank)
    with pytest.raises(PolicyError, match=r"careful.yaml: .* world 'tank 1'; in a world with numbers give"):
        load_policy("careful.yaml", world)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"not world 'tank 1'; a world with numbers is kept as its manifest"):
        save_model(world, tmp_path / "tank.npz")  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())
