"""The batching socket, plain and over TLS: bytes come and go as sent, whatever the batches; paho does go through it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from monitor.sidecar.mqtt import batched_socket
from monitor.sidecar.mqtt.batched_socket import BatchedSocket, TlsBatchedSocket
from tests.servers import PATIENCE

NOTHING_YET = (BlockingIOError, ssl.SSLWantReadError)
CA = trustme.CA()


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Ours, and one of a server called `there`."""
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.configure_trust(ours)
    CA.issue_cert("there").configure_cert(theirs)
    theirs.num_tickets = 0  # unread, they would make a close a reset
    return ours, theirs


def encrypted(left: socket.socket, right: socket.socket) -> tuple[BatchedSocket, socket.socket]:
    ours, theirs = contexts()
    far: list[socket.socket] = []
    greeting = threading.Thread(target=lambda: far.append(theirs.wrap_socket(right, server_side=True)))
    greeting.start()
    near = TlsBatchedSocket(left, ours, "there")
    greeting.join()
    return near, far[0]


@pytest.fixture(params=["plain", "TLS"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[BatchedSocket, socket.socket]]:
    near: BatchedSocket
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near, far = (BatchedSocket(left), far) if request.param == "plain" else encrypted(left, far)
    near.settimeout(0.0)
    yield near, far
    near.close()
    far.close()


def until_something(wire: BatchedSocket) -> bytes:
    """What a first `recv` gives once the kernel has something."""
    wire.settimeout(None)
    content = wire.recv(1)
    wire.settimeout(0.0)
    return content


def test_one_read_brings_all_that_has_come(ends: tuple[BatchedSocket, socket.socket]) -> None:
    near, far = ends
    far.sendall(b"abcdef")
    assert until_something(near) == b"a"
    assert near.readable
    far.close()
    assert near.recv(3) == b"bcd"
    assert near.recv(100) == b"ef", "never more than was read"
    assert not near.readable


def test_nothing_there_and_the_end_read_as_on_any_socket(ends: tuple[BatchedSocket, socket.socket]) -> None:
    near, far = ends
    with pytest.raises(NOTHING_YET):
        near.recv(1)
    far.close()
    assert until_something(near) == b""


def test_nothing_leaves_before_flush(ends: tuple[BatchedSocket, socket.socket]) -> None:
    near, far = ends
    far.settimeout(0.0)
    assert near.send(b"one ") == 4
    near.send(b"two")
    with pytest.raises(NOTHING_YET):
        far.recv(100)
    near.flush()
    far.settimeout(None)
    assert far.recv(100) == b"one two"
    assert not near.unsent


def test_what_the_kernel_does_not_take_stays_and_goes_out_later(ends: tuple[BatchedSocket, socket.socket]) -> None:
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


def test_a_goodbye_goes_out_before_the_end(ends: tuple[BatchedSocket, socket.socket]) -> None:
    near, far = ends
    near.send(b"goodbye")
    near.close()
    assert far.recv(100) == b"goodbye"
    assert far.recv(100) == b""


def test_a_lost_connection_shows_when_it_is_flushed_and_not_when_it_is_closed(
    ends: tuple[BatchedSocket, socket.socket],
) -> None:
    near, far = ends
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    far.close()  # with a reset
    near.send(b"hello")
    with pytest.raises(OSError, match=r"reset|pipe"):
        near.flush()
    near.close()


@pytest.mark.parametrize("kind", ["plain", "TLS"])
def test_the_bytes_are_those_sent_however_they_are_cut(kind: str) -> None:
    left, right = socket.socketpair()
    near, far = (BatchedSocket(left), right) if kind == "plain" else encrypted(left, right)

    @given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=20), st.integers(1, 50))
    def exchange(parts: list[bytes], size: int) -> None:
        for part in parts:
            near.send(part)
        near.flush()
        content = b"".join(parts)
        assert far.recv(1000) == content
        for part in parts:
            far.sendall(part)
        got = bytearray()
        while len(got) < len(content):
            got += near.recv(size)
        assert got == content

    with near, far:
        exchange()


def test_one_read_of_the_kernel_brings_many_records_and_one_write_takes_them_all() -> None:
    left, right = socket.socketpair()
    near, far = encrypted(left, right)
    with near, far:
        for number in range(100):
            far.sendall(b"%02d" % number)
            near.send(b"%02d" % number)
        assert near.recv(2) == b"00"
        near.settimeout(0.0)
        assert b"".join(near.recv(2) for _ in range(99)) == b"".join(b"%02d" % n for n in range(1, 100))
        assert not near.readable
        near.flush()
        assert far.recv(1000) == b"".join(b"%02d" % n for n in range(100)), "one record"


def test_bytes_altered_on_the_way_end_the_connection_and_are_reported() -> None:
    left, right = socket.socketpair()
    near, far = encrypted(left, right)
    with near:
        raw = socket.socket(fileno=far.detach())
        with raw:
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            with pytest.raises(ssl.SSLError):
                near.recv(1)
            assert isinstance(near.failure, ssl.SSLError)


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100)])
def test_a_failed_handshake_is_an_error_and_leaves_no_socket_open(greeting: bytes) -> None:
    left, right = socket.socketpair()
    left.settimeout(5.0)
    right.sendall(greeting)
    right.shutdown(socket.SHUT_WR)
    with right:
        with pytest.raises(ssl.SSLError):
            TlsBatchedSocket(left, contexts()[0], "there")
        with contextlib.suppress(ConnectionResetError):
            while right.recv(1000):
                pass
    assert left.fileno() == -1


def test_a_server_that_says_nothing_is_given_up() -> None:
    left, right = socket.socketpair()
    left.settimeout(0.05)
    with right, pytest.raises(TimeoutError):
        TlsBatchedSocket(left, contexts()[0], "there")


def test_a_handshake_drawn_out_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_socket, "HANDSHAKE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname(), timeout=2.0)
        right, _ = listener.accept()
    enough = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            right.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB begins, which never comes
            while not enough.wait(0.02):
                right.sendall(b"\x02")

    dripping = threading.Thread(target=drip)
    dripping.start()
    too_long = threading.Timer(PATIENCE, enough.set)
    too_long.start()
    with pytest.raises(TimeoutError, match="the TLS handshake takes too long"):
        TlsBatchedSocket(left, contexts()[0], "there")
    too_long.cancel()
    enough.set()
    dripping.join()
    right.close()
