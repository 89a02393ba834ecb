"""All webhooks: choose the webhooks for each change of an alarm, and hold the waiting posts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from monitor.sidecar.config.webhook import WebhookConfig
from monitor.sidecar.effects import Publication
from monitor.sidecar.outbox import Numbers, Outbox
from monitor.sidecar.webhooks.cloud_event import PostedAlert, read_alert, write_event
from monitor.sidecar.webhooks.sender import PostResult, Sender

LOG: Final = logging.getLogger("monitor.webhooks")
LIMIT: Final = 10_000
"""Maximum number of posts that wait for one webhook, some 5 KB each."""


class Webhooks:
    """The webhooks of a configuration, by name; used from one thread (the loop's), except `status`.

    Args:
        configs: name -> settings.
        client_id: this monitor's client id, for the source of events.
        numbers: source of numbers, shared with the outbox for the broker.
        settled: called when the store should drop a post.
        report: called with a webhook's name, a result and the number of posts that have it.
    """

    def __init__(
        self,
        configs: Mapping[str, WebhookConfig],
        client_id: str,
        numbers: Numbers,
        *,
        settled: Callable[[], None] = lambda: None,
        report: Callable[[str, PostResult, int], None] = lambda _name, _result, _count: None,
    ) -> None:
        self._configs = configs
        self._client_id = client_id
        self._numbers = numbers
        self.outboxes: dict[str, Outbox] = {}
        self.senders: list[Sender] = []
        for name, config in configs.items():
            given_up = partial(report, name, "dropped")
            outbox = Outbox(LIMIT, numbers=numbers, receiver=f"webhook {name}", given_up=given_up)
            self.outboxes[name] = outbox
            self.senders.append(Sender(name, config, outbox, settled=settled, report=partial(report, name)))

    def posts(self, publications: Iterable[Publication]) -> list[tuple[int, Publication]]:
        """Return the numbered posts about the changes of alarms among these messages."""
        if not self._configs:
            return []
        return self._numbers.give([post for publication in publications for post in self._posts(publication)])

    def put(self, numbered: Sequence[tuple[int, Publication]]) -> None:
        """Add posts to send, also posts of an earlier process.

        Posts for a webhook that is not configured are dropped.
        """
        for name in dict.fromkeys(publication.to for _, publication in numbered):
            posts = [(number, publication) for number, publication in numbered if publication.to == name]
            if name in self.outboxes:
                self.outboxes[name].put(posts)
            else:
                words = "webhook %s is not configured any more; posts that waited for it and are dropped: %d"
                LOG.warning(words, name, len(posts))

    def status(self) -> list[dict[str, object]]:
        """Return the state of every webhook as plain data."""
        return [sender.status() for sender in self.senders]

    def _posts(self, publication: Publication) -> Iterable[Publication]:
        """Yield a post for each webhook that wants this message."""
        if publication.repeats or not publication.payload or (alert := read_alert(publication.payload)) is None:
            return
        names = [name for name, config in self._configs.items() if _wants(config, alert)]
        body = write_event(alert, publication.payload, self._client_id) if names else b""
        for name in names:
            yield Publication(alert.subject, body, to=name)


def _wants(config: WebhookConfig, alert: PostedAlert) -> bool:
    news = config.revisions or alert.revision == 1 or alert.state != "firing"
    return news and (config.severities is None or alert.severity in config.severities)
