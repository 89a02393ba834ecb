"""A TCP connection that reads and writes in batches.

paho asks the kernel three times for each packet it reads, and once for each it writes: an acknowledgement of four bytes
costs as much as a verdict, wakes the broker, and lets another thread take the interpreter. Here one read brings what
has come, and one write carries every acknowledgement of a turn.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

__all__ = ["Wire"]

READ: Final = 1 << 13
"""Bytes asked for at once: some hundred steps, few enough that a backlog stays where it is counted, in the door."""


class Wire(socket.socket):
    """A connected socket; `recv` gives from what was read, `send` takes until `flush`. For one thread at a time."""

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
        if self._at == len(self._read):
            self._read, self._at = super().recv(READ, flags), 0
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
