"""Stand-in for the pager and the dead man's switches of a real installation: print what Alertmanager sends.

`receiver.py HOST:PORT [PATIENCE]` prints a line for each alert under `/critical` or `/warning`, and one when a switch
(`/switch/chain`, `/switch/monitors`) is silent for PATIENCE seconds (120) from the start on, or is heard again.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SWITCHES = ("chain", "monitors")
MOST = 1 << 20
"""Maximum bytes of a notification: far more than Alertmanager sends."""


class Switches:
    """Time of each switch's last signal, and whether it was last reported as received."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._heard = dict.fromkeys(SWITCHES, time.monotonic())
        self._told: dict[str, bool] = {}
        self._lock = threading.Lock()

    def hear(self, name: str) -> None:
        """Record a sign of life."""
        if name not in SWITCHES:
            raise KeyError(name)
        with self._lock:
            self._heard[name] = time.monotonic()
            if self._told.get(name) is not True:
                self._told[name] = True
                say(f"switch heard {name}")

    def listen(self) -> None:
        """Report switches that have received no signal, until killed."""
        while True:
            time.sleep(self.patience / 20)
            with self._lock:
                limit = time.monotonic() - self.patience
                for name, at in self._heard.items():
                    if at < limit and self._told.get(name) is not False:
                        self._told[name] = False
                        say(f"switch SILENT {name}: nothing heard for {self.patience:g} s")


def say(line: str) -> None:
    """Print one line and flush it."""
    sys.stdout.write(" ".join(line.split()) + "\n")
    sys.stdout.flush()


def tell(where: str, alert: dict[str, Any]) -> None:
    """Return one line about an alert of a notification."""
    labels, summary = dict(alert["labels"]), alert.get("annotations", {}).get("summary", "")
    name = labels.pop("alertname")
    about = " ".join(f"{key}={value}" for key, value in sorted(labels.items()))
    say(f"{where} {alert['status']} {name} {about}: {summary}")


def make_handler(switches: Switches) -> type[BaseHTTPRequestHandler]:
    """Return the class of handlers of Alertmanager's requests."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), MOST))
            try:
                alerts = json.loads(body)["alerts"]
                if self.path.startswith("/switch/"):
                    switches.hear(self.path.removeprefix("/switch/"))
                else:
                    for alert in alerts:
                        tell(self.path.strip("/"), alert)
                status = 200
            except (ValueError, KeyError, TypeError, AttributeError):
                status = 400
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing, because notifications are printed by `say`."""

    return Handler


def main(address: str, patience: str = "120") -> None:
    """Serve until killed."""
    host, _, port = address.rpartition(":")
    switches = Switches(float(patience))
    threading.Thread(target=switches.listen, daemon=True).start()
    with ThreadingHTTPServer((host, int(port)), make_handler(switches)) as server:
        say(f"listening on {address}")
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
