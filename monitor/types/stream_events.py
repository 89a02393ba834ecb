"""Values of the stream: a decoded message, and the parts of a path made from messages (steps, breaks, ends)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

Episode = str | int

RawState = int | str | tuple[float | str | bool, ...] | dict[str, float | str | bool]
"""A state as the agent sends it; the model's state encoder converts it to a `State`. The names of a map are sorted."""

RawInputs = tuple[float | str | bool, ...] | dict[str, float | str | bool]
"""Recorded inputs as the agent sends them."""

if TYPE_CHECKING:
    State = Any
else:
    State = int | tuple[float, ...] | None
"""A state: the index in a table, or the features in a world with numbers. If states are hidden, it is the observation,
or None. The type depends on the model, so the type checker cannot know it.
"""

PathPairs = Sequence[tuple[int, int | None]]
"""A path of a table with visible states: state and action, oldest first. Only the last action may be None (not yet
taken)."""

ObservedPair = tuple[int | None, int | None]
"""A pair of a path as it was observed: the observation (the state, if states are visible) or None for no observation;
and the action, or None if it is not yet taken."""

BlindReason = Literal[
    "gap",
    "stale",
    "conflict",
    "impossible_step",
    "unknown_state",
    "out_of_range",
    "policy_mismatch",
    "dropped",
    "warming_up",
    "disconnected",
    "deadline",
    "old_episode",
    "idle",
    "overload",
    "model_doubt",
]
"""Reasons why a formula cannot be evaluated now, or why its value must not be relied on; see docs/blindness.md."""

MessageResult = Literal["accepted", "duplicate", "stale", "conflict", "gap", "rejected", "dropped"]

UNKNOWN_POLICY: Final = ""
"""Name used for an acting policy that is not configured; the monitor has no table for it."""

YEAR_10000: Final = 253_402_300_800.0
"""Start of the year 10000, in seconds since the epoch. Later times are not written as dates."""


class Instant(msgspec.Struct, frozen=True, gc=False):
    """One reading of two clocks, in seconds. `wall`: since the epoch. `ticks`: on a monotonic clock with any start."""

    wall: float
    ticks: float


class Observation(msgspec.Struct, frozen=True, gc=False):
    """One decoded message, before ordering and encoding.

    `agent` comes from the topic, never from the payload. `action` is None only if the agent sent no action; this is
    allowed in the last message of an episode, and if states are hidden. `time`: the agent's clock, seconds since the
    epoch. `reward`: reward of the transition into this state. `policy`: sha256 of the policy that the agent reports.
    `inputs`: recorded inputs of a world with numbers. `observation`: on a model with hidden states, agents send it in
    place of `state`, and `state` is None; if `observation` is None too, the sensor gave no observation. `truth`: the
    true state, if it is sent beside an observation; only `cfmon report` uses it, and no verdict depends on it. In
    Python, numpy numbers and arrays count as numbers and lists.
    """

    agent: str
    episode: Episode
    seq: int
    state: RawState | None = None
    action: int | float | str | None = None
    time: float | None = None
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    policy: str | None = None
    inputs: RawInputs | None = None
    observation: RawState | None = None
    truth: RawState | None = None


class Step(msgspec.Struct, frozen=True, tag=True, gc=False):
    """One step of the path, in order, converted to the model: indices, or numbers.

    `time`: seconds since the epoch. `late`: the step was older than `max_lag` on arrival. `foreign`: the agent ran a
    policy that is not configured. `policy`: name of the policy that acted, UNKNOWN_POLICY if it is not known. `inputs`:
    recorded inputs, in a world with numbers. If states are hidden, `state` is the observation (None if there was none)
    and `inputs` is the belief before the observation (`monitor.hidden.filtering`).
    """

    episode: Episode
    seq: int
    state: State
    action: int | None
    time: float
    late: bool = False
    foreign: bool = False
    policy: str = "nominal"
    inputs: tuple[float, ...] = ()


class Break(msgspec.Struct, frozen=True, tag=True):
    """An interruption of the path before the next step, with its reason; the steps in between are unknown.

    `unrecorded`: the model is learned, and the newest pair of the path led to a successor that was never recorded after
    the pair. `unpredicted`: the pair led to a successor of probability 0 in the model. `failed`: the code of a world
    with numbers failed; it is unknown whether the world is correct.
    """

    reason: BlindReason
    detail: str
    unrecorded: bool = False
    unpredicted: bool = False
    failed: bool = False


class End(msgspec.Struct, frozen=True, tag=True):
    """End of an episode. `terminated`: the last state is absorbing for the rest of every horizon."""

    episode: Episode
    terminated: bool
