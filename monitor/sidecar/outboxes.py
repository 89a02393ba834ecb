"""All messages that wait to be sent: messages for the broker, and posts for webhooks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from monitor.sidecar.effects import Publication
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.webhooks.webhooks import Webhooks


class Outboxes:
    """The outboxes of the broker and of all webhooks as one. The worker and the store use a single list of messages."""

    def __init__(self, broker: Outbox, webhooks: Webhooks) -> None:
        self._broker = broker
        self._webhooks = webhooks
        self._all = (broker, *webhooks.outboxes.values())

    def number(
        self, publications: Iterable[Publication], *, known: Collection[Publication] = ()
    ) -> list[tuple[int, Publication]]:
        """Number the messages, and make and number webhook posts for the alerts; return all with their numbers.

        `known`: messages that report nothing new, so no post is made for them.
        """
        messages = list(publications)
        posts = self._webhooks.posts(message for message in messages if message not in known)
        return [*self._broker.number(messages), *posts]

    def put(self, numbered: Sequence[tuple[int, Publication]]) -> None:
        """Add messages to send. They must be in the store."""
        self._broker.put([message for message in numbered if not message[1].to])
        self._webhooks.put([message for message in numbered if message[1].to])

    def waiting(self) -> list[tuple[int, Publication]]:
        """Return the messages that would have to be sent after a restart, in order."""
        return sorted((message for outbox in self._all for message in outbox.waiting()), key=lambda each: each[0])

    @property
    def has_finished(self) -> bool:
        """True if `finished` has numbers to return."""
        return any(outbox.has_finished for outbox in self._all)

    def finished(self) -> list[int]:
        """Return the numbers of messages that need not be sent any more. Each number is returned once."""
        return [number for outbox in self._all for number in outbox.finished()]
