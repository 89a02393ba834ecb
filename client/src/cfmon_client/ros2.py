"""A ROS 2 node that publishes a robot's steps: each action, with the newest state and inputs. Needs rclpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rclpy.node import Node

from cfmon_client.broker import Broker
from cfmon_client.publisher import Publisher, Status
from cfmon_client.steps import TOPIC, share
from cfmon_client.trail import Trail

__all__ = ["StepsNode", "Topic"]

DEPTH: Final = 10
"""Depth of the queues of the subscriptions."""


@dataclass(frozen=True)
class Topic:
    """A ROS topic: the type of its messages, its name, and the function that reads a value from a message."""

    type: type
    name: str
    value: Callable[[Any], object]
    qos: Any = DEPTH


class StepsNode(Node):  # type: ignore[misc] # rclpy comes with ROS and ships no types
    """Publishes a step at each message on the action's topic, with the newest state and inputs.

    An action is published only after the first state and, if there are inputs, the first inputs have come.

    Args:
        broker: URL of the broker, or a `Broker` with credentials and certificates.
        agent: The agent's name.
        state: Topic of states; its value is an integer, a name, or a flat list or dict of numbers.
        action: Topic of actions; its value is an index or a name.
        inputs: Topic of recorded inputs, if the model is a world with numbers that has inputs; its value is a flat list
            or dict of numbers.
        end: Topic of messages that end an episode, if there are any: true for terminated, false for truncated. The
            newest state is then the episode's last state.
        policy: SHA-256 of the policy file that the agent runs.
        topic: MQTT topic of steps, as in the monitor's configuration; `+` is the agent's name.
        name: Name of the node.

    Raises:
        ClientError: An argument is wrong.
    """

    def __init__(
        self,
        broker: Broker | str,
        agent: str,
        *,
        state: Topic,
        action: Topic,
        inputs: Topic | None = None,
        end: Topic | None = None,
        policy: str | None = None,
        topic: str = TOPIC,
        name: str = "cfmon_steps",
    ) -> None:
        super().__init__(name)
        self._publisher = Publisher(broker)
        (steps,) = share(self._publisher, [agent], policy=policy, topic=topic)
        inputs_of = None if inputs is None else lambda _message, _: inputs.value(self._inputs)
        self._trail = Trail(steps, lambda message, _: state.value(message), action.value, inputs_of)
        self._state: Any = None
        self._inputs: Any = () if inputs is None else None  # (): the model has no inputs
        self._end = end
        self.create_subscription(state.type, state.name, self._on_state, state.qos)
        self.create_subscription(action.type, action.name, self._on_action, action.qos)
        if inputs is not None:
            self.create_subscription(inputs.type, inputs.name, self._on_inputs, inputs.qos)
        if end is not None:
            self.create_subscription(end.type, end.name, self._on_end, end.qos)

    @property
    def status(self) -> Status:
        """Counts of the steps so far, and the state of the connection."""
        return self._publisher.status

    def destroy_node(self) -> None:
        """Close the connection, and destroy the node."""
        self._publisher.close()
        super().destroy_node()

    @property
    def _ready(self) -> bool:
        """Return whether there is a state, and inputs if they are needed."""
        return self._state is not None and self._inputs is not None

    def _on_state(self, message: Any) -> None:  # noqa: ANN401 - of any type
        self._state = message

    def _on_inputs(self, message: Any) -> None:  # noqa: ANN401 - of any type
        self._inputs = message

    def _on_action(self, message: Any) -> None:  # noqa: ANN401 - of any type
        if self._ready:
            self._trail.hold(self._state)
            self._trail.act(message)

    def _on_end(self, message: Any) -> None:  # noqa: ANN401 - of any type
        if self._end is not None and self._ready:
            terminated = bool(self._end.value(message))
            self._trail.arrive(self._state, None, {}, terminated=terminated, truncated=not terminated)
