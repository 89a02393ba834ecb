"""What one event causes, as values: evidence to keep, messages to send, notices to show."""

from __future__ import annotations

import msgspec

from monitor.types import Notice

__all__ = ["Effects", "EvidenceFile", "Publication"]


class Publication(msgspec.Struct, frozen=True):
    """A message to send. An empty retained payload takes back what was retained on the topic.

    `repeats`: it says nothing new, so there is no use in sending it late.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True
    repeats: bool = False


class EvidenceFile(msgspec.Struct, frozen=True):
    """The evidence of one alarm, to be kept before the alarm is published. `id` is also its name on disk."""

    id: str
    content: bytes


class Effects(msgspec.Struct, frozen=True):
    """What one event caused: evidence to keep first, then what to publish, and notices for metrics and status page."""

    publications: tuple[Publication, ...] = ()
    evidence: tuple[EvidenceFile, ...] = ()
    notices: tuple[Notice, ...] = ()
