"""An observation matched with the model: its indices, and what keeps it from being a step."""

from __future__ import annotations

from bisect import bisect_left

from monitor.errors import InputError
from monitor.model.encode import encode_action, encode_state
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.stream.digests import digest
from monitor.stream.order import Entry
from monitor.types import Break, Instant, Observation, StreamSettings

__all__ = ["Matching"]


class Matching:
    """Matches one agent's observations with the model.

    Args:
        model: what states, actions and transitions are matched with.
        settings: how a state is encoded, how late is late, and the digest of the nominal policy's file.
        nominal: where deterministic, steps that take another action are off policy.
    """

    def __init__(self, model: MDP, settings: StreamSettings, nominal: PolicyTable | None) -> None:
        self._model = model
        self._settings = settings
        self._sha256 = None if settings.nominal_sha256 is None else settings.nominal_sha256.lower()
        # Single entries are read at each message: from a view they come as Python's numbers, ten times as fast.
        self._starts = model.indptr.data
        self._successors = model.successors.data
        actions = None if nominal is None else nominal.actions
        self._nominal = None if actions is None else actions.data

    def entry(self, observation: Observation, now: Instant) -> tuple[Entry, InputError | None]:
        """The entry of a valid observation, and why its content is refused if it is.

        A refused message is still an entry: its seq is taken and its place on the path is a break, not a wait.
        """
        problem: Break | None = None
        refused: InputError | None = None
        state: int | None = None
        action: int | None = None
        try:
            state, action = self._encode(observation)
        except InputError as error:
            refused = error
            problem = Break("gap" if error.reason == "missing_action" else "unknown_state", error.detail)
        if state is not None and action is not None and not self._available(state, action):
            problem = Break("impossible_step", f"action {action} is not available in state {state}")
            state = action = None  # without a row it has no future that could be asked about
        return self._entry(observation, now, (state, action), problem), refused

    def possible(self, pair: tuple[int, int], successor: int) -> bool:
        """The model gives the transition from the pair a positive probability."""
        row = pair[0] * self._model.actions + pair[1]
        start, end = self._starts[row], self._starts[row + 1]
        place = bisect_left(self._successors, successor, start, end)
        return place < end and self._successors[place] == successor

    def fits(self, before: tuple[int, int | None] | None, pair: tuple[int, int | None]) -> bool:
        """The model has the pair, and can get to it from the one before it on the same path, if there is one."""
        state, action = pair
        if state >= self._model.states or (action is not None and action >= self._model.actions):
            return False
        if action is not None and not self._available(state, action):
            return False
        return before is None or before[1] is None or self.possible((before[0], before[1]), state)

    def off_policy(self, state: int, action: int | None) -> bool:
        """Only a deterministic nominal can be contradicted by one action."""
        return self._nominal is not None and action is not None and self._nominal[state] != action

    def foreign(self, policy: str | None) -> bool:
        """Whether a policy that an agent named (sha256) is another than the nominal one."""
        return policy is not None and self._sha256 is not None and policy != self._sha256

    def _available(self, state: int, action: int) -> bool:
        row = state * self._model.actions + action
        return self._starts[row] != self._starts[row + 1]

    def _encode(self, observation: Observation) -> tuple[int, int | None]:
        state = encode_state(self._model, self._settings.encoder, observation.state)
        if observation.action is not None:
            return state, encode_action(self._model, observation.action)
        if observation.terminated or observation.truncated:
            return state, None
        raise InputError(
            "missing_action",
            f"seq {observation.seq} has no action; only the last message of an episode may have none",
        )

    def _entry(
        self, observation: Observation, now: Instant, pair: tuple[int | None, int | None], problem: Break | None
    ) -> Entry:
        named, time = observation.policy, observation.time
        return Entry(
            episode=observation.episode,
            seq=observation.seq,
            digest=digest(observation),
            arrived=now.ticks,
            time=now.wall if time is None else time,
            state=pair[0],
            action=pair[1],
            late=time is not None and time < now.wall - self._settings.max_lag,
            ends=observation.terminated or observation.truncated,
            terminated=observation.terminated,
            policy=None if named is None else named.lower(),
            problem=problem,
        )
