"""Writer of PRISM's explicit files, which `monitor.authoring.formats.prism_explicit` describes and reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from monitor.authoring.formats.choices import Choices, choices_of, filled
from monitor.errors import ModelError
from monitor.model.mdp import MDP

_NAME: Final = re.compile(r"[^\s\"#]+\Z")
_TEXT: Final = re.compile(r"[^,()\s0-9.+-][^,()\r\n]*\Z")


def prism_files(model: MDP) -> dict[str, bytes]:
    """Return the files of a model by suffix: `.tra`, `.lab`, `.trew` if it has rewards, `.sta` if it has valuations.

    All rewards are written as rewards of transitions. Reading the files gives the same numbers, bit by bit. Actions are
    named if the model names them, or if some actions are not available everywhere.

    Raises:
        ModelError: a name, a text or an observation cannot be written in these files.
    """
    choices = choices_of(model)
    files = {".tra": _transitions(choices, _names(model)), ".lab": _labels(choices)}
    if choices.rewards is not None:
        files[".trew"] = _rewards(choices)
    if choices.valuations:
        files[".sta"] = _valuations(choices)
    return {suffix: "".join(f"{line}\n" for line in content).encode() for suffix, content in files.items()}


def _names(model: MDP) -> tuple[str, ...]:
    """Return the names of the actions; () if their numbers are enough."""
    names = filled(model.action_names, model.actions) if model.action_names or not model.availability.all() else ()
    for name in names:
        if not _NAME.match(name):
            raise ModelError(
                f"the action name {name!r} cannot be written to .tra files: use names without blanks, quotes and #, "
                "or write a .umb file"
            )
    return names


def _places(choices: Choices) -> list[int]:
    """Return the number of each choice within its state, [C]."""
    first = np.searchsorted(choices.state, choices.state)
    places: list[int] = (np.arange(len(choices.state)) - first).tolist()
    return places


def _transitions(choices: Choices, names: tuple[str, ...]) -> Iterable[str]:
    shown, signals = _shown(choices)
    yield f"{choices.states} {len(choices.state)} {len(choices.successors)}{signals}"
    if shown:
        for state in np.union1d(choices.initial, np.setdiff1d(np.arange(choices.states), choices.successors)).tolist():
            yield f"- - {state} -{shown[state]}"
    columns = choices.state.tolist(), _places(choices), choices.kind.tolist(), choices.indptr.tolist()
    for state, place, kind, first, last in zip(*columns, columns[-1][1:], strict=False):
        name = f" {names[kind]}" if names else ""
        entries = choices.successors[first:last].tolist(), choices.probabilities[first:last].tolist()
        for successor, probability in zip(*entries, strict=True):
            seen = shown[successor] if shown else ""
            yield f"{state} {place} {successor} {probability!r}{seen}{name}"


def _shown(choices: Choices) -> tuple[list[str], str]:
    """Return the observation of each state, and the number of observations, as text; empty if states are seen."""
    if choices.emissions is None:
        return [], ""
    if (only := choices.emissions.only) is None:
        several = int(np.flatnonzero(np.diff(choices.emissions.indptr) > 1)[0])
        raise ModelError(
            f"state {several} shows one of several observations by chance, and in .tra files a state always shows the "
            "same: write a .umb or .npz file"
        )
    return [f" {seen}" for seen in only.tolist()], f" {choices.emissions.signals}"


def _labels(choices: Choices) -> Iterable[str]:
    masks = {"init": np.isin(np.arange(choices.states), choices.initial), **choices.labels}
    yield " ".join(f'{number}="{name}"' for number, name in enumerate(masks))
    table = np.stack([np.asarray(mask) for mask in masks.values()])
    for state in np.flatnonzero(table.any(axis=0)).tolist():
        yield f"{state}: {' '.join(map(str, np.flatnonzero(table[:, state]).tolist()))}"


def _rewards(choices: Choices) -> Iterable[str]:
    rewards = choices.rewards if choices.rewards is not None else np.zeros(0)
    at = np.repeat(np.arange(len(choices.state)), np.diff(choices.indptr))
    paid = np.flatnonzero(rewards)
    yield f"{choices.states} {len(choices.state)} {len(paid)}"
    place = np.array(_places(choices))
    columns = choices.state[at][paid], place[at][paid], choices.successors[paid], rewards[paid]
    for state, number, successor, reward in zip(*(column.tolist() for column in columns), strict=True):
        yield f"{state} {number} {successor} {reward!r}"


def _valuations(choices: Choices) -> Iterable[str]:
    yield f"({','.join(choices.variables)})"
    for state, values in enumerate(choices.valuations):
        yield f"{state}:({','.join(map(_text, values))})"


def _text(value: float | str | bool) -> str:  # noqa: FBT001 - a value of a variable
    match value:
        case bool():
            return str(value).lower()
        case str():
            if not _TEXT.match(value) or value in ("true", "false") or value != value.strip():
                raise ModelError(
                    f"the text {value!r} of a valuation cannot be written to .sta files: write a .umb file"
                )
            return value
        case _:
            return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
