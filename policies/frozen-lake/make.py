"""Make model.npz and the two policies of FrozenLake-v1, 8x8, slippery; print the success probability of each policy.

Usage: python policies/frozen-lake/make.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from monitor.model.io import load_model, save_model
from monitor.model.mdp import MDP
from monitor.policy.export import manifest_yaml, table_onnx
from monitor.policy.manifest import Input, Manifest, Output
from monitor.policy.onnx_policy import load_policy
from monitor.policy.table import PolicyTable

SOURCE = "gymnasium:FrozenLake-v1?map_name=8x8&is_slippery=true"
SIDE = 8
MOVES = {0: (0, -1), 1: (1, 0), 2: (0, 1), 3: (-1, 0)}  # action -> (row, column): left, down, right, up
DISCOUNT = 0.999
HERE = Path(__file__).parent

Floats = npt.NDArray[np.float64]


def main() -> None:
    """Make all files, then load the policies and evaluate them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this script)")
    out = parser.parse_args().out
    model = load_model(SOURCE)
    save_model(model, out / "model.npz")
    # Rounded, so that all machines write the same bytes.
    write(out, "good", np.round(action_values(model), 6), "Value iteration on the slippery lake: keeps off the holes.")
    write(out, "rash", -distances(model), "The shortest way to the goal, as if the ice were not slippery.")
    for name in ("good", "rash"):
        goal, hole = outcomes(model, load_policy(out / f"{name}.yaml", model).table, 200)
        print(f"{name}: within 200 steps at the goal {goal:.4f}, in a hole {hole:.4f}")


def action_values(model: MDP) -> Floats:
    """Return the discounted probability of reaching the goal after each action, [S, A], by value iteration to 1e-12."""
    goal = model.labels["goal"]
    values = goal.astype(np.float64)
    while True:
        scores = np.array([[step(model, s, a) @ values for a in range(model.actions)] for s in range(model.states)])
        improved = np.where(goal, 1.0, DISCOUNT * scores.max(axis=1))
        if np.abs(improved - values).max() < 1e-12:
            return scores
        values = improved


def distances(model: MDP) -> Floats:
    """Return the number of moves to the goal after each action without slipping, [S, A]; holes are obstacles."""
    blocked = float(model.states)
    steps = np.where(model.labels["goal"], 0.0, blocked)
    for _ in range(model.states):
        ahead = np.array([[steps[target(s, a)] for a in range(model.actions)] for s in range(model.states)])
        shortest = np.minimum(blocked, 1 + ahead.min(axis=1))
        steps = np.where(model.labels["goal"], 0.0, np.where(model.labels["hole"], blocked, shortest))
    return ahead


def target(state: int, action: int) -> int:
    """Return the intended target of a move; the edge of the lake stops it."""
    row, column = (min(max(x + d, 0), SIDE - 1) for x, d in zip(divmod(state, SIDE), MOVES[action], strict=True))
    return row * SIDE + column


def step(model: MDP, state: int, action: int) -> Floats:
    """Return P(. | state, action), [S]."""
    successors, probabilities = model.row(state, action)
    row = np.zeros(model.states)
    row[successors] = probabilities
    return row


def outcomes(model: MDP, table: PolicyTable, horizon: int) -> tuple[float, float]:
    """Return the exact probabilities of goal and hole after `horizon` steps from the start."""
    assert table.actions is not None
    assert model.initial is not None
    chain = np.array([step(model, s, int(table.actions[s])) for s in range(model.states)])
    after = model.initial @ np.linalg.matrix_power(chain, horizon)
    return float(after[model.labels["goal"]].sum()), float(after[model.labels["hole"]].sum())


def write(out: Path, name: str, scores: Floats, description: str) -> None:
    """Write `name`.onnx, a table with one-hot input, and its manifest."""
    content = table_onnx(scores, "one_hot", "q_values")
    (out / f"{name}.onnx").write_bytes(content)
    manifest = Manifest(
        name=name,
        description=description,
        file=f"{name}.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        input=Input(name="state", kind="one_hot"),
        output=Output(name="q_values", kind="q_values"),
        mode="greedy",
        provenance="make.py, from gymnasium's FrozenLake-v1 (MIT); see PROVENANCE.md",
    )
    (out / f"{name}.yaml").write_text(manifest_yaml(manifest))


if __name__ == "__main__":
    main()
