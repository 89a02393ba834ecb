"""An observation matched with the model: its indices, and what keeps it from being a step."""

from __future__ import annotations

import numpy as np

from monitor.errors import InputError
from monitor.model.encode import encode_action, encode_state
from monitor.model.mdp import MDP
from monitor.stream.digests import digest
from monitor.stream.order import Entry
from monitor.types import Break, Instant, Observation, StreamSettings

__all__ = ["match_model", "possible"]


def match_model(
    observation: Observation, now: Instant, model: MDP, settings: StreamSettings
) -> tuple[Entry, InputError | None]:
    """The entry of a valid observation, and why its content is refused if it is.

    A refused message is still an entry: its seq is taken and its place on the path is a break, not a wait.
    """
    problem: Break | None = None
    refused: InputError | None = None
    state: int | None = None
    action: int | None = None
    try:
        state, action = _encode(observation, model, settings)
    except InputError as error:
        refused = error
        problem = Break("gap" if error.reason == "missing_action" else "unknown_state", error.detail)
    if state is not None and action is not None and not len(model.row(state, action)[0]):
        problem = Break("impossible_step", f"action {action} is not available in state {state}")
        state = action = None  # without a row it has no future that could be asked about
    return _entry(observation, now, settings, (state, action), problem), refused


def possible(model: MDP, state: int, action: int, successor: int) -> bool:
    """The model gives the transition a positive probability."""
    successors, _ = model.row(state, action)
    place = int(np.searchsorted(successors, successor))
    return place < len(successors) and int(successors[place]) == successor


def _encode(observation: Observation, model: MDP, settings: StreamSettings) -> tuple[int, int | None]:
    state = encode_state(model, settings.encoder, observation.state)
    if observation.action is not None:
        return state, encode_action(model, observation.action)
    if observation.terminated or observation.truncated:
        return state, None
    raise InputError(
        "missing_action", f"seq {observation.seq} has no action; only the last message of an episode may have none"
    )


def _entry(
    observation: Observation,
    now: Instant,
    settings: StreamSettings,
    pair: tuple[int | None, int | None],
    problem: Break | None,
) -> Entry:
    named, nominal = observation.policy, settings.nominal_sha256
    return Entry(
        episode=observation.episode,
        seq=observation.seq,
        digest=digest(observation),
        arrived=now.ticks,
        time=now.wall if observation.time is None else observation.time,
        state=pair[0],
        action=pair[1],
        late=observation.time is not None and observation.time < now.wall - settings.max_lag,
        ends=observation.terminated or observation.truncated,
        terminated=observation.terminated,
        foreign=None if named is None or nominal is None else named.lower() != nominal.lower(),
        problem=problem,
    )
