"""Posts what waits for one webhook, one after the other, each until it is accepted or too old."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec

from monitor._version import __version__
from monitor.alarm.message import rfc3339
from monitor.errors import ConfigError
from monitor.sidecar.clock import read_clock
from monitor.sidecar.config.webhook import WebhookConfig
from monitor.sidecar.effects import Publication
from monitor.sidecar.log import RateLimitedLog
from monitor.sidecar.mqtt.outbox import Outbox
from monitor.sidecar.webhooks.backoff import parse_retry_after, pause_after
from monitor.sidecar.webhooks.cloud_event import PostedAlert
from monitor.sidecar.webhooks.endpoint import read_endpoint
from monitor.sidecar.webhooks.post import Answer, PostError, post
from monitor.sidecar.webhooks.signing import signed_headers
from monitor.types import Instant

__all__ = ["PostResult", "Sender"]

LOG: Final = logging.getLogger("monitor.webhooks")
PostResult = Literal["delivered", "failed", "dropped"]
"""Delivered and dropped posts, and attempts that failed: label values of `cfmon_webhook_posts_total`."""


class _Envelope(msgspec.Struct, frozen=True):
    """What a stored post is read for."""

    id: str
    data: PostedAlert


class Sender:
    """Empties `outbox`, one post at a time.

    Args:
        name: of the webhook.
        config: its settings.
        outbox: its posts; the first is repeated until it is accepted, so they arrive in order.
        settled: is called when the store should drop a post.
        report: is called with each result and how many posts it concerns.
        clock: the wall time is compared with that of the alarm's change.
        chance: uniform in [0, 1), for the jitter.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        name: str,
        config: WebhookConfig,
        outbox: Outbox,
        *,
        settled: Callable[[], None],
        report: Callable[[PostResult, int], None],
        clock: Callable[[], Instant] = read_clock,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self._config = config
        self._outbox = outbox
        self._settled = settled
        self._report = report
        self._clock = clock
        self._chance = chance
        self._sleep = sleep
        self._address = config.address or f"the address in {config.url_file}"
        self._failures = 0
        self._problem = ""
        self._failing_since: float | None = None
        self._log = RateLimitedLog(LOG)

    def status(self) -> dict[str, object]:
        """Return the state of this webhook as plain data."""
        since = self._failing_since
        return {
            "name": self.name,
            "address": self._address,
            "waiting": len(self._outbox),
            "problem": self._problem,
            "failing_since": None if since is None else rfc3339(since),
        }

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            number, publication = await self._outbox.take()
            while number in self._outbox:  # if too many wait, it may be given up meanwhile
                problem, requested = await self._attempt(publication)
                if problem:
                    await self._failed(problem, requested)
                else:
                    self._delivered(number)

    async def _attempt(self, publication: Publication) -> tuple[str, float]:
        """Post once; return why it was not accepted, or an empty text, and the pause that the receiver requests."""
        try:
            answer = await self._post(publication)
        except (ConfigError, PostError) as error:
            return str(error), 0.0
        except Exception as error:
            LOG.exception("webhook %s: an attempt failed. This is a bug, please report it", self.name)
            return f"a bug of the monitor ({type(error).__name__})", 0.0
        requested = parse_retry_after(answer.retry_after, self._clock().wall)
        return "" if answer.accepted else answer.problem, requested

    async def _post(self, publication: Publication) -> Answer:
        """Post once; raise PostError or ConfigError without an answer."""
        endpoint = read_endpoint(self.name, self._config)
        self._address = endpoint.target.address
        event = msgspec.json.decode(publication.payload, type=_Envelope)
        headers = {
            "Content-Type": self._config.content_type,
            "User-Agent": f"counterfactual-monitor/{__version__}",
            **signed_headers(event.id, publication.payload, endpoint.secrets, self._clock().wall),
        }
        seconds = self._config.timeout
        return await post(endpoint.target, publication.payload, headers, seconds=seconds, context=endpoint.context)

    def _delivered(self, number: int) -> None:
        self._done(number, "delivered")
        if self._failures:
            LOG.info("webhook %s: %s accepts posts again; waiting: %d", self.name, self._address, len(self._outbox))
        self._failures, self._problem, self._failing_since = 0, "", None

    async def _failed(self, problem: str, requested: float) -> None:
        """Drop what is too old, report the failure, and wait."""
        now = self._clock()
        self._failures += 1
        self._problem = problem
        self._failing_since = now.wall if self._failing_since is None else self._failing_since
        self._report("failed", 1)
        left = self._drop_old(now.wall)
        pause = min(pause_after(self._failures, chance=self._chance(), requested=requested), left)
        words = "webhook %s: %s does not accept posts: %s. Waiting: %d; next attempt in %.0f s"
        self._log.warn(problem, now, words, self.name, self._address, problem, len(self._outbox), pause)
        await self._sleep(pause)

    def _drop_old(self, wall: float) -> float:
        """Drop the posts that are too old at `wall`; return the seconds until the next one is."""
        for number, publication in self._outbox.waiting():
            alert = msgspec.json.decode(publication.payload, type=_Envelope).data
            sent = wall if alert.sent_unix is None else alert.sent_unix
            left = sent + self._config.give_up - wall
            if left > 0:
                return left
            words = "webhook %s: dropped: %s of %s, revision %d: not accepted within give_up (%.0f s)"
            said = (self.name, alert.state, alert.subject, alert.revision, self._config.give_up)
            self._log.write(logging.ERROR, "dropped", self._clock(), words, *said)
            self._done(number, "dropped")
        return self._config.give_up

    def _done(self, number: int, result: PostResult) -> None:
        self._outbox.done(number)
        self._report(result, 1)
        self._settled()
