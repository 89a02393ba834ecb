"""The agents of `world`, over MQTT at QoS 1, and the log of what they said: `python -m tests.faults.publisher`.

`PORT LOG RATE SEED [HOST]`: RATE steps a second in all, until SIGTERM; then what the broker has not acknowledged is
sent to the end and the number of steps printed. A persistent session and an outbox of any length: what a broker forgets
in a crash that was not acknowledged is sent again. Each step stands in LOG before it is sent, with its time.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgpack
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.faults.world import agent_steps

__all__ = ["main", "read_log"]

PATIENCE = 120.0
"""Seconds until the broker must have everything, once told to stop."""

WINDOW = 100
"""Steps sent and not acknowledged, at most."""

TURN = 0.004
"""Seconds between two looks at the clock."""


def connected(host: str, port: int) -> mqtt.Client:
    """A client that connects again for ever, with nothing forgotten in between."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="agents", clean_session=False)
    client.max_queued_messages_set(0)
    client.max_inflight_messages_set(WINDOW)
    client.reconnect_delay_set(min_delay=0.1, max_delay=0.5)  # type: ignore[arg-type] # a fraction of a second is fine
    client.connect_async(host, port, keepalive=5)
    client.loop_start()
    return client


class Outbox:
    """Steps in the order they were taken. Of those the broker has not acknowledged, `WINDOW` are with the client.

    None is handed over while there is no connection: the client would send it ahead of those it has to send again.
    """

    def __init__(self, client: mqtt.Client) -> None:
        self._client = client
        self._steps: deque[tuple[str, bytes]] = deque()
        self._under_way = 0
        self._lock = threading.Lock()
        client.on_publish = self._acknowledged

    def __len__(self) -> int:
        """Steps that the broker may not have."""
        return len(self._steps) + self._under_way

    def put(self, agent: str, payload: bytes) -> None:
        self._steps.append((f"agents/{agent}/steps", payload))

    def send(self) -> None:
        while self._steps and self._under_way < WINDOW and self._client.is_connected():
            with self._lock:
                self._under_way += 1
            self._client.publish(*self._steps.popleft(), qos=1)

    def _acknowledged(self, *_: object) -> None:
        with self._lock:
            self._under_way -= 1


def main(port: int, log: Path, rate: float, seed: int, host: str = "127.0.0.1") -> None:
    """Publish until SIGTERM, then until all is acknowledged."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    client, steps = connected(host, port), agent_steps(seed)
    outbox = Outbox(client)
    sent, begun = 0, time.monotonic()
    with log.open("wb") as file:
        while not stop.wait(TURN):
            for _ in range(int((time.monotonic() - begun) * rate) - sent):
                agent, step = next(steps)
                payload = msgpack.packb({**step, "time": time.time()})
                file.write(msgpack.packb((agent, payload)))
                outbox.put(agent, payload)
                sent += 1
            file.flush()
            outbox.send()
    deadline = time.monotonic() + PATIENCE
    while outbox:
        assert time.monotonic() < deadline, f"the broker does not take {len(outbox)} of {sent} steps"
        outbox.send()
        time.sleep(TURN)
    client.disconnect()
    client.loop_stop()
    sys.stdout.write(f"{sent}\n")


def read_log(log: Path) -> Iterator[tuple[str, bytes]]:
    """(agent, message) in the order of sending."""
    with log.open("rb") as file:
        yield from msgpack.Unpacker(file)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
