"""The door: first in, first out, bounded, and every hole told where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sidecar.mqtt import inbox as door_module
from monitor.sidecar.mqtt.inbox import (
    MAX_TOPICS,
    Arrived,
    Dropped,
    Inbox,
    Receipt,
)
from monitor.types import Instant

NOW = Instant(1.0, 1.0)


def message(number: int, topic: str = "a") -> Arrived:
    return Arrived(NOW, topic, str(number).encode(), Receipt(1, number))


def drain(door: Inbox) -> list[Arrived | Dropped]:
    entries = []
    while (entry := door.take()) is not None:
        entries.append(entry)
    return entries


def test_messages_come_out_in_order() -> None:
    door = Inbox(10)
    assert all(door.put(message(n)) for n in range(10))
    assert len(door) == 10
    assert [entry.payload for entry in drain(door) if isinstance(entry, Arrived)] == [b"%d" % n for n in range(10)]
    assert len(door) == 0


def test_a_drop_stands_where_the_hole_is() -> None:
    door = Inbox(2)
    assert [door.put(message(n)) for n in range(4)] == [True, True, False, False]
    first = door.take()
    assert door.put(message(4))
    assert not door.put(message(5))
    entries = [first, *drain(door)]
    shown = [entry.count if isinstance(entry, Dropped) else entry.payload for entry in entries if entry is not None]
    assert shown == [b"0", b"1", 2, b"4", 1]
    hole = entries[2]
    assert isinstance(hole, Dropped)
    assert [receipt.message_id for receipt in hole.receipts] == [2, 3]


def test_a_gap_that_is_taken_does_not_make_the_next_one_forgotten() -> None:
    """A second gap of the same topic begins before the first one is taken."""
    door = Inbox(2)
    for number in (1, 2, 3):
        door.put(message(number))
    out = [door.take()]
    door.put(message(4))
    door.put(message(5))
    out += [door.take(), door.take()]
    door.put(message(6))
    door.put(message(7, "b"))
    assert acknowledged([*out, *drain(door)]) == [1, 2, 3, 4, 5, 6, 7]


@given(limit=st.integers(1, 6), moves=st.lists(st.sampled_from(["", "a", "b"]), max_size=120))
def test_messages_are_acknowledged_in_the_order_in_which_they_came(limit: int, moves: list[str]) -> None:
    """As MQTT requires. An empty move takes an entry out, a letter enters a message of that topic."""
    door, out = Inbox(limit), []
    for number, topic in enumerate(moves):
        if topic:
            door.put(message(number, topic))
        elif (entry := door.take()) is not None:
            out.append(entry)
    assert acknowledged([*out, *drain(door)]) == [number for number, topic in enumerate(moves) if topic]


def acknowledged(entries: Sequence[Arrived | Dropped | None]) -> list[int]:
    receipts: list[Receipt] = []
    for entry in entries:
        if isinstance(entry, Dropped):
            receipts += entry.receipts
        elif entry is not None and entry.receipt is not None:
            receipts.append(entry.receipt)
    return [receipt.message_id for receipt in receipts]


@given(
    limit=st.integers(1, 5),
    moves=st.lists(st.one_of(st.none(), st.sampled_from("abc")), max_size=60),
)
def test_nothing_is_lost_without_being_counted(limit: int, moves: list[str | None]) -> None:
    """`None` takes one out, a letter enters a message of that topic: what went in comes out or is counted."""
    door = Inbox(limit)
    entered: Counter[str] = Counter()
    out: list[Arrived | Dropped] = []
    for number, move in enumerate(moves):
        if move is None:
            if (entry := door.take()) is not None:
                out.append(entry)
        else:
            door.put(message(number, move))
            entered[move] += 1
        assert len(door) <= limit
    out += drain(door)
    counted: Counter[str] = Counter()
    numbers: dict[str, list[int]] = {}
    for entry in out:
        counted[entry.topic] += entry.count if isinstance(entry, Dropped) else 1
        receipts = entry.receipts if isinstance(entry, Dropped) else [entry.receipt]
        numbers.setdefault(entry.topic, []).extend(receipt.message_id for receipt in receipts if receipt is not None)
    assert counted == entered
    assert all(of_topic == sorted(of_topic) for of_topic in numbers.values())


def test_a_flood_of_topics_takes_no_more_room_than_its_messages() -> None:
    door = Inbox(1)
    door.put(message(0))
    for number in range(3 * MAX_TOPICS):
        door.put(message(number, f"topic{number}"))
    entries = drain(door)
    assert len(entries) == 1 + MAX_TOPICS + 1
    last = entries[-1]
    assert isinstance(last, Dropped)
    assert (last.topic, last.count) == ("", 2 * MAX_TOPICS)


def test_an_overload_that_lasts_takes_no_more_room_either() -> None:
    door, number = Inbox(100), 0
    for _ in range(200):
        for _ in range(4):  # twice what is taken
            door.put(message(number, f"topic{number % 40}"))
            number += 1
        door.take()
        door.take()
    assert len(drain(door)) < 100 + 3 * 40


def test_a_door_that_dropped_drops_until_it_is_half_empty() -> None:
    door = Inbox(4)
    assert [door.put(message(n)) for n in range(5)] == [True, True, True, True, False]
    door.take()
    assert not door.put(message(5))
    door.take()
    assert door.put(message(6))
    shown = [entry.count if isinstance(entry, Dropped) else entry.payload for entry in drain(door)]
    assert shown == [b"2", b"3", 2, b"6"]


def test_few_but_large_messages_make_it_full_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "LARGE", 100)
    door, room = Inbox(1000), []
    door.on_half_empty = lambda: room.append(len(door))
    large = Arrived(NOW, "a", bytes(60), None)
    assert door.put(Arrived(NOW, "a", bytes(1000), None))  # what is too large by itself comes in, to be refused
    assert (door.full, door.put(large)) == (True, False)
    assert isinstance(door.take(), Arrived)
    assert [door.put(large) for _ in range(3)] == [True, True, False]
    drain(door)
    assert room == [0, 0]


def test_acknowledgements_of_what_is_dropped_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has more in flight than it may gets no more of them; what is dropped is counted all the same."""
    monkeypatch.setattr(door_module, "MAX_RECEIPTS", 5)
    door = Inbox(2)
    for n in range(100):
        door.put(message(n))
    [dropped] = [entry for entry in drain(door) if isinstance(entry, Dropped)]
    assert dropped.count == 98
    assert [receipt.message_id for receipt in dropped.receipts] == [2, 3, 4, 5, 6]
