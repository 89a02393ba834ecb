"""Alerts as CloudEvents 1.0 in the structured JSON format (github.com/cloudevents/spec), one for each change."""

from __future__ import annotations

import msgspec


class _Formula(msgspec.Struct, frozen=True):
    name: str


class PostedAlert(msgspec.Struct, frozen=True):
    """The fields of an alert (`AlertMessage`) that the event uses.

    `sent_unix`: time at which the change was published.
    """

    id: str
    revision: int
    state: str
    severity: str
    agent: str
    formula: _Formula
    summary: str
    time: str | None
    sent_unix: float | None

    @property
    def event_id(self) -> str:
        """The id of this change, the same at each attempt. It contains no full stop (see `signed_headers`)."""
        return f"{self.id}-{self.revision}"

    @property
    def subject(self) -> str:
        """Agent and formula, as in the topic of the alert."""
        return f"{self.agent}/{self.formula.name}"


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON document that is posted."""

    specversion: str = "1.0"
    """Version of CloudEvents."""
    id: str
    """`id` and `revision` of the alert, joined by a hyphen. It is the same at each attempt."""
    source: str
    """The monitor: `/cfmon/` and its MQTT client id."""
    type: str
    """`cfmon.alarm.` and the state: `firing`, `resolved`, `ended` or `removed`."""
    subject: str
    """Agent and formula, separated by a slash."""
    time: str | msgspec.UnsetType = msgspec.UNSET
    """`time` of the alert; left out if it is `null`."""
    datacontenttype: str = "application/json"
    """Format of `data`."""
    text: str
    """`summary` of the alert, which chat tools show."""
    data: msgspec.Raw
    """The alert, as published over MQTT."""


def read_alert(payload: bytes) -> PostedAlert | None:
    """Return the fields of a published document that the event uses; None if the document is no alert."""
    try:
        return msgspec.json.decode(payload, type=PostedAlert)
    except msgspec.DecodeError:
        return None


def write_event(alert: PostedAlert, payload: bytes, client_id: str) -> bytes:
    """Return the event for an alert whose published document is `payload`."""
    event = CloudEvent(
        id=alert.event_id,
        source=f"/cfmon/{client_id}",
        type=f"cfmon.alarm.{alert.state}",
        subject=alert.subject,
        time=msgspec.UNSET if alert.time is None else alert.time,
        text=alert.summary,
        data=msgspec.Raw(payload),
    )
    return msgspec.json.encode(event)
