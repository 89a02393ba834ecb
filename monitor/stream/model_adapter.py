"""Map an observation to the model: to state and action indices, or to the reason why it is not a step."""

from __future__ import annotations

from typing import Final

from monitor.errors import InputError
from monitor.model.encode import encode_action, encode_state
from monitor.model.mdp import MDP
from monitor.model.recorded import APPEND, never_recorded
from monitor.policy.table import PolicyTable
from monitor.stream.deduplication import digest
from monitor.stream.reorder_buffer import BufferedMessage
from monitor.types import Break, Instant, Observation, StreamSettings

__all__ = ["ModelAdapter"]

RELATIVE: Final = 1e-6
"""Relative difference allowed between an agent's reward and the model's: single precision and sums of floats."""

ROUNDING: Final = 1e-9
"""Additional difference allowed, as a fraction of the model's largest reward: for sums that cancel to almost 0."""


class ModelAdapter:
    """Mapping of one agent's observations to the model.

    Args:
        model: the MDP.
        settings: state encoder, largest lag, and the sha256 of each known policy's file.
        nominal: the agent's own policy, as configured; actions are compared with it.
    """

    def __init__(self, model: MDP, settings: StreamSettings, nominal: PolicyTable | None) -> None:
        self._model = model
        self._settings = settings
        self._policies = {sha256.lower(): name for sha256, name in settings.policies.items()}
        # Single entries are read at each message: from memory views, which are fast also where nothing is compiled.
        self._states, self._actions = model.states, model.actions
        self._by_index = settings.encoder == "index"
        self._starts = model.indptr.data
        self._successors = model.successors.data
        least, most = model.reward_range
        self._largest = max(-least, most)
        self._rewards = model.rewards.reshape(-1).data
        self._extra = None if model.transition_rewards is None else model.transition_rewards.data
        self._tolerance = None if model.reward_spread is None else model.reward_spread.data
        actions = None if nominal is None else nominal.actions
        self._nominal = None if actions is None else actions.data
        self._likely = self._repeats = None
        if nominal is not None and nominal.probabilities is not None:
            self._likely = nominal.probabilities.reshape(-1).data
            self._repeats = nominal.repeats.reshape(-1).data
        self._ended = None if model.ended_as is None else model.ended_as.data

    def entry(self, observation: Observation, now: Instant) -> tuple[BufferedMessage, InputError | None]:
        """Return the entry of a valid observation, and the error if its state or action is rejected.

        A rejected message has an entry too: its seq is not awaited, and the path breaks there.
        """
        problem: Break | None = None
        refused: InputError | None = None
        state: int | None = None
        action: int | None = None
        try:
            state, action = self._encode(observation)
        except InputError as error:
            refused = self._explained(error)
            problem = self._unusable(refused)
        if state is not None and action is not None and not self._available(state, action):
            problem = Break("impossible_step", f"action {action} is not available in state {state}")
            state = action = None  # without a row it has no future
        return self._entry(observation, now, (state, action), problem), refused

    def goes_on(self, pair: tuple[int, int], state: object, action: object) -> bool:
        """Return whether a state and an action, as sent, are a pair of the model that is possible after `pair`.

        False also if they are not numbers of the model's: then `entry` finds out.
        """
        if type(state) is not int or type(action) is not int or not self._by_index:
            return False
        if not (0 <= action < self._actions and 0 <= state < self._states):
            return False
        return self._available(state, action) and self._place(pair[0], pair[1], state) >= 0

    def impossible(self, pair: tuple[int, int], successor: int) -> Break:
        """Return why the path breaks at a transition that is not `possible`."""
        if new := never_recorded(self._model, pair, successor):
            return Break("impossible_step", f"{new} was never recorded; {APPEND}", unrecorded=True)
        state, action = pair
        words = f"the model has no transition ({state}, {action}) -> {successor}"
        return Break("impossible_step", words, unpredicted=True)

    def possible(self, pair: tuple[int, int], successor: int) -> bool:
        """Return whether the model gives the transition from the pair a positive probability."""
        return self._place(pair[0], pair[1], successor) >= 0

    def contradicts(self, pair: tuple[int, int], successor: int, reward: float) -> str:
        """Return a sentence on how a reward differs from that of the model's transition; empty if it does not.

        It is not compared if all rewards of the model are 0, or if the model lacks the transition.
        """
        place = self._place(pair[0], pair[1], successor)
        if place < 0 or not self._largest:
            return ""
        extra = 0.0 if self._extra is None else self._extra[place]
        width = 0.0 if self._tolerance is None else self._tolerance[place]
        expected = self._rewards[pair[0] * self._model.actions + pair[1]] + extra
        tolerance = width + RELATIVE * max(abs(expected), abs(reward)) + ROUNDING * self._largest
        if abs(reward - expected) <= tolerance:
            return ""
        around = f" +- {width:g}" if width else ""
        return f"({pair[0]}, {pair[1]}) -> {successor} earned {reward:g}, the model says {expected:g}{around}"

    def fits(self, before: tuple[int, int | None] | None, pair: tuple[int, int | None]) -> bool:
        """Return whether the model has the pair and, given the pair before it, the transition between them."""
        state, action = pair
        if state >= self._model.states or (action is not None and action >= self._model.actions):
            return False
        if action is not None and not self._available(state, action):
            return False
        return before is None or before[1] is None or self.possible((before[0], before[1]), state)

    def off_policy(self, state: int, action: int) -> bool:
        """Return whether nominal never takes this action in this state."""
        if self._nominal is not None:
            return bool(self._nominal[state] != action)
        return self._likely is not None and self._likely[state * self._actions + action] == 0.0

    def excess(self, state: int, action: int) -> tuple[float, float]:
        """Return a step's deviation from nominal and its variance (`monitor.statistics.deviation`)."""
        if self._likely is None or self._repeats is None:
            return (1 if self._nominal is not None and self._nominal[state] != action else 0), 0.0
        likely = self._likely[state * self._actions + action]
        return self._repeats[2 * state] - likely, self._repeats[2 * state + 1]

    def acting(self, sha256: str | None) -> str | None:
        """Return the name of the policy that an agent reported; None if it is not among the known ones.

        `sha256`: as reported; None: it reported none, so it is taken to run the nominal one.
        """
        if sha256 is None or not self._policies:
            return "nominal"
        return self._policies.get(sha256)

    def knows(self, policy: str) -> bool:
        """Return whether a policy of this name is known."""
        return policy == "nominal" or policy in self._policies.values()

    def _explained(self, error: InputError) -> InputError:
        """Return the error about a state or an action that the model does not have; a learned one may yet learn it."""
        if self._model.counts is None or error.reason == "missing_action":
            return error
        return InputError(error.reason, f"{error.detail}; it was never recorded; {APPEND}")

    def _unusable(self, error: InputError) -> Break:
        """Return why the path breaks at a message whose state or action was rejected."""
        if error.reason == "missing_action":
            return Break("gap", error.detail)
        if error.reason == "out_of_range":
            return Break("out_of_range", error.detail, unrecorded=self._model.counts is not None)
        new_state = self._model.counts is not None and error.reason == "unknown_state"
        return Break("unknown_state", error.detail, unrecorded=new_state)

    def _place(self, state: int, action: int, successor: int) -> int:
        """Return the index of the transition in the model, -1 if the model lacks it: binary search in the row."""
        row, successors = state * self._actions + action, self._successors
        low, high = self._starts[row], self._starts[row + 1]
        end = high
        while low < high:
            middle = (low + high) // 2
            if successors[middle] < successor:
                low = middle + 1
            else:
                high = middle
        return low if low < end and successors[low] == successor else -1

    def _available(self, state: int, action: int) -> bool:
        row = state * self._actions + action
        return self._starts[row] != self._starts[row + 1]

    def _encode(self, observation: Observation) -> tuple[int, int | None]:
        state = encode_state(self._model, self._settings.encoder, observation.state)
        if observation.terminated and self._ended is not None:
            state = self._ended[state]  # the environment's number of a state is also that of its copy (MDP.ended_as)
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
    ) -> BufferedMessage:
        named, time = observation.policy, observation.time
        return BufferedMessage(
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
            reward=observation.reward,
        )
