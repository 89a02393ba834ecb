"""What a connection does about the demands, refusals and silence of a broker, which is played by the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from monitor.sidecar.effects import OFFLINE, Publication
from monitor.sidecar.mqtt import codec, connection, dial, link
from monitor.sidecar.mqtt.codec import Codec, Packet
from monitor.sidecar.mqtt.inbox import Arrived, Dropped, Inbox, Receipt
from monitor.types import Instant
from tests.servers import PATIENCE, Mosquitto, mosquitto
from tests.sidecar.side import Side, connection_to, let_pass, playing, run
from tests.sidecar.test_mqtt import numbered, publish

CONNECT, PUBLISH, SUBSCRIBE, PINGREQ = 0x10, 0x30, 0x80, 0xC0


Answer = Callable[[bytes], bytes]


def granted(content: bytes) -> bytes:
    return b"\x90\x04" + content[:2] + b"\x00\x01"


def taken(content: bytes, code: bytes = b"") -> bytes:
    """PUBACK, if that is what the PUBLISH asks for."""
    end = 2 + int.from_bytes(content[:2])
    return bytes([0x40, 2 + len(code)]) + content[end : end + 2] + code


def always(answer: bytes) -> Answer:
    return lambda _content: answer


class Broker:
    """A broker that answers by a table, packet type -> reply made from its content, and keeps what it received."""

    def __init__(self, answers: dict[int, Answer]) -> None:
        self.answers: dict[int, Answer] = {SUBSCRIBE: granted, PUBLISH: taken, **answers}
        self.heard: list[Packet] = []
        self.url = ""
        self.after: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """what followed DISCONNECT"""
        self._writer: asyncio.StreamWriter | None = None

    def send(self, content: bytes) -> None:
        assert self._writer is not None
        self._writer.write(content)

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind, self._writer = 0, writer
        while kind != codec.GOODBYE:
            kind, size = await reader.readexactly(2)
            if size > 0x7F:
                size += ((await reader.readexactly(1))[0] - 1) * 0x80
            content = await reader.readexactly(size)
            self.heard.append((kind, content))
            writer.write(self.answers.get(kind & 0xF0, always(b""))(content))
        writer.write_eof()
        self.after.set_result(await reader.read())

    def of(self, kind: int) -> list[Packet]:
        return [packet for packet in self.heard if packet[0] & 0xF0 == kind]


@asynccontextmanager
async def broker(**answers: Answer) -> AsyncIterator[Broker]:
    kinds = {"connect": CONNECT, "publish": PUBLISH, "subscribe": SUBSCRIBE, "ping": PINGREQ}
    played = Broker({kinds[name]: answer for name, answer in answers.items()})
    async with playing(played.play) as played.url:
        yield played


def greeting(properties: bytes = b"", code: int = 0, *, kept: bool = False) -> bytes:
    """CONNACK; `kept`: with the session of an earlier connection."""
    return bytes([0x20, 3 + len(properties), kept, code, len(properties)]) + properties


def step(number: int) -> bytes:
    return Codec("5").publish("agents/ada/steps", b"%d" % number, number=number, retain=False)


async def lose(side: Side, played: Broker) -> None:
    """The broker hangs up, which is seen by writing only if reading is paused; then the side is connected again."""
    played.hang_up()

    def noticed() -> bool:
        to_send(side, b"is anybody there?")
        return side.changes[1:2] == [False]

    await side.until(noticed)
    await side.until(lambda: side.changes == [True, False, True])


def to_send(side: Side, *payloads: bytes) -> None:
    side.outbox.put(side.outbox.number([Publication(f"cfmon/alerts/{n}", p) for n, p in enumerate(payloads)]))


def test_connect_asks_for_a_session_that_stays_and_for_no_more_than_fits() -> None:
    async def scenario() -> None:
        async with broker(connect=always(greeting())) as played:
            side = Side(played.url, limit=1000, keepalive=5.0)
            await side.until(lambda: side.changes == [True])
            await side.stop()
        properties = b"\x11\xff\xff\xff\xff" + b"\x21\x01\xf4" + b"\x27\x02\x00\x00\x00"
        will = b"\x00\x11cfmon/status/test" + len(OFFLINE).to_bytes(2) + OFFLINE
        head = b"\x00\x04MQTT\x05\x2c\x00\x05" + bytes([len(properties)]) + properties
        assert played.heard[0] == (CONNECT, head + b"\x00\x04test\x00" + will)

    asyncio.run(scenario())


@pytest.mark.skipif(dial.QUICKACK is None, reason="this system has no TCP_QUICKACK")
def test_what_the_broker_says_to_an_alert_is_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the steps after it wait at the broker, which sends small packets one acknowledgement at a time."""
    quick: list[int] = []
    sockets: list[socket.socket] = []
    create = socket.create_connection

    def noted(address: tuple[str, int], timeout: float) -> socket.socket:
        sockets.append(create(address, timeout))
        return sockets[-1]

    monkeypatch.setattr(socket, "create_connection", noted)

    async def scenario() -> None:
        async with broker(connect=always(greeting())) as played:
            side = Side(played.url)
            await side.until(lambda: side.changes == [True])
            for number in range(10):  # after some exchanges the system delays acknowledgements
                to_send(side, b"%d" % number)
                await side.until(lambda: not side.outbox.waiting())
                assert dial.QUICKACK is not None
                quick.append(sockets[-1].getsockopt(socket.IPPROTO_TCP, dial.QUICKACK))
            await side.stop()
        assert len(played.of(PUBLISH)) >= 10

    asyncio.run(scenario())
    assert quick == [1] * 10


def test_of_a_broker_that_does_not_understand_the_greeting_the_version_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """amqtt takes the properties for the beginning of a long client id, and waits for the rest."""
    monkeypatch.setattr(dial, "CONNECT_PATIENCE", 0.1)

    async def scenario() -> None:
        async with broker(connect=always(b"")) as played:
            side = Side(played.url)
            await side.until(lambda: "no response to CONNECT; if the broker does not speak MQTT 5" in caplog.text)
            await side.stop()

    asyncio.run(scenario())


def test_a_broker_that_speaks_3_1_1_alone_is_spoken_to_in_it(caplog: pytest.LogCaptureFixture) -> None:
    def connect(content: bytes) -> bytes:
        return b"\x20\x02\x00\x01" if content[6] == 5 else b"\x20\x02\x00\x00"

    async def scenario() -> None:
        async with broker(connect=connect, subscribe=lambda content: b"\x90\x03" + content[:2] + b"\x01") as played:
            side = Side(played.url)
            await side.until(lambda: side.changes == [True])
            await side.stop()
        assert [content[6] for _, content in played.of(CONNECT)] == [5, 4]

    asyncio.run(scenario())
    assert "the broker does not speak MQTT 5; going on with 3.1.1: write mqtt.version: 3.1.1" in caplog.text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (greeting(b"\x1f\x00\x04soon", 0x89), "the broker refuses the connection: Server busy: soon"),
        (greeting() + b"\xe0\x01\x8e", "the broker ends the connection: Session taken over"),
        (greeting() + b"\xe0\x00", "the broker ends the connection: reason code 0"),
        (greeting() + b"\x36\x00", "the broker sends what is not MQTT: a PUBLISH"),
        (greeting() + b"\x50\x02\x00\x01", "the broker sends what is not MQTT: packet 0x50"),
        (greeting() + b"\x30\xff\xff\xff\x7f", "what is not MQTT: a packet of type 0x30 and 268435455 bytes"),
        (greeting() + b"\x40\xff\xff\xff\x7f", "what is not MQTT: a packet of type 0x40 and 268435455 bytes"),
        (greeting() * 2, "the broker sends what is not MQTT: packet 0x20"),
    ],
)
def test_why_a_broker_ends_a_connection_is_told(answer: bytes, words: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with broker(connect=always(answer)) as played:
            side = Side(played.url)
            await side.until(lambda: words in caplog.text)
            await side.stop()

    asyncio.run(scenario())


def test_a_refused_subscription_is_told_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with broker(connect=always(greeting()), subscribe=lambda c: granted(c)[:-1] + b"\x87") as played:
            side = Side(played.url)
            await side.until(lambda: "agents/+/steps (Not authorized): check its access rules" in caplog.text)
            await side.stop()

    asyncio.run(scenario())


def test_no_more_messages_are_under_way_than_the_broker_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth is sent when one of the first three is acknowledged, and no other before the farewell."""
    monkeypatch.setattr(link, "GOODBYE", 0.1)

    async def scenario() -> None:
        async with broker(connect=always(greeting(b"\x21\x00\x03")), publish=always(b"")) as played:
            side = Side(played.url)
            to_send(side, *numbered(0, 10))
            await side.until(lambda: len(played.of(PUBLISH)) == 3)
            played.send(b"\x40\x02\x00\x03")
            await side.until(lambda: len(played.of(PUBLISH)) == 4)
            await side.stop()
            await side.until(lambda: played.of(codec.GOODBYE) != [])
            assert len(played.of(PUBLISH)) == 4

    asyncio.run(scenario())


def test_what_the_broker_does_not_offer_is_not_asked_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """Neither QoS 1 nor retaining; and a message that is too long for it holds up no other."""

    async def scenario() -> None:
        async with broker(connect=always(greeting(b"\x24\x00\x25\x00\x27\x00\x00\x00\x20"))) as played:
            side = Side(played.url)
            to_send(side, b"x" * 100, b"short")
            await side.until(lambda: len(played.of(PUBLISH)) == 1 and not len(side.outbox))
            assert played.of(PUBLISH) == [(0x30, b"\x00\x0ecfmon/alerts/1\x00short")]
            await side.stop()

    asyncio.run(scenario())
    assert "the broker does not take a message on cfmon/alerts/0: it is longer than 32 bytes" in caplog.text


def test_a_refused_message_is_told_once_and_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with broker(connect=always(greeting()), publish=lambda content: taken(content, b"\x87")) as played:
            side = Side(played.url)
            to_send(side, *numbered(0, 5))
            await side.until(lambda: len(side.outbox) == 0 and len(played.of(PUBLISH)) == 5)
            await side.stop()

    asyncio.run(scenario())
    assert caplog.text.count("does not take a message on cfmon/alerts/0: Not authorized") == 1
    assert caplog.text.count("does not take a message") == 1


def test_a_silent_broker_is_pinged_and_then_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """After one and a half of the keepalive that it demands."""

    async def scenario() -> None:
        async with broker(connect=always(greeting(b"\x13\x00\x64"))) as played:
            side = Side(played.url)
            await side.until(lambda: side.changes == [True])
            let_pass(50.0)
            await side.until(lambda: (PINGREQ, b"") in played.heard)
            assert "says nothing" not in caplog.text
            let_pass(100.0)
            await side.until(lambda: "the broker says nothing for 15" in caplog.text)
            await side.stop()

    run(scenario())


def test_a_broker_that_answers_pings_is_kept() -> None:
    async def scenario() -> None:
        async with broker(connect=always(greeting()), ping=always(b"\xd0\x00")) as played:
            side = Side(played.url, keepalive=100.0)
            await side.until(lambda: side.changes == [True])
            for count in range(1, 7):
                let_pass(50.0)
                await side.until(lambda count=count: len(played.of(PINGREQ)) >= count)  # type: ignore[misc]
            assert side.changes == [True]
            await side.stop()

    run(scenario())


def test_messages_of_qos_0_and_of_a_topic_that_is_not_utf8_arrive() -> None:
    async def scenario() -> None:
        sent = Codec("5").publish("agents/ada/steps", b"x", number=0, retain=False)
        sent += b"\x32\x08\x00\x01\xff\x00\x05\x00yz"
        async with broker(connect=always(greeting() + sent)) as played:
            side = Side(played.url)
            await side.until(lambda: len(side.door) == 2)
            first, second = side.door.take(), side.door.take()
            assert [(e.topic, e.payload, e.receipt is None) for e in (first, second)] == [  # type: ignore[union-attr]
                ("agents/ada/steps", b"x", True),
                ("", b"yz", False),
            ]
            await side.stop()

    asyncio.run(scenario())


def test_with_mqtt_5_the_broker_waits_for_acknowledgements_and_nothing_is_dropped(tmp_path: Path) -> None:
    """However long that takes; 3.1.1 has no such limit, so steps are dropped after half a keepalive."""

    async def scenario(real: Mosquitto) -> None:
        side = Side(real.url, limit=10, keepalive=60.0)
        await side.until(lambda: side.changes == [True])
        await publish(real.url, *numbered(0, 30))
        await side.until(lambda: len(side.door) == 5)
        assert real.log.count("Sending PUBLISH to test") == 5
        let_pass(31.0)
        await side.until(lambda: "Received PINGREQ from test" in real.log)
        assert (len(side.door), side.door.full, side.changes) == (5, False, [True])
        assert await side.take(30, acknowledge=True) == numbered(0, 30)
        await side.stop()

    with mosquitto(tmp_path / "m", "max_inflight_messages 100") as real:
        run(scenario(real))


def test_a_broker_that_exceeds_what_we_receive_is_held_back(tmp_path: Path) -> None:
    """As mosquitto 2.0.11 does once acknowledgements flow; of what it had queued nothing is dropped."""

    async def scenario(real: Mosquitto) -> None:
        away = Side(real.url)
        await away.until(lambda: away.changes == [True])
        await away.stop()
        await publish(real.url, *numbered(0, 400))
        side = Side(real.url, limit=20)
        assert await side.take(400, acknowledge=True) == numbered(0, 400)
        await side.stop()

    with mosquitto(tmp_path / "m") as real:
        asyncio.run(scenario(real))


def test_a_handshake_drawn_out_byte_by_byte_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dial, "HANDSHAKE", 0.2)
    gone = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB begins, which never comes
        try:
            while not reader.at_eof():
                writer.write(b"\x02")
                await writer.drain()
                await asyncio.sleep(0.02)
        finally:
            gone.set()

    async def scenario() -> None:
        async with playing(drip) as url:
            side = Side(url.replace("mqtt:", "mqtts:"))
            await side.until(lambda: "SSL handshake is taking longer than 0.2 seconds" in caplog.text)
            await side.stop()
            await asyncio.wait_for(gone.wait(), PATIENCE)

    asyncio.run(scenario())


def test_a_stop_reads_no_backlog_but_waits_for_the_farewell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it reads nothing, it would not see the broker close the connection."""
    close = connection.Connection.close

    async def patiently(line: connection.Connection, _patience: float) -> None:
        await close(line, PATIENCE)

    monkeypatch.setattr(connection.Connection, "close", patiently)

    async def scenario(real: Mosquitto) -> None:
        side = Side(real.url, limit=5, version="3.1.1")
        await side.until(lambda: side.changes == [True])
        await publish(real.url, *numbered(0, 3000))
        await side.until(lambda: side.door.full)
        await side.stop()
        assert len(side.door) == 5
        assert "Received DISCONNECT from test" in real.log

    with mosquitto(tmp_path / "m", "max_inflight_messages 4000") as real:
        asyncio.run(scenario(real))


def test_what_comes_again_while_the_inbox_is_full_waits_and_is_not_dropped() -> None:
    """After a loss of the connection; the first message used to make a gap, and one gap begins a path anew."""

    async def scenario() -> None:
        greet, steps = greeting(kept=True), b"".join(step(number) for number in range(1, 21))
        async with broker(connect=lambda _content: greet + steps) as played:
            side = Side(played.url, limit=5)
            await side.until(lambda: side.door.full)
            await lose(side, played)
            assert await side.take(25, acknowledge=False) == [*numbered(1, 6), *numbered(1, 21)]
            await side.stop()

    asyncio.run(scenario())


def test_what_comes_again_while_steps_are_dropped_waits() -> None:
    """Once it drops, the inbox drops until it is half empty; a new connection can wait for that."""

    async def scenario() -> None:
        greet, steps = greeting(kept=True), b"".join(step(number) for number in range(1, 21))
        async with broker(connect=lambda _content: greet + steps, ping=always(b"\xd0\x00")) as played:
            side = Side(played.url, limit=6, keepalive=60.0)
            await side.until(lambda: side.door.full)
            let_pass(31.0)
            await side.until(lambda: side.door.dropped == 14)
            assert await side.take(1, acknowledge=False) == [b"1"]
            await lose(side, played)
            assert await side.take(25, acknowledge=False) == [*numbered(2, 7), *numbered(1, 21)]
            await side.stop()

    run(scenario())


def test_a_stall_of_ours_is_no_silence_of_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    """A process that was suspended has asked nothing meanwhile; it asks first."""

    async def scenario() -> None:
        async with broker(connect=always(greeting()), ping=always(b"\xd0\x00")) as played:
            side = Side(played.url, keepalive=100.0)
            await side.until(lambda: side.changes == [True])
            let_pass(1000.0)
            await side.until(lambda: played.of(PINGREQ) != [])
            let_pass(50.0)
            await side.until(lambda: len(played.of(PINGREQ)) > 1)
            assert side.changes == [True]
            await side.stop()

    run(scenario())
    assert "says nothing" not in caplog.text


def test_messages_that_were_dropped_are_acknowledged_in_the_order_in_which_they_came() -> None:
    """As MQTT requires, whatever their topics."""
    door = Inbox(1)
    for number, agent in enumerate("abcbcaab"):
        door.put(Arrived(Instant(0.0, 0.0), agent, b"", Receipt(1, number)))
    entries = [entry for _ in range(4) if (entry := door.take()) is not None]
    receipts = [r for e in entries for r in (e.receipts if isinstance(e, Dropped) else [e.receipt]) if r is not None]
    assert [receipt.message_id for receipt in receipts] == list(range(8))


def test_nothing_is_sent_after_the_farewell() -> None:
    """Acknowledgements of steps that were stored meanwhile come too late; the steps come again."""

    async def scenario() -> None:
        arrived: asyncio.Future[Arrived] = asyncio.get_running_loop().create_future()

        def take(messages: Sequence[Arrived]) -> int:
            arrived.set_result(messages[0])
            return len(messages)

        async with broker(connect=always(greeting() + step(1))) as played:
            line = connection_to(played.url, take)
            await line.open()
            receipt = (await asyncio.wait_for(arrived, PATIENCE)).receipt
            assert receipt is not None
            closing = asyncio.create_task(line.close(PATIENCE))
            await asyncio.sleep(0)  # it begins
            line.acknowledge([receipt])
            await closing
            assert await asyncio.wait_for(played.after, PATIENCE) == b""

    asyncio.run(scenario())


def test_refusals_that_differ_each_time_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(content: bytes) -> bytes:
        number = taken(content)[2:]
        return b"\x40\x0b" + number + b"\x87\x07\x1f\x00\x04" + b"%04d" % int.from_bytes(number)

    async def scenario() -> None:
        async with broker(connect=always(greeting()), publish=refuse) as played:
            side = Side(played.url)
            to_send(side, *numbered(0, 300))
            await side.until(lambda: len(side.outbox) == 0)
            await side.stop()

    asyncio.run(scenario())
    assert 1 < caplog.text.count("does not take a message") <= 20
