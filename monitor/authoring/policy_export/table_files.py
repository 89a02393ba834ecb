"""Tables in files: `.json`, `.csv` and `.npy`, with S actions, or S rows of A scores or probabilities."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.policy_export.original import ExportRequest, Original, action_numbers, tabulated
from monitor.errors import InputError, PolicyError
from monitor.model.encode import encode_action_text, encode_state
from monitor.model.mdp import MDP

SUFFIXES = (".json", ".csv", ".npy")

LARGEST_ARRAY = 256 << 20
"""Largest size in bytes of a `.npy` file: 32 million probabilities."""

LARGEST_TEXT = 64 << 20
"""Largest size in bytes of a text file. Its numbers take many times as much memory."""


def read_table(model: MDP, request: ExportRequest) -> Original:
    """Return the policy of a table file.

    Raises PolicyError if the file is unreadable, malformed, or not of the model's shape. A CSV file with a header
    `state,action` has one line for each state in any order, by number or by name. Without a header, line s has the
    action of state s, or A numbers.
    """
    file = Path(request.source)
    suffix = file.suffix.lower()
    try:
        _check_size(file)
        match suffix:
            case ".npy":
                with file.open("rb") as opened:
                    values = np.lib.format.read_array(opened, allow_pickle=False)
            case ".json":
                values = _array(json.loads(file.read_text(encoding="utf-8")))
            case _:
                values = _of_csv(file.read_text(encoding="utf-8"), model)
    except PolicyError as error:
        raise PolicyError(f"policy {file}: {error}") from error
    except (OSError, ValueError, EOFError, MemoryError, csv.Error, RecursionError) as error:
        raise PolicyError(f"policy {file}: cannot be read as a table ({error})") from error
    if suffix != ".csv" and values.shape == (model.states,):
        values = action_numbers(values, model, f"policy {file}")
    return tabulated(values, model, request, ())


def _check_size(file: Path) -> None:
    most = LARGEST_ARRAY if file.suffix.lower() == ".npy" else LARGEST_TEXT
    if (size := file.stat().st_size) > most:
        raise PolicyError(f"it has {size:,} bytes, more than the limit of {most:,}")


def _array(value: object) -> AnyArray:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise PolicyError("its rows have different lengths") from error


def _of_csv(text: str, model: MDP) -> AnyArray:
    lines = [[cell.strip() for cell in row] for row in csv.reader(StringIO(text)) if any(map(str.strip, row))]
    if lines and [cell.lower() for cell in lines[0]] == ["state", "action"]:
        return _by_state(lines[1:], model)
    if {len(row) for row in lines} == {1}:
        return np.array([_action(row[0], model, n) for n, row in enumerate(lines, start=1)])
    return _array([[_number(cell, n) for cell in row] for n, row in enumerate(lines, start=1)])


def _by_state(lines: list[list[str]], model: MDP) -> AnyArray:
    actions = np.full(model.states, -1)
    for n, row in enumerate(lines, start=2):
        if len(row) != 2:
            raise PolicyError(f"line {n}: write state,action")
        try:
            state = (
                encode_state(model, "index", int(row[0])) if row[0].isdigit() else encode_state(model, "name", row[0])
            )
        except InputError as error:
            raise PolicyError(f"line {n}: {error.detail}") from error
        if actions[state] >= 0:
            raise PolicyError(f"line {n}: state {row[0]} occurs twice")
        actions[state] = _action(row[1], model, n)
    missing = np.flatnonzero(actions < 0)
    if missing.size:
        raise PolicyError(f"{missing.size} states have no action, the first is {missing[0]}; give one for each")
    return actions


def _action(cell: str, model: MDP, line: int) -> int:
    try:
        return encode_action_text(model, cell)
    except InputError as error:
        raise PolicyError(f"line {line}: {error.detail}") from error


def _number(cell: str, line: int) -> float:
    try:
        return float(cell)
    except ValueError as error:
        raise PolicyError(f"line {line}: {cell[:40]!r} is not a number") from error
