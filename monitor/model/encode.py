"""Encode an agent's states and actions as indices of the model. A value that denotes no index raises InputError."""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal, assert_never

from monitor.errors import InputError
from monitor.model.centres import live_row
from monitor.model.mdp import MDP
from monitor.types.stream_events import RawState

StateEncoder = Literal["index", "name", "valuation", "bins", "nearest"]

_LONGEST_SHOWN = 80  # a message may be long, but a log line must be short


def encode_state(model: MDP, encoder: StateEncoder, raw: RawState) -> int:
    """Return the state that `raw` denotes.

    The encoders, and the form of `raw` for each:

    - `index`: the number of the state.
    - `name`: one of `model.state_names`.
    - `valuation`: a tuple equal to one of `model.valuations` (as Python compares: 1, 1.0 and true are equal). If the
      tuples have only one value, the value alone is accepted too.
    - `bins`: a tuple with one number or text for each dimension. Bin i of a dimension contains edges[i] <= x <
      edges[i + 1]; the last bin also contains its upper edge. The i-th text of a dimension in `model.bin_names` is in
      bin i. The state is the row-major index of the bins.
    - `nearest`: a tuple of finite numbers. The state is that of the nearest of `model.centres`, at any distance.

    Raises:
        InputError: `unknown_state`, if `raw` denotes no state of the model or is of another kind; `out_of_range`, if a
            number for bins or centres lies outside `model.limits`.

    >>> model = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)],
    ...                              state_names=["start", "end"], bin_edges=[[0.0, 0.5, 1.0]])
    >>> encode_state(model, "index", 1), encode_state(model, "name", "end"), encode_state(model, "bins", (0.75,))
    (1, 1, 1)
    """
    if isinstance(raw, dict):
        raise InputError("unknown_state", "a map is a state of a world with numbers, and the model is a table")
    match encoder:
        case "index":
            state = _index(raw, model.states)
        case "name":
            state = model.state_index.get(raw) if isinstance(raw, str) else None
        case "valuation":
            state = _valuation(model, raw)
        case "bins":
            state = _bin(raw, model)
        case "nearest":
            state = _nearest(model, raw)
        case _:
            assert_never(encoder)
    if state is not None and encoder in ("bins", "nearest"):
        _check_range(model, raw)
    if state is None:
        expected = _other_width(model, encoder, raw) or _expected(model, encoder)
        raise InputError("unknown_state", f"{_shown(raw)} is not a state of the model ({expected})")
    return state


def _other_width(model: MDP, encoder: StateEncoder, raw: RawState) -> str:
    """Return a text if a state does not have as many entries as the model's states; empty if it has."""
    match encoder:
        case "bins":
            width = len(model.bin_edges)
        case "nearest" if model.centres is not None:
            width = len(model.centres.scales)
        case "valuation":
            width = len(next(iter(model.valuations), ()))
        case _:
            return ""
    given = len(raw) if isinstance(raw, tuple) else 1
    if not width or given == width:
        return ""
    names = f": {_cut(', '.join(model.dimension_names))}" if model.dimension_names else ""
    return f"it has {given} entr{'y' if given == 1 else 'ies'}, and a state has {width}{names}"


def encode_signal(model: MDP, raw: object) -> int:
    """Return the observation (states are hidden) that `raw` denotes by number or name. Raises InputError."""
    assert model.emissions is not None, "states are hidden"
    signals, names = model.emissions.signals, model.signal_names
    if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < signals:
        return raw
    if isinstance(raw, str) and raw in model.signal_index:
        return model.signal_index[raw]
    named = f", or a name: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" if names else ""
    raise InputError("unknown_state", f"{_shown(raw)} is not an observation of the model (0 to {signals - 1}{named})")


def _check_range(model: MDP, raw: RawState) -> None:
    """Raise InputError if a number lies far outside the recorded range (`model.limits`)."""
    if not model.limits or not isinstance(raw, tuple):
        return
    for place, (value, (low, high)) in enumerate(zip(raw, model.limits, strict=True)):
        if isinstance(value, str):  # the name of a bin; any other text has no state
            continue
        if not low <= value <= high:
            assert model.ranges is not None
            least, most = model.ranges[place].tolist()
            raise InputError(
                "out_of_range",
                f"{_numbered(model, place)} is {_shown(value)}, far outside what was recorded, {least:g} to "
                f"{most:g}; perhaps it is in another unit",
            )


def encode_action(model: MDP, raw: float | str) -> int:
    """Return the action that an agent means by `raw`: a number, or a name if the model names its actions.

    A number is an index, unless actions have numbers for names (`ActionNames`).

    Raises:
        InputError: `unknown_action`.
    """
    return _known(model, model.named_actions.find(raw), raw)


def encode_action_text(model: MDP, text: str) -> int:
    """Return the action that a text means in a formula, an option or a file, where the text may also be a number.

    Raises:
        InputError: `unknown_action`.
    """
    return _known(model, model.named_actions.named(text), text)


def _known(model: MDP, action: int | None, raw: object) -> int:
    if action is None:
        expected = _cut(model.named_actions.expected())
        raise InputError("unknown_action", f"{_shown(raw)} is not an action of the model ({expected})")
    return action


def _numbered(model: MDP, place: int) -> str:
    """Return the name of one of the numbers of a state, for messages."""
    return model.dimension_names[place] if model.dimension_names else f"number {place + 1} of the state"


def _index(raw: object, limit: int) -> int | None:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < limit else None


def _valuation(model: MDP, raw: object) -> int | None:
    try:
        return model.valuation_index.get(raw if isinstance(raw, tuple) else (raw,))
    except TypeError:  # a list inside: not hashable
        return None


def _bin(raw: object, model: MDP) -> int | None:
    cuts = model.bin_cuts
    if not cuts or not isinstance(raw, tuple) or len(raw) != len(cuts):
        return None
    state = 0
    for value, edges, named in zip(raw, cuts, model.bin_places, strict=True):
        bins = len(edges) - 1
        if named is not None:
            place = named.get(value) if isinstance(value, str) else None
            if place is None:
                return None
            state = state * bins + place
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not edges[0] <= value <= edges[-1]:
            return None
        state = state * bins + min(bisect_right(edges, value) - 1, bins - 1)
    return state


def _nearest(model: MDP, raw: object) -> int | None:
    row = None if model.centres is None else live_row(raw, len(model.centres.scales))
    if model.centres is None or row is None:
        return None
    return int(model.centres.nearest(row)[0][0])


def _expected(model: MDP, encoder: StateEncoder) -> str:
    match encoder:
        case "index":
            return f"a whole number in 0..{model.states - 1} is expected"
        case "name":
            return "one of its state names is expected" if model.state_names else "it has no state names"
        case "valuation":
            return "one of its valuations is expected" if model.valuations else "it has no valuations"
        case "bins":
            spans = [
                f"[{edges[0]:g}, {edges[-1]:g}]" if named is None else f"{_shown(list(named))}"
                for edges, named in zip(model.bin_cuts, model.bin_places, strict=True)
            ]
            return f"one of each of {', '.join(spans)} is expected" if spans else "it has no bins"
        case "nearest" if model.centres is None:
            return "it has no centres"
        case "nearest":
            return f"a list of {len(model.centres.scales)} finite numbers is expected"
        case _:
            assert_never(encoder)


def _shown(raw: object) -> str:
    try:
        text = repr(raw)
    except ValueError:  # an integer of more digits than Python prints
        return "a huge number"
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
