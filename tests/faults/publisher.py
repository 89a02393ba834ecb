"""The agents of `world`, over MQTT at QoS 1, and the log of what they said: `python -m tests.faults.publisher`.

`PORT LOG RATE SEED [HOST]`: RATE steps a second in all, until SIGTERM; then what the broker has not acknowledged is
sent to the end and the number of steps printed. A persistent session and an outbox of any length: what a broker forgets
in a crash that was not acknowledged is sent again. Each step stands in LOG before it is sent, with its time.
"""

from __future__ import annotations

import signal
import sys
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

DOUBT = 4.0
"""Seconds for which an acknowledgement is not believed."""

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
    """Steps in the order they were taken, each kept until some time after the broker acknowledged it.

    mosquitto acknowledges a step before it is on its disk: killed in between, it has lost it, and if it saves by time
    that may be many. So after a reconnection those of the last seconds are said again; who has them already drops them
    as duplicates. No step is handed to the client while there is no connection, for it would send that ahead of those
    it has to send again.
    """

    def __init__(self, client: mqtt.Client) -> None:
        self._client = client
        self._steps: deque[tuple[str, bytes]] = deque()
        self._under_way: dict[int, tuple[str, bytes]] = {}
        self._safe: deque[tuple[float, tuple[str, bytes]]] = deque()
        self._told: deque[int | None] = deque()  # by the client's thread: what was acknowledged, None for a lost line
        client.on_publish = self._acknowledged
        client.on_disconnect = self._lost

    def __len__(self) -> int:
        """Steps that the broker may not have."""
        return len(self._steps) + len(self._under_way)

    def put(self, agent: str, payload: bytes) -> None:
        self._steps.append((f"agents/{agent}/steps", payload))

    def send(self) -> None:
        """Take note of what the client told, and hand over what it has room for."""
        self._listen()
        while self._steps and len(self._under_way) < WINDOW and self._client.is_connected():
            step = self._steps.popleft()
            self._under_way[self._client.publish(*step, qos=1).mid] = step
        while self._safe and self._safe[0][0] < time.monotonic() - DOUBT:
            self._safe.popleft()

    def _listen(self) -> None:
        while self._told:
            match self._told.popleft():
                case None:
                    self._steps.extendleft(step for _, step in reversed(self._safe))
                    self._safe.clear()
                case mid:
                    self._safe.append((time.monotonic(), self._under_way.pop(mid)))

    def _acknowledged(self, _client: object, _data: object, mid: int, *_: object) -> None:
        self._told.append(mid)

    def _lost(self, *_: object) -> None:
        self._told.append(None)


def main(port: int, log: Path, rate: float, seed: int, host: str = "127.0.0.1") -> None:
    """Publish until SIGTERM, then until all is acknowledged."""
    asked: list[int] = []  # no Event: its lock may be held by the very wait that the signal interrupts
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    client, steps = connected(host, port), agent_steps(seed)
    outbox = Outbox(client)
    sent, begun = 0, time.monotonic()
    with log.open("wb") as file:
        while not asked:
            time.sleep(TURN)
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
