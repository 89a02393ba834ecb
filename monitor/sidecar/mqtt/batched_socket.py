"""A connection, plain or encrypted, that reads and writes in batches.

paho asks the kernel three times for each packet it reads, and once for each it writes: an acknowledgement of four bytes
costs as much as a verdict, wakes the broker, and lets another thread take the interpreter. Here one read brings what
has come, and one write carries every acknowledgement of a turn; over TLS they are one record, encrypted at once.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

from monitor.sidecar.clock import read_clock

__all__ = ["BatchedSocket", "TlsBatchedSocket"]

READ: Final = 1 << 13
"""Bytes asked for at once: some hundred steps, few enough that a backlog stays where it is counted, in the door."""

HANDSHAKE: Final = 8.0
"""Seconds for all of a TLS handshake: whoever sends a byte now and then could draw it out for ever."""


class BatchedSocket(socket.socket):
    """A connected socket; `recv` gives from what was read, `send` takes until `flush`. For one thread at a time.

    `failure`: what ended the connection, which paho does not tell; none for an end in good order. `held`: `recv` gives
    nothing, although something may be there, so that paho, too, stops between two packets and not after the next
    hundred.
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
        """Whether something was read and not yet given out: the kernel will not tell of it again."""
        return self._at < len(self._read)

    @property
    def unsent(self) -> bool:
        """Whether something waits for `flush`."""
        return bool(self._unsent)

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """At most `size` bytes, as a socket gives them; empty at the end of the connection."""
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
        """Keep it for `flush`."""
        del flags
        self._unsent += content
        return len(content)

    def flush(self) -> None:
        """Write what the kernel takes now; what it does not take stays `unsent`. OSError if the connection is gone."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: super().send(self._unsent)]

    def close(self) -> None:
        """The last words of a goodbye go out first, if they can."""
        with contextlib.suppress(OSError):
            self.flush()
        super().close()

    def _fetch(self) -> bytes:
        """What the kernel has; BlockingIOError if that is nothing."""
        return super().recv(READ)


class TlsBatchedSocket(BatchedSocket):
    """The same over TLS; `context` says whom to trust, `host` whose name the certificate must bear.

    The cryptography is done between two buffers and not in `ssl.SSLSocket`, which would ask the kernel twice for each
    record, and mosquitto makes a record of each packet.

    Raises:
        OSError: the handshake fails (`ssl.SSLError`), or takes too long.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, host: str) -> None:
        super().__init__(connected)
        self._said = bytearray()
        self._sealed, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._sealed, self._to_send, server_hostname=host)
            self._shake_hands()
        except BaseException:
            socket.socket.close(self)
            raise

    @property
    def unsent(self) -> bool:
        """Whether something waits for `flush`."""
        return bool(self._said) or super().unsent

    def send(self, content: bytes, flags: int = 0, /) -> int:  # type: ignore[override] # paho gives bytes
        """Keep it for `flush`."""
        del flags
        self._said += content
        return len(content)

    def flush(self) -> None:
        """Encrypt what was said, and write what the kernel takes now."""
        while self._said:
            del self._said[: self._tls.write(self._said)]
        self._unsent += self._to_send.read()  # what TLS itself has to say is in it as well
        try:
            super().flush()
        except ConnectionError:
            with contextlib.suppress(ConnectionError, BlockingIOError):
                self._fetch()  # if the broker said why, this raises it
            raise

    def close(self) -> None:
        """Say that nothing follows, so that the other side does not take it for an attack."""
        with contextlib.suppress(OSError, ValueError):
            self.flush()
            self._tls.unwrap()  # says so, and then wants an answer that nobody waits for
        super().close()

    def _shake_hands(self) -> None:
        """On a blocking socket, as it comes from `connect`."""
        deadline = read_clock().ticks + HANDSHAKE
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if read_clock().ticks > deadline:
                    raise TimeoutError("the TLS handshake takes too long") from None
                self.sendall(self._to_send.read())
                self._take_sealed()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self.sendall(self._to_send.read())  # tell the other side why
                raise
            else:
                self.sendall(self._to_send.read())
                return

    def _take_sealed(self) -> bool:
        """Whether anything came; BlockingIOError if nothing has yet."""
        if sealed := socket.socket.recv(self, READ):
            self._sealed.write(sealed)
            return True
        self._sealed.write_eof()
        return False

    def _fetch(self) -> bytes:
        """What has come and can be read: whole records only. Empty at the end, whether it was announced or not."""
        while not (content := self._unseal()):
            if not self._take_sealed():
                return self._unseal()
        return content

    def _unseal(self) -> bytes:
        pieces: list[bytes] = []
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
            while piece := self._tls.read(READ):
                pieces.append(piece)
        return b"".join(pieces)
