"""The link against a real mosquitto: acknowledged only after the fact, back after every loss, dead by the last will."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import aiomqtt
import pytest

from monitor.sidecar.effects import OFFLINE, Publication
from monitor.sidecar.mqtt import connection, link
from monitor.sidecar.mqtt.broker import parse_broker
from monitor.sidecar.mqtt.codec import Codec
from monitor.sidecar.mqtt.inbox import Arrived, Dropped
from tests.servers import PATIENCE, Mosquitto, mosquitto, need
from tests.sidecar.running import subscriber
from tests.sidecar.side import STATUS, Side, connection_to, let_pass, playing, run


async def publish(url: str, *payloads: bytes) -> None:
    """Publish steps; returns when the broker has acknowledged them."""
    command = [need("mosquitto_pub", "mosquitto-clients"), "-h", "127.0.0.1", "-p", str(parse_broker(url).port)]
    command += ["-t", "agents/ada/steps", "-q", "1", "-l"]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    try:
        await process.communicate(b"\n".join([*payloads, b""]))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert await process.wait() == 0


@contextlib.asynccontextmanager
async def subscribed(url: str, topic: str) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
    """The payloads under a topic, one at a call."""
    broker = parse_broker(url)
    async with aiomqtt.Client(broker.host, broker.port) as client:
        await client.subscribe(topic, qos=1)

        async def following() -> bytes:
            async with asyncio.timeout(PATIENCE):
                return bytes((await anext(client.messages)).payload)

        yield following


@pytest.fixture(params=["5", "3.1.1"])
def each_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sides of this test speak it."""
    monkeypatch.setattr(Side, "version", request.param)


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(start, end)]


@pytest.mark.usefixtures("each_version")
def test_what_was_not_taken_over_comes_again(broker: Mosquitto) -> None:
    async def scenario() -> None:
        first = Side(broker.url)
        await first.until(lambda: first.changes == [True])
        await first.stop()
        await publish(broker.url, *numbered(0, 50))
        killed = Side(broker.url)
        assert await killed.take(20, acknowledge=True) == numbered(0, 20)
        assert await killed.take(5, acknowledge=False) == numbered(20, 25)
        await killed.until(lambda: broker.log.count("Received PUBACK from test") == 20)
        await killed.die()
        second = Side(broker.url)
        assert await second.take(30, acknowledge=True) == numbered(20, 50)
        await second.stop()
        third = Side(broker.url)
        await third.until(lambda: third.changes == [True])
        await publish(broker.url, b"last")
        assert await third.take(1, acknowledge=True) == [b"last"]
        await third.stop()

    asyncio.run(scenario())


def test_a_receipt_of_an_older_connection_acknowledges_nothing(broker: Mosquitto) -> None:
    async def scenario() -> None:
        side = Side(broker.url)
        await side.until(lambda: side.changes == [True])
        await publish(broker.url, b"one")
        await side.until(lambda: len(side.door) == 1)
        broker.kill()
        await side.until(lambda: side.changes == [True, False])
        entry = side.door.take()
        assert isinstance(entry, Arrived)
        assert entry.receipt is not None
        side.link.acknowledge([entry.receipt])  # nobody there to hear it, and nothing breaks
        broker.start()
        await side.until(lambda: side.changes == [True, False, True])
        side.link.acknowledge([entry.receipt])
        await publish(broker.url, b"two")
        assert await side.take(1, acknowledge=True) == [b"two"]  # the broker has forgotten the other
        await side.until(lambda: "Received PUBACK from test" in broker.log)
        await side.stop()
        assert broker.log.count("Received PUBACK from test") == 1

    asyncio.run(scenario())


@pytest.mark.usefixtures("each_version")
def test_messages_published_while_away_come_after_the_reconnection(tmp_path: Path) -> None:
    async def scenario(broker: Mosquitto) -> None:
        first = Side(broker.url)
        await first.until(lambda: first.changes == [True])
        await first.stop()
        await publish(broker.url, *numbered(0, 2000))
        second = Side(broker.url)
        assert await second.take(2000, acknowledge=True) == numbered(0, 2000)
        await second.stop()

    with mosquitto(tmp_path / "m") as broker:
        asyncio.run(scenario(broker))


@pytest.mark.usefixtures("each_version")
def test_a_broker_that_comes_late_or_restarts_is_found_again(tmp_path: Path) -> None:
    async def scenario(broker: Mosquitto) -> None:
        broker.kill()
        side = Side(broker.url)
        side.outbox.put(side.outbox.number([Publication("cfmon/alerts/ada/watch", b"early")]))
        await asyncio.sleep(0)
        broker.start()
        await side.until(lambda: side.changes == [True])
        await side.until(lambda: len(side.outbox) == 0)
        broker.kill()
        await side.until(lambda: side.changes == [True, False])
        assert not side.link.up
        side.outbox.put(side.outbox.number([Publication("cfmon/alerts/ada/watch", b"late")]))
        broker.start()
        await side.until(lambda: side.changes == [True, False, True])
        async with subscribed(broker.url, "cfmon/alerts/+/+") as following:
            assert await following() == b"late"
        await publish(broker.url, b"step")
        assert await side.take(1, acknowledge=True) == [b"step"]
        await side.stop()

    with mosquitto(tmp_path / "m") as broker:
        asyncio.run(scenario(broker))


@pytest.mark.usefixtures("each_version")
def test_both_ends_are_told_on_the_status_topic(broker: Mosquitto) -> None:
    async def scenario() -> None:
        async with subscribed(broker.url, STATUS) as following:
            side = Side(broker.url)
            side.outbox.put(side.outbox.number([Publication(STATUS, b"online")]))
            assert await following() == b"online"
            side.outbox.put(side.outbox.number([Publication(STATUS, b"almost")]))
            await side.stop()
            assert await following() == b"almost"
            assert await following() == OFFLINE  # said goodbye
            killed = Side(broker.url)
            await killed.until(lambda: killed.changes == [True])
            await killed.die()
            assert await following() == OFFLINE  # the last will

    asyncio.run(scenario())


def test_a_full_door_makes_the_broker_wait(broker: Mosquitto) -> None:
    async def scenario() -> None:
        side = Side(broker.url, limit=5, version="3.1.1")
        await side.until(lambda: side.changes == [True])
        await publish(broker.url, *numbered(0, 30))
        await side.until(lambda: len(side.door) == 5)
        await publish(broker.url, *numbered(30, 40))
        assert len(side.door) == 5
        assert await side.take(40, acknowledge=True) == numbered(0, 40)
        await side.stop()

    asyncio.run(scenario())


def test_alerts_go_out_while_steps_are_held_back(broker: Mosquitto) -> None:
    """The broker's acknowledgements stand behind steps that are not read; after an outage that can last for minutes."""

    async def scenario() -> None:
        side = Side(broker.url, limit=5, version="3.1.1")
        await side.until(lambda: side.changes == [True])
        await publish(broker.url, *numbered(0, 30))
        await side.until(lambda: len(side.door) == 5)
        with subscriber(broker) as heard:
            alerts = [Publication(f"cfmon/alerts/ada/{number}", b"firing") for number in range(2000)]
            side.outbox.put(side.outbox.number(alerts))
            await side.until(lambda: len(heard.received) == len(alerts))
        assert [topic for topic, _ in heard.received] == [alert.topic for alert in alerts]
        assert await side.take(30, acknowledge=True) == numbered(0, 30)
        await side.until(lambda: len(side.outbox) == 0)
        await side.stop()

    asyncio.run(scenario())


def test_what_cannot_be_held_back_any_longer_is_dropped_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: Mosquitto) -> None:
        side = Side(broker.url, limit=5, keepalive=60.0, version="3.1.1")
        await side.until(lambda: side.changes == [True])
        await publish(broker.url, *numbered(0, 30))
        await side.until(lambda: side.door.full)
        assert "steps are dropped" not in caplog.text
        let_pass(31.0)
        await side.until(lambda: side.door.dropped == 25)
        assert "steps are dropped" in caplog.text
        entries = [side.door.take() for _ in range(6)]
        payloads = [entry.payload for entry in entries if isinstance(entry, Arrived)]
        assert payloads == numbered(0, 5)
        last = entries[-1]
        assert isinstance(last, Dropped)
        assert (last.topic, last.count, len(last.receipts)) == ("agents/ada/steps", 25, 25)
        await publish(broker.url, b"later")
        assert await side.take(1, acknowledge=True) == [b"later"]
        await side.stop()

    with mosquitto(tmp_path / "m", "max_inflight_messages 100") as broker:
        run(scenario(broker))


def test_a_slow_taker_makes_the_broker_wait_and_drops_nothing(broker: Mosquitto) -> None:
    """The door is not half empty by the time that no more can be held back; but neither is it full."""

    async def scenario() -> None:
        side = Side(broker.url, limit=5, keepalive=60.0, version="3.1.1")
        await side.until(lambda: side.changes == [True])
        await publish(broker.url, *numbered(0, 30))
        await side.until(lambda: len(side.door) == 5)
        first = await side.take(1, acknowledge=True)
        let_pass(31.0)
        await side.until(lambda: len(side.door) == 5)
        assert first + await side.take(29, acknowledge=True) == numbered(0, 30)
        assert side.door.dropped == 0
        await side.stop()

    run(scenario())


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that greets everyone and lets no one subscribe, in as much MQTT 3.1.1 as that takes."""
    while True:
        kind, size = await reader.readexactly(2)
        body = await reader.readexactly(size)
        if kind == 0x10:
            writer.write(b"\x20\x02\x00\x00")
        elif kind == 0x82:
            writer.write(b"\x90\x03" + body[:2] + b"\x80")
        else:
            break


def test_a_refused_subscription_is_an_error_not_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with playing(refuse) as url:
            side = Side(url)
            await side.until(lambda: "refuses the subscription" in caplog.text)
            assert side.changes == []
            await side.stop()

    asyncio.run(scenario())


async def busy(answer: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that kept the session, and has a step to send before it refuses the subscription, once told to."""
    await reader.readuntil(b"MQTT")
    writer.write(b"\x20\x02\x01\x00")
    await reader.readuntil(b"agents/+/steps\x01")
    writer.write(b"\x32\x15\x00\x10agents/ada/steps\x00\x01x")
    await answer.wait()
    writer.write(b"\x90\x03\x00\x01\x80")
    await reader.read()


def test_a_kept_session_is_a_connection_before_its_subscription_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Behind thousands of messages the answer takes longer than anyone would wait for it."""

    async def scenario() -> None:
        answer = asyncio.Event()
        async with playing(partial(busy, answer)) as url:
            side = Side(url)
            await side.until(lambda: side.changes == [True])
            assert await side.take(1, acknowledge=True) == [b"x"]
            answer.set()
            await side.until(lambda: side.changes[:2] == [True, False])
            assert "refuses the subscription to agents/+/steps" in caplog.text
            await side.stop()

    asyncio.run(scenario())


def test_wrong_credentials_are_reported_without_the_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(url: str) -> None:
        side = Side(url)
        await side.until(lambda: "cannot connect" in caplog.text)
        await side.stop()

    with mosquitto(tmp_path / "m", "allow_anonymous false") as broker:
        asyncio.run(scenario(broker.url.replace("mqtt://", "mqtt://user:s3cret@")))
    assert "s3cret" not in caplog.text


def test_a_resolver_that_hangs_holds_up_neither_the_end_nor_the_next_try(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, answered = threading.Semaphore(0), threading.Event()

    def hang(*_args: object, **_more: object) -> list[object]:
        asked.release()
        answered.wait(PATIENCE)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(connection, "DIAL_PATIENCE", 0.05)

    async def scenario() -> None:
        side = Side("mqtt://broker.invalid")
        for _ in range(2):
            await asyncio.to_thread(asked.acquire)
        await side.stop()

    try:
        asyncio.run(scenario())
        assert not answered.is_set()
        assert "no connection within" in caplog.text
    finally:
        answered.set()


def test_of_a_connection_that_stands_too_late_no_word_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeting in our name would have the broker end the connection that was made meanwhile."""
    dialling, may = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connect = socket.create_connection

        def late(address: tuple[str, int], *_args: object, **_more: object) -> socket.socket:
            dialling.set()
            may.wait(PATIENCE)
            return connect(address)

        monkeypatch.setattr(socket, "create_connection", late)

        async def scenario() -> None:
            side = Side(f"mqtt://127.0.0.1:{listener.getsockname()[1]}")
            await side.until(dialling.is_set)
            await side.stop()
            may.set()

        asyncio.run(scenario())
        listener.settimeout(PATIENCE)
        far, _ = listener.accept()
        far.settimeout(PATIENCE)
        with far:
            assert far.recv(1) == b""


async def end_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that greets us, lets us subscribe, and is gone."""
    await reader.readuntil(b"MQTT")
    writer.write(b"\x20\x02\x00\x00")
    await reader.readuntil(b"agents/+/steps\x01")
    writer.write(b"\x90\x03\x00\x01\x01")
    await writer.drain()


def test_room_at_the_door_opens_no_connection_that_is_over() -> None:
    """Which is known here a turn of the loop before the link hears of it; meanwhile steps are taken."""

    async def scenario() -> None:
        async with playing(end_at_once) as url:
            over = connection_to(url, len, "3.1.1")
            await over.open()
            await asyncio.wait_for(asyncio.shield(over.lost), PATIENCE)
            over.resume()
            over.abort()

    asyncio.run(scenario())


async def flood(gone: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that acknowledges nothing, and sends 300 steps at once when it has heard the last of ours."""
    await reader.readuntil(b"MQTT")
    writer.write(b"\x20\x02\x00\x00")
    await reader.readuntil(b"agents/+/steps\x01")
    writer.write(b"\x90\x03\x00\x01\x01")
    await reader.readuntil(b"the last")
    steps = enumerate(numbered(0, 300), 1)
    writer.write(b"".join(Codec("3.1.1").publish("agents/ada/steps", s, number=n, retain=False) for n, s in steps))
    await reader.read()
    gone.set()


def test_between_two_messages_it_can_be_stopped_however_many_came_at_once() -> None:
    async def scenario() -> None:
        gone = asyncio.Event()
        async with playing(partial(flood, gone)) as url:
            heard: list[bytes] = []
            full, all_heard = asyncio.Event(), asyncio.Event()

            def arrived(messages: Sequence[Arrived]) -> int:
                taken = len(messages) if full.is_set() else min(5 - len(heard), len(messages))
                heard.extend(message.payload for message in messages[:taken])
                if len(heard) == 5:
                    line.pause()
                    full.set()
                if len(heard) == 300:
                    all_heard.set()
                return taken

            line = connection_to(url, arrived, "3.1.1")
            await line.open()
            for said in [*numbered(0, 100), b"the last"]:
                line.publish(Publication("cfmon/alerts/a", said, qos=1))
            await asyncio.wait_for(full.wait(), PATIENCE)
            assert heard == numbered(0, 5)
            line.resume()
            await asyncio.wait_for(all_heard.wait(), PATIENCE)
            assert heard == numbered(0, 300)
            line.abort()
            await asyncio.wait_for(gone.wait(), PATIENCE)

    asyncio.run(scenario())


def test_a_connection_lost_at_once_is_no_success_and_is_tried_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when two sidecars share a name, and the broker ends each for the other."""
    failures: list[int] = []

    async def pause(stop: asyncio.Event, count: int) -> None:
        failures.append(count)
        if len(failures) == 3:
            stop.set()

    monkeypatch.setattr(link, "_pause", pause)
    monkeypatch.setattr(link, "STEADY", PATIENCE)

    async def scenario() -> None:
        async with playing(end_at_once) as url:
            side = Side(url)
            await asyncio.wait_for(side.task, PATIENCE)
            assert side.changes == [True, False] * 3

    asyncio.run(scenario())
    assert failures == [1, 2, 3]
