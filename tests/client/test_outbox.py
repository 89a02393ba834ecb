"""The outbox: order, repetition after a reconnection, and bounded memory."""

from __future__ import annotations

from collections import Counter

from cfmon_client.outbox import OVERHEAD, Message, Outbox
from hypothesis import given
from hypothesis import strategies as st


def put(outbox: Outbox, *names: str) -> None:
    for name in names:
        outbox.put("t", name.encode())


def taken(outbox: Outbox) -> list[Message]:
    found = []
    while (message := outbox.take()) is not None:
        found.append(message)
    return found


def names(messages: list[Message]) -> str:
    return " ".join(message.payload.decode() for message in messages)


def test_messages_leave_in_order_each_once() -> None:
    outbox = Outbox(10_000, 1.0)
    put(outbox, "a", "b")
    assert names(taken(outbox)) == "a b"
    put(outbox, "c")
    assert names(taken(outbox)) == "c"
    assert (outbox.waiting, outbox.published, outbox.settled) == (3, 0, False)


def test_a_reconnection_repeats_the_last_seconds_and_what_was_not_acknowledged() -> None:
    outbox = Outbox(10_000, 1.0)
    put(outbox, "a", "b", "c", "d", "e")
    a, b, c, _ = [outbox.take() for _ in range(4)]
    assert a is not None
    assert b is not None
    assert c is not None
    outbox.acknowledge(a, 0.0)
    outbox.acknowledge(c, 1.5)
    outbox.acknowledge(b, 2.0)
    assert outbox.published == 3
    outbox.rewind()
    assert names(taken(outbox)) == "b c d e", "a was acknowledged two seconds before the newest"
    outbox.acknowledge(b, 9.0)
    assert outbox.published == 3, "b is counted once"


def test_an_acknowledgement_of_an_earlier_connection_changes_nothing() -> None:
    outbox = Outbox(10_000, 1.0)
    put(outbox, "a")
    (a,) = taken(outbox)
    outbox.rewind()
    outbox.acknowledge(a, 0.0)
    assert (outbox.published, names(taken(outbox))) == (0, "a")


def test_beyond_the_limit_the_oldest_unsent_are_dropped_and_confirmed_ones_before() -> None:
    outbox = Outbox(3 * (OVERHEAD + 1), 1.0)
    put(outbox, "a", "b")
    a = outbox.take()
    assert a is not None
    outbox.acknowledge(a, 0.0)
    put(outbox, "c")
    assert outbox.dropped == 0
    assert outbox.put("t", b"d") == 0, "a was given up: the broker has acknowledged it"
    assert [outbox.put("t", name) for name in (b"e", b"f")] == [1, 1]
    outbox.rewind()
    assert names(taken(outbox)) == "d e f"
    assert (outbox.dropped, outbox.published, outbox.waiting) == (2, 1, 3)


def test_a_message_larger_than_the_memory_is_still_sent() -> None:
    outbox = Outbox(10, 1.0)
    put(outbox, "a" * 100)
    assert len(taken(outbox)) == 1


ACTIONS = st.lists(st.sampled_from(["put", "take", "acknowledge", "rewind"]), max_size=60)


@given(ACTIONS, st.integers(1, 6), st.floats(0, 10))
def test_every_message_is_published_or_waits_or_is_counted_as_dropped(
    actions: list[str], room: int, republish: float
) -> None:
    limit = room * (OVERHEAD + 2)
    outbox, sent, acknowledged, number = Outbox(limit, republish), [], Counter[int](), 0
    for now, action in enumerate(actions):
        if action == "put":
            outbox.put("t", b"%02d" % (number % 100))
            number += 1
        elif action == "take" and (message := outbox.take()) is not None:
            sent.append(message)
        elif action == "acknowledge" and sent:
            message = sent.pop(0)
            outbox.acknowledge(message, float(now))
            acknowledged[message.number] += 1
        elif action == "rewind":
            outbox.rewind()
            sent.clear()
        assert outbox.published == len(acknowledged)
        assert outbox.published + outbox.waiting + outbox.dropped == number
        in_flight = len(sent) * (OVERHEAD + 2)
        assert outbox.size <= max(limit, in_flight + OVERHEAD + 2)
    outbox.rewind()
    rest = taken(outbox)
    assert [message.number for message in rest] == sorted({message.number for message in rest})
    assert len({message.number for message in rest} - set(acknowledged)) == outbox.waiting
