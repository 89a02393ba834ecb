"""Write the messages that the job sends, each as one line with a topic and a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from monitor.alarm.message import Identity, alert_payload
from monitor.types import Alert, Forgotten, Instant, Notice

__all__ = ["document_of", "messages", "split_message"]


def messages(
    noticed: Iterable[tuple[Instant, Sequence[Notice]]], identity: Identity, topic: str, formulas: Sequence[str]
) -> Iterator[str]:
    """Yield the messages of notices: each alert, and an empty one that clears each topic of a forgotten agent.

    `topic`: root of the topics of alerts, without agent and formula. `sent` of an alert is the time of the line that
    caused it, so the same line gives the same bytes at any time.
    """
    for now, notices in noticed:
        for notice in notices:
            match notice:
                case Alert():
                    payload = alert_payload(notice, identity, sent=now.wall, evidence=None)
                    yield f"{topic}/{notice.agent}/{notice.formula}\t{payload.decode()}"
                case Forgotten():
                    yield from (f"{topic}/{notice.agent}/{formula}\t" for formula in formulas)
                case _:
                    pass


def split_message(message: str) -> tuple[str, bytes]:
    """Return topic and payload; an empty payload clears what a broker retains."""
    topic, _, payload = message.partition("\t")
    return topic, payload.encode()


def document_of(message: str) -> str:
    """Return the document of a message; empty if it only clears a topic."""
    return message.partition("\t")[2]
