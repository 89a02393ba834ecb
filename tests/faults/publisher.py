"""Publish the agents of `world` over MQTT at QoS 1, with a log: `python -m tests.faults.publisher`.

`PORT LOG RATE SEED [HOST [KIND FOLDER]]`: publish RATE steps a second in all until SIGTERM; then send what the broker
has not acknowledged and print the number of steps. SIGUSR1 does the same and begins a pause, which the next one ends.
The session is persistent and the outbox unbounded: unacknowledged messages lost in a crash of the broker go out again.
Each step is written to LOG, with its time, before it is sent.
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

from tests.faults.world import KINDS

__all__ = ["main", "read_log"]

PATIENCE = 1200.0
"""Seconds within which the broker must have everything after SIGTERM."""

WINDOW = 100
"""Steps sent and not acknowledged, at most."""

UNCERTAIN = 4.0
"""Seconds for which an acknowledgement is not trusted."""

TURN = 0.004
"""Seconds between two readings of the clock."""


def connected(host: str, port: int) -> mqtt.Client:
    """Return a client that reconnects indefinitely and keeps all messages."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="agents", clean_session=False)
    client.max_queued_messages_set(0)
    client.max_inflight_messages_set(WINDOW)
    client.reconnect_delay_set(min_delay=0.1, max_delay=0.5)  # type: ignore[arg-type] # a fraction of a second is fine
    client.connect_async(host, port, keepalive=5)
    client.loop_start()
    return client


class Outbox:
    """Steps in order, each kept for `UNCERTAIN` seconds after the broker acknowledged it.

    mosquitto acknowledges a step before it is on disk: if killed in between, it loses steps, many if it saves at
    intervals. So steps of the last seconds are sent again after a reconnection; the monitor drops duplicates. While
    disconnected, no step is given to the client, which would send it before those to be sent again.
    """

    def __init__(self, client: mqtt.Client) -> None:
        self._client = client
        self._steps: deque[tuple[str, bytes]] = deque()
        self._under_way: dict[int, tuple[str, bytes]] = {}
        self._safe: deque[tuple[float, tuple[str, bytes]]] = deque()
        self._events: deque[int | None] = deque()  # ids acknowledged; None: disconnected
        client.on_publish = self._acknowledged
        client.on_disconnect = self._lost

    def __len__(self) -> int:
        """Return the number of steps that the broker may not have."""
        return len(self._steps) + len(self._under_way)

    def put(self, agent: str, payload: bytes) -> None:
        self._steps.append((f"agents/{agent}/steps", payload))

    def send(self) -> None:
        """Process events of the client, and give it as many steps as it can take."""
        self._process_events()
        while self._steps and len(self._under_way) < WINDOW and self._client.is_connected():
            step = self._steps.popleft()
            self._under_way[self._client.publish(*step, qos=1).mid] = step
        while self._safe and self._safe[0][0] < time.monotonic() - UNCERTAIN:
            self._safe.popleft()

    def _process_events(self) -> None:
        while self._events:
            match self._events.popleft():
                case None:
                    self._steps.extendleft(step for _, step in reversed(self._safe))
                    self._safe.clear()
                case mid:
                    self._safe.append((time.monotonic(), self._under_way.pop(mid)))

    def _acknowledged(self, _client: object, _data: object, mid: int, *_: object) -> None:
        self._events.append(mid)

    def _lost(self, *_: object) -> None:
        self._events.append(None)


def main(
    port: int, log: Path, rate: float, seed: int, *, host: str = "127.0.0.1", kind: str = "grid", folder: str = ""
) -> None:
    """Publish until SIGTERM, then wait until all is acknowledged. `kind`: of agents, written to `folder`."""
    stopped: list[int] = []  # no Event: the interrupted wait may hold its lock
    pauses: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.signal(signal.SIGUSR1, lambda number, _: pauses.append(number))
    client, steps = connected(host, port), KINDS[kind].steps(Path(folder), seed)
    outbox = Outbox(client)
    sent, begun = 0, time.monotonic()
    with log.open("wb") as file:
        while not stopped:
            time.sleep(TURN)
            if len(pauses) % 2:
                paused = time.monotonic()
                send_all(outbox, sent)
                while len(pauses) % 2 and not stopped:
                    time.sleep(TURN)
                begun += time.monotonic() - paused
            for _ in range(int((time.monotonic() - begun) * rate) - sent):
                agent, step = next(steps)
                payload = msgpack.packb({**step, "time": time.time()})
                file.write(msgpack.packb((agent, payload)))
                outbox.put(agent, payload)
                sent += 1
            file.flush()
            outbox.send()
    send_all(outbox, sent)
    client.disconnect()
    client.loop_stop()


def send_all(outbox: Outbox, sent: int) -> None:
    """Wait until the broker has acknowledged every step; print their number."""
    deadline = time.monotonic() + PATIENCE
    while outbox:
        assert time.monotonic() < deadline, f"the broker does not take {len(outbox)} of {sent} steps"
        outbox.send()
        time.sleep(TURN)
    sys.stdout.write(f"{sent}\n")
    sys.stdout.flush()


def read_log(log: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (agent, message) in the order of sending."""
    with log.open("rb") as file:
        yield from msgpack.Unpacker(file)


if __name__ == "__main__":
    PLACES = dict(zip(("host", "kind", "folder"), sys.argv[5:], strict=False))
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), **PLACES)
