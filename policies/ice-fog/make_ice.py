"""Make model.npz and the two policies of a robot that crosses ice in fog; print how often each brings it back.

Usage: python policies/ice-fog/make_ice.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import monitor
from monitor.evaluation.models import load_any_policy
from monitor.model.io import save_model
from monitor.policy.controller import TableReader
from monitor.policy.export import manifest_yaml, table_onnx
from monitor.policy.manifest import ControllerManifest, Input, Manifest, Output

HERE = Path(__file__).parent
MADE = "make_ice.py; see PROVENANCE.md"


class Cell(NamedTuple):
    """A cell of the ice. `back`: the parcel is delivered, and the robot is on its way back."""

    row: int
    column: int
    back: bool


ROWS, COLUMNS = 3, 4
HOME, DEPOT = (2, 0), (2, COLUMNS - 1)
THIN = [(2, column) for column in range(1, COLUMNS - 1)]
"""Between home and depot."""
MOVES = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}
NORTH, EAST, SOUTH, WEST = range(4)
DRIFT, BREAKS = 0.12, 0.3
"""Probabilities: that the wind drives it a row to the south, beside its move; that thin ice breaks at a step on it."""
SEEN, FOG = 0.7, 0.1
"""Probabilities: that the sensor shows the right cell; that it shows none. Otherwise it is one row off."""

CELLS = [Cell(r, c, back) for back in (False, True) for r in range(ROWS) for c in range(COLUMNS)]
CELLS.remove(Cell(*DEPOT, back=False))  # there the parcel is delivered at once
NUMBER = {cell: number for number, cell in enumerate(CELLS)}
WATER = len(CELLS)
STATES = WATER + 1
"""The observations 0 to STATES - 1 are of these states; two more show only whether the parcel is delivered."""
HIDDEN = {False: STATES, True: STATES + 1}
END = NUMBER[Cell(*HOME, back=True)]


def main() -> None:
    """Make all files, then load the policies and evaluate them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this script)")
    out = parser.parse_args().out
    model = make_model()
    save_model(model, out / "model.npz")
    write_hasty(out)
    write_careful(out)
    for name in ("careful", "hasty"):
        policy = load_any_policy(out / f"{name}.yaml", model).table
        assert isinstance(policy, TableReader)
        home, water = outcomes(model, policy, 200)
        print(f"{name}: within 200 steps back at home {home:.4f}, in the water {water:.4f}")


def make_model() -> monitor.MDP:
    """Return the ice: its cells are hidden, a noisy sensor shows them."""
    return monitor.MDP.from_transitions(
        states=STATES,
        actions=len(MOVES),
        transitions=[*transitions()],
        labels={"water": [WATER], "home": [END], "thin": [NUMBER[cell] for cell in CELLS if cell[:2] in THIN]},
        initial={NUMBER[Cell(*HOME, back=False)]: 1.0},
        signals=STATES + len(HIDDEN),
        emissions=[*emissions()],
        state_names=[*map(named, CELLS), "in the water"],
        action_names=list(MOVES),
    )


def named(cell: Cell) -> str:
    """Return the name of a state."""
    return f"row {cell.row} column {cell.column}, {'back' if cell.back else 'out'}"


def neighbour(cell: Cell, action: int) -> Cell:
    """Return the cell that a move leads to; the edge of the ice stops it, and at the depot the parcel is delivered."""
    down, right = list(MOVES.values())[action]
    place = min(max(cell.row + down, 0), ROWS - 1), min(max(cell.column + right, 0), COLUMNS - 1)
    return Cell(*place, back=cell.back or place == DEPOT)


def transitions() -> Iterator[tuple[int, int, int, float]]:
    """Yield (state, action, successor, probability); duplicates are summed."""
    for action in range(len(MOVES)):
        for state in (WATER, END):
            yield state, action, state, 1.0
        for state, cell in enumerate(CELLS):
            if state == END:
                continue
            breaks = BREAKS if cell[:2] in THIN else 0.0
            if breaks:
                yield state, action, WATER, breaks
            moved = neighbour(cell, action)
            yield state, action, NUMBER[moved], (1.0 - breaks) * (1.0 - DRIFT)
            yield state, action, NUMBER[neighbour(moved, SOUTH)], (1.0 - breaks) * DRIFT


def emissions() -> Iterator[tuple[int, int, float]]:
    """Yield (state, observation, probability). Ashore and in the water the robot knows where it is."""
    yield WATER, WATER, 1.0
    for state, cell in enumerate(CELLS):
        if cell[:2] in (HOME, DEPOT):
            yield state, state, 1.0
            continue
        others = {neighbour(cell, action) for action in (NORTH, SOUTH)} - {cell}
        others = {each for each in others if each[:2] not in (HOME, DEPOT)}
        yield state, state, SEEN
        yield state, HIDDEN[cell.back], FOG
        for other in others:
            yield state, NUMBER[other], (1.0 - SEEN - FOG) / len(others)


def forward(cell: Cell) -> int:
    """Return the move towards the other shore."""
    return WEST if cell.back else EAST


def ahead(cell: Cell) -> bool:
    """Return whether the shore that the robot heads for lies in this column."""
    return cell.column == (HOME if cell.back else DEPOT)[1]


def write_hasty(out: Path) -> None:
    """Write the deployed policy: it reacts to the last observation alone."""
    chosen = np.zeros(STATES + len(HIDDEN), dtype=np.int64)
    for state, cell in enumerate(CELLS):
        chosen[state] = NORTH if cell.row == 2 else SOUTH if cell.row == 0 or ahead(cell) else forward(cell)
    chosen[HIDDEN[False]], chosen[HIDDEN[True]] = EAST, WEST
    content = table_onnx(np.eye(len(MOVES))[chosen], "index", "scores")
    (out / "hasty.onnx").write_bytes(content)
    manifest = Manifest(
        name="hasty",
        description="Takes the short way, beside the thin ice; in fog it goes on.",
        file="hasty.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        input=Input(name="state", kind="index"),
        output=Output(name="scores", kind="q_values"),
        mode="greedy",
        provenance=MADE,
    )
    (out / "hasty.yaml").write_text(manifest_yaml(manifest))


def write_careful(out: Path) -> None:
    """Write the fallback: a controller with two memories, 1 once it has been seen in the northern row."""
    signals = STATES + len(HIDDEN)
    following = np.tile(np.array([[0], [1]]), signals)
    choice = np.full((2, signals), NORTH)
    for state, cell in enumerate(CELLS):
        if cell.row == 0:
            following[:, state] = 1
            choice[1, state] = SOUTH if ahead(cell) else forward(cell)
        elif cell.row == 2:
            following[:, state] = 0
        elif ahead(cell):
            choice[1, state] = SOUTH
    choice[1, HIDDEN[False]], choice[1, HIDDEN[True]] = EAST, WEST
    content = json.dumps({"choice": choice.tolist(), "next": following.tolist()}).encode() + b"\n"
    (out / "careful.json").write_bytes(content)
    manifest = ControllerManifest(
        kind="controller",
        name="careful",
        description="Goes round by the north: forward only once seen there, and not seen in the south since.",
        file="careful.json",
        sha256=hashlib.sha256(content).hexdigest(),
        provenance=MADE,
    )
    (out / "careful.yaml").write_text(manifest_yaml(manifest))


def outcomes(model: monitor.MDP, policy: TableReader, horizon: int) -> tuple[float, float]:
    """Return the exact probabilities of home and water after `horizon` steps from the start."""
    assert model.initial is not None
    weights = np.zeros((model.states, policy.memories))
    weights[:, 0] = model.initial
    acting = policy.blind_choice(model)  # [state's memory, state, new memory, action]
    for _ in range(horizon):
        following = np.zeros_like(weights)
        for state, memory in zip(*np.nonzero(weights), strict=True):
            for after, action in zip(*np.nonzero(acting[memory, state]), strict=True):
                successors, chances = model.row(state, action)
                following[successors, after] += weights[state, memory] * acting[memory, state, after, action] * chances
        weights = following
    return float(weights[END].sum()), float(weights[WATER].sum())


if __name__ == "__main__":
    main()
