"""From recorded steps to an alarm, with no model of ours: a discrete environment, and a tank with bins."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from monitor import MDP, Monitor, load_model, values
from monitor.arrays import Ints
from monitor.types import (
    AlarmSpec,
    Alert,
    BandsWhen,
    Blind,
    FormulaSpec,
    Instant,
    Notice,
    Observation,
    StreamSettings,
)
from tests.tiers import examples, scaled, slow

Run = Callable[..., tuple[int, str, str]]

STEPS = 200_000


def monitored(
    model: MDP,
    policies: dict[str, Ints],
    formula: str,
    encoder: str,
    steps: list[Observation],
    *,
    bands: BandsWhen = "auto",
) -> list[Notice]:
    """What a monitor reports about these steps."""
    spec = FormulaSpec("watch", formula, alarm=AlarmSpec(for_=1), bands=bands)
    settings = StreamSettings(encoder=encoder)  # type: ignore[arg-type]
    watch = Monitor(model, policies, [spec], settings)
    found: list[Notice] = []
    for n, step in enumerate(steps):
        now = Instant(1000.0 + n, float(n))
        found += watch.observe(step, now)
        found += watch.evaluate(now)
    return found


def record_cliff(path: Path) -> None:
    """Steps of an agent that mostly goes right along the cliff, as a user's own loop would write them."""
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("CliffWalkingSlippery-v1", max_episode_steps=200)
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["episode", "step", "state", "action", "reward", "next_state", "terminated", "truncated"])
        episode = step = 0
        state, _ = environment.reset(seed=0)
        for _ in range(STEPS):
            action = int(rng.choice(4, p=[0.3, 0.4, 0.2, 0.1]))
            after, reward, terminated, truncated, _ = environment.step(action)
            out.writerow([episode, step, int(state), action, reward, int(after), terminated, truncated])
            state, step = after, step + 1
            if terminated or truncated:
                episode, step = episode + 1, 0
                state, _ = environment.reset()


@slow
def test_a_recorded_environment_is_learned_checked_and_monitored(cfmon: Run, tmp_path: Path) -> None:
    log, file = tmp_path / "cliff.csv", tmp_path / "cliff.npz"
    record_cliff(log)
    code, out, _ = cfmon("model", "learn", str(log), "-o", str(file), "--label", "goal: terminated", "--json")
    assert (code, json.loads(out)["transitions counted"]) == (0, STEPS)
    model, true = load_model(file), load_model("gymnasium:CliffWalkingSlippery-v1")
    assert (model.states, true.states) == (50, 49)  # and elsewhere
    assert model.ended_as is not None
    assert model.ended_as[47] == 48
    within_sampling_error(model, true)
    rewards_agree(model, true)
    answers_agree(model, true)
    fallback, nominal = np.zeros(50, np.int64), np.ones(50, np.int64)
    for name, table in (("nominal", nominal), ("fallback", fallback)):
        (tmp_path / f"{name}.json").write_text(json.dumps(table.tolist()))
    (tmp_path / "path.json").write_text(json.dumps([[36, 0], [24, 1], [25, 1]]))
    policies = [f"--policy={name}={tmp_path / name}.json" for name in ("nominal", "fallback")]
    common = ("check", "--model", str(file), "--path", str(tmp_path / "path.json"), *policies)
    assert cfmon(*common, "--formula", 'P=? [ F<=20 "goal" ]')[0] == 0
    assert cfmon(*common, "--formula", 'P>=0.99 [ F<=2 "goal" ]')[0] == 1
    stream = [Observation("ada", "e", n, s, a) for n, (s, a) in enumerate([(36, 0), (24, 1), (25, 1), (26, 1)])]
    tables = {"nominal": nominal, "fallback": fallback}
    notices = monitored(model, tables, 'P>=0.9 [ F<=12 "goal" ]', "index", stream)
    assert [notice.state for notice in notices if isinstance(notice, Alert)][:1] == ["firing"]


def within_sampling_error(model: MDP, true: MDP) -> None:
    """Each estimate is within five standard deviations of the true probability, in every row with 100 draws."""
    assert model.counts is not None
    draws = model.counts.draws(model.indptr)
    assert (draws >= 100).sum() > 100
    for row in np.flatnonzero(draws >= 100).tolist():
        at, estimates = model.row(row // 4, row % 4)
        targets, chances = true.row(row // 4, row % 4)
        assert set(at) <= set(targets)
        given = dict(zip(at.tolist(), estimates.tolist(), strict=True))
        for target, chance in zip(targets.tolist(), chances.tolist(), strict=True):
            assert (
                abs(given.get(target, 0.0) - chance) <= 5 * np.sqrt(chance * (1 - chance) / draws[row]) + 1 / draws[row]
            )


def rewards_agree(model: MDP, true: MDP) -> None:
    for state in range(47):
        for action in range(4):
            for target in model.row(state, action)[0].tolist():
                if target == model.states - 1:
                    continue
                spread = 0.0 if true.reward_spread is None else true.reward_spread.max()
                assert abs(model.reward(state, action, target) - true.reward(state, action, target)) <= spread


def answers_agree(model: MDP, true: MDP) -> None:
    """P(goal within 20 steps) of a policy that stays where there is data: within 3 percent of the true one."""
    policy = np.ones(50, np.int64)
    policy[36], policy[[11, 23, 35]] = 0, 2
    formula = 'P=? [ F<=40 "end" ]'
    found = values(formula.replace("end", "goal"), model=model, policies={"nominal": policy})
    exact = values(formula.replace("end", "terminal"), model=true, policies={"nominal": policy[:49]})
    np.testing.assert_allclose(found[36], exact[36], atol=0.03)


# ---- a tank ----


def tank(rng: np.random.Generator, steps: int, *, leak: float = 0.0) -> Iterator[tuple[float, int, float]]:
    """Level, valve (0 closed, 1 half, 2 open) and inflow of a tank whose operator keeps it half full, mostly."""
    level, inflow = 5.0, 1.0
    for _ in range(steps):
        valve = int(rng.choice(3)) if rng.random() < 0.3 else int(level > 4) + int(level > 6)
        yield level, valve, inflow
        inflow = float(np.clip(1.0 + rng.normal(0, 0.6), 0.0, 3.0))
        level = float(np.clip(level + inflow - valve - leak + rng.normal(0, 0.8), 0.0, 10.0))


@scaled
def test_a_tank_is_binned_learned_and_monitored_and_a_leak_is_reported(cfmon: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with (tmp_path / "tank.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["run", "t", "level", "valve"])
        for run in range(examples(20, 100)):
            out.writerows([run, t, level, valve] for t, (level, valve, _) in enumerate(tank(rng, 1000)))
    model_file = tmp_path / "tank.npz"
    code, out_text, _ = cfmon(
        "model", "learn", str(tmp_path / "tank.csv"), "-o", str(model_file), "--state", "level", "--action", "valve",
        "--bins", "level:1|2|3|4|5|6|7|8|9", "--unsafe", "high: level >= 9", "--unsafe", "low: level < 1",
    )  # fmt: skip
    assert code == 0
    assert "state_encoder: bins" in out_text
    model = load_model(model_file)
    assert np.flatnonzero(model.labels["high"]).tolist() == [9, 10]
    operator = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 0])
    policies = {"nominal": operator, "fallback": operator}
    formula = 'P>=0.99 [ G<=20 !("high" | "low") ]'

    def stream(seed: int, steps: int, leak: float) -> list[Observation]:
        levels = tank(np.random.default_rng(seed), steps, leak=leak)
        return [Observation("tank", "e", n, (level,), valve) for n, (level, valve, _) in enumerate(levels)]

    usual = monitored(model, policies, formula, "bins", stream(2, examples(1000, 3000), 0.0), bands="off")
    assert "model_doubt" not in [notice.reason for notice in usual if isinstance(notice, Blind)]
    assert "firing" in [notice.state for notice in usual if isinstance(notice, Alert)]
    leaking = monitored(model, policies, formula, "bins", stream(2, 1000, 0.8), bands="off")
    assert "model_doubt" in [notice.reason for notice in leaking if isinstance(notice, Blind)]
