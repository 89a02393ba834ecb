"""Cassandra's `.pomdp` files for models with hidden states, which pomdp-solve and many other solvers read.

    discount: 0.95
    values: reward
    states: left right
    actions: listen open
    observations: growl silence
    start: uniform
    T: listen identity
    T: open uniform
    O: listen
    0.85 0.15
    0.15 0.85
    O: open uniform
    R: listen : * : * : * -1

In such a file, the observation depends on the state *and on the action that led to it*, and there is no observation
before the first action. In an `MDP`, the observation depends on the state alone. If the observation of a state of the
file depends on how this state was entered, the model has several hidden states for it: `left at the start`, `left after
listen`, `left after open`. Actions after which a state has the same observations share one hidden state, which is named
after the first of these actions. The model has only hidden states that can be reached from the start.

The model has one more observation, the last: *nothing yet*, which only the states at the start have. A reward that
depends on the observation is replaced by its mean over the possible observations; `reward_spread` is the largest
distance from the mean. Discount and `values` are ignored, because no formula depends on them.

Source: pomdp.org, "POMDP File Format".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.formats.choices import (
    CELL_BYTES,
    ENTRY_BYTES,
    MAX_MODEL_BYTES,
    NAME_BYTES,
    Choices,
    as_mdp,
    require_memory,
)
from monitor.authoring.formats.pomdp_text import PomdpText, SparseRow, read_text
from monitor.errors import ModelError
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP

_TOLERANCE: Final = 1e-5
"""Largest difference between a sum of probabilities and 1, as in pomdp-solve. The sum is then made 1."""

_START: Final = -1
"""In place of an action, for states at the start: no action has led to them."""

_Entered = tuple[int, int]
"""A hidden state: a state of the file, and the first of the actions after which it has the same observations."""


def read_files(files: Mapping[str, bytes], source: str) -> MDP:
    """Read a model; the reader that `monitor.model.formats` names."""
    return read_pomdp(files[".pomdp"], source)


def read_pomdp(content: bytes, source: str, *, limit: int = MAX_MODEL_BYTES) -> MDP:
    """Read the model in the bytes of a `.pomdp` file. `limit`: bytes of memory for the model.

    Raises:
        ModelError: the file is malformed. The message gives the line. No other error is raised.
    """
    try:
        given = read_text(content, source, limit)
        _divide_by_sums(given)
        return _model(given, _reached(given), source)
    except ModelError as error:
        raise ModelError(f"model {source}: {error}") from error


def _divide_by_sums(given: PomdpText) -> None:
    """Make each row sum to 1. Raises ModelError if a row is missing or if its sum differs too much from 1."""
    given.start = _distribution(given.start, "start:")
    for statement, table in (("T", given.moves), ("O", given.shows)):
        for action in range(given.sizes["actions"]):
            for state in range(given.sizes["states"]):
                what = f"{statement}: {given.called('actions', action)} : {given.called('states', state)}"
                table[action, state] = _distribution(table.get((action, state), {}), what)


def _distribution(row: SparseRow, what: str) -> SparseRow:
    total = sum(row.values())
    if not abs(total - 1) <= _TOLERANCE:
        raise ModelError(f"the probabilities of {what} sum to {total:.12g}, not 1")
    return {place: chance / total for place, chance in row.items() if chance}


@dataclass
class _Reached:
    """The hidden states that can be reached from the start.

    `entered`: hidden state -> the first action that leads to it. `rows`: (hidden state, action) -> successor ->
    probability.
    """

    entered: dict[_Entered, int] = field(default_factory=dict)
    rows: dict[tuple[_Entered, int], dict[_Entered, float]] = field(default_factory=dict)


def _reached(given: PomdpText) -> _Reached:
    found, entries = _Reached(), 0
    alike = [_alike(given, state) for state in range(given.sizes["states"])]
    pending = {(state, _START) for state in given.start}
    found.entered.update(dict.fromkeys(pending, _START))
    while pending:
        here = pending.pop()
        for action in range(given.sizes["actions"]):
            row = {(after, alike[after][action]): p for after, p in given.moves[action, here[0]].items()}
            found.rows[here, action] = row
            entries += len(row) + 1
            require_memory(ENTRY_BYTES * entries, given.limit, f"{entries:,} transitions")
            pending |= row.keys() - found.entered.keys()
            found.entered.update({after: min(action, found.entered.get(after, action)) for after in row})
    return found


def _alike(given: PomdpText, state: int) -> list[int]:
    """Return for each action the first action after which the state has the same observations."""
    first: dict[tuple[tuple[int, float], ...], int] = {}
    rows = (given.shows[action, state] for action in range(given.sizes["actions"]))
    return [first.setdefault(tuple(sorted(row.items())), action) for action, row in enumerate(rows)]


def _model(given: PomdpText, found: _Reached, source: str) -> MDP:
    states = sorted(found.entered)
    number = {state: place for place, state in enumerate(states)}
    actions, labels = given.sizes["actions"], given.names["states"]
    shown = [_shown(given, state) for state in states]
    size = (NAME_BYTES + 2 * CELL_BYTES + 2 * len(labels)) * len(states) + ENTRY_BYTES * sum(map(len, shown))
    require_memory(size, given.limit, f"{len(states):,} states")
    rows = [(state, action, found.rows[state, action]) for state in states for action in range(actions)]
    paid, spread = _rewards(given, rows)
    initial = np.zeros(len(states))
    for state, chance in given.start.items():
        initial[number[state, _START]] = chance
    choices = Choices(
        states=len(states),
        state=np.repeat(np.arange(len(states)), actions),
        kind=np.tile(np.arange(actions), len(states)),
        kinds=actions,
        names=given.names["actions"],
        indptr=np.cumsum([0, *(len(row) for _, _, row in rows)]),
        successors=np.array([number[after] for _, _, row in rows for after in row]),
        probabilities=np.array([chance for _, _, row in rows for chance in row.values()]),
        rewards=paid,
        labels={name: [number[state] for state in states if state[0] == n] for n, name in enumerate(labels)},
        valuations=[_valuation(given, found, state) for state in states],
        emissions=Emissions.from_tuples(
            len(states),
            given.sizes["observations"] + 1,
            [(n, seen, chance) for n, row in enumerate(shown) for seen, chance in row.items()],
        ).named(_called(given)),
    )
    names = _names(given, found, states)
    return as_mdp(choices, source, given.limit, initial=initial, state_names=names, reward_spread=spread)


def _called(given: PomdpText) -> tuple[str, ...]:
    names = given.names["observations"]
    return (*names, "nothing yet") if names else ()


def _shown(given: PomdpText, state: _Entered) -> SparseRow:
    """Return the observations of a hidden state with their probabilities, or *nothing yet* at the start."""
    place, action = state
    return {given.sizes["observations"]: 1.0} if action == _START else given.shows[action, place]


def _entry(given: PomdpText, found: _Reached, state: _Entered) -> str:
    """Return how a hidden state is entered: by the first action that leads to it, or `start`."""
    action = found.entered[state]
    return "start" if action == _START else given.called("actions", action)


def _valuation(given: PomdpText, found: _Reached, state: _Entered) -> tuple[str | float, str]:
    """Return the state of the file (its name, or its number without names), and how it was entered."""
    names = given.names["states"]
    return names[state[0]] if names else float(state[0]), _entry(given, found, state)


def _names(given: PomdpText, found: _Reached, states: list[_Entered]) -> list[str]:
    """Return names such as `left after listen`. If there is one way to enter a state, its name alone is enough."""
    ways, names = Counter(place for place, _ in states), []
    for state in states:
        name, entry = given.called("states", state[0]), _entry(given, found, state)
        how = f" after {entry}" if entry != "start" else " at the start"
        names.append(name + how * (ways[state[0]] > 1))
    return names


def _rewards(
    given: PomdpText, rows: list[tuple[_Entered, int, dict[_Entered, float]]]
) -> tuple[Floats | None, Floats | None]:
    """Return the mean reward of each entry of the rows, and the largest distance from it; None without rewards."""
    if not given.rewards:
        return None, None
    by_observation = any(given_[-1] for given_ in given.rewards)

    @cache
    def paid(action: int, state: int, after: int) -> tuple[float, float]:
        chances = given.shows[action, after] if by_observation else {0: 1.0}
        each = {seen: given.reward(action, state, after, seen) for seen in chances}
        if len(set(each.values())) == 1:
            return next(iter(each.values())), 0.0
        mean = sum(chance * each[seen] for seen, chance in chances.items())
        return mean, max(abs(reward - mean) for reward in each.values())

    pairs = np.array([paid(action, state[0], after[0]) for state, action, row in rows for after in row])
    return pairs[:, 0], pairs[:, 1]
