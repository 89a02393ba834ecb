"""One POST, in a thread of its own, with a limit on its whole duration."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from monitor.sidecar.tasks import in_thread
from monitor.sidecar.webhooks.target import Target

_MEANINGS: Final = {
    401: "check the URL and the secret",
    403: "check the URL and the secret",
    404: "check the URL",
    405: "it does not take POST: check the URL",
    410: "check the URL",
    413: "the alert is too large for it",
    415: "set content_type to one that it takes",
    429: "it receives too many requests",
}


_LATER: Final = frozenset({408, 425, 429})
"""Statuses from 400 to 499 after which the post may be tried again: it arrived too slowly, too early, or after too many
other posts."""

_CONTENT: Final = frozenset({400, 413, 415, 422})
"""Statuses about a post's content. Other statuses, such as 401, 403, 404, 405 and 410, may also come from a load
balancer, a deployment in progress or a secret being replaced."""


class PostError(Exception):
    """The receiver was not reached, or did not answer. The text gives the reason and does not contain the URL.

    `reached`: whether there was a connection. If there was, the fault may lie in this post.
    """

    def __init__(self, why: str, *, reached: bool = False) -> None:
        super().__init__(why)
        self.reached = reached


@dataclass(frozen=True)
class PostResponse:
    """The answer of a receiver. `retry_after`: the header of this name."""

    status: int
    retry_after: str | None = None

    @property
    def refused(self) -> bool:
        """True if the receiver understood the post and refuses it."""
        return 400 <= self.status < 500 and self.status not in _LATER

    @property
    def content(self) -> bool:
        """True if the receiver says that it refuses the content."""
        return self.status in _CONTENT

    @property
    def concerns_all(self) -> bool:
        """True if all posts must wait: there are too many, or the receiver gives the time until it is back."""
        return self.status == 429 or (self.status == 503 and self.retry_after is not None)

    @property
    def accepted(self) -> bool:
        """True if the receiver has the post."""
        return 200 <= self.status < 300

    @property
    def problem(self) -> str:
        """Meaning of the status, for the log."""
        if 300 <= self.status < 400:
            return f"it answers {self.status}, a redirect, which is not followed: set the URL to where it leads"
        meaning = _MEANINGS.get(self.status, "an error of its own" if self.status >= 500 else "it refuses the post")
        return f"it answers {self.status}: {meaning}"


async def post(
    target: Target, body: bytes, headers: Mapping[str, str], *, seconds: float, context: ssl.SSLContext | None
) -> PostResponse:
    """Post `body` within `seconds` in total. Raises PostError if there is no answer."""
    exchange = _Exchange(target, body, headers, seconds, context)
    try:
        async with asyncio.timeout(seconds):
            return await in_thread(exchange.run)
    except TimeoutError:  # timeout of the whole exchange, or of one operation
        raise PostError(f"no answer within {seconds:g} s", reached=exchange.connected) from None
    except http.client.RemoteDisconnected:
        raise PostError("it closed the connection without an answer", reached=True) from None
    except http.client.HTTPException:
        raise PostError("its answer is not HTTP: check scheme and port of the URL", reached=True) from None
    except OSError as error:
        raise PostError(_explain(error), reached=exchange.connected) from None
    finally:
        exchange.abort()


class _Exchange:
    """A connection for one request. `run` is called in one thread, `abort` in another."""

    def __init__(
        self, target: Target, body: bytes, headers: Mapping[str, str], seconds: float, context: ssl.SSLContext | None
    ) -> None:
        self._connection = target.connection(seconds, context)
        self._path = target.path
        self._body = body
        self._headers = {**headers, "Connection": "close"}
        self._aborted = False
        self.connected = False

    def run(self) -> PostResponse:
        """Post, and return the answer. The answer's body is not read."""
        try:
            self._connection.connect()
            if self._aborted:  # a later attempt may have been accepted: do not repeat the post out of order
                raise TimeoutError
            self.connected = True
            self._connection.request("POST", self._path, self._body, self._headers)
            response = self._connection.getresponse()
            return PostResponse(response.status, response.getheader("Retry-After"))
        finally:
            self._connection.close()

    def abort(self) -> None:
        """Wake the thread if it waits for the receiver. No effect after the thread has ended."""
        self._aborted = True
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # the TLS layer's `shutdown` would disturb the thread


def _explain(error: OSError) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {error.verify_message.rstrip('.')}; see the setting ca"
        case ssl.SSLError():
            return f"TLS failed ({error.reason or error})"
        case socket.gaierror():
            return f"its name cannot be resolved: {error.strerror}"
        case _:
            return error.strerror or str(error) or "the connection was closed"
