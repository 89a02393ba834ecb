"""MQTT packets: however the bytes are cut, the same packets come out, and what is no MQTT is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sidecar import packets
from monitor.sidecar.packets import PacketError, Reader

MESSAGES = st.lists(
    st.tuples(st.integers(1, 65535), st.text(max_size=20), st.binary(max_size=300), st.integers(0, 1)), max_size=6
)


def read(reader: Reader) -> list[tuple[int, bytes]]:
    found = []
    while (packet := reader.next()) is not None:
        found.append(packet)
    return found


@given(MESSAGES, st.integers(1, 50))
def test_however_the_bytes_are_cut_the_messages_come_out(
    messages: list[tuple[int, str, bytes, int]], piece: int
) -> None:
    stream = b"".join(packets.publish(n, topic, body, qos=qos, retain=False) for n, topic, body, qos in messages)
    reader, found = Reader(), []
    for at in range(0, len(stream), piece):
        reader.feed(stream[at : at + piece])
        found += [(first >> 1 & 3, *packets.message(first, body)) for first, body in read(reader)]
    assert found == [(qos, topic.encode(), n if qos else 0, body) for n, topic, body, qos in messages]


def test_a_long_payload_has_a_long_length() -> None:
    reader = Reader()
    reader.feed(packets.publish(1, "t", b"x" * 300_000, qos=1, retain=True))
    [(first, body)] = read(reader)
    assert first == 0x33
    assert packets.message(first, body) == (b"t", 1, b"x" * 300_000)


@pytest.mark.parametrize("content", [b"\x30\xff\xff\xff\xff\x01", b"\x30\xff\xff\xff\x7f"])
def test_what_cannot_be_a_packet_is_an_error(content: bytes) -> None:
    reader = Reader()
    reader.feed(content)
    with pytest.raises(PacketError):
        reader.next()


@given(st.integers(0x30, 0x3F), st.binary(max_size=8))
def test_a_damaged_message_is_an_error_and_nothing_else(first: int, body: bytes) -> None:
    try:
        topic, number, payload = packets.message(first, body)
    except PacketError:
        return
    assert len(topic) + len(payload) <= len(body)
    assert 0 <= number <= 65535


def test_an_acknowledgement_of_nothing_is_an_error() -> None:
    assert packets.number(packets.acknowledgement(258)[2:]) == 258
    with pytest.raises(PacketError):
        packets.number(b"\x01")
