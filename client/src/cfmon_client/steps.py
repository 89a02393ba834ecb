"""Publish the steps of one agent: number them, name its episodes, and count steps that cannot be published."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, final

from cfmon_client.broker import Broker
from cfmon_client.errors import ClientError
from cfmon_client.message import Refused, check_episode, check_policy, pack
from cfmon_client.publisher import FLUSH, MEMORY, REPUBLISH, Publisher, Status

__all__ = ["TOPIC", "Steps", "check_agent", "publish", "share"]

TOPIC: Final = "agents/+/steps"
"""Default topic of steps, as in the monitor's configuration; `+` is the agent's name."""

_AGENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def publish(
    broker: Broker | str,
    agent: str,
    *,
    policy: str | None = None,
    topic: str = TOPIC,
    memory: int = MEMORY,
    republish: float = REPUBLISH,
) -> Steps:
    """Return the `Steps` of an agent, published over a connection of its own. Use it as a context manager.

    Args:
        broker: URL of the broker, such as `mqtt://localhost`, or a `Broker` with credentials and certificates.
        agent: The agent's name: `[A-Za-z0-9_.-]{1,64}`.
        policy: SHA-256 of the policy file that the agent runs, sent with each step. If no policy in the monitor's
            configuration has this digest, the agent's formulas are blind, because answers would be wrong.
        topic: Topic of steps, as in the monitor's configuration; `+` is the agent's name.
        memory: Maximum bytes of steps that are kept while the broker is away; then the oldest are dropped.
        republish: Steps acknowledged in the last `republish` seconds are published again after a reconnection, because
            a killed broker may have lost them.

    Raises:
        ClientError: An argument is wrong. A broker that is away is no error: steps wait for it.
    """
    return share(Publisher(broker, memory=memory, republish=republish), [agent], policy=policy, topic=topic)[0]


def share(publisher: Publisher, agents: Sequence[str], *, policy: str | None, topic: str) -> list[Steps]:
    """Return the `Steps` of agents that share a connection. If an argument is wrong, close the connection."""
    try:
        return [Steps(publisher, agent, policy=policy, topic=topic) for agent in agents]
    except ClientError:
        publisher.close(0.0)
        raise


def check_agent(agent: str) -> None:
    """Raise ClientError if `agent` is not a valid name."""
    if not isinstance(agent, str) or not _AGENT.fullmatch(agent):
        raise ClientError(f"the agent's name is {agent!r}; give 1 to 64 characters of A-Z a-z 0-9 _ . -")


@final
class Steps:
    """The steps of one agent. For all arguments, methods return at once and never raise. Use it in one thread.

    Values that cannot be published are counted and logged, with the reason: see `status`.

    Args:
        publisher: The connection. Several agents may share a connection.
        agent: The agent's name.
        policy: SHA-256 of the policy file that the agent runs.
        topic: Topic of steps; `+` is the agent's name.
        clock: The agent's clock, in seconds since the epoch.
        run: Beginning of the names of episodes; by default a unique text.

    Raises:
        ClientError: An argument is wrong.
    """

    def __init__(
        self,
        publisher: Publisher,
        agent: str,
        *,
        policy: str | None = None,
        topic: str = TOPIC,
        clock: Callable[[], float] = time.time,
        run: str | None = None,
    ) -> None:
        check_agent(agent)
        if topic.count("+") != 1 or "#" in topic:
            raise ClientError(f'the topic is "{topic}"; give one with exactly one "+", in place of the agent\'s name')
        try:
            self._policy = None if policy is None else check_policy(policy)
        except Refused as refused:
            raise ClientError(str(refused)) from None
        self._publisher = publisher
        self._agent = agent
        self._topic = topic.replace("+", agent)
        self._clock = clock
        self._run = run or f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(clock()))}-{uuid.uuid4().hex[:6]}"
        self._episodes = 0
        self._episode: str | int | None = None
        self._seq = 0

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._agent

    @property
    def episode(self) -> str | int | None:
        """Name of the open episode; None between episodes."""
        return self._episode

    @property
    def status(self) -> Status:
        """Counts of the steps so far of all agents that share the connection, and its state."""
        return self._publisher.status

    def reset(self, episode: str | int | None = None) -> None:
        """Begin a new episode; the attribute `episode` is its name from now on.

        Without a call of `reset`, a new episode begins with the first step after `end`. `episode`: the name; by default
        a unique name is made. An open episode is broken off. If you know the last state of the open episode, first call
        `end` with this state, so that the monitor evaluates it too.
        """
        self._begin()
        if episode is not None:
            try:
                self._episode = check_episode(episode)
            except Exception as error:  # noqa: BLE001 - nothing is raised into the agent's loop
                self._refuse(error)

    def step(
        self,
        state: object,
        action: object,
        *,
        inputs: object = None,
        reward: object = None,
        policy: str | None = None,
        extra: object = None,
    ) -> None:
        """Publish a state and the action taken in it, before or after the action takes effect.

        A step that cannot be published keeps its number. The monitor therefore sees a gap between the steps before and
        after it.

        Args:
            state: The state, as the monitor's `state_encoder` requires: an integer, a name, a flat list of numbers, or
                a dict of names to numbers. Arrays and scalars of NumPy are accepted. If the model has hidden states,
                give `Observed(..)`.
            action: Index or name of the action. If the model's names of actions are numbers, such as 40, a number is a
                name.
            inputs: Recorded inputs of a world with numbers, such as the weather, while the action takes effect: a flat
                list, an array, or a dict of names to numbers.
            reward: The reward of the transition *into* this state, that is, of the previous action.
            policy: SHA-256 of the policy that took the action, if it differs from the constructor's `policy`.
            extra: A dict that recordings keep and nothing else uses.
        """
        self._send(state, action, policy, inputs=inputs, reward=reward, extra=extra)

    def end(
        self,
        state: object = None,
        *,
        terminated: bool = False,
        truncated: bool = False,
        inputs: object = None,
        reward: object = None,
        extra: object = None,
    ) -> None:
        """Publish the last state of the episode, in which no action is taken, and close the episode.

        Args:
            state: The last state. Without it, nothing is published: the monitor notices the end when the next episode
                begins, and does not know how this episode ended.
            terminated: The task ended in this state, as in Gymnasium.
            truncated: A time limit cut the episode off. This is assumed unless `terminated` is given.
            inputs: As in `step`; a world with inputs needs the inputs of the last state too.
            reward: The reward of the transition into this state.
            extra: A dict that recordings keep and nothing else uses.
        """
        if self._episode is None:
            self._refuse(Refused("no_episode", "end() is called, but no step was published since the last end"))
            return
        if state is not None:
            cut_off = bool(truncated) or not terminated
            ends = {"terminated": bool(terminated), "truncated": cut_off}
            self._send(state, None, None, inputs=inputs, reward=reward, extra=extra, **ends)
        elif terminated or truncated:
            self._refuse(Refused("missing_state", "end() needs the last state; give it as the first argument"))
        self._episode = None

    def flush(self, timeout: float = FLUSH) -> bool:
        """Wait at most `timeout` seconds for the broker to acknowledge all steps; return whether it has."""
        return self._publisher.flush(timeout)

    def close(self, timeout: float = FLUSH) -> bool:
        """Close the connection after `flush`; return whether the broker has all steps."""
        return self._publisher.close(timeout)

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> str:
        episode = f"{self._run}-{self._episodes}"
        self._episode, self._seq, self._episodes = episode, 0, self._episodes + 1
        return episode

    def _send(self, state: object, action: object, policy: str | None, **others: Any) -> None:  # noqa: ANN401 - of `pack`
        episode = self._episode if self._episode is not None else self._begin()
        seq, self._seq = self._seq, self._seq + 1
        try:
            acting = self._policy if policy is None else policy
            payload, left_out = pack(episode, seq, state, action, time=self._clock(), policy=acting, **others)
        except Exception as error:  # noqa: BLE001 - nothing is raised into the agent's loop
            self._refuse(error)
            return
        if (reason := self._publisher.put(self._topic, payload)) is not None:
            self._refuse(Refused(reason, "steps are not published; make a new publisher"))
        for refused in left_out:
            self._refuse(refused)

    def _refuse(self, error: Exception) -> None:
        reason = error.reason if isinstance(error, Refused) else "error"
        text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        self._publisher.refuse(self._agent, reason, text)
