"""Agents that publish every step over MQTT, QoS 1; a separate process, the same for all subscribers.

`python -m benchmarks.process.publisher PORT AGENTS RATE SECONDS [--config FILE] [--rounds N]`: RATE is the total per
second; 0 sends SECONDS times 10,000 messages as fast as the broker takes them. The agents act in a 4x4 grid, or in the
model of a configuration under its deployed policy. Packets are built beforehand; only the time is written when they are
sent. Each round but the first begins with a line on standard input.
"""

from __future__ import annotations

import argparse
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack

from benchmarks.process.episodes import fleet_steps
from benchmarks.process.grid import NOMINAL, outcomes
from monitor.sidecar.config.load import assemble

__all__ = ["FLOOD", "main"]

FLOOD = 10_000
"""Messages in a flood per second of its nominal length."""

TURN = 0.002
"""Seconds between two readings of the clock."""


def packets(agents: int, count: int, config: Path | None) -> Iterator[bytearray]:
    """Yield PUBLISH packets; the last eight bytes of each are its time."""
    steps = grid_steps(agents, count) if config is None else fleet_steps(assemble(config), agents, count)
    for n, (agent, fields) in enumerate(steps):
        topic = f"agents/{agent}/steps".encode()
        content = msgpack.packb({**fields, "time": 0.0})
        body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", n % 65535 + 1) + content
        size = len(body)
        assert size < 128 * 128, "its length takes two bytes at most"
        yield bytearray((bytes((0x32, size)) if size < 128 else bytes((0x32, size % 128 | 128, size // 128))) + body)


def grid_steps(agents: int, count: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield `count` (agent, message without `time`) of agents in the grid, round robin."""
    draw = random.Random(7)
    cells = [0] * agents
    for n in range(count):
        agent = n % agents
        seq, cell = n // agents, cells[agent]
        action = NOMINAL[cell]
        yield f"a{agent}", {"v": 1, "episode": "bench", "seq": seq, "state": cell, "action": action}
        targets, weights = zip(*outcomes(cell, action), strict=True)
        [cells[agent]] = draw.choices(targets, weights)


def connect(port: int) -> socket.socket:
    """Connect with a clean session, without keepalive."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + struct.pack(">H", 9) + b"publisher"
    sock.sendall(bytes((0x10, len(body))) + body)
    greeting = sock.recv(4)
    assert greeting == b"\x20\x02\x00\x00", greeting
    return sock


class Broker:
    """Connection that reads acknowledgements while it sends, so that neither side blocks the other."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._acknowledged = 0
        sock.settimeout(0)

    def send(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            readable, writable, _ = select.select([self._sock], [self._sock], [])
            if readable:
                self._read()
            if writable:
                view = view[self._sock.send(view) :]

    def wait(self, count: int) -> None:
        """Wait until `count` messages are acknowledged, four bytes each."""
        while self._acknowledged < 4 * count:
            select.select([self._sock], [], [])
            self._read()

    def _read(self) -> None:
        content = self._sock.recv(1 << 16)
        assert content, "the broker hung up"
        self._acknowledged += len(content)


def stamped(packet: bytearray) -> bytearray:
    struct.pack_into(">d", packet, len(packet) - 8, time.time())
    return packet


def main(  # noqa: PLR0917 - its command line
    port: int, agents: int, rate: float, seconds: float, config: Path | None = None, rounds: int = 1
) -> None:
    """Send all messages, and wait until the broker has acknowledged those of each round."""
    count = round((rate or FLOOD) * seconds)
    ready = list(packets(agents, rounds * count, config))
    broker = Broker(connect(port))
    for n in range(rounds):
        if n:
            sys.stdin.readline()
        send(broker, ready[n * count : (n + 1) * count], rate)
        broker.wait((n + 1) * count)


def send(broker: Broker, ready: list[bytearray], rate: float) -> None:
    """Send these packets."""
    begun, sent = time.monotonic(), 0
    while sent < len(ready):
        due = sent + 64 if not rate else min(len(ready), 1 + int((time.monotonic() - begun) * rate))
        if due > sent:
            broker.send(b"".join(stamped(packet) for packet in ready[sent:due]))
            sent = due
        else:
            time.sleep(TURN)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("agents", type=int)
    parser.add_argument("rate", type=float)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    main(given.port, given.agents, given.rate, given.seconds, given.config, given.rounds)
