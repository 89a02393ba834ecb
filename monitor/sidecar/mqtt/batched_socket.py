"""Socket, plain or TLS, that reads and writes in batches.

paho makes three system calls for each packet it reads and one for each it writes: an acknowledgement of four bytes
costs as much as a verdict, wakes the broker, and releases the GIL. Here one read takes all that has arrived, and one
write sends all acknowledgements of a loop iteration; over TLS they are one record.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

from monitor.sidecar.clock import read_clock

__all__ = ["BatchedSocket", "TlsBatchedSocket"]

READ: Final = 1 << 13
"""Bytes per read: about a hundred steps, few enough that a backlog is counted in the inbox."""

HANDSHAKE: Final = 8.0
"""Seconds for a whole TLS handshake: a peer that sends a byte now and then could delay it indefinitely."""


class BatchedSocket(socket.socket):
    """Connected socket; `recv` returns buffered data, `send` buffers until `flush`. For one thread at a time.

    `failure`: the error that ended the connection, which paho hides; None for an orderly end. `held`: `recv` returns
    nothing although data may be buffered, so that paho stops before the next packet, not a hundred later.
    """

    failure: OSError | None = None
    held = False

    def __init__(self, connected: socket.socket) -> None:
        timeout = connected.gettimeout()
        super().__init__(connected.family, connected.type, connected.proto, connected.detach())
        self.settimeout(timeout)
        self._read = b""
        self._at = 0
        self._unsent = bytearray()

    @property
    def readable(self) -> bool:
        """True if data is buffered, which the kernel does not report again."""
        return self._at < len(self._read)

    @property
    def unsent(self) -> bool:
        """True if data waits for `flush`."""
        return bool(self._unsent)

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return at most `size` bytes; empty at the end of the connection."""
        del flags
        if self.held:
            raise BlockingIOError
        if self._at == len(self._read):
            try:
                self._read, self._at = self._fetch(), 0
            except BlockingIOError:
                raise
            except OSError as error:
                self.failure = error
                raise
        begin, self._at = self._at, min(self._at + size, len(self._read))
        return self._read[begin : self._at]

    def send(self, content: bytes, flags: int = 0, /) -> int:  # type: ignore[override] # paho gives bytes
        """Buffer `content` until `flush`."""
        del flags
        self._unsent += content
        return len(content)

    def flush(self) -> None:
        """Write what the kernel accepts now; the rest stays `unsent`. OSError if the connection is lost."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: super().send(self._unsent)]

    def close(self) -> None:
        """Flush if possible, then close."""
        with contextlib.suppress(OSError):
            self.flush()
        super().close()

    def _fetch(self) -> bytes:
        """Return what the kernel has; BlockingIOError if nothing."""
        return super().recv(READ)


class TlsBatchedSocket(BatchedSocket):
    """The same over TLS; the certificate must be for `host`. Raises OSError if the handshake fails or takes too long.

    Encrypts between two buffers instead of `ssl.SSLSocket`, which makes two system calls for each record: mosquitto
    sends each packet as a record.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, host: str) -> None:
        super().__init__(connected)
        self._plain = bytearray()
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=host)
            self._handshake()
        except BaseException:
            socket.socket.close(self)
            raise

    @property
    def unsent(self) -> bool:
        """True if data waits for `flush`."""
        return bool(self._plain) or super().unsent

    def send(self, content: bytes, flags: int = 0, /) -> int:  # type: ignore[override] # paho gives bytes
        """Buffer `content` until `flush`."""
        del flags
        self._plain += content
        return len(content)

    def flush(self) -> None:
        """Encrypt buffered data, and write what the kernel accepts now."""
        while self._plain:
            del self._plain[: self._tls.write(self._plain)]
        self._unsent += self._to_send.read()  # includes TLS's own messages
        try:
            super().flush()
        except ConnectionError:
            with contextlib.suppress(ConnectionError, BlockingIOError):
                self._fetch()  # raises the broker's TLS alert, if it sent one
            raise

    def close(self) -> None:
        """Send close_notify, without which the peer would assume a truncation attack, and close."""
        with contextlib.suppress(OSError, ValueError):
            self.flush()
            self._tls.unwrap()  # sends it, then raises for want of a reply
        super().close()

    def _handshake(self) -> None:
        """Perform the handshake on a blocking socket, as `connect` returns it."""
        deadline = read_clock().ticks + HANDSHAKE
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if read_clock().ticks > deadline:
                    raise TimeoutError("the TLS handshake takes too long") from None
                self.sendall(self._to_send.read())
                self._receive()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self.sendall(self._to_send.read())  # the TLS alert
                raise
            else:
                self.sendall(self._to_send.read())
                return

    def _receive(self) -> bool:
        """Read encrypted data; return False at the end of the connection. BlockingIOError if there is none yet."""
        if received := socket.socket.recv(self, READ):
            self._received.write(received)
            return True
        self._received.write_eof()
        return False

    def _fetch(self) -> bytes:
        """Return the content of complete records; empty at the end, with or without close_notify."""
        while not (content := self._decrypt()):
            if not self._receive():
                return self._decrypt()
        return content

    def _decrypt(self) -> bytes:
        pieces: list[bytes] = []
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
            while piece := self._tls.read(READ):
                pieces.append(piece)
        return b"".join(pieces)
