"""A callback of stable-baselines3 that publishes the steps of a training, that is, of a call of `learn`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from cfmon_client.broker import Broker
from cfmon_client.publisher import Publisher, Status
from cfmon_client.spaces import default_action, default_state
from cfmon_client.steps import TOPIC, share
from cfmon_client.trail import ActionOf, StateOf, Trail

__all__ = ["WatchedTraining"]


class WatchedTraining(BaseCallback):  # type: ignore[misc] # the library is optional, and untyped where it is missing
    """Publish each environment of a training as an agent: `agent-0`, `agent-1`, ...

    `model.learn(..., callback=cfmon_client.WatchedTraining("mqtt://localhost", "arm"))`. The published observations are
    those that the policy sees, normalized if the environment normalizes them. A step is published after it was
    executed, because the library then calls the callback. The arguments are those of `Watched`; `agent` is the
    beginning of the agents' names.
    """

    def __init__(
        self,
        broker: Broker | str,
        agent: str,
        *,
        state: StateOf | None = None,
        action: ActionOf | None = None,
        inputs: StateOf | None = None,
        policy: str | None = None,
        topic: str = TOPIC,
    ) -> None:
        super().__init__()
        self._publisher = Publisher(broker)
        self._agent = agent
        self._state = state
        self._action = action
        self._inputs = inputs
        self._settings: Mapping[str, Any] = {"policy": policy, "topic": topic}
        self._trails: list[Trail] = []
        share(self._publisher, [agent], **self._settings)  # a wrong argument is an error here

    @property
    def status(self) -> Status:
        """Counts of the steps of all agents so far, and the state of the connection."""
        return self._publisher.status

    def close(self) -> bool:
        """Close the connection; return whether the broker has all steps. It is also closed when the program ends."""
        return self._publisher.close()

    def _on_training_start(self) -> None:
        state_of = self._state or default_state(self.training_env.observation_space)
        action_of = self._action or default_action(self.training_env.action_space)
        names = [f"{self._agent}-{number}" for number in range(self.training_env.num_envs)]
        agents = share(self._publisher, names, **self._settings)
        self._trails = [Trail(steps, state_of, action_of, self._inputs) for steps in agents]
        first = self.model._last_obs  # noqa: SLF001 - the first observations are nowhere else
        for trail, observation in zip(self._trails, first, strict=True):
            trail.begin(observation, {})

    def _on_step(self) -> bool:
        step = self.locals
        actions = step.get("clipped_actions", step["actions"])
        for number, (trail, action) in enumerate(zip(self._trails, actions, strict=True)):
            over, info = bool(step["dones"][number]), step["infos"][number]
            truncated = over and bool(info.get("TimeLimit.truncated", False))
            trail.act(action)
            observation, reward = step["new_obs"][number], step["rewards"][number]
            last = info.get("terminal_observation", observation) if over else observation
            trail.arrive(last, reward, info, terminated=over and not truncated, truncated=truncated)
            if over:
                trail.begin(observation, {})
        return True

    def _on_training_end(self) -> None:
        for trail in self._trails:
            trail.finish()
        self._publisher.flush()
