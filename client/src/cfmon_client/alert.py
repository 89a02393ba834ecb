"""Read an alert from a message on `cfmon/alerts/<agent>/<formula>`.

docs/messages/alert.md describes the message. A newer monitor may add keys that have no field here. They are in
`Alert.document`.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union

from cfmon_client.errors import AlertError

__all__ = ["Alert", "Alternative", "Evidence", "Fired", "Formula", "Handover", "Offset", "Threshold", "read_alert"]

VERSION: Final = 1
Outcome = Literal["safe", "regret", "unavoidable", "undecided"]
T = TypeVar("T")


@dataclass(frozen=True)
class Formula:
    """The formula: its name in the monitor's configuration, and its text."""

    name: str
    text: str


@dataclass(frozen=True)
class Threshold:
    """The formula holds if the value has the relation `comparison` to the bound."""

    comparison: str
    bound: float


@dataclass(frozen=True)
class Alternative:
    """The formula's value under the other policy. `name`: a policy, `do(action)` or `model:name`."""

    name: str
    value: float | None
    bounds: tuple[float | None, float | None] | None = None


@dataclass(frozen=True)
class Offset:
    """The nominal and the alternative value for a takeover `offset` steps ago; 0 is now."""

    offset: int
    nominal: float | None
    alternative: float | None


@dataclass(frozen=True)
class Handover:
    """Effect of handing over now.

    `helps_now`: True if handing over now meets the threshold and carrying on does not; None: not known.
    `latest_useful`: smallest number of steps ago at which handing over would have helped; None: at no step, or unknown.
    """

    policy: str
    helps_now: bool | None
    latest_useful: int | None


@dataclass(frozen=True)
class Fired:
    """Summary of the verdict on which the alarm fired, at step `seq`."""

    outcome: Outcome | None
    value: float | None
    alternative: Alternative | None
    seq: int
    time_unix: float | None


@dataclass(frozen=True)
class Evidence:
    """Evidence of the verdict on which the alarm fired. `path`: its path on the monitor's HTTP server."""

    id: str
    path: str


@dataclass(frozen=True)
class Alert:
    """The newest verdict of one alarm. Probabilities and expected rewards are computed on the agent's model.

    Attributes:
        id: Identifies the alarm; the same in all its messages.
        revision: Grows with each change.
        state: `firing`, or how the alarm closed: `resolved` (the goal is met again), `ended` (the episode ended),
            `removed` (the formula was changed or removed).
        blind: Why the formula cannot be evaluated now, or why its result is marked; None if there is no reason.
        outcome: Outcome of `regret(...)`; None for every other formula.
        value: The agent's own value in the newest verdict.
        effect: `alternative.value` minus `value`.
        robust: True if no causal model of the requested class changes the answer; None if no class was requested.
        handover: Effect of handing over now; None if there is nothing to hand over to, or if the alarm does not fire.
        seq: The step of the newest verdict, in `episode`.
        time_unix, since_unix, sent_unix: When the alarm last changed, when the first bad verdict came, and when this
            message was sent, in seconds since the epoch.
        late: True if the newest step was already old when the monitor received it.
        summary: What happened, how bad it is, and what to do, in sentences.
        document: The whole message, as decoded JSON.
    """

    id: str
    revision: int
    state: Literal["firing", "resolved", "ended", "removed"]
    blind: str | None
    severity: str
    agent: str
    formula: Formula
    outcome: Outcome | None
    value: float | None
    threshold: Threshold | None
    alternative: Alternative | None
    effect: float | None
    bounds: tuple[float | None, float | None] | None
    robust: bool | None
    profile: tuple[Offset, ...]
    handover: Handover | None
    fired: Fired
    episode: str | int
    seq: int
    time_unix: float | None
    since_unix: float | None
    sent_unix: float | None
    late: bool
    summary: str
    method: str = "exact"
    evidence: Evidence | None = None
    runbook: str | None = None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def firing(self) -> bool:
        """True until the alarm closes."""
        return self.state == "firing"


def read_alert(payload: bytes) -> Alert:
    """Return the alert in the payload of a message.

    Raises:
        AlertError: The payload is not JSON, not of version 1, or a field is missing or of another type.
    """
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        raise AlertError("the message is not JSON") from None
    if not isinstance(document, dict):
        raise AlertError("the message is not a map")
    if document.get("v") != VERSION:
        raise AlertError(f'"v" is {document.get("v")!r}; this package reads version {VERSION}: update cfmon-client')
    return _structured(Alert, {**document, "document": document}, "")


def _structured(kind: type[T], value: object, where: str) -> T:
    """Return a dataclass from a decoded map; keys without a field are left out."""
    if not isinstance(value, dict):
        raise AlertError(f'"{where}" is {_shown(value)}; expected a map')
    given = {}
    for name, hint, required in _fields_of(kind):  # type: ignore[arg-type] # mypy takes no type[T] for hashable
        place = f"{where}.{name}" if where else name
        if name in value:
            given[name] = _read(hint, value[name], place)
        elif required:
            raise AlertError(f'"{place}" is missing')
    return kind(**given)


@cache
def _fields_of(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    hints = typing.get_type_hints(kind)
    return tuple(
        (each.name, hints[each.name], each.default is MISSING and each.default_factory is MISSING)
        for each in fields(kind)
    )


def _read(hint: Any, value: object, where: str) -> object:  # noqa: ANN401 - any annotation of the classes above
    """Return a decoded JSON value as the type that an annotation names. Raises AlertError if the type differs."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {Union, types.UnionType}:
        return _read_one_of(arguments, value, where)
    if origin is tuple and isinstance(value, list):
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) == len(value):
            return tuple(_read(kind, each, f"{where}[]") for kind, each in zip(kinds, value, strict=True))
    elif is_dataclass(hint) and isinstance(hint, type):
        return _structured(hint, value, where)
    elif origin is Literal:
        if value in arguments:
            return value
    elif hint is float:
        if type(value) in {int, float}:
            return float(value)  # type: ignore[arg-type] # the test above, which admits no bool
    elif origin is Mapping or type(value) is hint:
        return value
    raise AlertError(f'"{where}" is {_shown(value)}')


def _read_one_of(kinds: tuple[Any, ...], value: object, where: str) -> object:
    if value is None and types.NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not types.NoneType]
    for kind in others[:-1]:
        if type(value) is kind:
            return value
    return _read(others[-1], value, where)


def _shown(value: object) -> str:
    """Return a short form of a value."""
    return repr(value)[:60] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
