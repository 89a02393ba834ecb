"""PRISM's explicit files: `.tra`, with `.lab`, `.srew`, `.trew`, `.sta` and `.obs` beside it; or all in `.pexp`.

PRISM writes them with `-exportmodel out.tra,lab,srew,trew,sta`; Storm reads a similar form. A Markov decision process:

    .tra   states choices transitions
           state choice successor probability [action]     one line for each transition
    .lab   0="init" 1="goal"
           state: 0 1                                      numbers of the labels that hold
    .srew  states entries                                  .trew  states choices entries
           state reward                                           state choice successor reward
    .sta   (x,done)
           0:(1,false)

If states are hidden, a line of `.tra` also gives the observation of its successor, and `-` marks initial states:

    .tra   states choices transitions observations
           - - state - observation
           state choice successor probability observation [action]
    .obs   (wall,goal)                                     the observables of each observation, which become its name
           0:(true,false)

A Markov chain lacks `choices` and `choice` and becomes a model with one action. The reward of a transition is the
reward of its state plus its own reward. If there are several reward structures, PRISM numbers the files: out1.srew,
out1.trew, out2.srew, ... In newer versions, comments at the beginning give the type of a file:

    # Transitions (MDP)
    # Reward structure "minutes"
    # State rewards

A `.pexp` file has all of these parts, each below its comment. Source: the PRISM manual, "Explicit Model Files".
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.formats.choices import (
    CELL_BYTES,
    ENTRY_BYTES,
    MAX_MODEL_BYTES,
    STATE_BYTES,
    Choices,
    as_mdp,
    merged_order,
    require_memory,
)
from monitor.authoring.formats.prism_parts import FilePart, check_headings, chosen, divided
from monitor.authoring.formats.textfile import Line, shown
from monitor.errors import ModelError
from monitor.model.annotations import LONGEST_NAME
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP
from monitor.model.sparse_rows import ROW_SUM_TOLERANCE

Values = list[float | str | bool]
"""Values of the variables in one state."""

_DECLARED: Final = re.compile(r'\s*([0-9]{1,9})="([^"]*)"')
_STATE: Final = re.compile(r"([0-9]{1,18}):\s*\((.*)\)\Z")
_MOST_KEYS: Final = 1 << 62


@dataclass
class _Transitions:
    """The lines of a `.tra` file.

    `signals`: number of observations, 0 if states are seen; `shown`: state -> observation.
    """

    states: int
    chain: bool
    header: Line
    signals: int = 0
    shown: dict[int, int] = field(default_factory=dict)
    at: array[int] = field(default_factory=lambda: array("q"))
    taken: array[int] = field(default_factory=lambda: array("q"))
    after: array[int] = field(default_factory=lambda: array("q"))
    chances: array[float] = field(default_factory=lambda: array("d"))
    name: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("q"))
    names: dict[str, int] = field(default_factory=dict)

    def error(self, number: int, problem: str) -> ModelError:
        return Line(self.header.file, int(number), "").error(problem)

    @cached_property
    def width(self) -> int:
        """The largest choice plus 1. Read it only after all lines have been added."""
        return max(self.taken, default=0) + 1


def read_files(files: Mapping[str, bytes], source: str, rewards: str | None = None) -> MDP:
    """Read a model; the reader that `monitor.model.formats` names.

    `rewards`: the reward structure, if there are several.
    """
    return read_prism(files, source, rewards)


def read_combined(
    files: Mapping[str, bytes], source: str, rewards: str | None = None, *, limit: int = MAX_MODEL_BYTES
) -> MDP:
    """Read the model in a `.pexp` file. Arguments and errors are as for `read_prism`."""
    content = files[".pexp"]
    try:
        require_memory(2 * len(content), limit, f"{len(content):,} bytes of text")
        return _model(divided(FilePart(source, content)), source, rewards, limit)
    except ModelError as error:
        raise ModelError(f"model {source}: {error}") from error


def read_prism(
    files: Mapping[str, bytes], source: str, rewards: str | None = None, *, limit: int = MAX_MODEL_BYTES
) -> MDP:
    """Read the model in the bytes of a `.tra` file and of the files beside it.

    Args:
        files: contents of the files by suffix, or by number and suffix: `.tra`, `.lab`, `1.srew`, ...
        source: name of the file, for messages.
        rewards: the reward structure, if there are several: its name, its number, or `none`.
        limit: bytes of memory for the model.

    Raises:
        ModelError: a file is malformed, the files do not fit each other, or there are several reward structures and
            `rewards` names none of them. The message names file and line. No other error is raised.
    """
    path = PurePath(source) if PurePath(source).name else PurePath("model")
    stem = str(path.with_suffix(""))
    try:
        return _model({key: FilePart(stem + key, files[key]) for key in files}, source, rewards, limit)
    except ModelError as error:
        raise ModelError(f"model {source}: {error}") from error


def _model(parts: Mapping[str, FilePart], source: str, wanted: str | None, limit: int) -> MDP:
    for key, part in parts.items():
        check_headings(part, PurePath(f"m{key}").suffix)
    if ".tra" not in parts:
        raise ModelError("there are no transitions")
    nothing = FilePart("", b"")
    size = len(parts[".tra"].content)
    require_memory(ENTRY_BYTES // 10 * size, limit, f"{size:,} bytes of transitions")
    structure = chosen(parts, wanted)
    given = _transitions(parts[".tra"].lines())
    order = _checked_order(given)
    emissions = _emissions(given, parts.get(".obs"), limit)
    choices = _choices(given, order)
    labels, initial = _labels(parts.get(".lab", nothing).lines("# "), given.states, limit)
    variables, valuations = _valuations(parts.get(".sta", nothing).lines(), given.states, "state", limit)
    rewards = np.zeros(len(order))
    if structure.of_states is not None:
        rewards += _state_rewards(structure.of_states.lines(), given)[_column(given.at)[order]]
    if structure.of_transitions is not None:
        rewards += _transition_rewards(structure.of_transitions, given, order)
    whole: dict[str, Any] = {
        "labels": labels,
        "initial": initial,
        "variables": variables,
        "valuations": valuations,
        "emissions": emissions,
    }
    return as_mdp(Choices(**choices, **whole, rewards=rewards if rewards.any() else None), source, limit)


# ---- transitions ----


def _transitions(rows: Iterator[Line]) -> _Transitions:
    header = next(rows, None)
    if header is None:
        raise ModelError("the file is empty; its first line gives the numbers of states, choices and transitions")
    if not header.text[:1].isdigit():
        raise header.error(
            f"{shown(header.text)} does not give the numbers of states, choices (not for a chain) and transitions; "
            "PRISM's forms for Matlab and MRMC are not read: export FILE.tra without them"
        )
    counts = [header.index(text, _MOST_KEYS, "count") for text in header.text.split()]
    if len(counts) not in (2, 3, 4) or 0 in (counts[0], *counts[3:]):
        raise header.error(
            "give the numbers of states, choices (not for a chain), transitions, and observations where states are "
            "hidden"
        )
    given = _Transitions(counts[0], chain=len(counts) == 2, header=header, signals=sum(counts[3:]))
    for row in rows:
        _add(given, row)
    transitions = counts[min(2, len(counts) - 1)]
    if len(given.at) != transitions:
        raise header.error(
            f"{transitions} transitions are declared, {len(given.at)} follow: the number is wrong or the file cut off"
        )
    return given


def _add(given: _Transitions, row: Line) -> None:
    """Add one line."""
    _refuse_rows(row)
    numbers = 3 if given.chain else 5 if given.signals else 4
    parts = row.text.split(maxsplit=numbers)
    if len(parts) < numbers:
        form = "state successor probability" if given.chain else "state choice successor probability"
        raise row.error(f"{shown(row.text)} is not of the form: {form}{' observation' if given.signals else ''}")
    if given.signals:
        _add_shown(given, row, parts[2], parts[4])
        if parts[:2] + parts[3:4] == ["-"] * 3:
            return  # the observation of an initial state
    given.at.append(row.index(parts[0], given.states, "state"))
    given.taken.append(0 if given.chain else row.index(parts[1], 1 << 31, "choice"))
    given.after.append(row.index(parts[1 if given.chain else 2], given.states, "state"))
    given.chances.append(row.probability(parts[2 if given.chain else 3]))
    name = "" if given.chain or len(parts) == numbers else parts[numbers]
    given.name.append(given.names.setdefault(name, len(given.names)))
    given.line.append(row.number)


def _add_shown(given: _Transitions, row: Line, state: str, observation: str) -> None:
    at, seen = row.index(state, given.states, "state"), row.index(observation, given.signals, "observation")
    if given.shown.setdefault(at, seen) != seen:
        raise row.error(f"state {at} shows observation {given.shown[at]} on an earlier line, and {seen} here")


def _refuse_rows(row: Line) -> None:
    """Raise ModelError if the line is `state probability:successor probability:successor ...`."""
    if any(":" in part for part in row.text.split()[1:3]):
        raise row.error(f"{shown(row.text)} is of PRISM's form with one line for each row: export without `rows`")


def _checked_order(given: _Transitions) -> Ints:
    """Check that the lines are complete, and return their order [N] by state, choice and successor.

    Raises ModelError if a transition is given twice, a state has none, or a choice does not sum to 1 or has two names.
    """
    at, taken, after = _column(given.at), _column(given.taken), _column(given.after)
    order = np.lexsort((after, taken, at))
    at, taken, after, line = at[order], taken[order], after[order], _column(given.line)[order]
    again = (np.diff(at) == 0) & (np.diff(taken) == 0)
    twice = np.flatnonzero(again & (np.diff(after) == 0))
    if twice.size:
        i = twice[0]
        raise given.error(
            max(line[i : i + 2]), f"repeats the transition of line {min(line[i : i + 2])}: add the probabilities up"
        )
    held = np.zeros(1 + len(at), np.int64)
    held[: len(at)] = at
    found = np.concatenate([np.unique(at), [given.states]])
    missing = np.flatnonzero(found != np.arange(len(found)))
    if missing.size:
        raise given.header.error(
            f"state {missing[0]} of {given.states} has no transition: give it one "
            "(to itself with probability 1 if it is absorbing)"
        )
    _check_choices(given, order, again)
    return order


def _check_choices(given: _Transitions, order: Ints, again: Bools) -> None:
    starts = np.flatnonzero(np.concatenate([[True], ~again]))
    name, line = _column(given.name)[order], _column(given.line)[order]
    other = np.flatnonzero(again & (np.diff(name) != 0))
    if other.size:
        raise given.error(line[other[0] + 1], "this choice has another action on another line: name it alike")
    sums = np.add.reduceat(np.asarray(given.chances)[order], starts)
    bad = np.flatnonzero(~(np.abs(sums - 1) <= ROW_SUM_TOLERANCE))
    if bad.size:
        first = starts[bad[0]]
        where = f"state {given.at[order[first]]}" + ("" if given.chain else f", choice {given.taken[order[first]]}")
        raise given.error(
            line[first],
            f"the probabilities of {where} sum to {sums[bad[0]]:.12g}, not 1 ({bad.size} such choices): correct them, "
            "or write them with more digits (PRISM: -exportmodelprecision 17)",
        )


def _choices(given: _Transitions, order: Ints) -> dict[str, Any]:
    """Return the first fields of `Choices`. Without names, the kind of a choice is its number in the file."""
    at, taken, name = _column(given.at)[order], _column(given.taken)[order], _column(given.name)[order]
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(at) != 0) | (np.diff(taken) != 0)]))
    state, kind, names = at[starts], taken[starts], ()
    if any(given.names):
        place = merged_order(state, name[starts], len(given.names))
        kind = place[name[starts]]
        names = tuple(np.array(list(given.names), object)[np.argsort(place)])
    return {
        "states": given.states,
        "state": state,
        "kind": kind,
        "kinds": len(names) or given.width,
        "names": names,
        "indptr": np.concatenate([starts, [len(at)]]),
        "successors": _column(given.after)[order],
        "probabilities": np.asarray(given.chances)[order],
    }


def _emissions(given: _Transitions, described: FilePart | None, limit: int) -> Emissions | None:
    """Return the observations of the states.

    `described`: the observables of each observation, for its name.
    """
    if not given.signals:
        if described is not None:
            name = PurePath(described.file).name
            raise given.header.error(
                f"there is {name}, but no number of observations here: export both again, or remove {name}"
            )
        return None
    require_memory(ENTRY_BYTES * given.states, limit, f"{given.states:,} states with observations")
    if len(given.shown) < given.states:
        lost = next(state for state in range(given.states) if state not in given.shown)
        raise given.header.error(
            f"state {lost} of {given.states} has no observation: a line that leads there gives it, or - - {lost} - 0"
        )
    found = Emissions.of_states(given.signals, np.array([given.shown[state] for state in range(given.states)]))
    if described is None:
        return found
    variables, values = _valuations(described.lines(), given.signals, "observation", limit)
    names = [", ".join(map(_observable, variables, each)) for each in values]
    usable = variables and len(set(names)) == len(names) and max(map(len, names)) <= LONGEST_NAME
    return found.named(names) if usable else found


def _observable(variable: str, value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
    return variable.strip('"') + f"={text}"


def _column(values: array[int]) -> Ints:
    return np.asarray(values, np.int64)


# ---- labels ----


def _labels(rows: Iterator[Line], states: int, limit: int) -> tuple[dict[str, Bools], Ints]:
    """Return the labels as [S] bool, and the initial states. `deadlock` is left out if it holds nowhere."""
    header = next(rows, None)
    if header is None:
        return {}, np.zeros(0, np.int64)
    declared = _declared_with_states(rows) if header.text == "#DECLARATION" else _declared(header)
    require_memory(len(declared) * states * 2, limit, f"{len(declared):,} labels of {states:,} states")
    found = {name: np.zeros(states, np.bool_) for name in declared.values()}
    for row in rows:
        state, _, numbers = row.text.replace(":", " ", 1).partition(" ")
        at = row.index(state, states, "state")
        for text in numbers.split():
            if text not in declared:
                raise row.error(f"label {shown(text)} is not declared at the beginning of the file")
            found[declared[text]][at] = True
    initial = found.pop("init", np.zeros(states, np.bool_))
    if not found.get("deadlock", np.ones(1)).any():
        del found["deadlock"]
    return found, np.flatnonzero(initial)


def _declared(header: Line) -> dict[str, str]:
    """Return the labels of PRISM's first line: number as text -> name."""
    found = _DECLARED.findall(header.text)
    if not found or _DECLARED.sub("", header.text).strip():
        raise header.error(f'{shown(header.text)} does not declare labels; write 0="init" 1="goal"')
    if len({name for _, name in found}) < len(found) or len({number for number, _ in found}) < len(found):
        raise header.error("a label or its number is declared twice")
    return dict(found)


def _declared_with_states(rows: Iterator[Line]) -> dict[str, str]:
    """Return the labels that Storm's files declare before the line `#END`."""
    names: dict[str, str] = {}
    for row in rows:
        if row.text == "#END":
            return names
        names |= {name: name for name in row.text.split()}
    raise ModelError("the .lab file has no line #END after its declaration")


# ---- rewards and valuations ----


def _state_rewards(rows: Iterator[Line], given: _Transitions) -> Floats:
    rewards, seen = np.zeros(given.states), np.zeros(given.states, np.bool_)
    for row, parts in _reward_lines(rows, 2, given.states):
        state = row.index(parts[0], given.states, "state")
        if seen[state]:
            raise row.error(f"the reward of state {state} is given twice")
        rewards[state], seen[state] = row.number_of(parts[1], "reward"), True
    return rewards


def _transition_rewards(part: FilePart, given: _Transitions, order: Ints) -> Floats:
    """Return the reward of each sorted line of `.tra`, [N]."""
    keys = _keys(given, (_column(given.at), _column(given.taken), _column(given.after)))[order]
    found, values = array("q"), array("d")
    numbers = array("q")
    for row, parts in _reward_lines(part.lines(), 3 if given.chain else 4, given.states):
        state, choice, after = (parts[0], "0", parts[1]) if given.chain else parts[:3]
        where = row.index(state, given.states, "state"), row.index(choice, given.width, "choice")
        found.append((where[0] * given.width + where[1]) * given.states + row.index(after, given.states, "state"))
        values.append(row.number_of(parts[-1], "reward"))
        numbers.append(row.number)
        if len(numbers) > len(keys):
            raise row.error(f"there are more rewards than the {len(keys):,} transitions of the .tra file")
    wanted = _column(found)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    lost = np.flatnonzero(keys[places] != wanted)
    repeated = np.flatnonzero(np.bincount(places, minlength=1)[places] > 1)
    name = PurePath(part.file).name
    if lost.size:
        raise Line(name, numbers[lost[0]], "").error("this transition is not in the .tra file: leave the reward out")
    if repeated.size:
        raise Line(name, numbers[repeated[-1]], "").error("the reward of this transition is given twice")
    rewards = np.zeros(len(keys))
    rewards[places] = np.asarray(values)
    return rewards


def _keys(given: _Transitions, parts: tuple[Ints, Ints, Ints]) -> Ints:
    """Return a unique number for each (state, choice, successor)."""
    if given.states * given.width * given.states >= _MOST_KEYS:
        raise ModelError("the model is too large for rewards of transitions")
    keys: Ints = (parts[0] * given.width + parts[1]) * given.states + parts[2]
    return keys


def _reward_lines(rows: Iterator[Line], width: int, states: int) -> Iterator[tuple[Line, list[str]]]:
    """Yield the lines with their parts. If the first line begins with the number of states, this line is the header.

    The last number of the header is the number of the lines that follow.
    """
    header, count = None, 0
    for place, row in enumerate(rows):
        _refuse_rows(row)
        parts = row.text.split()
        if place == 0 and parts[0] == str(states):
            header = row
            continue
        if len(parts) != width:
            raise row.error(f"{shown(row.text)} has {len(parts)} parts, not {width}")
        count += 1
        yield row, parts
    if header is not None and (declared := header.index(header.text.split()[-1], _MOST_KEYS, "count")) != count:
        raise header.error(
            f"{declared:,} rewards are declared, {count:,} follow: the number is wrong or the file cut off"
        )


def _valuations(
    rows: Iterator[Line], count: int, of: str, limit: int
) -> tuple[tuple[str, ...], list[list[float | str | bool]]]:
    """Return the names of the variables, and `count` valuations. `of`: what has valuations, such as `state`."""
    header = next(rows, None)
    if header is None:
        return (), []
    if not (header.text.startswith("(") and header.text.endswith(")")):
        raise header.error(f"{shown(header.text)} does not name variables; write (x,y)")
    variables = tuple(name.strip() for name in header.text[1:-1].split(","))
    size = STATE_BYTES + 2 * CELL_BYTES * len(variables)
    require_memory(size * count, limit, f"{len(variables):,} variables of {count:,} {of}s")
    found: list[Values | None] = [None] * count
    for row in rows:
        parts = _STATE.match(row.text)
        values = parts[2].split(",") if parts else []
        if parts is None or len(values) != len(variables):
            raise row.error(f"{shown(row.text)} is not of the form {of}:({','.join(variables)})")
        place = row.index(parts[1], count, of)
        if found[place] is not None:
            raise row.error(f"the valuation of {of} {place} is given twice")
        found[place] = [_value(row, text.strip()) for text in values]
    if None in found:
        raise header.error(f"{of} {found.index(None)} has no valuation: give one for each of the {count} {of}s")
    return variables, [values for values in found if values is not None]


def _value(row: Line, text: str) -> float | str | bool:
    if text in ("true", "false"):
        return text == "true"
    if text[:1].isdigit() or text[:1] in ("-", "+", "."):
        return row.number_of(text, "value")
    return text
