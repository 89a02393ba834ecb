"""The codec of MQTT: packets come out as they went in however the stream is cut; paho knows version 5 too."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from monitor.sidecar.mqtt import codec
from monitor.sidecar.mqtt.codec import Codec, MalformedPacketError, Packet, Version
from monitor.sidecar.mqtt.properties import words_of

VERSIONS: list[Version] = ["5", "3.1.1"]
versions = pytest.mark.parametrize("version", VERSIONS)
Message = tuple[str, bytes, int]
messages = st.tuples(st.text(max_size=40), st.binary(max_size=300), st.integers(0, 65535))
packets = st.sampled_from([codec.PING, b"\x40\x02\x00\x07", b"\xd0\x00", b"\x90\x04\x00\x01\x00\x01"])


@contextmanager
def memory() -> Iterator[Callable[[], tuple[int, int]]]:
    """Bytes that are allocated within the block: now, and at most so far."""
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()


def paho_properties(kind: int) -> Any:  # noqa: ANN401 - they have no types
    return Properties(kind)  # type: ignore[no-untyped-call]


def decoded(version: Version, pieces: Sequence[bytes]) -> tuple[list[Message], list[Packet]]:
    reader = Codec(version)
    parts = [reader.feed(piece) for piece in pieces]
    return [m for messages, _ in parts for m in messages], [p for _, packets in parts for p in packets]


@versions
@given(
    said=st.lists(st.one_of(messages, packets), max_size=20),
    cuts=st.lists(st.integers(0, 3000)),
    tail=st.binary(max_size=1),
)
def test_the_packets_are_those_sent_however_they_are_cut(
    version: Version, said: list[Message | bytes], cuts: list[int], tail: bytes
) -> None:
    writer = Codec(version)
    stream = b"".join(
        part if isinstance(part, bytes) else writer.publish(part[0], part[1], number=part[2], retain=False)
        for part in said
    )
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(places)]
    expected = [part for part in said if not isinstance(part, bytes)]
    others = [(part[0] & 0xF0, part[2:]) for part in said if isinstance(part, bytes)]
    assert decoded(version, [*pieces, tail]) == (expected, others), "and the beginning of a packet is none"


@versions
@pytest.mark.parametrize("size", [0, 99, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_every_length_of_a_packet_comes_back_byte_by_byte_at_its_head(version: Version, size: int) -> None:
    packet = Codec(version).publish("a", bytes(size), number=7, retain=True)
    head = [packet[n : n + 1] for n in range(8)]
    assert decoded(version, [*head, packet[8:], packet]) == ([("a", bytes(size), 7)] * 2, [])


@pytest.mark.parametrize(("size", "piece"), [(8 << 20, 1000), (1 << 18, 1)])
def test_a_packet_in_small_pieces_takes_little_more_memory_than_its_bytes(size: int, piece: int) -> None:
    packet = Codec("5").publish("a", bytes(size), number=1, retain=False)
    reader = Codec("5")
    with memory() as traced:
        assert all(reader.feed(packet[at : at + piece]) == ([], []) for at in range(0, len(packet) - piece, piece))
        assert traced()[1] < 2.3 * size, "while it grows there may be two of it"
        last = (len(packet) - 1) // piece * piece
        assert len(reader.feed(packet[last:])[0]) == 1
        assert traced()[0] < 1 << 20, "and nothing is left"


def header(kind: int, size: int) -> bytes:
    """The first bytes of a packet that is to have so many more."""
    return bytes([kind, *(size >> 7 * place & 0x7F | 0x80 * (place < 3) for place in range(4))])


@pytest.mark.parametrize("size", [codec.LONGEST + 1, (1 << 28) - 1])
def test_a_packet_beyond_what_was_announced_is_refused_by_its_first_bytes(size: int) -> None:
    for first in (header(0x30, size), header(0x32, size) + b"\0\1a"):
        reader = Codec("5")
        with memory() as traced, pytest.raises(MalformedPacketError, match=f"and {size} bytes"):
            reader.feed(first)
        assert traced()[1] < 1 << 16


@versions
@pytest.mark.parametrize("kind", [0x20, 0x40, 0x90, 0xB0, 0xD0, 0xE0])
def test_an_answer_that_is_long_is_refused_by_its_first_bytes(version: Version, kind: int) -> None:
    assert Codec(version).feed(header(kind, codec.LONGEST_ANSWER)) == ([], [])
    with pytest.raises(MalformedPacketError, match="bytes"):
        Codec(version).feed(header(kind, codec.LONGEST_ANSWER + 1))


@pytest.mark.parametrize("piece", [1 << 16, 10_007, 1 << 26])
def test_of_a_message_of_3_1_1_that_is_too_long_the_rest_is_dropped(
    monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """An agent may send it, and a broker of 3.1.1 cannot be told not to; to hang up would bring it again for ever."""
    monkeypatch.setattr(codec, "LONGEST", 1 << 20)
    monkeypatch.setattr(codec, "LONGEST_ANSWER", 1 << 10)
    writer, reader = Codec("3.1.1"), Codec("3.1.1")
    long = writer.publish("a", bytes(3 << 20), number=7, retain=False)
    stream = b"".join([writer.publish("b", b"before", number=6, retain=False), long, long, codec.PING])
    stream += writer.publish("b", b"after", number=8, retain=False)
    found: list[Message] = []
    others: list[Packet] = []
    with memory() as traced:
        for at in range(0, len(stream), piece):
            messages, packets = reader.feed(stream[at : at + piece])
            found += [(topic, payload[:10] + payload[-1:], number) for topic, payload, number in messages]
            others += packets
        assert piece > 1 << 20 or traced()[1] < 4 << 20
    assert [(topic, number) for topic, _, number in found] == [("b", 6), ("a", 7), ("a", 7), ("b", 8)]
    assert others == [(0xC0, b"")]


@given(sizes=st.lists(st.integers(0, 300), max_size=6), cuts=st.lists(st.integers(0, 2000)))
def test_messages_that_are_cut_come_in_their_order_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "LONGEST", 100)
        patch.setattr(codec, "LONGEST_ANSWER", 50)
        writer = Codec("3.1.1")
        stream = b"".join(writer.publish("t", bytes(size), number=1 + n, retain=False) for n, size in enumerate(sizes))
        places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
        messages, packets = decoded("3.1.1", [stream[a:b] for a, b in pairwise(places)])
    assert packets == []
    assert [number for _, _, number in messages] == list(range(1, len(sizes) + 1))
    for (topic, payload, _), size in zip(messages, sizes, strict=True):
        assert topic == "t"
        assert len(payload) == size or 80 < len(payload) < size


def test_a_topic_that_is_not_utf8_is_empty() -> None:
    assert decoded("5", [b"\x30\x05\x00\x01\xff\x00x"]) == ([("", b"x", 0)], [])


def test_long_topics_are_not_kept() -> None:
    """Whoever may publish could fill the memory with them."""
    topics = [f"{n}/" + "x" * 60_000 for n in range(3)]
    packets = [Codec("5").publish(topic, b"", number=0, retain=False) for topic in topics]
    with memory() as traced:
        assert [topic for topic, _, _ in decoded("5", packets)[0]] == topics
        assert traced()[0] < 60_000


def test_properties_of_a_message_are_passed_over() -> None:
    given_ = paho_properties(PacketTypes.PUBLISH)
    given_.UserProperty = [("a", "b"), ("c", "d" * 200)]
    given_.ContentType = "application/json"
    body = b"\x00\x01a\x00\x09" + given_.pack() + b"payload"
    packet = b"\x32" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body
    assert decoded("5", [packet]) == ([("a", b"payload", 9)], [])


MALFORMED = {
    "length of five bytes": b"\x30\xff\xff\xff\xff\x01",
    "QoS 2": b"\x34\x06\x00\x01a\x00\x01\x00",
    "no id": b"\x32\x03\x00\x01a",
    "id 0": b"\x32\x06\x00\x01a\x00\x00\x00",
    "longer topic than packet": b"\x30\x04\x00\x09a\x00",
    "no topic": b"\x30\x01\x00",
    "longer properties than packet": b"\x30\x05\x00\x01a\x09x",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_no_broker_may_send_is_refused(case: str) -> None:
    with pytest.raises(MalformedPacketError):
        Codec("5").feed(MALFORMED[case])


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\0\0\x05\x13", b"\0\0\x02\x7f\0", b"\0\0\x03\x1f\0\x05", b"\0\0\x02\x13\0"]
)
def test_a_greeting_that_is_cut_short_or_has_unknown_properties_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedPacketError):
        Codec("5").greeting(content)


def test_what_a_greeting_demands_is_read() -> None:
    terms = paho_properties(PacketTypes.CONNACK)
    terms.ServerKeepAlive, terms.ReceiveMaximum, terms.MaximumQoS, terms.RetainAvailable = 7, 20, 1, 0
    terms.MaximumPacketSize, terms.AssignedClientIdentifier, terms.UserProperty = 1000, "x", ("a", "b")
    greeting = Codec("5").greeting(b"\x01\x00" + terms.pack())
    assert greeting == codec.Greeting(
        session_present=True,
        code=0,
        words="reason code 0",
        old=False,
        keepalive=7,
        receive_maximum=20,
        max_qos=1,
        retain=False,
        max_packet=1000,
    )


@pytest.mark.parametrize(("code", "meaning"), [(1, 0x84), (2, 0x85), (3, 0x88), (4, 0x86), (5, 0x87)])
def test_the_codes_of_3_1_1_have_the_words_of_5(code: int, meaning: int) -> None:
    greeting = Codec("3.1.1").greeting(bytes([0, code]))
    assert greeting.old
    assert (greeting.code, greeting.words) == (meaning, words_of(meaning, {}))


def test_every_reason_has_the_name_that_paho_has_for_it() -> None:
    named = 0
    for kind in (PacketTypes.CONNACK, PacketTypes.PUBACK, PacketTypes.SUBACK, PacketTypes.DISCONNECT):
        for code in range(0x80, 0xA3):
            try:
                theirs = str(ReasonCode(kind, identifier=code))
            except (KeyError, ValueError):
                continue
            named += 1
            assert words_of(code, {}).lower().startswith(theirs.lower()[:12]), hex(code)
    assert named > 50


def test_a_reason_is_told_with_what_the_broker_adds_in_one_line() -> None:
    more = paho_properties(PacketTypes.DISCONNECT)
    more.ReasonString, more.ServerReference = "down\nfor repair", "other.example"
    packet = (codec.GOODBYE, b"\x9c" + more.pack())
    assert Codec("5").answer(packet) == (0, "Use another server: down for repair: other.example")
    assert Codec("5").answer((codec.GOODBYE, b"\x8e")) == (0, "Session taken over")
    assert Codec("5").answer((codec.PUBACK, b"\x00\x07\x10")) == (7, None), "nobody subscribes to it"
    assert Codec("5").answer((codec.PUBACK, b"\x00\x07\x87\x00")) == (7, "Not authorized")
    assert Codec("3.1.1").answer((codec.SUBACK, b"\x00\x01\x80")) == (1, "Unspecified error")


@given(st.lists(st.integers(1, 65535)))
def test_acknowledgements_are_in_the_order_given(numbers: list[int]) -> None:
    assert codec.acknowledge(numbers) == b"".join(b"\x40\x02" + number.to_bytes(2) for number in numbers)
