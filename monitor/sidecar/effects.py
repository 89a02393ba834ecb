"""Effects of one event, as values: evidence to keep, messages to send, notices for sinks."""

from __future__ import annotations

import msgspec

from monitor.types import Notice


class Publication(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to send. An empty retained payload clears what the broker retained on the topic.

    `repeats`: it says nothing new, so it is not sent late. `to`: the webhook it is posted to, with the subject of the
    event as `topic`; empty for the broker.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True
    repeats: bool = False
    to: str = ""


class EvidenceFile(msgspec.Struct, frozen=True):
    """The evidence of one alarm, to be kept before the alarm is published. `id` is also its name on disk."""

    id: str
    content: bytes


class Effects(msgspec.Struct, frozen=True):
    """Effects of one event: evidence to keep first, then what to publish, and notices for sinks."""

    publications: tuple[Publication, ...] = ()
    evidence: tuple[EvidenceFile, ...] = ()
    notices: tuple[Notice, ...] = ()
