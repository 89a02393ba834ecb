"""DRN, Storm's explicit text format: Markov chains, and Markov decision processes with or without observations.

    @type: MDP
    @parameters
    @reward_models
    steps
    @nr_states
    2
    @nr_choices
    2
    @model
    state 0 [0] init
        action go [1]
            0 : 0.5
            1 : 0.5
    state 1 [0] goal
        action __NOLABEL__ [0]
            1 : 1

In a file of type POMDP, a state line also gives the state's observation: `state 0 {2} [0] init`. Comments begin with
`//`.

Source: stormchecker.org, "Explicit model formats".
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.authoring.formats.choices import (
    ENTRY_BYTES,
    MAX_MODEL_BYTES,
    Choices,
    as_mdp,
    merged_order,
    require_memory,
)
from monitor.authoring.formats.textfile import Line, lines, shown
from monitor.errors import ModelError
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP
from monitor.model.rewards import chosen_structure
from monitor.model.sparse_rows import ROW_SUM_TOLERANCE

_UNNAMED: Final = "__NOLABEL__"
_STATE: Final = re.compile(r"state ([0-9]+)((?: ?[!{][^\s}]*\}?)?)(?: ?\[([^\]]*)\])?(.*)\Z")
_ACTION: Final = re.compile(r"action ([^\s\[]+)(?: ?\[([^\]]*)\])?\Z")
_MOST: Final = 1 << 48
_MOST_SIGNALS: Final = 1 << 31


@dataclass
class _Given:
    """The content of the lines, with C choices, N branches and S states."""

    rewards: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    chosen: int | None = None
    earned: float = 0.0
    of_state: float = 0.0
    labels: dict[str, array[int]] = field(default_factory=dict)
    states: int = 0
    of: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("q"))
    names: dict[str, int] = field(default_factory=dict)
    starts: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("q"))
    after: array[int] = field(default_factory=lambda: array("q"))
    chances: array[float] = field(default_factory=lambda: array("d"))
    hidden: bool = False
    shown: array[int] = field(default_factory=lambda: array("q"))
    paid: array[float] = field(default_factory=lambda: array("d"))


def read_files(files: Mapping[str, bytes], source: str, rewards: str | None = None) -> MDP:
    """Read a model; the reader that `monitor.model.formats` names.

    `rewards`: the reward model, if there are several.
    """
    return read_drn(files[".drn"], source, rewards)


def read_drn(content: bytes, source: str, rewards: str | None = None, *, limit: int = MAX_MODEL_BYTES) -> MDP:
    """Read the model in the bytes of a DRN file. `limit`: bytes of memory for the model.

    Raises:
        ModelError: the file is malformed, its kind is not supported, or it has several reward models and `rewards`
            names none of them. The message gives the line. No other error is raised.
    """
    try:
        require_memory(ENTRY_BYTES // 8 * len(content), limit, f"{len(content):,} bytes of text")
        rows = lines(content, source or "model", comment="//")
        given = _Given()
        _header(given, rows)
        given.chosen = chosen_structure(given.rewards, rewards) if given.rewards or rewards else 0
        last = Line("", 0, "")
        for row in rows:
            last = row
            _add(given, row)
        _check(given, last)
        return as_mdp(_choices(given, limit), source, limit)
    except ModelError as error:
        raise ModelError(f"model {source}: {error}") from error


def _header(given: _Given, rows: Iterator[Line]) -> None:
    """Read the lines up to `@model`."""
    section = ""
    for row in rows:
        key, _, value = row.text.partition(":")
        if key == "@model":
            if {"@type", "@nr_states"} - given.numbers.keys():
                raise row.error("@type or @nr_states is missing above this line")
            return
        if key.startswith("@"):
            section = key
            given.numbers.setdefault(section, -1)
            if section == "@type" and value.strip() not in ("DTMC", "MDP", "POMDP"):
                raise row.error(f"{shown(value.strip())} models are not supported; DTMC, MDP and POMDP are")
            given.hidden = given.hidden or value.strip() == "POMDP"
        elif section in ("@nr_states", "@nr_choices"):
            given.numbers[section] = row.index(row.text, _MOST, "count")
        elif section == "@reward_models":
            given.rewards += row.text.split()
        elif section in ("@parameters", "@placeholders"):
            raise row.error("parameters and placeholders are not supported: give the model with numbers")
        else:
            raise row.error(f"{shown(row.text)} is not expected before @model")
    raise ModelError("the line @model is missing: this is no .drn file, or it is cut off")


def _add(given: _Given, row: Line) -> None:
    """Add one line of the model."""
    if row.text.startswith("state "):
        _add_state(given, row)
    elif row.text.startswith("action "):
        _add_choice(given, row)
    else:
        _add_branch(given, row)


def _add_state(given: _Given, row: Line) -> None:
    found = _STATE.match(row.text)
    seen = "" if found is None else str(found[2]).strip()
    if found is None or (seen[:1] + seen[-1:] != "{}" if given.hidden else seen):
        observation = "{observation} " if given.hidden else ""
        raise row.error(f"{shown(row.text)} is not of the form: state number {observation}[rewards] labels")
    _close(given, row)
    if row.index(found[1], given.numbers["@nr_states"], "state") != given.states:
        raise row.error(f"state {found[1]} follows state {given.states - 1}: number the states from 0 without gaps")
    if given.hidden:
        given.shown.append(row.index(seen[1:-1], _MOST_SIGNALS, "observation"))
    given.of_state = _reward(given, row, found[3])
    for label in found[4].split():
        given.labels.setdefault(label.strip('"'), array("q")).append(given.states)
    given.states += 1


def _close(given: _Given, row: Line) -> None:
    """Raise ModelError if the last state above `row` has no choice, or the last choice has no branch."""
    if given.states and (not given.of or given.of[-1] != given.states - 1):
        raise row.error(f"state {given.states - 1}, above this line, has no action")
    if given.of and given.starts[-1] == len(given.after):
        raise row.error("the action above this line has no successor")


def _add_choice(given: _Given, row: Line) -> None:
    found = _ACTION.match(row.text)
    if found is None or not given.states:
        raise row.error(f"{shown(row.text)} is not of the form: action name [rewards], below a state")
    if given.of and given.starts[-1] == len(given.after):
        raise row.error("the action above this line has no successor")
    given.earned = given.of_state + _reward(given, row, found[2])
    given.of.append(given.states - 1)
    name = "" if found[1] == _UNNAMED else found[1]
    given.name.append(given.names.setdefault(name, len(given.names)))
    given.starts.append(len(given.after))
    given.line.append(row.number)


def _add_branch(given: _Given, row: Line) -> None:
    successor, colon, probability = row.text.partition(":")
    if not colon or not given.of or given.of[-1] != given.states - 1:
        raise row.error(f"{shown(row.text)} is not of the form: successor : probability, below an action")
    given.after.append(row.index(successor.strip(), given.numbers["@nr_states"], "state"))
    given.chances.append(row.probability(probability.strip()))
    given.paid.append(given.earned)


def _reward(given: _Given, row: Line, text: str | None) -> float:
    if text is None or given.chosen is None:
        return 0.0
    parts = text.split(",")
    if len(parts) != max(1, len(given.rewards)):
        raise row.error(f"[{text[:60]}] holds {len(parts)} rewards, not {max(1, len(given.rewards))}")
    return row.number_of(parts[given.chosen].strip(), "reward")


def _check(given: _Given, last: Line) -> None:
    """Raise ModelError if the counts differ from the declared ones, or if a choice does not sum to 1."""
    _close(given, last)
    for key, found in (("@nr_states", given.states), ("@nr_choices", len(given.of))):
        if given.numbers.get(key, found) != found:
            raise last.error(f"{key} declares {given.numbers[key]}, the file has {found}: it may be cut off")
    sums = np.add.reduceat(np.asarray(given.chances), np.asarray(given.starts)) if given.of else np.zeros(0)
    bad = np.flatnonzero(~(np.abs(sums - 1) <= ROW_SUM_TOLERANCE))
    if bad.size:
        raise Line(last.file, given.line[bad[0]], "").error(
            f"the probabilities of this action sum to {sums[bad[0]]:.12g}, not 1 ({bad.size} such actions): correct "
            "them, or write them with more digits"
        )


def _choices(given: _Given, limit: int) -> Choices:
    require_memory(2 * len(given.labels) * given.states, limit, f"{len(given.labels):,} labels")
    state, kind, names = _kinds(given)
    labels = {name: np.asarray(states) for name, states in given.labels.items()}
    initial = labels.pop("init", np.zeros(0, np.int64))
    return Choices(
        states=given.states,
        state=state,
        kind=kind,
        kinds=len(given.names),
        names=names,
        indptr=np.append(np.asarray(given.starts), len(given.after)),
        successors=np.asarray(given.after),
        probabilities=np.asarray(given.chances),
        rewards=_paid(np.asarray(given.paid)),
        initial=initial,
        labels=labels,
        emissions=Emissions.of_states(max(given.shown) + 1, np.asarray(given.shown)) if given.hidden else None,
    )


def _kinds(given: _Given) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Return the state and the action of each choice, and the actions' names.

    The names are empty if every name is only the number of its choice.
    """
    state, name = np.asarray(given.of), np.asarray(given.name)
    names = np.array(list(given.names), object)
    numbered = (np.arange(len(state)) - np.searchsorted(state, state)).astype(str)
    if bool((names[name] == numbered).all()):
        return state, np.zeros(len(state), np.int64), ("",) * len(names)
    place = merged_order(state, name, len(names))
    return state, place[name], tuple(names[np.argsort(place)])


def _paid(rewards: Floats) -> Floats | None:
    return rewards if rewards.any() else None
