"""The paper's Table 1 with the exact probabilities it did not have: `python -m policies.minigrid.table`.

Needs only the monitor: models and policies are those shipped beside this script. PROVENANCE.md describes the queries,
and the two readings of what follows an episode.

Source: Kazemi & Paoletti, "MiniGrid Benchmark" and its table; T = 50, interventions at t = T and t = T - 10.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from monitor.exact import Checker
from monitor.logic import parse
from monitor.model.io import load_model
from monitor.model.mdp import MDP
from monitor.policy.onnx_policy import load_policy
from monitor.policy.table import PolicyTable

HERE = Path(__file__).parent
T = 50
OFFSETS = (T, T - 10)
"""A path of T pairs has an offset of at most T - 1, so t = T is clipped to its start."""

FORMULAS = {
    "doorkey": 'F<=15 ("key" & F<=15 ("door" & F<=20 "goal"))',
    "empty": 'F<=50 "goal"',
    "fetch": 'F<=25 ("object" & X ("carrying" U<=24 "goal"))',
    "gotodoor": 'F<=50 "door"',
}

Counts = tuple[int, int, int, int, int]
PAPER: Mapping[str, Counts] = {
    "doorkey": (125, 25, 50, 25, 50),
    "empty": (75, 25, 50, 25, 75),
    "fetch": (75, 25, 75, 50, 75),
    "gotodoor": (125, 25, 50, 25, 100),
}
"""Realizations needed in the paper: nominal; undertrained and effect at t = T; the same at t = T - 10.

The paper's verdicts are the same in every row: nominal holds, the other four do not.
"""


@dataclass(frozen=True)
class Question:
    """Cell of the table; `holds`: the paper's verdict."""

    column: str
    offset: int
    text: str
    holds: bool


@dataclass(frozen=True)
class Benchmark:
    """Model with both policies, in one reading."""

    name: str
    model: MDP
    policies: Mapping[str, PolicyTable]


def main() -> None:
    """Print the table in both readings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    # On the path of seed 0, the agents of Empty and of GoToDoor are at their goal after 9 steps; see PROVENANCE.md.
    parser.add_argument("--seed", type=int, default=1, help="of the first observed path (default: 1)")
    parser.add_argument("--paths", type=int, default=20, help="how many paths to average over (default: 20)")
    given = parser.parse_args()
    for reading in ("following", "absorbing"):
        print(f"\n{READINGS[reading]}")
        print(f"{'':9} {'query':18} {'exact':>8} {'ours':>6} {'paper':>6} {'mean':>8} {'as paper':>9}")
        for name in FORMULAS:
            for line in lines(load(name, reading), given.seed, given.paths):
                print(f"{name:9} {line}", flush=True)


READINGS = {
    "following": "The next episode follows: after the state that ended an episode, the path continues at the start",
    "absorbing": "The state that ended the episode is absorbing",
}


def load(name: str, reading: str) -> Benchmark:
    """Return the model and the policies of one environment. The shipped model is the absorbing one."""
    model = load_model(HERE / f"{name}.npz")
    if reading == "following":
        model = following(model)
    policies = {
        "nominal": load_policy(HERE / f"{name}-nominal.yaml", model).table,
        "undertrained": load_policy(HERE / f"{name}-undertrained.yaml", model).table,
    }
    return Benchmark(name, model, policies)


def following(model: MDP) -> MDP:
    """Return the model in which every action leads from a terminal state to the start of the next episode.

    An agent in Gymnasium's vector environments observes this (autoreset at the next step), in one layout.
    """
    terminal, start = model.labels["terminal"], int(np.flatnonzero(model.labels["start"])[0])
    successors = model.successors.copy()
    for state in np.flatnonzero(terminal):
        # An absorbing state has one successor for each action.
        successors[model.indptr[state * model.actions] : model.indptr[(state + 1) * model.actions]] = start
    return replace(model, successors=successors)


def questions(formula: str) -> Iterator[Question]:
    """Yield the five cells of one environment; the first is evaluated at the start of the path."""
    yield Question("nominal", 0, f"P>=0.9 [ {formula} ]", holds=True)
    for t in OFFSETS:
        yield Question("undertrained", t, f"undertrained@{t}.P>=0.9 [ {formula} ]", holds=False)
        yield Question("effect", t, f"delta(undertrained,nominal)@{t}.P>0 [ {formula} ]", holds=False)


def observed(benchmark: Benchmark, seed: int) -> list[tuple[int, int | None]]:
    """Return a path of T pairs under the nominal policy, from the start."""
    rng, actions = np.random.default_rng(seed), nominal_actions(benchmark)
    state = int(np.flatnonzero(benchmark.model.labels["start"])[0])
    path: list[tuple[int, int | None]] = []
    for _ in range(T):
        action = int(actions[state])
        path.append((state, action))
        successors, probabilities = benchmark.model.row(state, action)
        state = int(rng.choice(successors, p=probabilities))
    return path


def nominal_actions(benchmark: Benchmark) -> npt.NDArray[np.int64]:
    """Return the actions [S] of the nominal policy, which is deterministic."""
    actions = benchmark.policies["nominal"].actions
    assert actions is not None
    return actions


def lines(benchmark: Benchmark, seed: int, paths: int) -> Iterator[str]:
    """Yield a line for each cell: value and verdict on the first path, mean and agreement with the paper over all."""
    checker = Checker(benchmark.model, benchmark.policies)
    paths_seen = [observed(benchmark, seed + k) for k in range(paths)]
    for question in questions(FORMULAS[benchmark.name]):
        formula = parse(question.text)
        used = [paths_seen[0][:1]] if question.column == "nominal" else paths_seen
        verdicts = [checker.check(formula, path) for path in used]
        values = [verdict.quantities[0].value for verdict in verdicts]
        agreeing = np.mean([verdict.holds == question.holds for verdict in verdicts])
        cell = question.column + (f" t={question.offset}" if question.offset else "")
        yield (
            f"{cell:18} {values[0]:8.4f} {verdicts[0].holds!s:>6} {question.holds!s:>6} "
            f"{np.mean(values):8.4f} {agreeing:9.3f}"
        )


if __name__ == "__main__":
    main()
