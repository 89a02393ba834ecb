"""The outbox: in order, kept until acknowledged, bounded."""

from __future__ import annotations

import asyncio

import pytest

from monitor.sidecar.effects import Publication
from monitor.sidecar.outbox import Outbox
from tests.servers import PATIENCE


def message(topic: str, payload: str) -> Publication:
    return Publication(topic, payload.encode())


def take_all(outbox: Outbox) -> list[tuple[int, str]]:
    """What can be taken without waiting."""
    taken: list[tuple[int, str]] = []
    while True:
        taking = outbox.take()
        try:
            taking.send(None)
        except StopIteration as done:
            number, publication = done.value
            taken.append((number, publication.payload.decode()))
        else:  # it waits
            taking.close()
            return taken


def test_what_is_not_acknowledged_is_sent_again_on_the_next_connection() -> None:
    async def scenario() -> None:
        outbox = Outbox()
        for word in ("one", "two", "three"):
            outbox.put(outbox.number([message("topic", word)]))
        assert take_all(outbox) == [(0, "one"), (1, "two"), (2, "three")]
        outbox.done(1)
        outbox.done(1)
        assert take_all(outbox) == []
        outbox.rewind()
        outbox.put(outbox.number([message("topic", "four")]))
        assert take_all(outbox) == [(0, "one"), (2, "three"), (3, "four")]

    asyncio.run(scenario())


def test_it_is_empty_once_the_broker_has_everything() -> None:
    async def scenario() -> None:
        outbox = Outbox()
        await asyncio.wait_for(outbox.emptied(), PATIENCE)
        outbox.put(outbox.number([message("topic", "one")]))
        emptied = asyncio.create_task(outbox.emptied())
        await asyncio.sleep(0)
        assert not emptied.done()
        outbox.done(0)
        await asyncio.wait_for(emptied, PATIENCE)

    asyncio.run(scenario())


def test_nothing_follows_the_last_word() -> None:
    async def scenario() -> None:
        outbox = Outbox()
        outbox.put(outbox.number([message("status", "online")]))
        outbox.finish(message("status", "offline"))
        outbox.put(outbox.number([message("status", "online")]))
        assert [word for _, word in take_all(outbox)] == ["online", "offline"]

    asyncio.run(scenario())


def test_what_comes_after_the_last_word_waits_for_the_next_process() -> None:
    async def scenario() -> None:
        outbox = Outbox()
        outbox.put(outbox.number([message("alerts", "firing")]))
        outbox.finish(message("status", "offline"))
        outbox.put(outbox.number([message("alerts", "")]))
        assert [word for _, word in take_all(outbox)] == ["firing", "offline"]
        emptied = asyncio.create_task(outbox.emptied())
        outbox.done(0)
        await asyncio.sleep(0)
        assert not emptied.done()
        outbox.done(1)
        await asyncio.wait_for(emptied, PATIENCE)
        assert outbox.waiting() == [(2, message("alerts", ""))]

    asyncio.run(scenario())


def test_a_flood_on_one_topic_costs_the_others_nothing() -> None:
    async def scenario() -> None:
        outbox = Outbox(limit=100)
        outbox.put(outbox.number([message("quiet", str(number)) for number in range(9)]))
        for number in range(1000):
            outbox.put(outbox.number([message("loud", str(number))]))
        words = [word for _, word in take_all(outbox)]
        assert words[:9] == [str(number) for number in range(9)]
        assert words[-1] == "999"
        assert len(words) <= 100

    asyncio.run(scenario())


def test_a_full_outbox_keeps_the_newest_of_each_topic(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        outbox = Outbox(limit=3)
        for number in range(5):
            outbox.put(outbox.number([message("a" if number % 2 else "b", str(number))]))
        assert [word for _, word in take_all(outbox)] == ["2", "3", "4"]  # thinned out when the fourth came
        assert "dropped: 1 for b. The newest of each topic is kept" in caplog.text
        assert "dropped: 1 for a. The newest of each topic is kept" in caplog.text
        for number in range(5):
            outbox.put(outbox.number([message(f"topic{number}", "x")]))
        assert len(outbox) == 3
        assert "dropped: 1 for topic1. The" in caplog.text

    asyncio.run(scenario())
