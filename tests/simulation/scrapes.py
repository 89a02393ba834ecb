"""A reader of the sidecar's pages, at random moments: what they say is compared with the world and with the reference.

The real application answers, called directly. Its server and thread are left out.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from starlette.applications import Starlette

from monitor.sidecar.service import Service
from monitor.sidecar.web.http import make_app
from tests.simulation.sidecar import NAME, Sidecar

EACH: Final = 2.0
"""Seconds between two looks, on average."""

UNNOTICED: Final = 2.5
"""Keepalives after which a connection over which nothing passes is given up, at most."""

AT_ONCE: Final = 0.5
"""Seconds after which a sidecar without any connection says so, at most."""


def get(app: Starlette, path: str, query: bytes = b"") -> tuple[int, bytes]:
    """Return status and body of a page."""
    parts: list[Mapping[str, Any]] = []
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": []}

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(part: Mapping[str, Any]) -> None:
        parts.append(part)

    answer: Coroutine[Any, Any, None] = app(scope, receive, send)  # type: ignore[arg-type]
    try:
        answer.send(None)
    except StopIteration:
        return int(parts[0]["status"]), b"".join(part.get("body", b"") for part in parts)
    raise AssertionError(f"{path} waits for something")


class Reader:
    """Reads `/readyz` and the page's data until `over`.

    `verdicts`: (agent, formula, seq, value) of all verdicts that it was shown; `alarms`: (id, state).
    """

    def __init__(self, sidecar: Sidecar, keepalive: float, newest: Mapping[str, Mapping[str, Any]]) -> None:
        self._sidecar, self._keepalive, self._newest = sidecar, keepalive, newest
        self._world = sidecar.world
        self._app: tuple[Service, Starlette] | None = None
        self.over = False
        self.verdicts: set[tuple[str, str, int, float | None]] = set()
        self.alarms: set[tuple[str, str]] = set()
        self._world.after(EACH, self._look_again)

    def _look_again(self) -> None:
        world, sidecar = self._world, self._sidecar
        if self.over:
            return
        if sidecar.service is not None and sidecar.running and world.now >= sidecar.awake_since:
            self._look(sidecar.service)
        world.after(world.draw.expovariate(1 / EACH), self._look_again)

    def _look(self, service: Service) -> None:
        if self._app is None or self._app[0] is not service:
            self._app = service, make_app(service.sources)
        app = self._app[1]
        status, words = get(app, "/readyz")
        overview = json.loads(get(app, "/api/overview")[1])
        alarms = {alarm["id"]: alarm for alarm in json.loads(get(app, "/api/alarms", b"limit=1000")[1])}
        self._world.note(f"readyz {status} {words.decode()}")
        alive, problem = get(app, "/healthz")
        said = words if alive == 200 else problem
        if overview["problem"] != ("" if said == b"ok" else said.decode()):
            self._complain(f"the probes say '{said.decode()}', and the page '{overview['problem']}'")
        store = json.loads(get(app, "/api/status")[1])["store"]
        if self._sidecar.disk.refused and store == "ok":
            self._complain("the disk is full, and the page says that the store is ok")
        if status == 200:
            self._check_connected()
        for alert in self._newest.values():
            listed = alarms.get(alert["id"], {"revision": -1, "state": "nothing"})
            if listed["revision"] < alert["revision"]:
                self._complain(f"{alert['id']} is {alert['state']}, and the page says {listed['state']}")
        self.alarms.update((alarm["id"], alarm["state"]) for alarm in alarms.values())
        rows = [(agent["name"], formula) for agent in overview["agents"] for formula in agent["formulas"]]
        firing = {(alert["agent"], alert["formula"]["name"]) for alert in overview["firing"]}
        if firing != {(agent, row["name"]) for agent, row in rows if row["state"] == "firing"}:
            self._complain(f"of the alarms {sorted(firing)} the table of agents says something else")
        self.verdicts.update(
            (agent, row["name"], row["seq"], row["value"]) for agent, row in rows if row["seq"] is not None
        )

    def _check_connected(self) -> None:
        """There is a connection to the broker, and something passes, or did until a moment ago."""
        world, sidecar = self._world, self._sidecar
        ends = sidecar.network.of(NAME)
        muted = [end.mute_since for end in ends if end.mute_since is not None]
        passed = max(0.0, sidecar.awake_since, *muted, *(() if ends else world.disturbed[-1:]))
        patience = UNNOTICED * self._keepalive if ends else AT_ONCE
        if len(muted) == len(ends) and world.now - passed > patience:
            self._complain(f"/readyz says ok, and nothing passes since {passed:.1f} s")

    def _complain(self, what: str) -> None:
        self._world.problems.append(f"at {self._world.now:.3f} s {what}")
