"""Sends the posts of one webhook. An agent's posts are sent in order, each until it is accepted, refused or too old.

One post is sent at a time, and agents take turns. A failed post delays the later posts of its agent, but not the posts
of other agents. If all posts fail, for example because the receiver is down, attempts are repeated at growing
intervals.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from monitor._version import __version__
from monitor.alarm.message import rfc3339
from monitor.errors import ConfigError
from monitor.sidecar.clock import read_clock
from monitor.sidecar.config.webhook import WebhookConfig
from monitor.sidecar.effects import Publication
from monitor.sidecar.log import RateLimitedLog
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.tasks import end_tasks
from monitor.sidecar.webhooks.backoff import parse_retry_after, pause_after
from monitor.sidecar.webhooks.cloud_event import PostedAlert
from monitor.sidecar.webhooks.endpoint import read_endpoint
from monitor.sidecar.webhooks.post import PostError, PostResponse, post
from monitor.sidecar.webhooks.signature import signed_headers
from monitor.types.stream_events import Instant

LOG: Final = logging.getLogger("monitor.webhooks")
PostResult = Literal["delivered", "failed", "dropped", "refused"]
"""Result of a post or attempt; label values of `cfmon_webhook_posts_total`. `refused`: the post was set aside, because
the receiver refuses it and accepts others. `failed`: an attempt failed."""

REFUSALS: Final = 2
"""If the content of a post is refused this many times in a row, and another post was accepted in between, the post is
set aside."""

PROOFS: Final = 5
PROOF_SECONDS: Final = 600.0
"""A post is also set aside if it failed for `PROOF_SECONDS`, and other posts were accepted meanwhile: at least `PROOFS`
times, another post was accepted between two of its failures. A failure of one of several backends looks the same, but
only for minutes."""


class _Envelope(msgspec.Struct, frozen=True):
    """The fields read from a stored post."""

    id: str
    data: PostedAlert


@dataclass(frozen=True)
class _Failure:
    """Why a post was not accepted. `requested`: seconds that the receiver requests to wait.

    `refused`: the receiver refuses this post. `content`: it refuses the post's content. `alone`: the fault may lie in
    this post, so other posts are still tried.
    """

    problem: str
    requested: float = 0.0
    refused: bool = False
    content: bool = False
    alone: bool = False


@dataclass
class _Queue:
    """Posts of one agent, by number, in order.

    `due`: ticks from which the first post may be tried. `failures`: number of consecutive failed attempts. `tried`: the
    post of the last attempt; `refusals`, `content`, `proofs` and `since` are about this post. `refusals`: number of
    consecutive refusals. `content`: number of consecutive refusals of the post's content. `proofs`: number of times
    that another post was accepted between two failures of this post. `since`: ticks of the failure at which `proofs`
    became 1; while `proofs` is 0, ticks of the first failure. `seen`: number of accepted posts, of all agents, at the
    last failure.
    """

    numbers: deque[int] = field(default_factory=deque)
    due: float = -math.inf
    failures: int = 0
    tried: int = -1
    refusals: int = 0
    content: int = 0
    proofs: int = 0
    since: float = -math.inf
    seen: int = 0

    def count(self, number: int, failure: _Failure, accepted: int, ticks: float) -> None:
        """Count a failure of a post at `ticks`. `accepted`: number of posts accepted so far."""
        if number != self.tried:
            self.tried, self.refusals, self.content, self.proofs, self.since = number, 0, 0, 0, ticks
        elif accepted > self.seen:
            self.since = self.since if self.proofs else ticks
            self.proofs += 1
        self.refusals = (self.refusals + 1) * failure.refused
        self.content = (self.content + 1) * failure.content
        self.seen = accepted

    def judge(self, ticks: float) -> Literal["later", "ask", "hopeless"]:
        """Return whether the fault lies in the post, that is, whether it fails while the receiver accepts other posts.

        `hopeless`: yes. `later`: not known yet. `ask`: try this agent's next post now. If the next post is accepted,
        the fault lies in this post.
        """
        if self.content >= REFUSALS:
            return "hopeless" if self.proofs else "ask"
        if ticks - self.since < PROOF_SECONDS:
            return "later"
        if self.proofs >= PROOFS:
            return "hopeless"
        return "ask" if self.refusals >= PROOFS else "later"


class Sender:
    """Sends the posts in `outbox` one at a time, agents taking turns.

    Args:
        name: name of the webhook.
        config: settings of the webhook.
        outbox: posts of the webhook.
        settled: called when the store should drop a post.
        report: called with each result and the number of posts that have it.
        clock: its wall time is compared with the time of the alarm's change.
        chance: returns a uniform number in [0, 1), for the jitter.
        sleep: waits for the given seconds.
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
        self._queues: OrderedDict[str, _Queue] = OrderedDict()  # agents with posts, the next in turn first
        self._accepted = 0
        self._failing: set[str] = set()  # agents whose posts failed since a post was last accepted
        self._away = 0  # number of consecutive failures that concern every post
        self._resumes = -math.inf  # ticks before which no post is tried
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
            self._sort_in()
            agent = self._next()
            if agent is None:
                await self._rest()
            else:
                await self._serve(agent, self._queues[agent])

    def _sort_in(self) -> None:
        """Add new posts to the queues, and remove dropped posts."""
        while (found := self._outbox.poll()) is not None:
            number, publication = found
            self._queues.setdefault(publication.topic.partition("/")[0], _Queue()).numbers.append(number)
        for agent, queue in list(self._queues.items()):
            while queue.numbers and queue.numbers[0] not in self._outbox:
                queue.numbers.popleft()
            if not queue.numbers:
                del self._queues[agent]

    def _next(self) -> str | None:
        """Return the agent whose turn it is, agents without failures first; None if no post is due yet."""
        now = self._clock().ticks
        if now < self._resumes:
            return None
        due = [agent for agent, queue in self._queues.items() if queue.due <= now]
        return min(due, key=lambda agent: self._queues[agent].failures > 0, default=None)

    async def _rest(self) -> None:
        """Wait until a post is due, or until a new post has arrived, which may belong to an agent without failures."""
        due = max(min((queue.due for queue in self._queues.values()), default=math.inf), self._resumes)
        tasks = [asyncio.create_task(self._outbox.more())]
        if due < math.inf:
            tasks.append(asyncio.ensure_future(self._sleep(due - self._clock().ticks)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(tasks)

    async def _serve(self, agent: str, queue: _Queue) -> None:
        """Try the first post of an agent, and also the next one if the first is refused repeatedly."""
        self._queues.move_to_end(agent)
        number, *others = queue.numbers
        failure = await self._attempt(number)
        if failure is None:
            self._delivered(queue, number)
            return
        if failure.alone:
            queue.count(number, failure, self._accepted, self._clock().ticks)
        self._failed(agent, queue, failure)
        if not failure.alone or number not in self._outbox:  # not in the outbox: the post was too old
            return
        following = next((each for each in others if each in self._outbox), None)
        found = queue.judge(self._clock().ticks)
        if found == "hopeless":
            self._set_aside(queue, number, failure.problem)
        elif found == "ask" and following is not None:
            if await self._attempt(following) is None:
                self._set_aside(queue, number, failure.problem)
                self._delivered(queue, following)
            else:
                self._report("failed", 1)

    async def _attempt(self, number: int) -> _Failure | None:
        """Post once; return the reason if the post was not accepted, else None."""
        publication = self._outbox.get(number)
        assert publication is not None
        try:
            answer = await self._post(publication)
        except ConfigError as error:
            return _Failure(str(error))
        except PostError as error:
            return _Failure(str(error), alone=error.reached)
        except Exception as error:
            LOG.exception("webhook %s: an attempt failed. This is a bug, please report it", self.name)
            return _Failure(f"a bug of the monitor ({type(error).__name__})", alone=True)
        if answer.accepted:
            return None
        requested = parse_retry_after(answer.retry_after, self._clock().wall)
        alone = not answer.concerns_all
        return _Failure(answer.problem, requested, refused=answer.refused, content=answer.content, alone=alone)

    async def _post(self, publication: Publication) -> PostResponse:
        """Post once. Raises PostError or ConfigError if there is no answer."""
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

    def _delivered(self, queue: _Queue, number: int) -> None:
        """Record that a post was accepted. Failures that concerned all posts are therefore over."""
        self._accepted += 1
        self._done(number, "delivered")
        if len(self._failing) > 1:
            for each in self._queues.values():
                each.due = -math.inf
        self._failing.clear()
        self._away, self._resumes = 0, -math.inf
        self._go_on(queue)

    def _go_on(self, queue: _Queue) -> None:
        """Reset the failures of an agent whose first post is settled."""
        queue.failures, queue.due = 0, -math.inf
        if self._failing_since is not None and not any(each.failures for each in self._queues.values()):
            LOG.info("webhook %s: %s accepts posts again; waiting: %d", self.name, self._address, len(self._outbox))
            self._problem, self._failing_since = "", None

    def _failed(self, agent: str, queue: _Queue, failure: _Failure) -> None:
        """Drop posts that are too old, report the failure, and set the next time for this agent or for all."""
        now = self._clock()
        self._problem = failure.problem
        self._failing_since = now.wall if self._failing_since is None else self._failing_since
        self._report("failed", 1)
        left = self._drop_old(now.wall)
        if failure.alone:
            queue.failures += 1
            self._failing.add(agent)
            pause = min(pause_after(queue.failures, chance=self._chance(), requested=failure.requested), left)
            queue.due = now.ticks + pause
            # If posts of several agents failed and none was accepted in between, the failure concerns all agents too.
            if (others := len(self._failing) - 1) > 0:
                self._resumes = now.ticks + min(pause_after(others, chance=self._chance()), left)
        else:
            self._away += 1
            pause = min(pause_after(self._away, chance=self._chance(), requested=failure.requested), left)
            self._resumes = now.ticks + pause
        words = "webhook %s: %s does not accept %s: %s. Waiting: %d; next attempt in %.0f s"
        which = f"a post about {agent}" if failure.alone else "posts"
        said = (self.name, self._address, which, failure.problem, len(self._outbox), pause)
        self._log.warn(failure.problem, now, words, *said)

    def _set_aside(self, queue: _Queue, number: int, problem: str) -> None:
        """Give up a post that the receiver refuses although it accepts others."""
        if (publication := self._outbox.get(number)) is None:  # already dropped, because too many posts wait
            return
        alert = msgspec.json.decode(publication.payload, type=_Envelope).data
        words = "webhook %s: set aside: %s of %s, revision %d: %s, again and again, while it accepts other posts"
        LOG.error(words, self.name, alert.state, alert.subject, alert.revision, problem)
        self._done(number, "refused")
        self._go_on(queue)

    def _drop_old(self, wall: float) -> float:
        """Drop the posts that are too old at `wall`; return the seconds until the next post is too old."""
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
