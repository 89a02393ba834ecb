"""What `cfmon init` makes of a learned world: forecasts, policies, a table of recorded states; against slow counts."""

from __future__ import annotations

from dataclasses import replace
from math import erf, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("sklearn")

from monitor.authoring.dynamics.fitted_policy import fitted_policy
from monitor.authoring.dynamics.label_forecasts import DRAWS, ForecastingWorld
from monitor.authoring.dynamics.learned_world import Draft, Parts, split, unchanged
from monitor.authoring.dynamics.steps import RecordedSteps, read_steps
from monitor.authoring.dynamics.world_table import world_table
from monitor.authoring.learning.abstraction_scores import judged
from monitor.authoring.learning.conditions import parsed
from monitor.authoring.learning.holdout import held_out
from monitor.authoring.learning.left_out import LeftOut, RowLimit
from monitor.authoring.learning.outcomes import Outcomes
from monitor.authoring.proposal.paths import episodes_of
from monitor.authoring.proposal.world_paths import held_out_paths, numbered_paths
from monitor.cli.init_world import WorldProposal
from monitor.cli.learn_dynamics import world_roles
from monitor.cli.recorded_inputs import open_recording
from monitor.model.mdp import MDP
from monitor.policy.manifest import Input, Manifest, Output
from monitor.policy.network import Network
from monitor.worlds.location_scale import LocationScale
from monitor.worlds.world_manifest import FeatureSpec

STANDARD_ERRORS = 4.5
"""Of a thousand comparisons none is expected beyond."""


def walk(seed: int, paths: int, length: int) -> RecordedSteps:
    """A random walk in steps of standard deviation 1, whatever the action, with paths interleaved row by row."""
    rng = np.random.default_rng(seed)
    rows = [(p * 1000, t) for t in range(length) for p in range(paths)]
    x = {p: rng.normal(size=length + 1).cumsum() for p in range(0, paths * 1000, 1000)}
    here, after = (np.array([[x[p][t + k]] for p, t in rows]) for k in (0, 1))
    path = np.array([p for p, _ in rows])
    return RecordedSteps(
        here, rng.integers(0, 2, len(rows)), np.zeros((len(rows), 0)), after, path, path, ("stay", "go")
    )


def world_of(steps: RecordedSteps, label: str = "x >= 1") -> LocationScale:
    """The world in which the state stays, but for noise as it was recorded."""
    draft = Draft("walk", (FeatureSpec(name="x", low=-60, high=60, clip=True),), (), steps.actions, {"high": label})
    return unchanged(draft, split(steps, 0)).world


def test_a_forecast_is_the_normal_probability() -> None:
    steps = walk(1, 40, 60)
    policy = fitted_policy((steps.x, np.eye(2)[steps.a]), (steps.x, np.eye(2)[steps.a]), 0, ("linear",))
    paths = np.sort(steps.path)
    found = ForecastingWorld((world_of(steps), policy), ("a problem",), steps, paths, 0)
    one = found.forecasts("high", 1).said
    after = np.concatenate([steps.x_next[steps.path == p, 0] for p in np.unique(paths)])
    true = np.where(after >= 1, 1.0, [0.5 * (1 + erf((x - 1) / sqrt(2))) for x in after])
    made = np.isfinite(one)
    assert made.sum() == 1000
    # The learned noise differs by some percent from the normal distribution: 800 residuals.
    assert np.abs(one - true)[made].max() < STANDARD_ERRORS * 0.5 / sqrt(DRAWS) + 0.05
    assert abs((one - true)[made].mean()) < 0.01
    assert (found.forecasts("high", 5).said[made] >= one[made]).all(), "it has more time"
    assert found.checks([])[1] == ("a problem",)


class Pushed:
    """The input is added to the state; all later ones are 5."""

    noise = 1

    def step(self, x: np.ndarray, a: np.ndarray, u: np.ndarray, w: np.ndarray) -> np.ndarray:
        del a, u
        return np.asarray(x + w)

    def holds(self, label: str, x: np.ndarray) -> np.ndarray:
        del label
        return np.asarray(x[:, 0] >= 7)

    def resample(self, w: np.ndarray, ahead: int, u: np.ndarray) -> np.ndarray:
        del w
        return np.full((len(u), 1), 5.0 if ahead else np.nan)


def test_a_forecast_takes_the_inputs_recorded_next_and_then_those_resampled() -> None:
    steps = replace(walk(6, 4, 6), w=np.arange(24.0)[:, np.newaxis] / 10)
    policy = fitted_policy((steps.x, np.eye(2)[steps.a]), (steps.x, np.eye(2)[steps.a]), 0, ("linear",))
    found = ForecastingWorld((Pushed(), policy), (), steps, np.sort(steps.path), 0)  # type: ignore[arg-type]
    ordered = [np.flatnonzero(steps.path == p) for p in np.unique(steps.path)]
    after = np.concatenate([steps.x_next[rows, 0] for rows in ordered])
    inputs = np.concatenate([steps.w[[*rows[1:], rows[-1]], 0] for rows in ordered])
    for horizon in (1, 5):
        highest = np.maximum(after, after + inputs + 5 * (horizon - 1))
        assert found.forecasts("high", horizon).said.tolist() == (highest >= 7).astype(float).tolist()


def test_transitions_without_a_next_state_have_no_forecast() -> None:
    steps = walk(2, 6, 5)
    policy = fitted_policy((steps.x, np.eye(2)[steps.a]), (steps.x, np.eye(2)[steps.a]), 0, ("linear",))
    paths = np.concatenate([np.repeat([p], 5 + (p == 2000)) for p in np.unique(steps.path)])
    made = np.isfinite(ForecastingWorld((world_of(steps), policy), (), steps, paths, 0).forecasts("high", 1).said)
    assert np.flatnonzero(~made).tolist() == [15], "the sixth transition of the third path"


def test_the_paths_to_check_can_be_those_that_tables_hold_out() -> None:
    for paths in (10, 11, 40, 300):
        steps = walk(3, paths, 2)
        held = np.unique(steps.path)[held_out(np.unique(steps.path), 5, 0.2)]
        parts = split(steps, 5, held)
        every = [set(part.path.tolist()) for part in (parts.fit, parts.choice, parts.check)]
        assert sum(map(len, every)) == len(set.union(*every)) == paths
        assert len(every[1]) == max(2, paths // 5)
        assert set(held.tolist()) <= every[2]
        assert len(every[2]) == max(2, len(held))


def test_no_episode_is_in_two_parts_even_if_gaps_divide_it() -> None:
    whole = walk(4, 40, 6)
    steps = replace(whole, path=10 * whole.path + np.arange(len(whole)) // 80)
    for held in (None, np.unique(steps.episode)[:9]):
        parts = split(steps, 0, held)
        every = [set(part.episode.tolist()) for part in (parts.fit, parts.choice, parts.check)]
        assert sum(map(len, every)) == len(set.union(*every)) == 40
        assert all(len(set(part.path.tolist())) == 3 * len(set(part.episode.tolist())) for part in parts_of(parts))


def parts_of(parts: Parts) -> tuple[RecordedSteps, ...]:
    return parts.fit, parts.choice, parts.check


def test_paths_that_the_world_was_learned_from_have_no_forecast() -> None:
    steps = walk(2, 6, 5)
    policy = fitted_policy((steps.x, np.eye(2)[steps.a]), (steps.x, np.eye(2)[steps.a]), 0, ("linear",))
    known, paths = steps[np.isin(steps.path, [1000, 4000])], np.sort(steps.path)
    made = np.isfinite(ForecastingWorld((world_of(steps), policy), (), known, paths, 0).forecasts("high", 1).said)
    assert np.unique(paths[made]).tolist() == [1000, 4000]
    assert made.sum() == len(known)


def test_without_a_held_out_path_nothing_is_judged() -> None:
    steps = walk(2, 6, 5)
    policy = fitted_policy((steps.x, np.eye(2)[steps.a]), (steps.x, np.eye(2)[steps.a]), 0, ("linear",))
    outcomes = Outcomes(0, np.ones(1, np.bool_))
    found = ForecastingWorld((world_of(steps), policy), (), steps, outcomes.paths(), 0)
    (score,), known = judged([found], outcomes, ["high"], "high")
    assert (score.score, score.excess, score.error, known) == (0.0, 0.0, 0.0, False)


def test_paths_are_numbered_by_step() -> None:
    steps = walk(4, 3, 4)
    paths, numbers = numbered_paths(steps, 0)
    assert len(paths) == 3
    for number, path in zip(np.unique(steps.path), paths, strict=True):
        mine = steps.path == number
        want = [*steps.x[mine, 0], steps.x_next[mine, 0][-1]]
        assert [numbers.sent(int(state))[0][0] for state in path.states] == want
        assert path.actions.tolist() == steps.a[mine].tolist()


def test_an_end_without_its_state_counts_where_the_condition_may_hold(tmp_path: Path) -> None:
    """Of every three episodes one is cut, one ends with a reward and one without; no final state is recorded."""
    rng, lines = np.random.default_rng(5), ["episode,step,x,action,reward,done"]
    for episode in range(12):
        for step in range(5):
            end = step == 4 and episode % 3 < 2
            lines.append(
                f"{episode},{step},{rng.uniform():.3f},{rng.integers(2)},{int(end and not episode % 3)},{+end}"
            )
    (tmp_path / "log.csv").write_text("\n".join([*lines, ""]))
    source = open_recording(tmp_path / "log.csv", "")
    conditions = [parsed("high: x >= 7"), parsed("paid: reward > 0")]
    roles = world_roles(source, {"state": "x"}, ())
    steps = read_steps([source], roles, LeftOut(), RowLimit.parsed("0"), conditions)
    assert len(steps) == 12 * 4
    assert steps.unseen is not None
    assert steps.unseen.may.tolist() == [[True, n % 2 == 0] for n in range(8)]
    for condition, count in ((-2, 8), (-1, 4)):
        paths, numbers = numbered_paths(steps, condition)
        ends = [path for path in paths if path.unseen]
        assert (len(paths), len(ends)) == (12, count)
        unsafe = numbers.unsafe(world_of(steps, "x >= 7"), "high")
        for path in paths:
            assert unsafe[path.states].tolist() == [False] * (4 + 1) + [True] * path.unseen
            assert len(path.actions) == 4 + path.unseen
            assert path.episode is not None
            shown = [float(line.split(",")[2]) for line in lines[1:] if line.startswith(f"{path.episode // 5},")]
            assert [numbers.sent(state)[0][0] for state in path.sent.tolist()] == shown


def test_the_end_of_an_episode_tells_that_nothing_follows(tmp_path: Path) -> None:
    """Episodes end at once above 7, at rest anywhere, or are cut off; a last row without an action has the state."""
    rng, runs = np.random.default_rng(7), list[tuple[list[float], str]]()
    for _ in range(60):
        states, why = [float(rng.integers(0, 6))], ""
        while not why:
            states.append(float(rng.integers(0, 9)))
            why = "done" if states[-1] >= 7 or rng.random() < 0.1 else "cut" if len(states) > 5 else ""
        runs.append((states, why))
    lines = ["episode,step,x,action,done,cut"]
    for episode, (states, why) in enumerate(runs):
        for step, x in enumerate(states):
            last = step == len(states) - 1
            marks = f"{int(last and why == 'done')},{int(last and why == 'cut')}"
            lines.append(f"{episode},{step},{x},{'' if last else rng.integers(2)},{marks}")
    (tmp_path / "log.csv").write_text("\n".join([*lines, ""]))
    source = open_recording(tmp_path / "log.csv", "")
    roles = world_roles(source, {"state": "x", "terminated": "done", "truncated": "cut"}, ())
    steps = read_steps([source], roles, LeftOut(), RowLimit.parsed("0"))
    learned: Any = SimpleNamespace(steps=steps, best=SimpleNamespace(world=world_of(steps, "x >= 7")))
    none: Any = None
    judged_steps, happened = WorldProposal(learned, none, roles).outcomes("high").events(3)
    wanted = []
    for states, why in runs:
        for t in range(1, len(states)):
            later = states[t + 1 : t + 4]
            known = t < len(states) - 1 and (why == "done" or len(later) == 3)
            wanted.append((known, known and any(x >= 7 for x in later)))
    found = [(bool(known), bool(known and high)) for known, high in zip(judged_steps, happened, strict=True)]
    assert found == wanted
    assert 20 < sum(high for _, high in wanted) < sum(known for known, _ in wanted) - 20


@pytest.mark.parametrize("seed", [0, 3])
def test_episodes_whose_only_step_leads_to_an_unseen_end_are_held_out_like_others(tmp_path: Path, seed: int) -> None:
    """Every second episode ends in its first step; its state afterwards is not recorded. Its rows are 5 and 1 long."""
    rng, lines, first = np.random.default_rng(6), ["episode,step,x,action,done"], []
    for episode in range(400):
        first.append(len(lines) - 1)
        steps = range(1 if episode % 2 else 5)
        lines += [f"{episode},{step},{rng.uniform():.3f},{rng.integers(2)},{episode % 2}" for step in steps]
    (tmp_path / "log.csv").write_text("\n".join([*lines, ""]))
    source = open_recording(tmp_path / "log.csv", "")
    roles = world_roles(source, {"state": "x"}, ())
    found = read_steps([source], roles, LeftOut(), RowLimit.parsed("0"), [parsed("high: x >= 7")])
    episodes = np.unique(found.episode)
    assert len(episodes) == 200
    parts = split(found, seed, episodes[held_out(episodes, seed, 0.2)])
    paths, _ = numbered_paths(found, 0)
    assert episodes_of(paths).tolist() == first, "in the order of their rows"
    assert [len(path.actions) for path in paths] == [5 - 1, 1] * 200
    held = held_out_paths(paths, parts, seed)
    table = [path for path, out in zip(paths, held_out(np.array(first), seed, 0.2).tolist(), strict=True) if out]
    assert [path.episode for path in held] == [path.episode for path in table], "as in a table of the same recordings"
    short = [path for path in held if len(path.actions) == 1]
    assert 0.1 < len(short) / 200 < 0.3
    assert all(path.unseen for path in short)


def test_a_learned_episode_is_not_held_out_where_the_parts_are_small() -> None:
    steps = walk(3, 12, 4)
    paths, _ = numbered_paths(steps, 0)
    parts = split(steps, 0)
    held = episodes_of(held_out_paths(paths, parts, 0))
    assert held.tolist() == np.unique(parts.check.episode).tolist()


def network_of(content: bytes, points: np.ndarray) -> np.ndarray:
    manifest = Manifest(
        file="p.onnx", sha256="0" * 64, input=Input(name="state", kind="observation"),
        output=Output(name="y", kind="probabilities"), mode="stochastic",
    )  # fmt: skip
    stay = [(s, a, s, 1.0) for s in range(len(points)) for a in range(2)]
    model = MDP.from_transitions(states=len(points), actions=2, transitions=stay, observations=points)
    return np.asarray(Network(content, manifest, model, "p.onnx").choose(np.arange(len(points))))


@pytest.mark.parametrize("curved", [False, True])
def test_a_policy_is_the_recorded_frequency_and_so_is_its_graph(curved: bool) -> None:  # noqa: FBT001 - a case
    rng = np.random.default_rng(0)
    points = np.array([[-0.8, 0.1], [0.1, -0.9]])

    def chance(x: np.ndarray) -> np.ndarray:
        return 0.1 + 0.8 * np.abs(x[:, 0]) if curved else 0.5 + 0.3 * x[:, 0]

    x = rng.uniform(-1, 1, (6000, 2))
    wanted = np.eye(2)[(rng.random(6000) < chance(x)).astype(int)]
    policy = fitted_policy((x[:4000], wanted[:4000]), (x[4000:], wanted[4000:]), 0)
    assert not curved or policy.kind == "network"
    found = policy.probabilities(points)
    assert np.allclose(found[:, 1], chance(points), atol=0.1)  # the kink, and 4,000 draws of a Bernoulli variable
    assert np.allclose(found.sum(axis=1), 1.0)
    assert np.allclose(network_of(policy.content(2), points), found, atol=1e-6)  # observations have 32 bits
    best = float((chance(x) * (1 - chance(x))).mean() / (wanted.mean(axis=0).prod()))
    assert policy.error == pytest.approx(best, abs=0.05), "the rest is chance"


def test_a_table_over_recorded_states_is_the_world_between_them() -> None:
    grid = np.column_stack([np.arange(-20.0, 21.0), np.zeros(41)])  # a number may differ in other steps only
    after = grid + 1.0
    steps = RecordedSteps(
        grid, np.arange(41) % 2, np.zeros((41, 0)), after, np.arange(41) // 4, np.arange(41) // 4, ("a", "b")
    )

    class Up:
        noise, labels = 1, ("high",)

        def step(self, x: np.ndarray, a: np.ndarray, u: np.ndarray, w: np.ndarray) -> np.ndarray:
            del w
            return np.asarray(x + np.where(a == 1, 2.0, 1.0)[:, np.newaxis] + 0.2 * (u - 0.5))

        def holds(self, label: str, x: np.ndarray) -> np.ndarray:
            assert label == "high"
            return np.asarray(x[:, 0] >= 19)

    table, _ = world_table(Up(), steps, 0)  # type: ignore[arg-type]
    assert table.states == 41
    for state in range(39):
        for action in (0, 1):
            assert table.row(state, action)[0].tolist() == [state + 1 + action]
    assert np.flatnonzero(table.labels["high"]).tolist() == [39, 40]
