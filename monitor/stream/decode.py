"""Decode a message. Invariant: `decode` raises InputError or returns an Observation, whatever the bytes.

The agent's name is taken from the topic, never from the payload, so the broker's access rules apply to the name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Literal

import numpy as np
from msgspec.structs import asdict, replace

from monitor.errors import ConfigError, InputError
from monitor.stream.encoding import MAX_BYTES, unpack
from monitor.types.stream_events import YEAR_10000, Episode, Observation, RawInputs, RawState

__all__ = ["MAX_DIMENSIONS", "MAX_TEXT", "REASONS", "agent_of", "decode", "is_plain", "validate"]

MAX_TEXT = 256
"""Maximum number of characters of the name of an episode, state or action."""

MAX_DIMENSIONS = 1024
"""Largest number of entries of a state that is a list."""

_INFINITE = math.inf
_MAX_INT = 2**63 - 1
_MAX_SEQ = _MAX_INT - 1
"""The largest seq. The next number still fits 64 bits."""
_MAX_TIME = YEAR_10000
"""Later times cannot be written as dates, and are probably in milliseconds."""

REASONS = frozenset(
    {
        "bad_agent",
        "bad_policy",
        "bad_text",
        "bad_topic",
        "duplicate_key",
        "malformed",
        "missing_action",
        "missing_key",
        "not_a_map",
        "not_finite",
        "out_of_range",
        "too_large",
        "unknown_action",
        "unknown_key",
        "unknown_state",
        "version",
        "wrong_type",
    }
)
"""All reasons for which this package rejects a message; labels of `cfmon_rejected_total`."""

_REQUIRED = frozenset({"v", "episode", "seq"})
_SEEN = frozenset({"state", "observation"})
_KEYS = _REQUIRED | _SEEN | {"action", "time", "reward", "terminated", "truncated", "policy", "inputs", "extra"}
STATES = "an integer, a name, a list or a map, as the configured state encoder requires"
_AGENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def agent_of(topic: str, pattern: str) -> str:
    """Return the agent that a topic names, at the `+` of `pattern`.

    Raises:
        InputError: `bad_topic` if the topic does not match the pattern, `bad_agent` if the name has other characters
            than `[A-Za-z0-9_.-]` or more than 64 of them.
        ConfigError: the pattern does not have exactly one `+`.

    >>> agent_of("agents/ward-3/steps", "agents/+/steps")
    'ward-3'
    """
    if pattern.count("+") != 1:
        raise ConfigError(f'the topic pattern "{pattern}" needs exactly one "+", in place of the agent\'s name')
    before, after = pattern.split("+")
    matches = topic.startswith(before) and topic.endswith(after) and len(topic) >= len(before) + len(after)
    if not matches:
        raise InputError("bad_topic", f"the topic {_show(topic)} does not match {pattern}; publish under that pattern")
    name = topic[len(before) : len(topic) - len(after)]
    _check_agent(name)
    return name


def decode(agent: str, payload: bytes, max_bytes: int = MAX_BYTES) -> Observation:
    """Return the observation of `agent` in `payload`. A nil (null) optional value counts as absent.

    Raises:
        InputError: with one of `REASONS`; no other exception, whatever the bytes.

    >>> decode("ward-3", b'{"v": 1, "episode": "e", "seq": 0, "state": 7, "action": 2}').state
    7
    """
    fields = unpack(payload, max_bytes)
    if not _KEYS.issuperset(fields):
        raise _unknown(fields.keys() - _KEYS)
    try:
        version, episode, seq = fields["v"], fields["episode"], fields["seq"]
    except KeyError:
        missing = ", ".join(sorted(_REQUIRED - fields.keys()))
        raise InputError("missing_key", f"no {missing}; every message needs it") from None
    state, observation, truth = fields.get("state"), fields.get("observation"), None
    if "observation" in fields:  # beside an observation, `state` is the true hidden state; null counts as absent
        state, truth = None if observation is not None else state, state
    elif state is None:
        if "state" in fields:
            raise _wrong("state", None, STATES)
        raise InputError(
            "missing_key", "no state; every message needs it, or `observation` where the model has hidden states"
        )
    if type(version) is not int or version != 1:
        raise InputError("version", f'"v" is {_show(version)}; this monitor reads version 1')
    if "extra" in fields and not isinstance(fields["extra"], dict | None):
        raise _wrong("extra", fields["extra"], "a map, or nothing")
    action, time, reward = fields.get("action"), fields.get("time"), fields.get("reward")
    terminated, truncated = fields.get("terminated", False), fields.get("truncated", False)
    policy, inputs = fields.get("policy"), fields.get("inputs")
    sent = Observation(
        agent, _episode(episode), seq, state, action, time, reward, terminated, truncated, policy, inputs, observation,
        truth,
    )  # fmt: skip
    plain = observation is None and _are_plain(seq, state, action, time, reward, terminated, truncated, policy, inputs)
    return sent if plain else _checked(sent)


def validate(observation: Observation) -> Observation:
    """Check an observation built by a library user with the rules of `decode`, and return it with normalized values.

    numpy's numbers and arrays are accepted as numbers and lists.

    Raises:
        InputError: with one of `REASONS`.
    """
    _check_agent(observation.agent)
    try:
        return _checked(observation)
    except InputError:
        plain = {key: _without_numpy(value) for key, value in asdict(observation).items()}
        if all(value is getattr(observation, key) for key, value in plain.items()):
            raise
        return _checked(replace(observation, **plain))


def _without_numpy(value: object) -> object:
    """Return a value with Python's numbers and lists in place of numpy's; the same object if it contains none."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple) and any(isinstance(each, np.generic) for each in value):
        return [_without_numpy(each) for each in value]
    if isinstance(value, dict) and any(isinstance(each, np.generic) for each in value.values()):
        return {name: _without_numpy(each) for name, each in value.items()}
    return value


def is_plain(observation: Observation) -> bool:
    """Return True only if `validate` would change nothing. Agent and episode are not checked.

    This is a fast path: the result is True for most steps whose state and action are integers.
    """
    o = observation
    return o.observation is None and _are_plain(
        o.seq, o.state, o.action, o.time, o.reward, o.terminated, o.truncated, o.policy, o.inputs
    )


def _are_plain(  # noqa: PLR0917 - each value is read once, because reading costs more than a check
    seq: object,
    state: object,
    action: object,
    time: object,
    reward: object,
    terminated: object,
    truncated: object,
    policy: object,
    inputs: object,
) -> bool:
    return (
        type(seq) is int
        and 0 <= seq <= _MAX_SEQ
        and type(state) is int
        and 0 <= state <= _MAX_INT
        and (action is None or (type(action) is int and 0 <= action <= _MAX_INT))
        and (time is None or (type(time) is float and 0 <= time < _MAX_TIME))
        and (reward is None or (type(reward) is float and abs(reward) < _INFINITE))
        and type(terminated) is bool
        and type(truncated) is bool
        and (policy is None or (type(policy) is str and len(policy) == 64 and _is_normal(policy)))
        and inputs is None
    )


def _checked(observation: Observation) -> Observation:
    """Return the observation with normalized values. Raises InputError for the first value that breaks a rule."""
    o = observation
    return Observation(
        agent=o.agent,
        episode=_episode(o.episode),
        seq=_seq(o.seq),
        state=None if o.state is None else _state("state", o.state),
        action=_action(o.action),
        time=_time(o.time),
        reward=_reward(o.reward),
        terminated=_flag("terminated", o.terminated),
        truncated=_flag("truncated", o.truncated),
        policy=_policy(o.policy),
        inputs=None if o.inputs is None else _inputs(o.inputs),
        observation=None if o.observation is None else _state("observation", o.observation),
        truth=None if o.truth is None else _state("state", o.truth),
    )


# ---- one function per key ----


def _check_agent(name: str) -> None:
    if not _AGENT.fullmatch(name):
        raise InputError("bad_agent", f"the agent name {_show(name)} does not match [A-Za-z0-9_.-]{{1,64}}; rename it")


def _episode(value: object) -> Episode:
    if type(value) is str:
        return _text("episode", value)
    if type(value) is int:
        return _integer("episode", value, -_MAX_INT)
    raise _wrong("episode", value, "a string or an integer")


def _seq(value: object) -> int:
    if type(value) is int:
        return _integer("seq", value, 0, _MAX_SEQ)
    raise _wrong("seq", value, "the step's number in its episode, an integer from 0")


def _state(key: Literal["state", "observation"], value: object) -> RawState:
    if type(value) is int:
        return _integer(key, value, -_MAX_INT)
    if type(value) is str:
        return _text(key, value)
    if not isinstance(value, list | tuple | dict):
        raise _wrong(key, value, STATES)
    return _entries(key, value)


def _inputs(value: object) -> RawInputs:
    if not isinstance(value, list | tuple | dict):
        raise _wrong("inputs", value, "a list of numbers, or a map from names to numbers")
    return _entries("inputs", value)


def _entries(
    key: str, value: list[object] | tuple[object, ...] | dict[object, object]
) -> tuple[float | str | bool, ...] | dict[str, float | str | bool]:
    if len(value) > MAX_DIMENSIONS:
        raise InputError("out_of_range", f'"{key}" has {len(value)} entries; send at most {MAX_DIMENSIONS}')
    if not isinstance(value, dict):
        return tuple(_entry(key, entry) for entry in value)
    if not all(type(name) is str for name in value):
        raise _wrong(key, value, "a map whose keys are names")
    return {_text(key, name): _entry(key, value[name]) for name in sorted(value)}  # type: ignore[type-var,arg-type] # texts


def _entry(key: str, value: object) -> float | str | bool:
    if type(value) is float:
        return _finite(key, value)
    if type(value) is int:
        return _integer(key, value, -_MAX_INT)
    if type(value) is str:
        return _text(key, value)
    if type(value) is bool:
        return value
    raise _wrong(key, value, "a flat list of numbers, strings or booleans")


def _action(value: object) -> float | str | None:
    """Return an action. Whole numbers become int, and true and false become 1 and 0, as in recordings."""
    if value is None:
        return None
    if type(value) is int:
        return _integer("action", value, -_MAX_INT)
    if type(value) is str:
        return _text("action", value)
    if type(value) is float:
        number = _finite("action", value)
        return int(number) if number.is_integer() and abs(number) <= _MAX_INT else number
    if type(value) is bool:
        return int(value)
    raise _wrong("action", value, "the action's index, number or name")


def _time(value: object) -> float | None:
    time = _number("time", value)
    if time is not None and not 0 <= time < _MAX_TIME:
        raise InputError("out_of_range", f'"time" is {time!r}; send seconds since the epoch')
    return time


def _reward(value: object) -> float | None:
    return _number("reward", value)


def _flag(key: Literal["terminated", "truncated"], value: object) -> bool:
    if value is None:
        return False
    if type(value) is bool:
        return value
    raise _wrong(key, value, "true or false")


def _policy(value: object) -> str | None:
    if value is None:
        return None
    if type(value) is str and _SHA256.fullmatch(value):
        return value.lower()
    raise InputError("bad_policy", f'"policy" is {_show(value)}; send the sha256 of the policy file, 64 hex digits')


@lru_cache(64)  # agents report one of a few policies with every step
def _is_normal(policy: str) -> bool:
    return bool(_SHA256.fullmatch(policy)) and policy == policy.lower()


# ---- shared by several keys ----


def _number(key: str, value: object) -> float | None:
    if value is None:
        return None
    if type(value) is float:
        return _finite(key, value)
    if type(value) is int:
        return float(_integer(key, value, -_MAX_INT))
    raise _wrong(key, value, "a number")


def _finite(key: str, value: float) -> float:
    if not math.isfinite(value):
        raise InputError("not_finite", f'"{key}" holds {value!r}; send finite numbers')
    return value


def _integer(key: str, value: int, least: int, most: int = _MAX_INT) -> int:
    if not least <= value <= most:
        raise InputError("out_of_range", f'"{key}" is an integer outside [{least}, {most}]; send one inside')
    return value


def _text(key: str, value: str) -> str:
    if not 1 <= len(value) <= MAX_TEXT:
        raise InputError("out_of_range", f'"{key}" has {len(value)} characters; send 1 to {MAX_TEXT}')
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can contain half a surrogate pair, which cannot be encoded
        raise InputError("bad_text", f'"{key}" is not valid Unicode; send UTF-8 text') from error
    return value


def _unknown(keys: AbstractSet[object]) -> InputError:
    only = f"send only {', '.join(sorted(_KEYS))}"
    if not all(isinstance(key, str | bytes) for key in keys):
        return InputError("malformed", f"a key of the map is not text; {only}")
    more = "put other data into the map `extra`"
    return InputError("unknown_key", f"unknown keys {', '.join(sorted(map(_show, keys)))[:120]} ({more}); {only}")


def _wrong(key: str, value: object, wanted: str) -> InputError:
    return InputError("wrong_type", f'"{key}" is {_show(value)}; send {wanted}')


def _show(value: object) -> str:
    """Return a short form of a value; for a container only its type, because it may be deep or long."""
    if isinstance(value, str | bytes):
        return repr(value[:60])
    if isinstance(value, bool | float | None):
        return repr(value)
    return f"a value of type {type(value).__name__}"
