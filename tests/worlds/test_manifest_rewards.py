"""Rewards of a manifest's world: a graph of the state, the action and the next state."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from monitor import FormulaError, Monitor, check
from monitor.alarm.message import identity_of
from monitor.arrays import Floats, Ints
from monitor.evaluation.worlds import WorldChecker
from monitor.evidence.document import read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.types import Alert, FormulaSpec, Sampling
from monitor.worlds import load_world
from monitor.worlds.location_scale import world_of
from tests.evidence.rederived import make_evidence
from tests.tiers import examples, heavy, scaled
from tests.worlds.graphs import linear, world_files
from tests.worlds.lives import lived, settings

KEEP, PUSH, SPREAD = 0.9, 1.5, 0.3
PLAIN: dict[str, Any] = {
    "features": [{"name": "level"}],
    "actions": ["hold", "push"],
    "location": "file:location",
    "scale": [SPREAD],
}
LOCATION = linear({"x": [[KEEP]], "a": [[0.0], [PUSH]]}, [0.0])
REWARD = linear({"x": [[-1.0]], "a": [[0.0], [-0.25]], "x_next": [[2.0]]}, [0.5])
POLICIES = {"nominal": lambda x: np.zeros(len(x), dtype=int), "pushing": lambda x: (x[:, 0] < 5).astype(int)}


class Pump:
    """The same world in Python."""

    features, actions, labels, noise, version = ("level",), ("hold", "push"), (), 1, "pump"

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        return np.asarray(KEEP * x + PUSH * a[:, np.newaxis] + SPREAD * ndtri(u))

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> Floats:
        return np.asarray(ndtr((x_next - KEEP * x - PUSH * a) / SPREAD))

    def holds(self, label: str, x: Floats) -> Any:
        raise NotImplementedError

    def reward(self, x: Floats, a: Ints, x_next: Floats) -> Floats:
        return 0.5 - x[:, 0] - 0.25 * a + 2.0 * x_next[:, 0]


def written(folder: Path, reward: bytes = REWARD, **more: Any) -> Path:
    return world_files(folder, PLAIN | {"reward": "file:reward"} | more, location=LOCATION, reward=reward)


@scaled
def test_values_are_those_of_the_same_world_in_python(tmp_path: Path) -> None:
    world, rng = load_world(written(tmp_path)), np.random.default_rng(1)
    methods = set()
    for n in range(examples(6, 60)):
        levels = [2.0]
        for _ in range(4):
            levels.append(KEEP * levels[-1] + SPREAD * float(rng.normal()))
        path = [([level], 0) for level in levels]
        text = f"pushing@{n % 4}.R=? [ C<={n % 3} ]"
        sampling = Sampling(rewards=(-5.0, 15.0), error=0.2, seed=n)
        given: dict[str, Any] = {"path": path, "policies": POLICIES, "sampling": sampling}
        found, wanted = (check(text, model=each, **given) for each in (world, Pump))
        assert found.value == pytest.approx(wanted.value, abs=1e-9)
        assert found.method == wanted.method
        methods.add(found.method)
    assert methods == {"exact", "sampled"}


def test_the_reward_of_a_held_step_is_by_hand(tmp_path: Path) -> None:
    path = [([2.0], "hold"), ([1.5], "push"), ([3.0], "hold")]
    verdict = check("@2.R=? [ C<=1 ]", model=written(tmp_path), path=path, policies=POLICIES)
    assert verdict.value == pytest.approx((0.5 - 2.0 + 3.0) + (0.5 - 1.5 - 0.25 + 6.0))


def test_the_graph_is_a_part_of_the_world_s_digest_and_of_its_bytes(tmp_path: Path) -> None:
    world = load_world(written(tmp_path))
    again = load_world(world_of(world.content, "evidence"))
    x, a, after = np.array([[2.0], [1.0]]), np.array([0, 1]), np.array([[3.0], [5.0]])
    assert again.rewards(x, a, after).tolist() == world.rewards(x, a, after).tolist() == [4.5, 9.25]
    other = load_world(written(tmp_path, linear({"x_next": [[1.0]]}, [0.0])))
    assert sha256(other.content).digest() != sha256(world.content).digest()
    without = load_world(world_files(tmp_path, PLAIN, location=LOCATION))
    assert (world.has_rewards, without.has_rewards) == (True, False)
    with pytest.raises(FormulaError, match="or to a manifest a graph `reward`"):
        check("R=? [ C<=1 ]", model=without, path=[([2.0], 0)], policies=POLICIES)


def test_fits_earn_what_the_world_says(tmp_path: Path) -> None:
    pinned = []
    for n, keep in enumerate((0.85, 0.95)):
        (tmp_path / f"fit{n}").mkdir()
        path = world_files(tmp_path / f"fit{n}", PLAIN, location=linear({"x": [[keep]], "a": [[0.0], [PUSH]]}, [0.0]))
        pinned.append({"file": f"fit{n}/world.yaml", "sha256": sha256(path.read_bytes()).hexdigest()})
    world = written(tmp_path, learned=True, fits=pinned)
    held = [([2.0], "hold"), ([1.9], "hold"), ([1.7], "hold")]
    verdict = check("pushing@2.R=? [ C<=1 ]", model=world, path=held, policies=POLICIES)
    values = []
    for keep in (0.85, 0.95):
        levels = [2.0]
        for before, after in ((2.0, 1.9), (1.9, 1.7)):
            levels.append(keep * levels[-1] + PUSH + (after - keep * before))
        values.append(sum(0.5 - x - 0.25 + 2.0 * y for x, y in pairwise(levels)))
    assert verdict.credible == pytest.approx(tuple(sorted(values)))


@heavy
@pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda each: each.name)
def test_evidence_of_a_reward_is_derived_again_from_the_bytes_that_are_kept(tmp_path: Path, deriver: Any) -> None:
    world = load_world(written(tmp_path))
    spec = FormulaSpec("paid", "regret(pushing@2, R>=12 [ C<=3 ])")
    monitor = Monitor(world, POLICIES, [spec], settings(8), sampling=Sampling(rewards=(-5.0, 15.0)))
    life = lived(monitor, Pump(), POLICIES, lambda *_: "nominal", np.random.default_rng(1), start=2.0, steps=8)
    alert = next(notice for notice in life.notices if isinstance(notice, Alert))
    assert alert.verdict.method == "sampled"
    checker = WorldChecker(world, POLICIES, {})
    document = read_evidence(make_evidence(alert, identity_of(world, checker.policies, {}), checker.policies, {}))
    found = derive_again(document, load_world(world_of(world.content, "kept")), checker.policies, {}, [deriver])
    assert (found.problems, found.by) == ([], deriver.name)
