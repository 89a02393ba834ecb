"""Effects of one event, as values: evidence to store, messages to send, notices for sinks."""

from __future__ import annotations

from typing import Final

import msgspec

from monitor.types.notices import Notice

OFFLINE: Final = b'{"state":"offline"}'
"""Payload of the last will, and of the last status before a clean stop."""


class Publication(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to send. An empty retained payload clears the message that the broker retained on the topic.

    `repeats`: True if the message repeats an earlier message, and need not be sent after a restart. `to`: name of the
    webhook to which the message is posted; then `topic` is the event's subject. Empty for messages to the broker.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True
    repeats: bool = False
    to: str = ""


class EvidenceFile(msgspec.Struct, frozen=True):
    """The evidence of one alarm, to be stored before the alarm is published. `id` is also the file's name on disk."""

    id: str
    content: bytes


class Effects(msgspec.Struct, frozen=True):
    """Effects of one event.

    The evidence is stored first; then the publications are sent and the sinks get the notices.
    """

    publications: tuple[Publication, ...] = ()
    evidence: tuple[EvidenceFile, ...] = ()
    notices: tuple[Notice, ...] = ()
