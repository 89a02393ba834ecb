"""Make model.npz and the two policies of the paper's reach-avoid grid; print the value of each policy.

A robot on a 4x4 grid, from the top left corner to the flag in the bottom right one, past a fire. With probability .1 it
does one of the other three actions instead. Positions are taken from the pictures of the paper's traces.

Source: Kazemi & Paoletti, "Reach-Avoid Example". Usage: python policies/reach-avoid/make_grid.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from monitor.evaluation import check
from monitor.model.io import save_model
from monitor.model.mdp import MDP
from monitor.policy.export import manifest_yaml, table_onnx
from monitor.policy.manifest import Input, Manifest, Output
from monitor.policy.onnx_policy import load_policy

SIDE, SLIP = 4, 0.1
# Not stated in the paper. Every discount from .9 to .98 gives the actions of its traces, among them down from the cell
# right of the start; .99 would go back left there, away from the fire.
DISCOUNT = 0.95
START, UNSAFE, GOAL = 0, 6, 15  # row-major; the fire is in row 1, column 2, counted from 0
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
REACH_AVOID = '!"unsafe" U<=10 "goal"'
HERE = Path(__file__).parent

Floats = npt.NDArray[np.float64]


def main() -> None:
    """Make all files, then load the policies and evaluate them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this script)")
    out = parser.parse_args().out
    model = grid()
    save_model(model, out / "model.npz")
    write(out, "nominal", along_the_fire(), "Right to the last column, then down, whatever burns on the way.")
    # Rounded, so that all machines write the same bytes.
    best = np.round(action_values(model), 6)
    write(out, "optimal", best, "Value iteration: 1 for the goal; fire and goal are final.")
    for name in ("nominal", "optimal"):
        table = load_policy(out / f"{name}.yaml", model).table
        assert table.actions is not None
        path = [(START, int(table.actions[START]))]
        verdict = check(f"P=? [ {REACH_AVOID} ]", model=model, path=path, policies={"nominal": table})
        print(f"{name}: {verdict.value:.6f}")


def grid() -> MDP:
    """Return the model: fire and goal are absorbing, the edge stops a move."""
    return MDP.from_transitions(
        states=SIDE * SIDE,
        actions=len(MOVES),
        transitions=transitions(),
        rewards=[(s, a, chance) for s, a, reached, chance in transitions() if reached == GOAL != s],
        labels={"start": [START], "unsafe": [UNSAFE], "goal": [GOAL], "terminal": [UNSAFE, GOAL]},
        initial={START: 1.0},
        action_names=tuple(MOVES),
        state_names=[f"row {row} column {column}" for row in range(SIDE) for column in range(SIDE)],
    )


def transitions() -> Iterator[tuple[int, int, int, float]]:
    """Yield every outcome of every action as (s, a, s', p)."""
    for state in range(SIDE * SIDE):
        for action in range(len(MOVES)):
            for done in range(len(MOVES)):
                chance = 1 - SLIP if done == action else SLIP / (len(MOVES) - 1)
                yield state, action, target(state, done), chance


def target(state: int, action: int) -> int:
    """Return the target of a move."""
    if state in (UNSAFE, GOAL):
        return state
    step = list(MOVES.values())[action]
    row, column = (min(max(x + d, 0), SIDE - 1) for x, d in zip(divmod(state, SIDE), step, strict=True))
    return row * SIDE + column


def along_the_fire() -> Floats:
    """Return the scores of the nominal policy, [S, A]."""
    wanted = ["right" if state % SIDE < SIDE - 1 else "down" for state in range(SIDE * SIDE)]
    return np.array([[float(move == name) for name in MOVES] for move in wanted])


def action_values(model: MDP) -> Floats:
    """Return the discounted probability of reaching the goal before the fire after each action, [S, A], to 1e-12."""
    values = np.zeros(model.states)
    values[GOAL] = 1.0
    while True:
        scores = np.zeros((model.states, model.actions))
        for state in range(model.states):
            for action in range(model.actions):
                successors, chances = model.row(state, action)
                scores[state, action] = DISCOUNT * chances @ values[successors]
        improved = scores.max(axis=1)
        improved[[UNSAFE, GOAL]] = 0.0, 1.0
        if np.abs(improved - values).max() < 1e-12:
            return scores
        values = improved


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
        provenance="make_grid.py; see PROVENANCE.md",
    )
    (out / f"{name}.yaml").write_text(manifest_yaml(manifest))


if __name__ == "__main__":
    main()
