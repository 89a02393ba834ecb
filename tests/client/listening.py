"""A subscriber that holds the steps which a broker delivers, for tests that cannot be answered by the client itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.servers import Mosquitto, wait_until

__all__ = ["Listener", "listening"]


class Listener:
    """The steps so far, in the order of their arrival: (agent, message)."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, dict[str, Any]]] = []
        self.subscribed = threading.Event()

    def until(self, count: int) -> list[dict[str, Any]]:
        """Wait for this many steps, and return them."""
        wait_until(lambda: len(self.steps) >= count, f"{count} steps arrive")
        return [message for _, message in self.steps]

    def distinct(self) -> set[tuple[object, int]]:
        """Return (episode, seq) of the steps, without repetitions."""
        return {(message["episode"], message["seq"]) for _, message in list(self.steps)}


@contextmanager
def listening(broker: Mosquitto) -> Iterator[Listener]:
    """Subscribe to all steps in a persistent session, and reconnect, until the block ends."""
    listener = Listener()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="listener", clean_session=False)
    client.on_connect = lambda client, *_: _subscribe(client)
    client.on_subscribe = lambda *_: listener.subscribed.set()
    client.on_message = lambda _, __, message: listener.steps.append(
        (message.topic.split("/")[1], msgpack.unpackb(message.payload))
    )
    client.reconnect_delay_set(min_delay=0.1, max_delay=0.5)  # type: ignore[arg-type] # a fraction of a second is fine
    client.connect_async("127.0.0.1", broker.port, keepalive=5)
    client.loop_start()
    try:
        wait_until(listener.subscribed.is_set, "the listener is subscribed")
        yield listener
    finally:
        client.disconnect()
        client.loop_stop()


def _subscribe(client: mqtt.Client) -> None:
    client.subscribe("agents/+/steps", qos=1)
