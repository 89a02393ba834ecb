"""A broker with the semantics of MQTT 3.1.1 as mosquitto 2.0 has them, as far as sidecar and agents use them.

Sessions clean and persistent, QoS 0 and 1, redelivery with DUP in the order of sending, a limited number of messages in
flight and waiting, retained messages, wills, takeover of a session, keepalive; and a state that is saved at intervals,
or at each change, so that a crash may lose the rest. A client that speaks MQTT 5 is refused, as 3.1.1 has it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tests.simulation import packets
from tests.simulation.network import End, Network
from tests.simulation.packets import Hello, Message, Reader
from tests.simulation.world import Call, World

PORT: Final = 1883


@dataclass
class State:
    """What a broker may save: the sessions that are kept, and the retained messages."""

    sessions: dict[str, Session] = field(default_factory=dict)
    retained: dict[str, Message] = field(default_factory=dict)

    def copy(self) -> State:
        return State({name: session.copy() for name, session in self.sessions.items()}, dict(self.retained))


@dataclass
class Session:
    """One client's. `flying`: sent and not acknowledged, by packet identifier, in order of sending."""

    client_id: str
    clean: bool
    subscriptions: dict[str, int] = field(default_factory=dict)
    waiting: deque[Message] = field(default_factory=deque)
    flying: OrderedDict[int, Message] = field(default_factory=OrderedDict)
    last: int = 0

    def copy(self) -> Session:
        waiting, flying = self.waiting.copy(), self.flying.copy()
        return Session(self.client_id, self.clean, dict(self.subscriptions), waiting, flying, self.last)

    def next_number(self) -> int:
        """Return a packet identifier that is not in use."""
        self.last = self.last % 65_535 + 1
        while self.last in self.flying:
            self.last = self.last % 65_535 + 1
        return self.last


class Client:
    """A connection, from CONNECT on with its session."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.reader = Reader()
        self.session: Session | None = None
        self.hello: Hello | None = None
        self.heard = 0.0
        self.left_in_order = False


class Broker:
    """Listens on `PORT` of a network while `up`.

    `inflight`: messages that a client has not acknowledged, at most; 0: any number. `exceeds`: an acknowledgement lets
    all that waits go, beyond `inflight`, as in mosquitto 2.0.11 (its issue 2301). `queue`: those that wait for one
    client, at most; others are `dropped`. `save_every`: seconds between two saves; 0: each change is saved.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        *,
        inflight: int = 20,
        exceeds: bool = False,
        queue: int = 100_000,
        save_every: float = 0.0,
    ) -> None:
        self.world = world
        self.up = False
        self.stopped_at = 0.0
        self.losses = 0
        """How often it lost what it had not saved: retained messages, too."""
        self.dropped = 0
        self.delivered: list[Callable[[Message], None]] = []
        """Called with each message that the broker takes, as a subscriber beside it would be."""
        self.on_up: list[Call] = []
        self._network = network
        self._inflight = inflight or 65_535
        self._exceeds = exceeds
        self._queue = queue
        self._save_every = save_every
        self._state = State()
        self._saved = State()
        self._clients: dict[str, Client] = {}
        self._connections: dict[Client, None] = {}
        self._life = 0
        self.start()

    # ---- its life ----

    @property
    def retained(self) -> dict[str, Message]:
        return self._state.retained

    def waiting_for(self, client_id: str) -> int:
        """Return how many messages a client has not acknowledged."""
        session = self._state.sessions.get(client_id)
        return 0 if session is None else len(session.waiting) + len(session.flying)

    def listener(self, client_id: str) -> End | None:
        """Return the connection of a client that has subscribed, if what is sent there arrives."""
        client = self._clients.get(client_id)
        if client is None or client.session is None or not client.session.subscriptions:
            return None
        return None if client.end.closed or client.end.mute_since is not None else client.end

    def start(self) -> None:
        self.up = True
        self._life += 1
        self._network.listen(PORT, self._accept)
        for call in list(self.on_up):
            self.world.after(0.0, call)
        if self._save_every:
            self.world.after(self._save_every, partial(self._save_again, self._life))

    def stop(self, *, crash: bool) -> None:
        """End: in order, with everything saved, or in a crash, with what was saved last."""
        self.up, self.stopped_at = False, self.world.now
        self._network.listen(PORT, None)
        for client in list(self._connections):
            if not crash:
                self._send_will(client)
            client.end.reset()
        self._clients.clear()
        self._connections.clear()
        if not crash:
            self._saved = self._state.copy()
        elif self._save_every:
            self._state = self._saved.copy()
            self.losses += 1
        for name in [name for name, session in self._state.sessions.items() if session.clean]:
            del self._state.sessions[name]

    def _save_again(self, life: int) -> None:
        if self.up and life == self._life:
            self._saved = self._state.copy()
            self.world.after(self._save_every, partial(self._save_again, life))

    # ---- messages ----

    def publish(self, message: Message) -> None:
        """Take a message and pass it on."""
        retained = self._state.retained
        if message.retain:
            if message.payload:
                retained[message.topic] = message
            else:
                retained.pop(message.topic, None)
        self.world.note(f"broker {message.topic} {message.retain:d} {hashlib.md5(message.payload).hexdigest()}")
        for call in self.delivered:
            call(message)
        for session in self._state.sessions.values():
            for pattern, qos in session.subscriptions.items():
                if packets.matches(pattern, message.topic):
                    self._queue_for(session, Message(message.topic, message.payload, min(qos, message.qos)))
                    break

    def _queue_for(self, session: Session, message: Message) -> None:
        client = self._clients.get(session.client_id)
        if message.qos == 0:
            if client is not None and not client.end.full:
                client.end.write(packets.publish(message))
        elif len(session.waiting) >= self._queue:
            self.dropped += 1
        else:
            session.waiting.append(message)
            if client is not None:
                self._pump(client, session)

    def _pump(self, client: Client, session: Session, *, acknowledged: bool = False) -> None:
        """Send what waits, as far as the client takes it."""
        most = 65_535 if acknowledged and self._exceeds else self._inflight
        while session.waiting and not client.end.full and len(session.flying) < most:
            message, number = session.waiting.popleft(), session.next_number()
            session.flying[number] = message
            client.end.write(packets.publish(message, number))

    # ---- clients ----

    def _accept(self, end: End) -> None:
        client = Client(end)
        self._connections[client] = None
        client.heard = self.world.now
        end.on_bytes = lambda data: self._hear(client, data)
        end.on_lost = lambda _error: self._gone(client)
        end.on_space = lambda: self._pump(client, client.session) if client.session is not None else None

    def _hear(self, client: Client, data: bytes) -> None:
        client.heard = self.world.now
        for kind, flags, body in client.reader.feed(data):
            if client in self._connections:
                self._take(client, kind, flags, body)

    def _take(self, client: Client, kind: int, flags: int, body: bytes) -> None:
        session, end = client.session, client.end
        if session is None:
            assert kind == packets.CONNECT, f"the first packet is of type {kind}"
            self._greet(client, packets.read_connect(body))
            return
        match kind:
            case packets.PUBLISH:
                message, number = packets.read_publish(flags, body)
                self.publish(message)
                if message.qos:
                    end.write(packets.numbered(packets.PUBACK, number))
            case packets.PUBACK:
                if session.flying.pop(packets.number_of(body), None) is not None:
                    self.world.note(f"acknowledged {session.client_id} {packets.number_of(body)}")
                self._pump(client, session, acknowledged=True)
            case packets.SUBSCRIBE:
                granted = list(packets.filters(body, with_qos=True))
                session.subscriptions.update(granted)
                codes = bytes(qos for _, qos in granted)
                end.write(packets.numbered(packets.SUBACK, packets.number_of(body), codes))
                for message in list(self._state.retained.values()):
                    for pattern, qos in granted:
                        if packets.matches(pattern, message.topic):
                            self._queue_for(session, replace(message, qos=min(qos, message.qos)))
            case packets.UNSUBSCRIBE:
                for pattern, _ in packets.filters(body, with_qos=False):
                    session.subscriptions.pop(pattern, None)
                end.write(packets.numbered(packets.UNSUBACK, packets.number_of(body)))
            case packets.PINGREQ:
                end.write(packets.packet(packets.PINGRESP, 0, b""))
            case packets.DISCONNECT:
                client.left_in_order = True
                end.close()
                self._gone(client)
            case _:
                raise AssertionError(f"a client sends a packet of type {kind}")

    def _greet(self, client: Client, hello: Hello) -> None:
        if hello.level != 4:
            client.end.write(packets.packet(packets.CONNACK, 0, bytes([0, packets.WRONG_VERSION])))
            client.end.close()
            self._gone(client)
            return
        if (other := self._clients.get(hello.client_id)) is not None:  # the session is taken over
            other.end.close()
            assert other.hello is not None
            other.left_in_order = not (other.hello.clean or hello.clean)  # a session that goes on sends no will
            self._gone(other)
        kept = self._state.sessions.get(hello.client_id)
        present = kept is not None and not hello.clean
        if kept is None or hello.clean:
            kept = Session(hello.client_id, hello.clean)
            self._state.sessions[hello.client_id] = kept
        client.session, client.hello = kept, hello
        self._clients[hello.client_id] = client
        self.world.note(f"connect {hello.client_id} {present:d}")
        client.end.write(packets.packet(packets.CONNACK, 0, bytes([present, 0])))
        for number, message in kept.flying.items():
            client.end.write(packets.publish(message, number, again=True))
        self._pump(client, kept)
        self._watch(client)

    def _watch(self, client: Client) -> None:
        """Give a client up that is silent for one and a half times its keepalive (Section 3.1.2.10)."""
        assert client.hello is not None
        if client not in self._connections or not client.hello.keepalive:
            return
        left = client.heard + 1.5 * client.hello.keepalive - self.world.now
        if left > 0:
            self.world.after(left, lambda: self._watch(client))
        else:
            client.end.reset()
            self._gone(client)

    def _gone(self, client: Client) -> None:
        if self._connections.pop(client, 0) == 0:
            return
        session = client.session
        if session is not None and self._clients.get(session.client_id) is client:
            del self._clients[session.client_id]
            self.world.note(f"gone {session.client_id} {client.left_in_order:d}")
            if session.clean:
                self._state.sessions.pop(session.client_id, None)
            self._send_will(client)

    def _send_will(self, client: Client) -> None:
        if not client.left_in_order and client.hello is not None and client.hello.will is not None:
            client.left_in_order = True
            self.publish(client.hello.will)
