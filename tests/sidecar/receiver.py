"""A real HTTP server that receives posts of a webhook, and answers as a test says."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from monitor.sidecar.webhooks.target import close_unfinished

__all__ = ["Post", "Receiver", "receiver"]


@dataclass(frozen=True)
class Post:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def revision(self) -> int:
        return int(self.event["data"]["revision"])


Answer = int | tuple[int, dict[str, str]] | Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Receiver:
    """`answers`: for the next requests, in order; `usual`: for all others. A function answers by itself."""

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque)
    usual: Answer = 204
    posts: list[Post] = field(default_factory=list)
    accepted: list[Post] = field(default_factory=list)
    listen: Callable[[], None] = lambda: None
    """Begins to take connections, which are refused until then; has been called unless a test is to call it."""


def _handler(to: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            post = Post(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            to.posts.append(post)
            answer = to.answers.popleft() if to.answers else to.usual
            if callable(answer):
                answer(self)
                return
            status, headers = (answer, {}) if isinstance(answer, int) else answer
            if 200 <= status < 300:
                to.accepted.append(post)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_said: object) -> None:
            """Keep the output of the tests free of requests."""

    return Handler


class _Server(ThreadingHTTPServer):
    context: ssl.SSLContext | None = None

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self.context is None:
            return connection, address
        try:
            return self.context.wrap_socket(connection, server_side=True), address
        except OSError as error:
            close_unfinished(error)
            raise

    def handle_error(self, *_about: object) -> None:
        """A client that went away is what some tests cause."""


@contextmanager
def receiver(*, context: ssl.SSLContext | None = None, listening: bool = True) -> Iterator[Receiver]:
    running = Receiver()
    with _Server(("127.0.0.1", 0), _handler(running), bind_and_activate=False) as server:
        server.server_bind()
        server.context = context
        scheme = "http" if context is None else "https"
        running.url = f"{scheme}://localhost:{server.server_port}/alerts/secret-path?key=1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})

        def listen() -> None:
            server.server_activate()
            thread.start()

        running.listen = listen
        if listening:
            listen()
        try:
            yield running
        finally:
            if thread.is_alive():
                with suppress(OSError):
                    server.shutdown()
                thread.join()
