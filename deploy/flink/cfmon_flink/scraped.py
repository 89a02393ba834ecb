"""The metrics of one subtask over HTTP, under the names and labels of the sidecar's: its own sink makes them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from monitor.sidecar.effects import Effects
from monitor.sidecar.sinks.metrics import CONTENT_TYPE, Metrics
from monitor.sidecar.sinks.sink import Watched
from monitor.types import Instant, Notice

__all__ = ["Scraped"]


class Scraped:
    """Metrics of notices, served at `/metrics` until `close`.

    Raises:
        OSError: the port is not free.
    """

    def __init__(self, watched: Watched, host: str, port: int) -> None:
        self._metrics = metrics = Metrics(watched)
        metrics.connected(up=True)  # the job reads its source for as long as it runs

        class Handler(BaseHTTPRequestHandler):
            """Answers a scrape."""

            def do_GET(self) -> None:
                """Send the metrics."""
                if self.path != "/metrics":
                    self.send_error(404)
                    return
                body = metrics.exposition()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: a scrape is no news."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return self._server.server_port

    def take(self, noticed: Iterable[tuple[Instant, Sequence[Notice]]]) -> None:
        """Count and show notices."""
        for now, notices in noticed:
            self._metrics.take(Effects(notices=tuple(notices)), now)
            self._metrics.evaluated(0.0, (), now)

    def recall(self, notices: Iterable[Notice]) -> None:
        """Show the state of an agent that came from a checkpoint; nothing of it is counted again."""
        self._metrics.recall(Effects(notices=tuple(notices)), Instant(0.0, 0.0))

    def close(self) -> None:
        """Stop serving, and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
