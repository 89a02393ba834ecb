"""The sender of a webhook against a real server: in order, until accepted or too old, without waiting in vain."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import random
import re
import select
import socket
import ssl
import struct
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import trustme

from monitor.sidecar.config.webhook import WebhookConfig
from monitor.sidecar.effects import Publication
from monitor.sidecar.outbox import Numbers
from monitor.sidecar.webhooks import post as post_module
from monitor.sidecar.webhooks import sender as sender_module
from monitor.sidecar.webhooks.sender import Sender
from monitor.sidecar.webhooks.target import parse_target
from monitor.sidecar.webhooks.webhooks import Webhooks
from monitor.types import Instant
from tests.servers import PATIENCE, wait_until
from tests.sidecar.alert_documents import published
from tests.sidecar.receiver import Post, Receiver, receiver
from tests.sidecar.side import let_pass, run

WHSEC = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class Rig:
    """A webhook `pager` on a played clock: a pause passes at once, and is noted. `meanwhile`: happens at its start."""

    def __init__(self, config: WebhookConfig) -> None:
        self.wall = 1000.0
        self.pauses: list[float] = []
        self.results: dict[str, int] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.webhooks = Webhooks({"pager": config}, "host-1", Numbers(), report=self._count)
        self.outbox = self.webhooks.outboxes["pager"]
        self.sender = Sender(
            "pager",
            config,
            self.outbox,
            settled=lambda: None,
            report=partial(self._count, "pager"),
            clock=lambda: Instant(self.wall, self.wall),
            chance=lambda: 0.0,
            sleep=self._sleep,
        )

    def add(self, *alerts: Publication) -> None:
        self.webhooks.put(self.webhooks.posts(alerts))

    def _count(self, name: str, result: str, count: int) -> None:
        assert name == "pager"
        self.results[result] = self.results.get(result, 0) + count

    async def _sleep(self, seconds: float) -> None:
        self.meanwhile()
        self.pauses.append(seconds)
        self.wall += seconds
        await asyncio.sleep(0)

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not happened():  # noqa: ASYNC110 - what is waited for comes from a thread
                await asyncio.sleep(0.005)


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[None]:
    task = asyncio.create_task(rig.sender.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


def config(url: str, **more: Any) -> WebhookConfig:  # noqa: ANN401 - any setting
    return WebhookConfig(url=url, **more)


def deliver(rig: Rig, *, given_up: threading.Event | None = None) -> None:
    """Run until nothing waits any more. When `given_up` is set, the timeout of an attempt (200 s) passes at once."""

    async def scenario() -> None:
        async with running(rig):
            if given_up is not None:
                await rig.until(given_up.is_set)
                let_pass(201.0)
            await rig.until(lambda: len(rig.outbox) == 0)

    run(scenario())


@contextmanager
def releasing() -> Iterator[threading.Event]:
    """An event that is set at the latest at the end of the block, so that no thread waits for it any longer."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


def revisions(posts: list[Post]) -> list[int]:
    return [post.revision for post in posts]


def test_posts_arrive_in_order_signed_and_in_full(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(WHSEC + "\n")
    with receiver() as there:
        rig = Rig(config(there.url, secret_file=secret))
        alerts = [published(revision=n) for n in (1, 2, 3)]
        rig.add(*alerts)
        deliver(rig)
    assert revisions(there.posts) == [1, 2, 3]
    assert rig.results == {"delivered": 3}
    assert rig.outbox.finished() == [0, 1, 2]
    for post, alert in zip(there.posts, alerts, strict=True):
        assert post.path == "/alerts/secret-path?key=1"
        assert post.headers["content-type"] == "application/cloudevents+json"
        assert alert.payload in post.body
        assert post.headers["webhook-id"] == post.event["id"]
        signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
        key = base64.b64decode(WHSEC[6:])
        expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        assert post.headers["webhook-signature"] == expected


def test_errors_are_repeated_in_order_with_longer_and_longer_pauses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="monitor.webhooks")
    with receiver() as there:
        there.answers += [500, 503, 401, 204, 500]
        rig = Rig(config(there.url))
        rig.add(published(revision=1), published(revision=2))
        deliver(rig)
    assert revisions(there.posts) == [1, 1, 1, 1, 2, 2]
    assert revisions(there.accepted) == [1, 2]
    assert rig.pauses == [1.0, 2.0, 4.0, 1.0]
    assert rig.results == {"failed": 4, "delivered": 2}
    assert len({post.headers["webhook-id"] for post in there.posts[:4]}) == 1
    stamps = [int(post.headers["webhook-timestamp"]) for post in there.posts[:4]]
    assert stamps == [1000, 1001, 1003, 1007]
    assert "it answers 401: check the URL and the secret" in caplog.text
    assert "accepts posts again" in caplog.text
    assert "secret-path" not in caplog.text
    assert rig.sender.status()["problem"] == ""


def test_the_same_failure_is_one_line_of_log_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    with receiver() as there:
        there.answers += [500] * 7
        rig = Rig(config(there.url))
        rig.add(published())
        deliver(rig)
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert sum(rig.pauses) == 127.0
    assert len(warned) == 2


def test_a_receiver_may_request_a_longer_pause() -> None:
    with receiver() as there:
        there.answers += [(429, {"Retry-After": "77"}), (503, {"Retry-After": "Thu, 01 Jan 1970 00:19:37 GMT"})]
        rig = Rig(config(there.url))
        rig.add(published())
        deliver(rig)
    assert rig.pauses == [77.0, 100.0]


def test_a_redirect_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    with receiver() as other, receiver() as there:
        there.answers += [(307, {"Location": other.url})]
        rig = Rig(config(there.url))
        rig.add(published())
        deliver(rig)
    assert other.posts == []
    assert len(there.accepted) == 1
    assert "it answers 307, a redirect, which is not followed" in caplog.text


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with receiver() as there:
        rig = Rig(config(there.url))
        rig.add(published())
        deliver(rig)
    assert rig.results == {"delivered": 1}


def test_a_receiver_that_is_not_there_yet_gets_it_later(caplog: pytest.LogCaptureFixture) -> None:
    with receiver(listening=False) as there:
        rig = Rig(config(there.url))
        rig.add(published(revision=1), published(revision=2))

        async def scenario() -> None:
            async with running(rig):
                await rig.until(lambda: rig.results.get("failed", 0) >= 3)
                assert rig.sender.status()["problem"] == "Connection refused"
                assert rig.sender.status()["waiting"] == 2
                assert rig.sender.status()["failing_since"] == "1970-01-01T00:16:40.000Z"
                there.listen()
                await rig.until(lambda: len(rig.outbox) == 0)

        asyncio.run(scenario())
    assert revisions(there.accepted) == [1, 2]
    address = there.url.partition("/alerts")[0]
    assert f"{address} does not accept posts: Connection refused" in caplog.text
    assert "secret-path" not in caplog.text


def test_a_receiver_that_hangs_is_given_up_after_the_timeout() -> None:
    with receiver() as there, releasing() as released:
        hanging = threading.Event()

        def hang(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(b"HTTP/1.1 2")
            hanging.set()
            released.wait(PATIENCE)

        there.answers += [hang]
        rig = Rig(config(there.url, timeout="200s"))
        rig.add(published())
        deliver(rig, given_up=hanging)
    assert rig.results == {"failed": 1, "delivered": 1}
    assert len(there.posts) == 2


def test_a_receiver_that_drips_is_given_up_after_the_timeout_as_a_whole() -> None:
    """Each byte comes within the timeout; the whole answer would not come in an hour."""
    with receiver() as there, releasing() as released:
        dripping = threading.Event()

        def drip(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(b"HTTP/1.1 204 No Content\r\nX: ")
            while not released.wait(0.02):
                handler.wfile.write(b".")
                dripping.set()

        there.answers += [drip]
        rig = Rig(config(there.url, timeout="200s"))
        rig.add(published())
        deliver(rig, given_up=dripping)
    assert rig.results == {"failed": 1, "delivered": 1}


def test_an_attempt_given_up_while_it_connects_posts_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its post would arrive after newer ones."""
    resolving, late = threading.Event(), list[socket.socket]()
    create = socket.create_connection
    with receiver() as there, releasing() as resolved:

        def slow(*arguments: Any, **more: Any) -> socket.socket:  # noqa: ANN401 - passed on
            if resolving.is_set():
                return create(*arguments, **more)
            resolving.set()
            resolved.wait(PATIENCE)
            late.append(create(*arguments, **more))
            return late[0]

        rig = Rig(config(there.url, timeout="200s"))
        monkeypatch.setattr(socket, "create_connection", slow)
        rig.add(published(revision=1), published(revision=2))
        deliver(rig, given_up=resolving)
        resolved.set()
        wait_until(lambda: late and late[0].fileno() == -1, "the late connection is closed")
        assert revisions(there.posts) == [1, 2]


def test_what_closes_or_speaks_no_http_is_reported_as_that() -> None:
    def close(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    def reset(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()

    def babble(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"220 mail.example ready\r\n")

    problems: list[object] = []
    with receiver() as there:
        there.answers += [close, reset, babble]
        rig = Rig(config(there.url))

        rig.meanwhile = lambda: problems.append(rig.sender.status()["problem"])
        rig.add(published())
        deliver(rig)
    assert problems == [
        "it closed the connection without an answer",
        "Connection reset by peer",
        "its answer is not HTTP: check scheme and port of the URL",
    ]


@pytest.mark.parametrize("kind", ["line", "headers", "body", "continue"])
def test_of_an_answer_without_end_little_is_read(kind: str) -> None:
    head = {
        "line": b"HTTP/1.1 204 No Content\r\nX: ",
        "headers": b"HTTP/1.1 204 No Content\r\n",
        "body": b"HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n",
        "continue": b"",
    }[kind]
    more = {"headers": b"X: 1\r\n" * 1000, "continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000}.get(kind, b"." * 10_000)
    with receiver() as there, releasing() as released:
        pouring = threading.Event()

        def pour(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(head)
            with suppress(OSError):  # the monitor hangs up
                while not released.is_set():
                    handler.wfile.write(more)
                    pouring.set()

        there.answers += [pour]
        rig = Rig(config(there.url, timeout="200s"))
        rig.add(published())
        tracemalloc.start()
        try:
            deliver(rig, given_up=pouring if kind == "continue" else None)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()
    assert rig.results == ({"delivered": 1} if kind == "body" else {"failed": 1, "delivered": 1})


def test_over_tls_the_receiver_must_prove_its_name(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    with receiver(context=context) as there:
        rig = Rig(config(there.url, ca=tmp_path / "ca.pem"))
        rig.add(published())
        deliver(rig)
        assert rig.results == {"delivered": 1}
        wrong = Rig(config(there.url.replace("localhost", "127.0.0.1"), ca=tmp_path / "ca.pem"))
        unknown = Rig(config(there.url))

        async def scenario(rig: Rig) -> str:
            async with running(rig):
                await rig.until(lambda: rig.results.get("failed", 0) >= 1)
                return str(rig.sender.status()["problem"])

        for each, why in ((wrong, "IP address mismatch"), (unknown, "unable to get local issuer certificate")):
            each.add(published())
            problem = asyncio.run(scenario(each))
            assert problem.startswith("its certificate is not accepted: ")
            assert why in problem
        assert len(there.posts) == 1
        with receiver() as plain:
            rig = Rig(config(plain.url.replace("http:", "https:")))
            rig.add(published())
            assert asyncio.run(scenario(rig)).startswith("TLS failed (")


def test_a_receiver_that_resets_the_connection_before_the_handshake_leaves_no_socket_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = socket.create_connection
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = parse_target(f"https://127.0.0.1:{server.getsockname()[1]}/", plain=False)

        def connect_and_be_reset(*address: Any, **options: Any) -> socket.socket:  # noqa: ANN401 - those of socket
            client = connect(*address, **options)
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            select.select([client], [], [])
            return client

        monkeypatch.setattr(socket, "create_connection", connect_and_be_reset)
        sending = post_module.post(target, b"{}", {}, seconds=60, context=ssl.create_default_context())
        with pytest.raises(post_module.PostError, match="reset"):
            asyncio.run(sending)


def test_a_post_too_old_is_dropped_after_a_last_attempt_and_the_next_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with receiver() as there:
        there.usual = 500
        rig = Rig(config(there.url, give_up="100s"))
        rig.add(published(revision=1, sent_unix=1000.0), published(revision=2, sent_unix=1050.0))

        def repair_after_the_drop() -> None:
            if "dropped" in rig.results:
                assert rig.wall == 1100.0
                there.usual = 204

        rig.meanwhile = repair_after_the_drop
        deliver(rig)
    assert revisions(there.accepted) == [2]
    assert rig.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 37.0, 50.0]
    assert rig.results == {"failed": 8, "dropped": 1, "delivered": 1}
    assert "dropped: firing of ada/watch, revision 1: not accepted within give_up (100 s)" in caplog.text


def test_after_a_long_stop_an_old_post_is_still_tried_once() -> None:
    with receiver() as there:
        rig = Rig(config(there.url, give_up="100s"))
        rig.add(published(revision=1, sent_unix=0.0), published(revision=2, sent_unix=0.0))
        deliver(rig)
    assert revisions(there.accepted) == [1, 2]


def test_one_failure_drops_everything_too_old_so_that_news_is_not_held_up() -> None:
    with receiver() as there:
        there.answers += [500]
        rig = Rig(config(there.url, give_up="100s"))
        rig.add(*(published(revision=n, sent_unix=0.0) for n in range(1, 50)), published(revision=50))
        deliver(rig)
    assert revisions(there.posts) == [1, 50]
    assert rig.results == {"failed": 1, "dropped": 49, "delivered": 1}


def test_a_post_without_a_time_does_not_grow_old() -> None:
    with receiver() as there:
        there.answers += [500] * 20
        rig = Rig(config(there.url, give_up="100s"))
        rig.add(published(sent_unix=None))
        deliver(rig)
    assert rig.results == {"failed": 20, "delivered": 1}


def test_a_secret_may_be_replaced_while_posts_wait(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(WHSEC)
    with receiver() as there:
        there.answers += [401]
        rig = Rig(config(there.url, secret_file=secret))

        def replace() -> None:
            secret.write_text(WHSEC) if rig.pauses else secret.unlink()

        rig.meanwhile = replace
        rig.add(published())
        deliver(rig)
    assert rig.results == {"failed": 2, "delivered": 1}
    assert len(there.posts) == 2  # nothing unsigned is posted while there is no secret


def test_a_bug_in_an_attempt_is_logged_and_the_post_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = iter([True])
    real = post_module.post

    async def fails(*arguments: Any, **more: Any) -> post_module.PostResponse:  # noqa: ANN401 - passed on
        if next(broken, False):
            raise ZeroDivisionError
        return await real(*arguments, **more)

    monkeypatch.setattr("monitor.sidecar.webhooks.sender.post", fails)
    with receiver() as there:
        rig = Rig(config(there.url))
        rig.add(published())
        deliver(rig)
    assert rig.results == {"failed": 1, "delivered": 1}
    assert "This is a bug, please report it" in caplog.text


def test_beyond_the_limit_the_newest_change_of_each_alarm_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("monitor.sidecar.webhooks.webhooks.LIMIT", 3)
    with receiver() as there:
        rig = Rig(config(there.url))
        rig.add(*(published(revision=n) for n in (1, 2, 3)), published(agent="bob", revision=7))
        assert len(rig.outbox) == 2
        deliver(rig)
    assert [(post.event["subject"], post.revision) for post in there.posts] == [("ada/watch", 3), ("bob/watch", 7)]
    assert rig.results == {"dropped": 2, "delivered": 2}
    assert "too many messages wait for webhook pager; dropped: 2 for ada/watch" in caplog.text


def test_a_post_given_up_while_it_is_repeated_is_not_posted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.sidecar.webhooks.webhooks.LIMIT", 1)
    with receiver() as there:
        there.answers += [500]
        rig = Rig(config(there.url))
        rig.meanwhile = lambda: rig.add(published(revision=2))
        rig.add(published(revision=1))
        deliver(rig)
    assert revisions(there.posts) == [1, 2]


def test_a_refused_post_may_be_given_up_while_the_next_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood begins just then."""
    monkeypatch.setattr("monitor.sidecar.webhooks.webhooks.LIMIT", 2)
    with receiver() as there:
        rig = Rig(config(there.url))
        attempts = iter([400, 400])

        async def attempt(*_: Any, **__: Any) -> post_module.PostResponse:  # noqa: ANN401 - not looked at
            if (status := next(attempts, 204)) == 204 and len(rig.outbox) == 2:
                rig.add(published(revision=3), published(revision=4))
            return post_module.PostResponse(status)

        monkeypatch.setattr("monitor.sidecar.webhooks.sender.post", attempt)
        rig.add(published(revision=1), published(revision=2))
        deliver(rig)
    assert rig.results == {"failed": 2, "dropped": 3, "delivered": 2}


def unless(wrong: Callable[[Post], bool], there: Receiver, how: int | None) -> Callable[[BaseHTTPRequestHandler], None]:
    """Accept a post unless it is wrong; then answer with a status, or close the connection (None)."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        post = there.posts[-1]
        status = how if wrong(post) else 204
        if status is None:
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        if status == 204:
            there.accepted.append(post)
        handler.send_response(status)
        handler.end_headers()

    return answer


def is_first_of_ada(post: Post) -> bool:
    return (post.event["subject"], post.revision) == ("ada/watch", 1)


@pytest.mark.parametrize("how", [400, 403, 404, 413, 422, 500, 502, None])
def test_a_post_that_fails_each_time_keeps_back_no_other_agent_and_not_its_own_for_good(how: int | None) -> None:
    with receiver() as there:
        there.usual = unless(is_first_of_ada, there, how)
        rig = Rig(config(there.url))
        rig.add(published(revision=1), published(revision=2))
        rig.add(*(published(agent=agent, revision=n) for n in (1, 2, 3) for agent in ("bob", "eve")))
        before: list[tuple[str, int]] = []
        later = iter(range(4, 20))

        def meanwhile() -> None:
            if not before:
                before.extend((post.event["subject"], post.revision) for post in there.accepted)
            rig.add(published(agent="bob", revision=next(later)))

        rig.meanwhile = meanwhile
        deliver(rig)
    assert before == [(f"{agent}/watch", n) for n in (1, 2, 3) for agent in ("bob", "eve")]  # before any pause
    assert [post.revision for post in there.accepted if post.event["subject"] == "ada/watch"] == [2]
    of_bob = [post.revision for post in there.accepted if post.event["subject"] == "bob/watch"]
    assert of_bob == sorted(set(of_bob))
    assert rig.results["refused"] == 1
    assert rig.results["failed"] == (2 if how in {400, 413, 422} else 11)
    assert sum(rig.pauses) < 1200.0
    assert sorted(rig.outbox.finished()) == list(range(len(there.accepted) + 1))  # none is tried after a restart
    assert rig.sender.status()["problem"] == ""


def test_a_post_that_is_refused_keeps_back_nothing_where_there_is_one_agent_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with receiver() as there:
        there.usual = unless(is_first_of_ada, there, 422)
        rig = Rig(config(there.url))
        rig.add(published(revision=1), published(revision=2), published(revision=3, state="resolved"))
        deliver(rig)
    assert revisions(there.posts) == [1, 1, 2, 3]
    assert rig.pauses == [1.0]
    assert rig.results == {"failed": 2, "refused": 1, "delivered": 2}
    said = "webhook pager: set aside: firing of ada/watch, revision 1: it answers 422: it refuses the post"
    assert said in caplog.text


@pytest.mark.parametrize("status", [401, 403, 404, 410, 415])
def test_a_receiver_that_refuses_everything_loses_nothing(status: int) -> None:
    """Somebody changed its URL or its secret: that is no fault of a post, however often each is refused."""
    with receiver() as there:
        there.usual = status
        rig = Rig(config(there.url))
        rig.add(*(published(agent=agent, revision=n) for n in (1, 2, 3) for agent in ("ada", "bob")))

        def repair() -> None:
            if sum(rig.pauses) > 7200:
                there.usual = 204

        rig.meanwhile = repair
        deliver(rig)
    for agent in ("ada", "bob"):
        assert [post.revision for post in there.accepted if post.event["data"]["agent"] == agent] == [1, 2, 3]
    assert set(rig.results) == {"failed", "delivered"}


def test_the_time_in_which_nothing_was_accepted_says_nothing_against_a_post() -> None:
    """After an outage of an hour, five failures while the backends come back one by one are no reason."""
    queue, failure = sender_module._Queue(), sender_module._Failure("", alone=True)  # noqa: SLF001 - the rule alone
    for n in range(60):
        queue.count(1, failure, 0, 60.0 * n)
    for n in range(1, 11):
        queue.count(1, failure, n, 3600.0 + n)
    assert queue.judge(3610.0) == "later"
    queue.count(1, failure, 11, 4201.0)
    assert queue.judge(4201.0) == "hopeless"


@pytest.mark.parametrize("status", [401, 404, 500, None])
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_receiver_of_which_some_backends_fail_for_five_minutes_loses_nothing(
    status: int | None, share: float
) -> None:
    draw = random.Random(7)
    with receiver() as there:
        rig = Rig(config(there.url, timeout="200s"))

        def fails(_post: Post) -> bool:
            return rig.wall < 1300.0 and draw.random() < share

        there.usual = unless(fails, there, status)
        newest = 0

        def add() -> None:
            nonlocal newest
            newest += 1
            rig.add(*(published(agent=f"a{n}", revision=newest) for n in range(20)))

        for _ in range(5):
            add()
        rig.meanwhile = lambda: add() if rig.wall < 1300.0 and len(rig.outbox) < 100 else None
        deliver(rig)
    assert set(rig.results) == {"failed", "delivered"}
    assert rig.wall >= 1300.0
    for n in range(20):
        of_agent = [post.revision for post in there.accepted if post.event["data"]["agent"] == f"a{n}"]
        assert of_agent == list(range(1, newest + 1))


def test_a_post_refused_for_no_fault_of_its_content_keeps_its_agents_later_ones_for_some_minutes() -> None:
    """There is one agent only, so nothing else shows that the receiver takes others."""
    with receiver() as there:
        there.usual = unless(is_first_of_ada, there, 403)
        rig = Rig(config(there.url))
        rig.add(published(revision=1), published(revision=2), published(revision=3, state="resolved"))
        deliver(rig)
    assert revisions(there.accepted) == [2, 3]
    assert 600.0 <= sum(rig.pauses) < 1200.0
    assert rig.results["refused"] == 1


@pytest.mark.parametrize("status", [None, 500, 503, 403, 429])
def test_a_receiver_that_is_down_is_not_tried_once_for_each_agent(status: int | None) -> None:
    with receiver(listening=status is not None) as there:
        there.usual = 204 if status is None else status
        rig = Rig(config(there.url))
        rig.add(*(published(agent=f"a{n}") for n in range(100)))

        def repair() -> None:
            if rig.wall > 1000.0 + 3600.0:
                there.usual = 204
                if status is None and not there.posts:
                    rig.meanwhile = lambda: None
                    there.listen()

        rig.meanwhile = repair
        deliver(rig)
    assert rig.results["failed"] <= 40
    assert rig.results["delivered"] == len(there.accepted) == 100
    assert "refused" not in rig.results


def test_a_flood_of_one_agent_does_not_delay_another() -> None:
    with receiver() as there:
        rig = Rig(config(there.url))
        rig.add(*(published(revision=n) for n in range(1, 50)), published(agent="bob"))
        deliver(rig)
    assert [post.event["data"]["agent"] for post in there.posts[:3]] == ["ada", "bob", "ada"]
    assert [post.revision for post in there.posts if post.event["data"]["agent"] == "ada"] == list(range(1, 50))


def test_the_address_of_a_url_in_a_file_is_known_with_the_first_attempt(tmp_path: Path) -> None:
    file = tmp_path / "url"
    with receiver() as there:
        file.write_text(there.url)
        rig = Rig(WebhookConfig(url_file=file))
        assert rig.sender.status()["address"] == f"the address in {file}"
        rig.add(published())
        deliver(rig)
        assert re.fullmatch(r"http://localhost:\d+", str(rig.sender.status()["address"]))
