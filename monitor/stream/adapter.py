"""Convert an agent's observations to the form that the model uses.

A pair is (state, action, inputs): the state in the model's form, the number of the action (None if no action was
taken), and the recorded inputs, which only a world with numbers has. `HiddenAdapter` uses observations in place of
states, and beliefs in place of inputs.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

from monitor.arrays import Floats
from monitor.errors import InputError
from monitor.stream.deduplication import digest
from monitor.stream.reorder_buffer import BufferedMessage
from monitor.types.specs import StreamSettings
from monitor.types.stream_events import Break, Instant, Observation, RawState

Pair = tuple[Any, Any, tuple[float, ...]]
"""(State, action or None, inputs). Each adapter has a narrower type of state."""

RELATIVE: Final = 1e-6
"""Allowed relative difference between an agent's reward and the model's reward, because of single precision and sums.
"""
NOT_HIDDEN = "since the model has no hidden states, every message needs `state`, and none has `observation`"


class Adapter:
    """Mapping of one agent's observations to a model.

    Args:
        settings: state encoder, and SHA-256 of the file of each known policy.
    """

    def __init__(self, settings: StreamSettings) -> None:
        self._policies = {sha256.lower(): name for sha256, name in settings.policies.items()}

    def entry(
        self,
        observation: Observation,
        now: Instant,
        late: bool,  # noqa: FBT001
    ) -> tuple[BufferedMessage, InputError | None]:
        """Return the reorder buffer's entry for a valid observation, and the error if its state or action is rejected.

        A rejected message has an entry too, so that its seq is not awaited and the path breaks at this seq.
        """
        problem: Break | None = None
        refused: InputError | None = None
        pair: Pair | None = None
        try:
            pair = self.read(observation)
        except InputError as error:
            refused = self.explained(error)
            problem = self.unusable(refused)
        if pair is not None and (problem := self.unavailable(pair)) is not None:
            pair = None  # if the action is unavailable, the pair has no future
        found = (None, None, ()) if pair is None else pair
        return _entry(observation, now, late, found, problem), refused

    def acting(self, sha256: str | None) -> str | None:
        """Return the name of the policy that an agent reported; None if the policy is unknown.

        `sha256`: the reported digest; None if none was reported, which means the nominal policy.
        """
        if sha256 is None or not self._policies:
            return "nominal"
        return self._policies.get(sha256)

    def knows(self, policy: str) -> bool:
        """Return whether a policy of this name is known."""
        return policy == "nominal" or policy in self._policies.values()

    def fits(self, before: Pair | None, pair: Pair) -> bool:
        """Return whether the model has the pair and, if `before` is given, the transition from `before` to the pair."""
        return self.has(pair) and (before is None or before[1] is None or self.possible(before, pair))

    def joined(
        self,
        previous: Pair | None,
        pair: Pair,
        seq: int,  # noqa: ARG002 - a C number cannot be deleted
        policy: str,
    ) -> tuple[Pair, Pair | None]:
        """Return two forms of a pair: the form for the path, and the form to pass as `previous` with the next pair.

        The second form is None if no pair follows. `previous`: the second form of the previous pair; None if unknown.
        `policy`: name of the policy that acted.
        """
        del previous, policy
        return pair, None if pair[1] is None else pair

    def bridges(self) -> bool:
        """Return whether lost steps count as steps without an observation, and not as a gap in the path."""
        return False

    # ---- defined by each kind of model ----

    @abstractmethod
    def read(self, observation: Observation) -> Pair:
        """Return the pair in an observation. Raises InputError."""
        raise NotImplementedError

    @abstractmethod
    def encode_action(self, raw: float | str) -> int:
        """Return the number of an action. Raises InputError."""
        raise NotImplementedError

    @abstractmethod
    def unavailable(self, pair: Pair) -> Break | None:
        """Return the reason why a state and an action are no pair of the model; None if they are a pair."""
        raise NotImplementedError

    @abstractmethod
    def goes_on(self, pair: Pair, state: object, action: object) -> bool:
        """Return whether a state and an action, as sent, are possible after `pair`. If False, `entry` decides."""
        raise NotImplementedError

    @abstractmethod
    def possible(self, pair: Pair, following: Pair) -> bool:
        """Return whether the model has the transition from the pair to the state of the following pair."""
        raise NotImplementedError

    @abstractmethod
    def impossible(self, pair: Pair, following: Pair) -> Break:
        """Return the break of the path at a transition that is not `possible`."""
        raise NotImplementedError

    @abstractmethod
    def contradicts(self, pair: Pair, successor: Any, reward: float) -> str:  # noqa: ANN401 - as `State` is
        """Describe in a sentence how a reward differs from the model's reward; empty if it does not differ."""
        raise NotImplementedError

    @abstractmethod
    def has(self, pair: Pair) -> bool:
        """Return whether the model has a pair."""
        raise NotImplementedError

    @abstractmethod
    def off_policy(self, pair: Pair) -> bool:
        """Return whether nominal never takes the action of a pair in its state."""
        raise NotImplementedError

    @abstractmethod
    def excess(self, pair: Pair) -> tuple[float, float]:
        """Return a step's deviation from nominal and its variance (`monitor.statistics.deviation`)."""
        raise NotImplementedError

    def explained(self, error: InputError) -> InputError:
        """Return the error about a state or an action that the model does not have, with a possible remedy."""
        return error

    def unusable(self, error: InputError) -> Break:
        """Return the break of the path at a message whose state or action was rejected."""
        if error.reason == "missing_action":
            return Break("gap", error.detail)
        return Break("out_of_range" if error.reason == "out_of_range" else "unknown_state", error.detail)

    def _action(self, observation: Observation) -> int | None:
        if observation.action is not None:
            return self.encode_action(observation.action)
        if observation.terminated or observation.truncated:
            return None
        raise InputError(
            "missing_action",
            f"seq {observation.seq} has no action; only the last message of an episode may have none",
        )


def seen_state(observation: Observation) -> RawState:
    """Return the state in an observation, for models without hidden states. Raises InputError."""
    if observation.observation is not None:
        raise InputError("unknown_key", NOT_HIDDEN)
    if observation.state is None:
        raise InputError("missing_key", NOT_HIDDEN)
    return observation.state


def _entry(
    observation: Observation,
    now: Instant,
    late: bool,  # noqa: FBT001
    pair: Pair,
    problem: Break | None,
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
        late=late,
        ends=observation.terminated or observation.truncated,
        terminated=observation.terminated,
        policy=None if named is None else named.lower(),
        problem=problem,
        reward=observation.reward,
        inputs=pair[2],
    )


def excess_of(likely: Floats, action: int) -> tuple[float, float]:
    """Return the deviation of an action from a policy's probabilities [A], and its variance (`Adapter.excess`)."""
    repeats = float((likely**2).sum())
    return repeats - float(likely[action]), float((likely**3).sum()) - repeats**2
