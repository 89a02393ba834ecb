"""Map an observation to the state and action indices of a table, or to the reason why it is no step."""

from __future__ import annotations

from typing import Final

from monitor.errors import InputError
from monitor.model.encode import StateEncoder, encode_action, encode_state
from monitor.model.mdp import MDP
from monitor.model.recording_sentences import APPEND, never_recorded
from monitor.policy.table import PolicyTable
from monitor.stream.adapter import RELATIVE, Adapter, Pair, seen_state
from monitor.types.specs import StreamSettings
from monitor.types.stream_events import Break, Observation

ROUNDING: Final = 1e-9
"""Additional allowed difference of a reward, as a fraction of the model's largest reward. It covers sums of terms that
nearly cancel."""


class ModelAdapter(Adapter):
    """Mapping of one agent's observations to a table.

    Args:
        model: the MDP.
        settings: state encoder, and SHA-256 of the file of each known policy.
        nominal: the agent's configured policy, with which actions are compared.
    """

    def __init__(self, model: MDP, settings: StreamSettings, nominal: PolicyTable | None) -> None:
        super().__init__(settings)
        assert settings.encoder != "features", "that is for worlds with numbers"
        self._model = model
        self._encoder: StateEncoder = settings.encoder
        # Memory views, because single entries are read at each message; this is fast even without compilation.
        self._states, self._actions = model.states, model.actions
        self._sent = model.named_actions.sent
        self._by_index = settings.encoder == "index" and model.named_actions.by_index
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

    def read(self, observation: Observation) -> Pair:
        """Return the pair in an observation, without inputs. Raises InputError."""
        if observation.inputs is not None:
            raise InputError(
                "unknown_key", "the model is a table and has no inputs; leave `inputs` out, or put them into `extra`"
            )
        state = encode_state(self._model, self._encoder, seen_state(observation))
        if observation.terminated and self._ended is not None:
            state = self._ended[state]  # the environment has no numbers for terminal copies (MDP.ended_as)
        return state, self._action(observation), ()

    def encode_action(self, raw: float | str) -> int:
        """Return the number of an action. Raises InputError."""
        return encode_action(self._model, raw)

    def unavailable(self, pair: Pair) -> Break | None:
        """Return the reason why a state and an action are no pair of the model; None if they are a pair."""
        state, action = pair[:2]
        if action is None or self._available(state, action):
            return None
        return Break("impossible_step", f"action {self._sent(action)} is not available in state {state}")

    def goes_on(self, pair: Pair, state: object, action: object) -> bool:
        """Return whether a state and an action, as sent, are a pair of the model and possible after `pair`.

        Return False also if they are not numbers of the model; then `entry` decides.
        """
        if type(state) is not int or type(action) is not int or not self._by_index:
            return False
        if not (0 <= action < self._actions and 0 <= state < self._states):
            return False
        return self._available(state, action) and self._place(pair[0], pair[1], state) >= 0

    def impossible(self, pair: Pair, following: Pair) -> Break:
        """Return the break of the path at a transition that is not `possible`."""
        (state, action), successor = pair[:2], following[0]
        if new := never_recorded(self._model, (state, action), successor):
            return Break("impossible_step", f"{new} was never recorded; {APPEND}", unrecorded=True)
        words = f"the model has no transition ({state}, {self._sent(action)}) -> {successor}"
        return Break("impossible_step", words, unpredicted=True)

    def possible(self, pair: Pair, following: Pair) -> bool:
        """Return whether the model gives the transition from the pair a positive probability."""
        return self._place(pair[0], pair[1], following[0]) >= 0

    def contradicts(self, pair: Pair, successor: int, reward: float) -> str:
        """Describe in a sentence how a reward differs from the model's reward; empty if it does not differ.

        The reward is not compared if all rewards of the model are 0, or if the model lacks the transition.
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
        step = f"({pair[0]}, {self._sent(pair[1])}) -> {successor}"
        return f"{step} earned {reward:g}, the model says {expected:g}{around}"

    def has(self, pair: Pair) -> bool:
        """Return whether the model has a pair."""
        state, action = pair[:2]
        if type(state) is not int or state >= self._model.states:
            return False
        return action is None or (action < self._model.actions and self._available(state, action))

    def off_policy(self, pair: Pair) -> bool:
        """Return whether nominal never takes the action of a pair in its state."""
        state, action = pair[0], pair[1]
        if self._nominal is not None:
            return bool(self._nominal[state] != action)
        return self._likely is not None and self._likely[state * self._actions + action] == 0.0

    def excess(self, pair: Pair) -> tuple[float, float]:
        """Return a step's deviation from nominal and its variance (`monitor.statistics.deviation`)."""
        state, action = pair[0], pair[1]
        if self._likely is None or self._repeats is None:
            return (1 if self._nominal is not None and self._nominal[state] != action else 0), 0.0
        likely = self._likely[state * self._actions + action]
        return self._repeats[2 * state] - likely, self._repeats[2 * state + 1]

    def explained(self, error: InputError) -> InputError:
        """Return the error about a state or action that the model lacks.

        For a learned model the error says how to add the state or action.
        """
        fixed = error.reason == "unknown_state" and self._encoder in ("bins", "nearest")  # a recording adds no state
        if self._model.counts is None or error.reason == "missing_action" or fixed:
            return error
        return InputError(error.reason, f"{error.detail}; it was never recorded; {APPEND}")

    def unusable(self, error: InputError) -> Break:
        """Return the break of the path at a message whose state or action was rejected."""
        if error.reason == "missing_action":
            return Break("gap", error.detail)
        if error.reason == "out_of_range":
            return Break("out_of_range", error.detail, unrecorded=self._model.counts is not None)
        new_state = self._model.counts is not None and error.reason == "unknown_state"
        return Break("unknown_state", error.detail, unrecorded=new_state)

    def _place(self, state: int, action: int, successor: int) -> int:
        """Return the index of the transition in the model, found by binary search; -1 if the model lacks it."""
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
