"""The ROS 2 node, with a stub of rclpy: subscriptions that a test calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.client.listening import listening
from tests.client.test_watched import messages_of
from tests.servers import Mosquitto


class StubNode:
    """`rclpy.node.Node`, with the calls that the client makes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.callbacks: dict[str, Callable[[Any], None]] = {}
        self.destroyed = False

    def create_subscription(self, kind: type, topic: str, callback: Callable[[Any], None], qos: int) -> None:
        assert (kind, qos) == (SimpleNamespace, 10)
        self.callbacks[topic] = callback

    def destroy_node(self) -> None:
        self.destroyed = True


@pytest.fixture
def ros2(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The client's module, on top of the stub."""
    node = ModuleType("rclpy.node")
    node.Node = StubNode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rclpy", ModuleType("rclpy"))
    monkeypatch.setitem(sys.modules, "rclpy.node", node)
    monkeypatch.delitem(sys.modules, "cfmon_client.ros2", raising=False)
    import cfmon_client.ros2 as module  # noqa: PLC0415 - on top of the stub

    monkeypatch.delitem(sys.modules, "cfmon_client.ros2")
    return module


@pytest.fixture
def topic(ros2: ModuleType) -> Callable[[str], Any]:
    return lambda name: ros2.Topic(SimpleNamespace, name, lambda message: message.data)


def test_each_action_is_published_with_the_newest_state(
    broker: Mosquitto, ros2: ModuleType, topic: Callable[[str], Any]
) -> None:
    with listening(broker) as listener:
        node: Any = ros2.StepsNode(broker.url, "cart", state=topic("/scan"), action=topic("/do"), end=topic("/failed"))
        sent = [
            *[("/do", 9), ("/failed", True), ("/scan", [0.5, 1.0]), ("/do", 1), ("/scan", [0.25, 1.0])],
            *[("/scan", [0.0, 1.0]), ("/do", 0), ("/do", 1), ("/scan", [3.0, 1.0]), ("/failed", True)],
            *[("/do", 2), ("/failed", False)],
        ]
        for name, data in sent:
            node.callbacks[name](SimpleNamespace(data=data))
        node.destroy_node()
        assert node.destroyed
        assert not node.status.refused
        listener.until(4 + 2)
    assert messages_of(listener, "cart") == [
        (0, [0.5, 1.0], 1, None, None),
        (1, [0.0, 1.0], 0, None, None),
        (2, [0.0, 1.0], 1, None, None),
        (3, [3.0, 1.0], None, None, "terminated"),
        (0, [3.0, 1.0], 2, None, None),
        (1, [3.0, 1.0], None, None, "truncated"),
    ]


def test_inputs_are_those_of_their_own_topic(broker: Mosquitto, ros2: ModuleType, topic: Callable[[str], Any]) -> None:
    with listening(broker) as listener:
        node: Any = ros2.StepsNode(
            broker.url, "cart", state=topic("/scan"), action=topic("/do"), inputs=topic("/wind"), end=topic("/failed")
        )
        sent = [("/scan", [0.5]), ("/do", 9), ("/failed", True), ("/wind", [3.0]), ("/do", 1), ("/wind", [4.0])]
        for name, data in [*sent, ("/do", 0), ("/failed", True)]:
            node.callbacks[name](SimpleNamespace(data=data))
        node.destroy_node()
        assert not node.status.refused
        messages = listener.until(3)
    assert [(each["seq"], each["inputs"]) for each in messages] == [(0, [3.0]), (1, [4.0]), (2, [4.0])]
