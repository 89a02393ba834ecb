"""Agents on the slippery grid: each publishes its steps with QoS 1 until the broker has acknowledged them.

An agent has a connection of its own, or publishes directly, as through a bridge in the broker. In both cases steps wait
while the broker is away, and after a reconnection those of the last seconds are sent once more: a broker acknowledges a
step before it saves it.
"""

from __future__ import annotations

import json
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from tests.faults.world import Act, nominal, walk
from tests.simulation import packets
from tests.simulation.broker import PORT, Broker
from tests.simulation.network import End, Network
from tests.simulation.packets import Message, Reader
from tests.simulation.world import EPOCH, World

UNCERTAIN: Final = 4.0
"""Seconds for which an acknowledgement is not trusted: longer than a broker takes to save."""

WINDOW: Final = 20
"""Steps sent and not acknowledged, at most."""


@dataclass(frozen=True)
class Draft:
    """What an agent is made from. `log`: called with its name and each step, before it is sent.

    `sends_end`: its episodes end with `terminated`, else the next one just begins.
    """

    name: str
    seed: int
    log: Callable[[str, bytes], None]
    slip: float
    sends_end: bool
    act: Act = nominal


class Agent:
    """One agent. `step` makes its next step; `unsent`: steps that the broker has not acknowledged."""

    def __init__(self, world: World, draft: Draft) -> None:
        self.name = name = draft.name
        self.world = world
        self._steps = walk(random.Random(draft.seed), draft.slip, sends_end=draft.sends_end, act=draft.act)
        self._log = draft.log
        self._topic = f"agents/{name}/steps"
        self._waiting: deque[bytes] = deque()
        self._recent: deque[tuple[float, bytes]] = deque()  # acknowledged

    @property
    def unsent(self) -> int:
        return len(self._waiting)

    def step(self) -> None:
        payload = json.dumps({**next(self._steps), "time": EPOCH + self.world.now}).encode()
        self._log(self.name, payload)
        self._waiting.append(payload)
        self.send()

    def send(self) -> None:
        """Send what waits, as far as the broker takes it."""
        raise NotImplementedError

    def say_again(self, lost: float) -> bool:
        """Send the steps of the last seconds before `lost`, when the broker was lost, once more, then what waits.

        Return whether there were any.
        """
        again = [payload for when, payload in reversed(self._recent) if when > lost - UNCERTAIN]
        self._waiting.extendleft(again)
        self._recent.clear()
        self.send()
        return bool(again)

    def _acknowledged(self, payload: bytes) -> None:
        now = self.world.now
        self._recent.append((now, payload))
        while self._recent[0][0] < now - UNCERTAIN - 1.0:
            self._recent.popleft()


class BridgedAgent(Agent):
    """Publishes directly in the broker."""

    def __init__(self, world: World, broker: Broker, draft: Draft) -> None:
        super().__init__(world, draft)
        self._broker = broker
        broker.on_up.append(lambda: self.say_again(broker.stopped_at))

    def send(self) -> None:
        while self._waiting and self._broker.up:
            payload = self._waiting.popleft()
            self._broker.publish(Message(self._topic, payload, qos=1))
            self._acknowledged(payload)


class ConnectedAgent(Agent):
    """Publishes over a connection of its own, in a persistent session, with a keepalive of 5 s."""

    def __init__(self, world: World, network: Network, draft: Draft) -> None:
        super().__init__(world, draft)
        self._network = network
        self._end: End | None = None
        self._greeted = False
        self._reader = Reader()
        self._flying: OrderedDict[int, bytes] = OrderedDict()
        self._number = 0
        self._heard = 0.0
        self._lost_at = inf
        self._connect()

    @property
    def unsent(self) -> int:
        return len(self._waiting) + len(self._flying)

    def send(self) -> None:
        while self._waiting and self._greeted and self._end is not None and len(self._flying) < WINDOW:
            payload = self._waiting.popleft()
            self._number = self._number % 65_535 + 1
            self._flying[self._number] = payload
            self._end.write(packets.publish(Message(self._topic, payload, qos=1), self._number))

    def _connect(self) -> None:
        world = self.world
        try:
            end = self._end = self._network.connect(self.name, PORT)
        except ConnectionRefusedError:
            world.after(world.draw.uniform(0.1, 0.5), self._connect)
            return
        self._greeted, self._reader, self._heard = False, Reader(), world.now
        end.on_bytes = self._hear
        end.on_lost = lambda _error: self._lost(end)
        end.write(packets.connect(self.name, clean=False, keepalive=5))
        self._watch(end)

    def _watch(self, end: End) -> None:
        """Ping; give up a connection on which nothing comes back."""
        if end is not self._end:
            return
        if self.world.now - self._heard > 7.0:
            end.reset()
            self._lost(end)
            return
        if self._greeted:
            end.write(packets.packet(packets.PINGREQ, 0, b""))
        self.world.after(2.5, lambda: self._watch(end))

    def _lost(self, end: End) -> None:
        if end is self._end:
            self._end, self._greeted = None, False
            self._lost_at = min(self._lost_at, self._heard)
            self._waiting.extendleft(reversed(self._flying.values()))
            self._flying.clear()
            self.world.after(self.world.draw.uniform(0.1, 0.5), self._connect)

    def _hear(self, data: bytes) -> None:
        self._heard = self.world.now
        for kind, _, body in self._reader.feed(data):
            if kind == packets.CONNACK:
                self._greeted = True
                lost, self._lost_at = self._lost_at, inf
                self.say_again(lost)
            elif kind == packets.PUBACK:
                payload = self._flying.pop(packets.number_of(body), None)
                if payload is not None:
                    self._acknowledged(payload)
                self.send()
