"""Wrappers that publish the steps of Gymnasium environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate

from cfmon_client.broker import Broker
from cfmon_client.errors import ClientError
from cfmon_client.publisher import FLUSH, Publisher, Status
from cfmon_client.spaces import default_action, default_state
from cfmon_client.steps import TOPIC, share
from cfmon_client.trail import ActionOf, StateOf, Trail

__all__ = ["Watched", "WatchedVector"]


class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that publishes an environment's steps. It behaves like the environment, even if the broker fails.

    Each step is published before the environment executes it. The state that ends an episode is published with
    `terminated` or `truncated`; an episode that `reset` or `close` breaks off is published as truncated.

    Args:
        env: The environment.
        broker: URL of the broker, or a `Broker` with credentials and certificates.
        agent: The agent's name.
        state: Function of (observation, info) that returns the state in the form of the monitor's model. The default
            returns a discrete observation unchanged, and an array as a list of numbers.
        action: Function of the action that returns its index or name. The default returns a discrete action unchanged.
        inputs: Function of (observation, info) that returns the recorded inputs of the next step, for a world with
            numbers that has inputs.
        policy: SHA-256 of the policy file that the agent runs.
        topic: Topic of steps, as in the monitor's configuration; `+` is the agent's name.

    Raises:
        ClientError: An argument is wrong, or `state` or `action` is missing and there is no default for the space.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        broker: Broker | str,
        agent: str,
        *,
        state: StateOf | None = None,
        action: ActionOf | None = None,
        inputs: StateOf | None = None,
        policy: str | None = None,
        topic: str = TOPIC,
    ) -> None:
        super().__init__(env)
        state_of = state or default_state(env.observation_space)
        action_of = action or default_action(env.action_space)
        self._publisher = Publisher(broker)
        (steps,) = share(self._publisher, [agent], policy=policy, topic=topic)
        self._trail = Trail(steps, state_of, action_of, inputs)

    @property
    def status(self) -> Status:
        """Counts of the steps so far, and the state of the connection."""
        return self._publisher.status

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, and begin a new episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._trail.begin(observation, info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401 - of any environment
        """Publish the step, and execute the action."""
        self._trail.act(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._trail.arrive(observation, reward, info, terminated=bool(terminated), truncated=bool(truncated))
        return observation, reward, terminated, truncated, info

    def flush(self, timeout: float = FLUSH) -> bool:
        """Wait until the broker has all steps, at most `timeout` seconds; return whether it has."""
        return self._publisher.flush(timeout)

    def close(self) -> None:
        """Publish the end of an open episode; close the connection and the environment."""
        self._trail.finish()
        self._publisher.close()
        super().close()


class WatchedVector(VectorWrapper[Any, Any, Any, Any, Any]):
    """Wrapper that publishes the steps of a vector environment, each sub-environment as an agent of its own.

    All three autoreset modes of Gymnasium are supported. The arguments are those of `Watched`, except `agent`: a list
    of the agents' names, or the beginning of these names, such as `arm` for `arm-0`, `arm-1`, ...
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        broker: Broker | str,
        agent: str | Sequence[str],
        *,
        state: StateOf | None = None,
        action: ActionOf | None = None,
        inputs: StateOf | None = None,
        policy: str | None = None,
        topic: str = TOPIC,
    ) -> None:
        super().__init__(env)
        names = [f"{agent}-{number}" for number in range(env.num_envs)] if isinstance(agent, str) else list(agent)
        if len(names) != env.num_envs or len(set(names)) != len(names):
            raise ClientError(f"there are {env.num_envs} environments; give as many agents, each another name")
        state_of = state or default_state(env.single_observation_space)
        action_of = action or default_action(env.single_action_space)
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._publisher = Publisher(broker)
        agents = share(self._publisher, names, policy=policy, topic=topic)
        self._trails = [Trail(steps, state_of, action_of, inputs) for steps in agents]
        self._over = [False] * env.num_envs

    @property
    def status(self) -> Status:
        """Counts of the steps of all agents so far, and the state of the connection."""
        return self._publisher.status

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 - as in Gymnasium
        """Reset all environments, or only those in `options["reset_mask"]`, and begin new episodes."""
        mask = (options or {}).get("reset_mask")  # the environment removes it from the options
        observations, infos = self.env.reset(seed=seed, options=options)
        for number, observation in enumerate(iterate(self.env.observation_space, observations)):
            if mask is None or mask[number]:
                self._trails[number].begin(observation, _info_of(infos, number))
                self._over[number] = False
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:  # noqa: ANN401 - of any environment
        """Publish the step of each environment that is not being reset, and execute all steps."""
        for trail, action, over in zip(self._trails, iterate(self.env.action_space, actions), self._over, strict=True):
            if not over:
                trail.act(action)
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        for number, observation in enumerate(iterate(self.env.observation_space, observations)):
            terminated, truncated = bool(terminations[number]), bool(truncations[number])
            self._arrived(number, observation, rewards[number], _info_of(infos, number), terminated, truncated)
        return observations, rewards, terminations, truncations, infos

    def flush(self, timeout: float = FLUSH) -> bool:
        """Wait until the broker has all steps, at most `timeout` seconds; return whether it has."""
        return self._publisher.flush(timeout)

    def close(self, **kwargs: Any) -> None:  # noqa: ANN401 - the environment's own
        """Publish the ends of open episodes; close the connection and the environments."""
        for trail in self._trails:
            trail.finish()
        self._publisher.close()
        super().close(**kwargs)

    def _arrived(  # noqa: PLR0917 - one row of what Gymnasium returns
        self,
        number: int,
        observation: Any,  # noqa: ANN401 - of any environment
        reward: object,
        info: dict[str, Any],
        terminated: bool,  # noqa: FBT001
        truncated: bool,  # noqa: FBT001
    ) -> None:
        trail, over = self._trails[number], terminated or truncated
        if self._over[number] and self._mode is AutoresetMode.NEXT_STEP:
            self._over[number] = False
            trail.begin(observation, info)
        elif self._over[number]:
            pass  # without autoreset, an ended environment waits for `reset`
        elif over and self._mode is AutoresetMode.SAME_STEP:
            last = info.pop("final_obs")
            trail.arrive(last, reward, info.pop("final_info", {}), terminated=terminated, truncated=truncated)
            trail.begin(observation, info)
        else:
            self._over[number] = over
            trail.arrive(observation, reward, info, terminated=terminated, truncated=truncated)


def _info_of(infos: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the info of one environment. A vector environment's info has arrays, with masks in the keys `_<key>`."""
    found = {}
    for key, values in infos.items():
        present = infos.get(f"_{key}")
        if key.startswith("_") or (present is not None and not present[number]):
            continue
        if isinstance(values, Mapping):
            found[key] = _info_of(values, number)
        elif hasattr(values, "__getitem__"):
            found[key] = values[number]
    return found
