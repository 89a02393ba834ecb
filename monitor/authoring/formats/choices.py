"""Models as verification tools represent them, with a list of choices for each state; conversion from and to `MDP`.

In an `MDP`, action a is the same action in every state. PRISM, Storm and UMB number the choices of each state from 0,
and may name them. If choices have names, each name becomes an action, in the order of the file. A name that occurs k
times in one state becomes k actions, `go`, `go 2`, ... A choice without a name is called `unlabelled`. If no choice has
a name, the action is the choice's index in its state.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import ModelError
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP
from monitor.model.rewards import common_rewards

MAX_MODEL_BYTES: Final = 4 << 30
"""Largest memory for reading a model. Larger models are refused before memory is allocated."""

ROW_BYTES, ENTRY_BYTES, STATE_BYTES, CELL_BYTES, NAME_BYTES = 48, 300, 64, 200, 700
"""Largest memory, in bytes, while reading, for a row (s, a), an entry, a state, a variable and a name of a state.

An observation of a state counts as an entry.
"""

UNLABELLED: Final = "unlabelled"
_LONGEST_NAME: Final = 256


@dataclass(frozen=True)
class Choices:
    """C choices with N entries in S states.

    Attributes:
        states: S.
        state: [C] state of each choice.
        kind: [C] number of the choice's action, `0..kinds-1`; a state may have several choices with the same number.
        kinds: number of actions.
        names: name of each kind, "" for none; or empty.
        indptr: [C + 1]; the entries of choice c are `indptr[c]` up to `indptr[c + 1]`.
        successors, probabilities: [N].
        rewards: [N] R(s, a, s'), or None.
        initial: possible initial states.
        labels: name -> states, or [S] bool.
        variables: names of the variables of `valuations`.
        valuations: S rows, or empty.
        emissions: observations of the states if they are hidden, else None.
    """

    states: int
    state: Ints
    kind: Ints
    kinds: int
    names: tuple[str, ...]
    indptr: Ints
    successors: Ints
    probabilities: Floats
    rewards: Floats | None = None
    initial: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    labels: Mapping[str, Any] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    valuations: Sequence[Sequence[float | str | bool]] = ()
    emissions: Emissions | None = None


def require_memory(needed: int, limit: int, what: str) -> None:
    """Raise ModelError if reading needs more than `limit` bytes. `what`: the part that is too large."""
    if needed > limit:
        raise ModelError(f"{what}: reading it takes {needed:,} bytes of memory, more than the limit of {limit:,} bytes")


def as_mdp(choices: Choices, source: str, limit: int, **carried: Any) -> MDP:  # noqa: ANN401 - checked by `MDP.from_rows`
    """Return the model. `limit`: bytes of memory for it. `carried`: further arguments of `MDP.from_rows`.

    A single initial state becomes the initial distribution. Several initial states keep the label `init`, unless
    `carried` has their distribution.

    Raises:
        ModelError: as `MDP.from_rows`, or the model needs too much memory.
    """
    beside = (2 * CELL_BYTES * len(choices.variables) if choices.valuations else 0) + 2 * len(choices.labels)
    size = ENTRY_BYTES * len(choices.successors) + (STATE_BYTES + beside) * choices.states
    require_memory(size + ROW_BYTES * choices.states * choices.kinds, limit, f"{choices.states:,} states")
    action, names = _actions(choices)
    actions = int(max(len(names), action.max(initial=0) + 1))
    require_memory(
        size + ROW_BYTES * choices.states * actions, limit, f"{choices.states:,} states x {actions:,} actions"
    )
    rows = np.repeat(choices.state * actions + action, np.diff(choices.indptr))
    order = np.argsort(rows, kind="stable")
    labels = dict(choices.labels)
    if len(choices.initial) > 1 and "initial" not in carried:
        labels.setdefault("init", choices.initial)
    return MDP.from_rows(
        states=choices.states,
        actions=actions,
        indptr=np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=choices.states * actions))]),
        successors=choices.successors[order],
        probabilities=choices.probabilities[order],
        **_rewards(choices, rows, order, actions),
        labels=labels,
        emissions=choices.emissions,
        action_names=names if any(choices.names) else (),
        valuations=choices.valuations,
        source=source,
        **({"state_names": _state_names(choices), "initial": _initial(choices)} | carried),
    )


def _actions(choices: Choices) -> tuple[Ints, tuple[str, ...]]:
    """Return the action of each choice [C] and the actions' names, sorted by kind, then by occurrence in a state."""
    order = np.lexsort((np.arange(len(choices.kind)), choices.kind, choices.state))
    state, kind = choices.state[order], choices.kind[order]
    new = np.concatenate([[True], (np.diff(state) != 0) | (np.diff(kind) != 0)])[: len(kind)]
    place = np.arange(len(kind))
    again = np.zeros(len(kind), np.int64)
    again[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    most = int(again.max(initial=0)) + 1
    named = choices.names or ("",) * choices.kinds
    kept = [k * most for k in range(choices.kinds) if named[k] or not choices.names]  # an unused kind keeps its number
    codes = np.unique(np.concatenate([choices.kind * most + again, np.array(kept, np.int64)]))
    texts = (named[code // most] or UNLABELLED for code in codes.tolist())
    names = tuple(f"{text} {n % most + 1}" if n % most else text for text, n in zip(texts, codes.tolist(), strict=True))
    return np.searchsorted(codes, choices.kind * most + again), names


def _rewards(choices: Choices, rows: Ints, order: Ints, actions: int) -> dict[str, Any]:
    if choices.rewards is None:
        return {}
    possible = choices.probabilities > 0
    table = common_rewards(rows, choices.rewards, possible, choices.states * actions)
    extra = np.where(possible, choices.rewards - table[rows], 0.0)
    return {"rewards": table.reshape(choices.states, actions), "transition_rewards": extra[order]}


def _initial(choices: Choices) -> Floats | None:
    if len(choices.initial) != 1:
        return None
    weights = np.zeros(choices.states)
    weights[choices.initial] = 1.0
    return weights


def placeholders(count: int) -> tuple[str, ...]:
    """Return names for variables without names."""
    return tuple(f"v{n}" for n in range(count))


def _state_names(choices: Choices) -> tuple[str, ...]:
    """Return names such as `x=1, done=true` from named variables; () if a name is too long or occurs twice."""
    if not choices.valuations or choices.variables == placeholders(len(choices.variables)):
        return ()
    names = tuple(
        ", ".join(f"{name}={_shown(value)}" for name, value in zip(choices.variables, values, strict=True))
        for values in choices.valuations
    )
    fit = max(map(len, names)) <= _LONGEST_NAME and all(name.isprintable() for name in names)
    return names if fit and len(set(names)) == len(names) else ()


def _shown(value: float | str | bool) -> str:  # noqa: FBT001 - a value of a variable
    match value:
        case bool():
            return str(value).lower()
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def merged_order(state: Ints, kind: Ints, kinds: int) -> Ints:
    """Return the place [kinds] of each kind in an order that agrees with the order of choices within every state.

    If this leaves the order open, or if two states contradict each other, the smaller kind comes first. `state` [C] is
    ascending, and `kind` [C] is in the order of choices.
    """
    inside = (np.diff(state) == 0) & (np.diff(kind) != 0)
    pairs = np.unique(kind[:-1][inside] * kinds + kind[1:][inside]) if len(kind) else np.zeros(0, np.int64)
    after: list[list[int]] = [[] for _ in range(kinds)]
    waits = [0] * kinds
    for first, second in zip((pairs // kinds).tolist(), (pairs % kinds).tolist(), strict=True):
        after[first].append(second)
        waits[second] += 1
    free, order = [k for k in range(kinds) if not waits[k]], list[int]()
    while free:
        order.append(kind_ := heapq.heappop(free))
        for second in after[kind_]:
            waits[second] -= 1
            if not waits[second]:
                heapq.heappush(free, second)
    place = np.arange(kinds)
    if len(order) == kinds:
        place[order] = np.arange(kinds)
    return place


def choices_of(model: MDP) -> Choices:
    """Return the available actions of a model as choices, in the order of states and actions.

    The kind of a choice is its action.
    """
    lengths = np.diff(model.indptr)
    rows = np.flatnonzero(lengths)
    rewards = np.repeat(model.rewards.reshape(-1), lengths)
    if model.transition_rewards is not None:
        rewards = rewards + model.transition_rewards
    return Choices(
        states=model.states,
        state=rows // model.actions,
        kind=rows % model.actions,
        kinds=model.actions,
        names=model.action_names,
        indptr=np.concatenate([[0], np.cumsum(lengths[rows])]),
        successors=model.successors,
        probabilities=model.probabilities,
        rewards=rewards if rewards.any() else None,
        initial=initial_states(model),
        labels=model.labels,
        variables=placeholders(len(model.valuations[0]) if model.valuations else 0),
        valuations=model.valuations,
        emissions=model.emissions,
    )


def initial_states(model: MDP) -> Ints:
    """Return the states of the initial distribution or, without one, the states with the label `init`.

    Raises ModelError if there are both and they differ.
    """
    marked = np.flatnonzero(model.labels["init"]) if "init" in model.labels else None
    first = None if model.initial is None else np.flatnonzero(model.initial)
    if marked is not None and first is not None and not np.array_equal(marked, first):
        raise ModelError("the label 'init' marks the initial states in this format, and holds in other ones: rename it")
    found = first if marked is None else marked
    return np.zeros(0, np.int64) if found is None else found


def keeps_order(model: MDP) -> bool:
    """Return whether the actions keep their numbers in a file that orders them only within states (`merged_order`)."""
    choices = choices_of(model)
    used, first = np.unique(choices.kind, return_index=True)
    numbers = np.argsort(np.argsort(first))  # numbers of the used actions by their first occurrence
    place = merged_order(choices.state, numbers[np.searchsorted(used, choices.kind)], len(used))
    return len(used) == model.actions and bool((place[numbers] == np.arange(len(used))).all())


def filled(names: Iterable[str], count: int) -> tuple[str, ...]:
    """Return the names, or `a0`, `a1`, ... if there are none."""
    return tuple(names) or tuple(f"a{n}" for n in range(count))
