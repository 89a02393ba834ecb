"""One conversation with either broker: the simulated one, or mosquitto. Both give a transcript, which must be equal."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.servers import PATIENCE, Mosquitto, free_port
from tests.simulation import packets
from tests.simulation.broker import PORT, Broker
from tests.simulation.network import Network
from tests.simulation.packets import Message, Reader
from tests.simulation.world import World

Line = tuple[object, ...]
"""What a client hears: the kind of a packet, and what matters of it; `("closed",)` at the end of the connection."""


class Wire(Protocol):
    """A connection. `hear`: wait for bytes, and return them; nothing at its end."""

    def say(self, data: bytes) -> None: ...
    def hear(self) -> bytes: ...
    def cut(self) -> None: ...


class Client:
    """A client of a broker, which writes down what it hears. `unacknowledged`: packet identifiers, in order."""

    def __init__(self, wire: Wire, hello: bytes) -> None:
        self._wire, self._reader = wire, Reader()
        self._came: list[tuple[int, int, bytes]] = []
        self.unacknowledged: list[int] = []
        wire.say(hello)
        self.greeting = self._hear_until(packets.CONNACK)

    def heard(self) -> list[Line]:
        """Return what has come until now: until the answer to a ping."""
        self._wire.say(packets.packet(packets.PINGREQ, 0, b""))
        lines = self._hear_until(packets.PINGRESP)
        return lines if lines[-1] == ("closed",) else lines[:-1]

    def subscribe(self, topic: str) -> list[Line]:
        self._wire.say(packets.numbered(packets.SUBSCRIBE, 1, packets.text(topic) + b"\1", flags=2))
        return self.heard()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self._wire.say(packets.publish(Message(topic, payload, 1, retain), 7))
        self._hear_until(packets.PUBACK)

    def acknowledge(self, count: int = 1) -> list[Line]:
        for number in self.unacknowledged[:count]:
            self._wire.say(packets.numbered(packets.PUBACK, number))
        del self.unacknowledged[:count]
        return self.heard()

    def leave(self) -> None:
        self._wire.say(packets.packet(packets.DISCONNECT, 0, b""))
        self._hear_until(-1)

    def cut(self) -> None:
        self._wire.cut()

    def end(self) -> list[Line]:
        """Return what comes until the broker closes the connection."""
        return self._hear_until(-1)

    def _hear_until(self, last: int) -> list[Line]:
        lines: list[Line] = []
        while not lines or lines[-1][0] != last:
            if not self._came:
                data = self._wire.hear()
                if not data:
                    return [*lines, ("closed",)]
                self._came += self._reader.feed(data)
                continue
            kind, flags, body = self._came.pop(0)
            if kind == packets.PUBLISH:
                message, number = packets.read_publish(flags, body)
                lines.append((kind, message.topic, message.payload, message.qos, message.retain, bool(flags & 8)))
                self.unacknowledged += [number] if message.qos else []
            else:
                lines.append((kind, body))
        return lines


class Place(Protocol):
    """A broker of either kind. It saves what is retained and kept at its end only, and sends `inflight` at once."""

    def wire(self) -> Wire: ...
    def restart(self, *, crash: bool) -> None: ...


class Simulated:
    """The simulated broker."""

    def __init__(self, inflight: int, *, exceeds: bool = False) -> None:
        self.world = World(1)
        self.network = Network(self.world)
        self._broker = Broker(self.world, self.network, inflight=inflight, exceeds=exceeds, save_every=1e6)

    def wire(self) -> Wire:
        return _SimulatedWire(self.world, self.network)

    def restart(self, *, crash: bool) -> None:
        self._broker.stop(crash=crash)
        self.world.advance(self.world.now + 1.0)
        self._broker.start()


class _SimulatedWire:
    def __init__(self, world: World, network: Network) -> None:
        self._world, self._end = world, network.connect("client", PORT)
        self._arrived, self._over = b"", False
        self._end.on_bytes, self._end.on_lost = self._take, self._lose

    def say(self, data: bytes) -> None:
        self._end.write(data)

    def hear(self) -> bytes:
        self._world.advance(self._world.now + PATIENCE, ready=lambda: self._arrived or self._over)
        data, self._arrived = self._arrived, b""
        return data

    def cut(self) -> None:
        self._end.reset()
        self._world.advance(self._world.now + 1.0)

    def _take(self, data: bytes) -> None:
        self._arrived += data

    def _lose(self, _error: Exception | None) -> None:
        self._over = True


class Real:
    """Mosquitto, in a folder."""

    def __init__(self, folder: Path, inflight: int) -> None:
        lines = ["persistence true", f"persistence_location {folder}/", "autosave_interval 0"]
        self.mosquitto = Mosquitto(folder, free_port(), [*lines, f"max_inflight_messages {inflight}"])
        self.mosquitto.start()
        self._wires: list[_RealWire] = []

    def wire(self) -> Wire:
        self._wires.append(wire := _RealWire(self.mosquitto.port))
        return wire

    def close(self) -> None:
        for wire in self._wires:
            wire.cut()
        self.mosquitto.stop()

    def restart(self, *, crash: bool) -> None:
        (self.mosquitto.kill if crash else self.mosquitto.stop)()
        self.mosquitto.start()


class _RealWire:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self) -> bytes:
        try:
            return self._socket.recv(65_536)
        except ConnectionResetError:
            return b""

    def cut(self) -> None:
        self._socket.close()


Conversation = Callable[[Callable[..., Client], Place], list[object]]


def transcript(place: Place, conversation: Conversation) -> list[object]:
    """Return what a conversation heard. It gets a function that connects: (name, clean, will, keepalive)."""

    def connect(name: str, *, clean: bool = False, will: bytes = b"", keepalive: int = 60) -> Client:
        hello = packets.connect(name, clean=clean, keepalive=keepalive)
        if will:
            flags = 4 | 8 | clean << 1  # a will with QoS 1
            head = packets.text("MQTT") + bytes([4, flags]) + keepalive.to_bytes(2, "big")
            hello = packets.packet(
                packets.CONNECT, 0, head + packets.text(name) + packets.text("wills") + packets.text(will)
            )
        return Client(place.wire(), hello)

    return conversation(connect, place)
