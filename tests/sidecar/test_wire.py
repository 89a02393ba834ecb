"""The batching socket: bytes come and go as sent, whatever the batches; paho does go through it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sidecar.wire import Wire


@pytest.fixture
def ends() -> Iterator[tuple[Wire, socket.socket]]:
    listener = socket.create_server(("127.0.0.1", 0))
    near = Wire(socket.create_connection(listener.getsockname()))
    far, _ = listener.accept()
    near.settimeout(0.0)
    yield near, far
    for each in (near, far, listener):
        each.close()


def until_something(wire: Wire) -> bytes:
    """What a first `recv` gives once the kernel has something."""
    wire.settimeout(None)
    content = wire.recv(1)
    wire.settimeout(0.0)
    return content


def test_one_read_brings_all_that_has_come(ends: tuple[Wire, socket.socket]) -> None:
    near, far = ends
    far.sendall(b"abcdef")
    assert until_something(near) == b"a"
    assert near.readable
    far.close()
    assert near.recv(3) == b"bcd"
    assert near.recv(100) == b"ef", "never more than was read"
    assert not near.readable


def test_nothing_there_and_the_end_read_as_on_any_socket(ends: tuple[Wire, socket.socket]) -> None:
    near, far = ends
    with pytest.raises(BlockingIOError):
        near.recv(1)
    far.close()
    assert until_something(near) == b""


def test_nothing_leaves_before_flush(ends: tuple[Wire, socket.socket]) -> None:
    near, far = ends
    far.settimeout(0.0)
    assert near.send(b"one ") == 4
    near.send(b"two")
    with pytest.raises(BlockingIOError):
        far.recv(100)
    near.flush()
    far.settimeout(None)
    assert far.recv(100) == b"one two"
    assert not near.unsent


def test_what_the_kernel_does_not_take_stays_and_goes_out_later(ends: tuple[Wire, socket.socket]) -> None:
    near, far = ends
    content = bytes(range(256)) * (1 << 16)
    near.send(content)
    near.flush()
    assert near.unsent, "more than any buffer holds"
    got = bytearray()
    while len(got) < len(content):
        got += far.recv(1 << 20)
        near.flush()
    assert got == content


def test_a_goodbye_goes_out_before_the_end(ends: tuple[Wire, socket.socket]) -> None:
    near, far = ends
    near.send(b"goodbye")
    near.close()
    assert far.recv(100) == b"goodbye"
    assert far.recv(100) == b""


def test_a_lost_connection_shows_when_it_is_flushed_and_not_when_it_is_closed(
    ends: tuple[Wire, socket.socket],
) -> None:
    near, far = ends
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    far.close()  # with a reset
    near.send(b"hello")
    with pytest.raises(OSError, match=r"reset|pipe"):
        near.flush()
    near.close()


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=20), st.integers(1, 50))
def test_the_bytes_are_those_sent_however_they_are_cut(parts: list[bytes], size: int) -> None:
    left, right = socket.socketpair()
    with Wire(left) as near, right:
        for part in parts:
            near.send(part)
        near.flush()
        content = b"".join(parts)
        assert right.recv(1000) == content
        right.sendall(content)
        got = bytearray()
        while len(got) < len(content):
            got += near.recv(size)
        assert got == content
