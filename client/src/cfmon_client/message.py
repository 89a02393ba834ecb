"""Encode a step as the bytes that the monitor reads (docs/messages/step.md), by the monitor's own rules.

A step that the monitor would reject is refused already in the agent, with the name that the monitor has for the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgpack

__all__ = ["REASONS", "Observed", "Refused", "check_episode", "check_policy", "pack", "plain"]

REASONS: Final[Mapping[str, str]] = {
    "bad_policy": "the policy is not a SHA-256 in hexadecimal",
    "bad_text": "a text is not valid Unicode",
    "closed": "the publisher is closed",
    "error": "the value raised an exception when it was read",
    "forked": "the publisher was made before a fork",
    "missing_action": "a step before the end of an episode has no action",
    "missing_state": "the final state is not given",
    "no_episode": "no episode is open",
    "not_finite": "a number is NaN or infinite",
    "out_of_range": "a number is too large, or a text or list too long",
    "too_large": "the message is larger than 64 KiB",
    "wrong_type": "a value is of a type that the monitor does not read",
}
"""Reason why a step, or an optional part of a step, is not published -> explanation."""

MAX_BYTES: Final = 65536
MAX_DIMENSIONS: Final = 1024
MAX_INT: Final = 2**63 - 1
MAX_TEXT: Final = 256
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


class Refused(Exception):  # noqa: N818 - not an error of the caller's program: it is caught and counted
    """A step, or a part of it, cannot be published. `reason`: one of `REASONS`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Observed:
    """An observation. Publish it in place of a state if the monitor's model has hidden states.

    `value`: number of the observation; None: the sensor gave no observation. `state`: the true state, if it is known,
    for example in a simulator; only `cfmon report` uses it.
    """

    def __init__(self, value: object, state: object = None) -> None:
        self.value, self.state = value, state


def pack(
    episode: str | int,
    seq: int,
    state: object,
    action: object,
    *,
    time: float,
    inputs: object = None,
    reward: object = None,
    policy: str | None = None,
    extra: object = None,
    terminated: bool = False,
    truncated: bool = False,
) -> tuple[bytes, list[Refused]]:
    """Return the message of a step, and why parts were left out: a reward or an `extra` that cannot be published.

    Raises:
        Refused: State, action, inputs or policy cannot be published.

    >>> msgpack.unpackb(pack("e", 0, [0.5, 1], 2, time=9.0)[0])
    {'v': 1, 'episode': 'e', 'seq': 0, 'state': [0.5, 1], 'time': 9.0, 'action': 2}
    >>> msgpack.unpackb(pack("e", 1, Observed(None), 2, time=9.0)[0])
    {'v': 1, 'episode': 'e', 'seq': 1, 'observation': None, 'time': 9.0, 'action': 2}
    >>> msgpack.unpackb(pack("e", 2, Observed(0, state=4), 2, time=9.0)[0])
    {'v': 1, 'episode': 'e', 'seq': 2, 'observation': 0, 'state': 4, 'time': 9.0, 'action': 2}
    """
    fields: dict[str, Any] = {"v": 1, "episode": episode, "seq": seq, **_seen(state), "time": time}
    if action is not None:
        fields["action"] = _action(action)
    elif not (terminated or truncated or isinstance(state, Observed)):
        raise Refused("missing_action", "the action is None; give the action taken in this state")
    if inputs is not None:
        fields["inputs"] = _inputs(inputs)
    if terminated:
        fields["terminated"] = True
    if truncated:
        fields["truncated"] = True
    if policy is not None:
        fields["policy"] = check_policy(policy)
    left_out = []
    try:
        fields.update({} if reward is None else {"reward": _reward(reward)})
    except Refused as refused:
        left_out.append(refused)
    payload: bytes = msgpack.packb(fields)
    if extra is not None:
        try:
            payload = _with_extra(fields, extra)
        except Refused as refused:
            left_out.append(refused)
    if len(payload) > MAX_BYTES:
        raise Refused("too_large", f"the message has {len(payload)} bytes; the monitor reads at most {MAX_BYTES}")
    return payload, left_out


def check_policy(policy: object) -> str:
    """Return the SHA-256 of a policy. Raises Refused if `policy` is not a SHA-256."""
    if isinstance(policy, str) and _SHA256.fullmatch(policy):
        return policy.lower()
    raise Refused("bad_policy", f"the policy is {_shown(policy)}; give the SHA-256 of its file, 64 hexadecimal digits")


def check_episode(episode: object) -> str | int:
    """Return the name of an episode, a text or a whole number. Raises Refused for anything else."""
    value = plain(episode)
    if type(value) is str:
        return _text("episode", value)
    if type(value) is int:
        return _integer("episode", value, -MAX_INT)
    raise Refused("wrong_type", f"the episode is {_shown(episode)}; give a text or an integer")


def _with_extra(fields: Mapping[str, Any], extra: object) -> bytes:
    if not isinstance(extra, dict):
        raise Refused("wrong_type", f"extra is {_shown(extra)}; give a dict")
    try:
        payload: bytes = msgpack.packb({**fields, "extra": extra}, default=_plain_or_error)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("wrong_type", f"extra cannot be written as msgpack: {error}") from None
    if len(payload) > MAX_BYTES:
        raise Refused("too_large", f"with extra the message has {len(payload)} bytes; the limit is {MAX_BYTES}")
    return payload


def _plain_or_error(value: object) -> object:
    if (converted := plain(value)) is value:
        raise TypeError(f"{_shown(value)} has no form in msgpack")
    return converted


def plain(value: object) -> object:
    """Return arrays and scalars (NumPy, torch, ...) as lists and numbers, and other numbers and texts as plain ones."""
    tolist = getattr(value, "tolist", None)
    if callable(tolist):
        value = tolist()
    for kind in (int, float, str):
        if isinstance(value, kind) and type(value) not in {kind, bool}:
            return kind(value)
    return value


def _seen(state: object) -> dict[str, object]:
    if not isinstance(state, Observed):
        return {"state": _state("state", state)}
    shown = {"observation": None if state.value is None else _state("observation", state.value)}
    return shown if state.state is None else {**shown, "state": _state("state", state.state)}


def _state(key: str, state: object) -> object:
    value = plain(state)
    if type(value) is int:
        return _integer(key, value, -MAX_INT)
    if type(value) is str:
        return _text(key, value)
    if not isinstance(value, list | tuple | dict):
        raise Refused(
            "wrong_type",
            f"the {key} is {_shown(state)}; give an integer, a name, or a flat list or dict of numbers",
        )
    return _entries(key, value)


def _inputs(inputs: object) -> object:
    value = plain(inputs)
    if not isinstance(value, list | tuple | dict):
        raise Refused("wrong_type", f"the inputs are {_shown(inputs)}; give a flat list or dict of numbers")
    return _entries("inputs", value)


def _entries(key: str, value: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> object:
    if len(value) > MAX_DIMENSIONS:
        raise Refused("out_of_range", f"{key}: {len(value)} entries; the monitor reads at most {MAX_DIMENSIONS}")
    if not isinstance(value, dict):
        return [_entry(key, each) for each in value]
    if not all(isinstance(name, str) for name in value):
        raise Refused("wrong_type", f"{key}: a dict with keys that are no texts; give names")
    return {_text(key, str(name)): _entry(key, each) for name, each in value.items()}


def _entry(key: str, entry: object) -> object:
    value = entry if type(entry) is float else plain(entry)
    if type(value) is float:
        return _finite(key, value)
    if type(value) is int:
        return _integer(key, value, -MAX_INT)
    if type(value) is str:
        return _text(key, value)
    if type(value) is bool:
        return value
    raise Refused("wrong_type", f"{key}: an entry is {_shown(entry)}; give numbers, names or booleans, without nesting")


def _action(action: object) -> object:
    value = plain(action)
    if type(value) is int:
        return _integer("action", value, -MAX_INT)
    if type(value) is str:
        return _text("action", value)
    if type(value) is float:
        return _finite("action", value)
    if type(value) is bool:
        return int(value)
    raise Refused("wrong_type", f"the action is {_shown(action)}; give its index, its number or its name")


def _reward(reward: object) -> float:
    value = plain(reward)
    if type(value) is float:
        return _finite("reward", value)
    if type(value) is int:
        return float(_integer("reward", value, -MAX_INT))
    raise Refused("wrong_type", f"the reward is {_shown(reward)}; give a number")


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise Refused("not_finite", f"the {name} is {value!r}; give finite numbers")
    return value


def _integer(name: str, value: int, least: int) -> int:
    if not least <= value <= MAX_INT:
        raise Refused("out_of_range", f"the {name} is an integer outside [{least}, {MAX_INT}]")
    return value


def _text(name: str, value: str) -> str:
    if not 1 <= len(value) <= MAX_TEXT:
        raise Refused("out_of_range", f"the {name} has {len(value)} characters; give 1 to {MAX_TEXT}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused("bad_text", f"the {name} is not valid Unicode") from None
    return value


def _shown(value: object) -> str:
    """Return a short form of a value; of a large value only its type."""
    if isinstance(value, str | bytes):
        return repr(value[:60])
    return repr(value) if isinstance(value, bool | int | float | None) else f"a {type(value).__name__}"
