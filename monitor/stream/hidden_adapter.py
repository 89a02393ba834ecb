"""Map an observation to its index and a prior belief, for a model with hidden states or with policies that remember.

The third element of a pair is the belief before the pair's observation is read. The belief of the oldest pair
summarizes the pairs that have left the window, so nothing else has to be kept beside the path.
"""

from __future__ import annotations

from msgspec.structs import replace

from monitor.arrays import Floats
from monitor.errors import InputError, MonitorError
from monitor.hidden.filtering import NOTHING, Filter, Weights
from monitor.hidden.latent_steps import impossible
from monitor.model.encode import StateEncoder, encode_action, encode_signal, encode_state
from monitor.policy.controller import Reader
from monitor.stream.adapter import Adapter, Pair, excess_of, seen_state
from monitor.stream.reorder_buffer import BufferedMessage
from monitor.types.specs import StreamSettings
from monitor.types.stream_events import UNKNOWN_POLICY, Break, Instant, Observation


class HiddenAdapter(Adapter):
    """Mapping of one agent's observations to a model with hidden states, or to a model whose policies remember.

    Args:
        beliefs: filter that computes the beliefs on the model and its policies.
        readers: policy name -> policy.
        settings: state encoder, and SHA-256 of the file of each known policy.
    """

    def __init__(self, beliefs: Filter, readers: dict[str, Reader], settings: StreamSettings) -> None:
        super().__init__(settings)
        assert settings.encoder != "features", "that is for worlds with numbers"
        self._filter, self._readers, self._model = beliefs, readers, beliefs.model
        self._encoder: StateEncoder = settings.encoder

    def entry(
        self,
        observation: Observation,
        now: Instant,
        late: bool,  # noqa: FBT001
    ) -> tuple[BufferedMessage, InputError | None]:
        """Return the result of `Adapter.entry` for the observation. The true state is removed: it must not matter."""
        return super().entry(self.without_truth(observation), now, late)

    def without_truth(self, observation: Observation) -> Observation:
        """Return the observation without the true state beside it, if states are hidden."""
        if self._model.emissions is None or observation.truth is None:
            return observation
        return replace(observation, state=None, truth=None)

    def read(self, observation: Observation) -> Pair:
        """Return the pair in an observation, without a belief. Raises InputError."""
        if observation.inputs is not None:
            raise InputError("unknown_key", "the model has no inputs; leave `inputs` out, or put them into `extra`")
        return self._seen(observation), self._action(observation), ()

    def _seen(self, observation: Observation) -> int | None:
        if self._model.emissions is None:
            return encode_state(self._model, self._encoder, seen_state(observation))
        if observation.state is not None:
            raise InputError(
                "unknown_key",
                "the model's states are hidden: send `observation`, or null; a `state` may only be beside it",
            )
        return None if observation.observation is None else encode_signal(self._model, observation.observation)

    def _action(self, observation: Observation) -> int | None:
        unknown = observation.action is None and self._model.emissions is not None
        return None if unknown else super()._action(observation)

    def encode_action(self, raw: float | str) -> int:
        """Return the number of an action. Raises InputError."""
        return encode_action(self._model, raw)

    def unavailable(self, pair: Pair) -> Break | None:
        """Return None, because the availability of an action depends on the belief."""
        del pair
        return None

    def goes_on(self, pair: Pair, state: object, action: object) -> bool:
        """Return False, so that `entry` reads every observation."""
        del pair, state, action
        return False

    def possible(self, pair: Pair, following: Pair) -> bool:
        """Return whether the observation is possible after all earlier observations."""
        return pair[2] == NOTHING or self._filter.explains(pair[2], following[:2])

    def impossible(self, pair: Pair, following: Pair) -> Break:
        """Return the break of the path at an observation that is not `possible`."""
        del pair
        return Break("impossible_step", impossible(self._model, *following[:2]), unpredicted=True)

    def joined(self, previous: Pair | None, pair: Pair, seq: int, policy: str) -> tuple[Pair, Pair | None]:
        """Return a pair with the belief before it, and the same pair with the belief after it.

        If the pair is impossible at the beginning of a path, its observation and action are dropped.
        """
        seen, action, _ = pair
        before = self._before(seen, seq) if previous is None else previous[2]
        if before == NOTHING:
            return (seen, action, NOTHING), (seen, action, NOTHING)
        if not self._filter.explains(before, (seen, action)):
            seen = action = None
        acting = None if policy == UNKNOWN_POLICY else self._readers[policy]
        try:
            after = self._filter.following(before, (seen, action), acting)
        except MonitorError:  # a recurrent network fails, or has too many possible memories
            after = None
        return (seen, action, before), (seen, action, NOTHING if after is None else after)

    def _before(self, seen: int | None, seq: int) -> Weights:
        """Return the belief before the first pair of a path."""
        if self._model.emissions is not None or seq > 0:
            return self._filter.start(seq)
        assert seen is not None, "without emissions the state is seen"
        return self._filter.begun(seen)

    def bridges(self) -> bool:
        """Return whether lost steps count as steps without an observation: True if states are hidden."""
        return self._model.emissions is not None

    def fits(self, before: Pair | None, pair: Pair) -> bool:
        """Return False, because the stored beliefs were computed with the former model and policies."""
        del before, pair
        return False

    def has(self, pair: Pair) -> bool:
        """Return False, for the same reason as `fits`."""
        del pair
        return False

    def contradicts(self, pair: Pair, following: object, reward: float) -> str:
        """Return an empty text, because the reward belongs to a state that nobody observes."""
        del pair, following, reward
        return ""

    def off_policy(self, pair: Pair) -> bool:
        """Return whether nominal never takes the action of a pair, with any possible memory."""
        likely = self._likely(pair)
        return likely is not None and likely[pair[1]] == 0.0

    def excess(self, pair: Pair) -> tuple[float, float]:
        """Return a step's deviation from nominal and its variance (`monitor.statistics.deviation`)."""
        likely = self._likely(pair)
        if likely is None or pair[1] is None:
            return 0.0, 0.0
        return excess_of(likely, pair[1])

    def _likely(self, pair: Pair) -> Floats | None:
        seen, _, before = pair
        try:
            return None if before == NOTHING else self._filter.likely(before, seen)
        except MonitorError:  # as in `joined`
            return None
