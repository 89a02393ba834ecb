"""Killed at any moment, a sidecar has in the end posted every change of an alarm that it published."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from monitor.model import MDP
from monitor.sidecar.effects import Publication
from tests.sidecar.project import write_project
from tests.sidecar.test_recovery import UNDOUBTED, CrashError, Life, World
from tests.tiers import examples, scaled

RECEIVER = "http://127.0.0.1:1/"
WEBHOOKS = f"webhooks: {{pager: {{url: '{RECEIVER}'}}, chat: {{url: '{RECEIVER}', revisions: false}}}}\n"


class Posting(World):
    """A world in which receivers accept what is posted, in order."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.posts: dict[str, list[tuple[str, int]]] = {"pager": [], "chat": []}
        self.away: set[str] = set()

    def published_alerts(self) -> set[tuple[str, int]]:
        documents = [json.loads(payload) for topic, payload in self.published if "/alerts/" in topic and payload]
        return {(alert["id"], alert["revision"]) for alert in documents}


class PostingLife(Life):
    """A process whose posts are accepted as they come."""

    world: Posting

    async def send(self) -> None:
        await super().send()
        for name, outbox in self.service.webhooks.outboxes.items():
            while name not in self.world.away and len(outbox):
                number, post = await outbox.take()
                self.world.point()
                event = json.loads(post.payload)
                assert event["id"] == f"{event['data']['id']}-{event['data']['revision']}"
                self.world.posts[name].append((event["data"]["id"], event["data"]["revision"]))
                self.world.point()
                outbox.done(number)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, corridor: MDP) -> Path:
    return write_project(tmp_path_factory.mktemp("project"), corridor, UNDOUBTED)


def configured(project: Path, folder: Path, webhooks: str = WEBHOOKS) -> Path:
    config = project.with_name(f"{folder.name}.yaml")
    config.write_text(UNDOUBTED.replace("var/cfmon.sqlite", f"{folder}/cfmon.sqlite") + webhooks)
    return config


def live(config: Path, world: Posting, crash_at: int = -1) -> None:
    """One process, from its start to its end or crash."""
    world.points, world.crash_at = 0, crash_at
    with pytest.MonkeyPatch.context() as patch:
        life = PostingLife(config, world, patch)
        try:
            asyncio.run(life.live())
        except CrashError:
            assert crash_at > 0
        finally:
            life.service.close()


def lived(project: Path, folder: Path, crash_at: Sequence[int]) -> Posting:
    config, world = configured(project, folder), Posting(36)
    for crash in [*crash_at, -1]:
        live(config, world, crash)
    return world


def firsts(posts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Posts without repetitions."""
    return list(dict.fromkeys(posts))


def check_complete(world: Posting) -> None:
    posts = firsts(world.posts["pager"])
    assert set(posts) == world.published_alerts()
    for alarm in {alarm for alarm, _ in posts}:
        revisions = [revision for each, revision in posts if each == alarm]
        assert revisions == sorted(revisions)


@scaled
def test_a_crash_at_any_point_loses_no_post_and_keeps_their_order(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    calm = lived(project, tmp_path_factory.mktemp("calm"), [])
    check_complete(calm)
    assert calm.posts["pager"] == firsts(calm.posts["pager"])
    assert len(calm.posts["pager"]) > len(calm.posts["chat"]) > 2
    for point in range(1, calm.points + 1, examples(9, 3)):
        world = lived(project, tmp_path_factory.mktemp(f"crash{point}"), [point])
        check_complete(world)
        assert {alarm for alarm, _ in world.posts["chat"]} == {alarm for alarm, _ in calm.posts["chat"]}, point


def test_what_waits_for_a_receiver_is_posted_by_the_next_process(project: Path, tmp_path: Path) -> None:
    config, world = configured(project, tmp_path), Posting(36)
    world.away = {"pager"}
    live(config, world)
    assert world.posts["pager"] == []
    assert world.posts["chat"]
    known = world.published_alerts()
    world.away = set()
    accepted = list(world.posts["chat"])

    async def second() -> None:
        with pytest.MonkeyPatch.context() as patch:
            life = PostingLife(config, world, patch)
            await life.service.begin()
            await life.send()
            life.service.close()

    asyncio.run(second())
    assert set(world.posts["pager"]) == world.published_alerts() > known
    assert len(world.posts["pager"]) == len(world.published_alerts())
    assert world.posts["chat"] == accepted


def test_posts_for_a_webhook_that_is_gone_are_dropped_and_logged(
    project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="monitor.webhooks")
    config, world = configured(project, tmp_path), Posting(36)
    world.away = {"pager", "chat"}
    live(config, world)
    config = configured(project, tmp_path, WEBHOOKS.replace("pager:", "phone:"))
    world.posts["phone"] = []
    live(config, world)
    count = len(world.published_alerts())
    assert f"webhook pager is not configured any more; posts that waited for it and are dropped: {count}" in caplog.text
    caplog.clear()
    live(config, world)
    assert "not configured any more" not in caplog.text
    assert world.posts["phone"] == []


def test_a_changed_topic_of_alerts_posts_nothing_again_and_a_removed_formula_is_posted(
    project: Path, tmp_path: Path
) -> None:
    """On the new topic the broker gets what it retained on the former one; a webhook has it already."""
    gone = "  - {name: gone, formula: 'P>=0.9 [ G<=3 !\"lost\" ]'}\nheartbeat"
    config, world = configured(project, tmp_path), Posting(36)
    text = config.read_text()
    config.write_text(text.replace("heartbeat", gone))
    steps = dict(world.steps)
    world.steps = {n: steps[n] for n in range(2)}

    async def one() -> None:
        with pytest.MonkeyPatch.context() as patch:
            life = PostingLife(config, world, patch)
            await life.service.begin()
            life.worker.connected(True)  # noqa: FBT003 - as the link calls it
            for n, payload in list(world.steps.items()):
                life.enter(n, payload)
            life.worker.turn()
            await life.send()
            life.worker.turn()  # notes what was accepted
            life.service.close()

    asyncio.run(one())
    before = list(world.posts["pager"])
    assert len({alarm for alarm, _ in before}) == 4
    world.steps = {}
    config.write_text(
        text.replace('mqtt: {url: "mqtt://127.0.0.1:1"', 'mqtt: {alerts: moved, url: "mqtt://127.0.0.1:1"')
    )
    asyncio.run(one())
    assert any(topic.startswith("moved/") and payload for topic, payload in world.published)
    after = world.posts["pager"][len(before) :]
    removed = [
        (document["id"], document["revision"])
        for topic, payload in world.published
        if "/alerts/" in topic and payload and (document := json.loads(payload))["state"] == "removed"
    ]
    assert len(removed) == 2
    assert set(removed) < set(after)
    assert not set(before) & set(after)


def test_without_webhooks_a_message_takes_no_more_space_in_the_store() -> None:
    message = Publication("cfmon/alerts/ada/watch", b"{}")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message)) == {"topic": message.topic, "payload": b"{}"}
    former = msgspec.msgpack.encode(
        {"topic": message.topic, "payload": b"{}", "qos": 1, "retain": True, "repeats": False}
    )
    assert msgspec.msgpack.decode(former, type=Publication) == message
