"""Alerts as published, with what the tests of webhooks look at."""

from __future__ import annotations

import json
from typing import Any

from monitor.sidecar.effects import Publication

__all__ = ["alert_document", "published"]


def alert_document(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {
        "v": 1,
        "id": "0123456789abcdef0123456789abcdef",
        "revision": 1,
        "state": "firing",
        "severity": "critical",
        "agent": "ada",
        "formula": {"name": "watch", "text": 'P>=0.9 [ G<=20 !"lost" ]'},
        "value": 0.25,
        "time": "2026-01-31T12:00:00.000Z",
        "sent_unix": 1000.0,
        "summary": "ada fails: 25 % \u2013 act now",
        **more,
    }


def published(**more: Any) -> Publication:  # noqa: ANN401 - any JSON
    document = alert_document(**more)
    payload = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return Publication(f"cfmon/alerts/{document['agent']}/{document['formula']['name']}", payload)
