"""Serve the metrics of a TaskManager over HTTP, with the sidecar's sink, so that names and labels are the same."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from monitor.sidecar.effects import Effects
from monitor.sidecar.sinks.metrics import CONTENT_TYPE, Metrics
from monitor.sidecar.sinks.sink import Watched
from monitor.types import Instant, Notice

__all__ = ["PORTS", "Scraped", "Server", "server_of_process"]

PORTS: Final = 100
"""Number of ports that a server tries, and so the maximum number of TaskManagers on a machine."""


class Server:
    """HTTP server of a process, on the first free port from `port` on.

    The server outlives the function, because after a failure Flink may run another subtask in this process without
    closing the previous one.

    Raises:
        OSError: none of the ports is free.

    Attributes:
        metrics: the served metrics; None: there are none, and a scrape fails.
        port: port that it listens on.
    """

    def __init__(self, host: str, port: int) -> None:
        self.metrics: Metrics | None = None
        self._server = _first_free(host, port, self)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


server_of_process = cache(Server)
"""Return the server of this process; the same arguments give the same server."""


class Scraped:
    """Metrics of notices, which a server serves until `close` or until it gets others."""

    def __init__(self, watched: Watched, server: Server) -> None:
        self._metrics = server.metrics = Metrics(watched)
        self._server = server
        self._metrics.connected(up=True)  # the job reads its source for as long as it runs

    def take(self, noticed: Iterable[tuple[Instant, Sequence[Notice]]]) -> None:
        """Count and show notices."""
        for now, notices in noticed:
            self._metrics.take(Effects(notices=tuple(notices)), now)
            self._metrics.evaluated(0.0, (), now)

    def recall(self, notices: Iterable[Notice]) -> None:
        """Show the state of an agent that was restored from a checkpoint, without counting anything again."""
        self._metrics.recall(Effects(notices=tuple(notices)), Instant(0.0, 0.0))

    def close(self) -> None:
        """Stop serving these metrics, because they would be read as current."""
        if self._server.metrics is self._metrics:
            self._server.metrics = None


def _first_free(host: str, port: int, owner: Server) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        """Answers a scrape."""

        def do_GET(self) -> None:
            """Send the metrics."""
            metrics = owner.metrics
            if self.path != "/metrics" or metrics is None:
                self.send_error(404 if metrics is not None else 503)
                return
            body = metrics.exposition()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing, because scrapes are frequent."""

    for tried in range(PORTS):
        try:
            return ThreadingHTTPServer((host, port + tried), Handler)
        except OSError:
            if tried == PORTS - 1:
                raise
    raise AssertionError("the last port returns or raises")
