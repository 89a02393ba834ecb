"""Killed at any moment, a sidecar says in the end what one says that was never killed.

The real worker, store and pipeline, between a broker and a clock that are lists: a crash is an exception at one of the
points where the outside world could see a difference, and the next process gets what the disk and the broker hold.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from monitor.model import MDP
from monitor.sidecar.backlog import RECONNECT_GRACE
from monitor.sidecar.config.load import assemble
from monitor.sidecar.mqtt.inbox import Arrived, Receipt
from monitor.sidecar.service import Service
from monitor.sidecar.store.alarm_history import AlarmFilter
from monitor.sidecar.store.journal import Journal
from monitor.sidecar.store.store import Store
from monitor.types import Instant
from tests.hidden import robot
from tests.sidecar.by_hand import by_hand, stopped_time
from tests.sidecar.project import CONFIG, write_project
from tests.tiers import examples, scaled

RASH, CAREFUL, LOST, HOME = 0, 1, 4, 5
PATH = [(0, RASH), (1, CAREFUL), (1, CAREFUL), (HOME, RASH), (HOME, RASH), (0, RASH), (1, RASH), (2, RASH), (3, RASH)]

STORE = "var/cfmon.sqlite"
UNDOUBTED = CONFIG + "trust: {enabled: false}\n"
"""From which step on the model is doubted depends on where a batch ends, and so on where a process did."""


class CrashError(BaseException):
    """The process is gone."""


Step = Callable[[int], bytes]
"""Number -> message."""


class World:
    """The broker, as it remembers: steps in order until they are acknowledged; what was published, in order."""

    def __init__(self, steps: int, step: Step | None = None) -> None:
        self.steps = {n: (step or self.step)(n) for n in range(steps)}
        self.published: list[tuple[str, bytes]] = []
        self.topic = "agents/{}/steps"
        self.points = 0
        self.crash_at = -1
        self.listed: list[tuple[str, str, bool]] = []

    @staticmethod
    def step(n: int) -> bytes:
        """Two agents in turn, nine steps an episode."""
        episode, seq = divmod(n // 2, len(PATH))
        state, action = PATH[seq]
        content = {"v": 1, "episode": episode, "seq": seq, "state": state, "action": action, "time": 1000.0 + n}
        return json.dumps(content).encode()

    def point(self) -> None:
        """Somewhere a process may be killed."""
        self.points += 1
        if self.points == self.crash_at:
            raise CrashError

    def acknowledge(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            self.point()
            del self.steps[receipt.message_id]


Lives = tuple[Path, Step]
"""A configuration, and the steps that are sent under it."""


class Life:
    """One process, from its start to its end or crash. Time passes when a step comes: no answer takes any."""

    def __init__(self, config: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.ticks = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.ticks)
        self.service = Service(assemble(config))
        self.worker = self.service.worker
        self.worker.acknowledge = world.acknowledge
        for name in ("commit", "checkpoint"):
            self._crash_around(name, monkeypatch)

    def _crash_around(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real: Callable[..., None] = getattr(Journal, name)

        def crashing(*arguments: Any, **more: Any) -> None:  # noqa: ANN401 - passed on
            self.world.point()
            real(*arguments, **more)
            self.world.point()

        monkeypatch.setattr(Journal, name, crashing)

    async def live(self) -> None:
        """Everything there is to do, then a clean end."""
        await self.service.begin()
        self.worker.connected(True)  # noqa: FBT003 - as the link calls it
        waiting = list(self.world.steps.items())
        for start in range(0, len(waiting), 3):
            for n, payload in waiting[start : start + 3]:
                self.enter(n, payload)
            self.worker.turn()
            await self.send()
            if start % 9 == 0:
                self.worker.keep_changes()
        self.worker.turn()  # what the broker has by now is noted
        assert self.worker.pipeline.waiting.steps == 0
        await self.worker.end()

    def enter(self, n: int, payload: bytes) -> None:
        """A step comes to the door."""
        self.ticks += 0.01
        arrived = Instant(1000.0 + n, self.service.clock().ticks)
        topic = self.world.topic.format("ada" if n % 2 else "bob")
        self.service.inbox.put(Arrived(arrived, topic, payload, Receipt(1, n)))

    async def send(self) -> None:
        outbox = self.service.outbox
        while len(outbox):
            number, message = await outbox.take()
            self.world.point()
            self.world.published.append((message.topic, message.payload))
            self.world.point()
            outbox.done(number)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, corridor: MDP) -> Path:
    return write_project(tmp_path_factory.mktemp("project"), corridor, UNDOUBTED)


@pytest.fixture(scope="module", params=["seen", "hidden"])
def lives(config: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """Two agents whose states are seen, or hidden: then what is believed and remembered must survive too."""
    if request.param == "seen":
        return config, World.step
    settings = {"http": {"listen": "127.0.0.1:0"}, "store": {"path": STORE}, "trust": {"enabled": False}}
    folder = tmp_path_factory.mktemp("hidden")
    config = robot.write_robot(folder, heartbeat="1s", **settings)
    sent = [list(islice(robot.agent_steps(folder, agent), 18)) for agent in range(2)]
    return config, lambda n: json.dumps({**sent[n % 2][n // 2], "time": 1000.0 + n}).encode()


def lived(lives: Lives, folder: Path, crash_at: list[int]) -> World:
    """A world after as many lives as there are crashes, and one more; each crash counts from the start of its life."""
    config, step = lives
    text = config.read_text()
    config = config.with_name(f"{folder.name}.yaml")
    config.write_text(text.replace(STORE, f"{folder}/cfmon.sqlite"))
    world = World(36, step)
    for crash in [*crash_at, -1]:
        world.points, world.crash_at = 0, crash
        with pytest.MonkeyPatch.context() as patch:
            life = Life(config, world, patch)
            try:
                asyncio.run(life.live())
            except CrashError:
                assert life.service.store is not None
            finally:
                life.service.close()
    kept = Store(folder / "cfmon.sqlite")
    kept.close()
    world.listed = sorted((alarm.id, alarm.state, alarm.over is None) for _, alarm in kept.kept.alarms)
    return world


def alerts(world: World) -> list[dict[str, Any]]:
    """Every alarm's first word in each state, alarm by alarm; what follows is news once a second, or repeats."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for topic, payload in world.published:
        if "/alerts/" in topic and payload:
            alert = json.loads(payload)
            told = {name: value for name, value in alert.items() if name not in MOMENTS}
            seen.setdefault((alert["id"], alert["state"]), told)
    return sorted(seen.values(), key=lambda alert: (alert["id"], alert["time"], alert["state"]))


MOMENTS = ("sent", "sent_unix", "late", "revision")


@pytest.fixture(scope="module")
def uninterrupted(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = lived(lives, tmp_path_factory.mktemp("calm"), [])
    assert not world.steps
    assert {alert["state"] for alert in alerts(world)} >= {"firing", "resolved"}
    assert {identity for identity, _, _ in world.listed} == {alert["id"] for alert in alerts(world)}
    assert all(fires == (state == "firing") for _, state, fires in world.listed)
    return world


@scaled
def test_a_crash_at_any_point_loses_nothing_and_changes_no_value(
    lives: Lives, tmp_path_factory: pytest.TempPathFactory, uninterrupted: World
) -> None:
    expected = alerts(uninterrupted)
    for point in range(1, uninterrupted.points + 1, examples(7, 1)):
        world = lived(lives, tmp_path_factory.mktemp(f"crash{point}"), [point])
        assert not world.steps, point
        assert alerts(world) == expected, point
        assert world.listed == uninterrupted.listed, point


def test_crash_after_crash_does_no_harm_either(
    lives: Lives, tmp_path_factory: pytest.TempPathFactory, uninterrupted: World
) -> None:
    world = lived(lives, tmp_path_factory.mktemp("storm"), [7, 11, 3, 5, 30, 2, 1, 19, 40])
    assert not world.steps
    assert alerts(world) == alerts(uninterrupted)
    assert world.listed == uninterrupted.listed


def test_a_disk_that_fails_for_a_while_costs_nothing(
    lives: Lives, tmp_path: Path, uninterrupted: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watching and acknowledging go on; once it works again, all is kept, and a killed process loses nothing."""
    text, config = lives[0].read_text(), lives[0].with_name("failing.yaml")
    config.write_text(text.replace(STORE, f"{tmp_path}/cfmon.sqlite"))
    world = World(36, lives[1])
    waiting = dict(world.steps)

    def full(_journal: Journal, _batch: object) -> None:
        raise OSError(28, "No space left on device")

    async def first() -> None:
        life = Life(config, world, monkeypatch)
        await life.service.begin()
        life.worker.connected(True)  # noqa: FBT003 - as the link calls it
        world.steps = {n: waiting[n] for n in range(20)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "commit", full)
            await _turns(life)
        assert not world.steps
        assert "No space left" in life.service.health.status()["store"]
        assert b"cfmon_store_ok 0.0" in life.service.sinks.metrics.exposition()
        life.worker.beat()
        assert life.service.health.status()["store"] == "ok"
        assert b"cfmon_store_ok 1.0" in life.service.sinks.metrics.exposition()
        life.service.close()  # nothing that a killed process would not do as well

    async def second() -> None:
        world.steps = {n: waiting[n] for n in range(20, 36)}
        await Life(config, world, monkeypatch).live()

    asyncio.run(first())
    asyncio.run(second())
    assert alerts(world) == alerts(uninterrupted)


async def _turns(life: Life) -> None:
    """Take over what the world has, and send what comes of it."""
    for n, payload in list(life.world.steps.items()):
        life.enter(n, payload)
    life.worker.turn()
    await life.send()


def test_a_changed_configuration_takes_along_what_did_not_change(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept formula's alarm goes on and closes; the removed one's are cleared; the new one says nothing old."""
    config = config.with_name("changing.yaml")
    before = UNDOUBTED.replace(STORE, f"{tmp_path}/cfmon.sqlite")
    gone = "  - {name: gone, formula: 'P>=0.9 [ G<=3 !\"lost\" ]'}\nheartbeat"
    config.write_text(before.replace("heartbeat", gone))
    world = World(36)
    waiting = dict(world.steps)

    async def first() -> None:
        life = Life(config, world, monkeypatch)
        await life.service.begin()
        life.worker.connected(True)  # noqa: FBT003 - as the link calls it
        world.steps = {n: waiting[n] for n in range(2)}
        await _turns(life)
        life.service.close()

    asyncio.run(first())
    fired = {alert["formula"]["name"]: alert["id"] for alert in alerts(world) if alert["state"] == "firing"}
    assert fired.keys() == {"watch", "gone"}
    config.write_text(before.replace("heartbeat", gone.replace("gone", "fresh")))
    world.steps = {n: waiting[n] for n in range(2, 8)}
    world.published.clear()
    with pytest.MonkeyPatch.context() as patch:
        life = Life(config, world, patch)
        client_id = life.service.client_id
        asyncio.run(life.live())
        life.service.close()
    listed = life.service.sinks.view.history.find(AlarmFilter(formula="gone"))
    assert [alarm.state for alarm in listed] == ["removed", "removed"]
    told = {(alert["formula"]["name"], alert["state"]) for alert in alerts(world)}
    assert {("watch", "resolved"), ("gone", "removed")} <= told
    assert fired["watch"] in {alert["id"] for alert in alerts(world) if alert["state"] == "resolved"}
    assert ("cfmon/alerts/ada/gone", b"") in world.published
    assert all(alert["seq"] >= 1 for alert in alerts(world) if alert["formula"]["name"] == "fresh")
    assert client_id == client_id_in(tmp_path, config)


def client_id_in(folder: Path, config: Path) -> str:
    """The client id in the store: still that of the first configuration."""
    again = Service(assemble(config))
    again.close()
    assert (folder / "cfmon.sqlite").exists()
    return again.client_id


# ---- killed, and started with things elsewhere ----

HERE = 'mqtt: {url: "mqtt://127.0.0.1:1"'


class Restart:
    """A process that was killed after both agents' alarms fired, and what the next says with a changed configuration.

    `retained`: what the broker then holds of the status and of alerts, by topic.
    """

    def __init__(self, config: Path, folder: Path) -> None:
        self._config = config.with_name(f"{folder.name}-moved.yaml")
        self._text = UNDOUBTED.replace(STORE, f"{folder}/cfmon.sqlite")
        self._config.write_text(self._text)
        self.world = World(36)
        self.waiting = dict(self.world.steps)
        asyncio.run(self._live(range(2)))
        self.killed = len(self.world.published)
        self.fired = {topic: json.loads(said)["id"] for topic, said in self.retained.items() if "/alerts/" in topic}
        assert self.fired.keys() == {"cfmon/alerts/ada/watch", "cfmon/alerts/bob/watch"}

    @property
    def retained(self) -> dict[str, bytes]:
        return {topic: said for topic, said in dict(self.world.published).items() if said}

    @property
    def cleared(self) -> list[str]:
        """Where the last process took something back, in order."""
        return [topic for topic, said in self.world.published[self.killed :] if not said]

    def again(self, old: str, new: str, then: range) -> tuple[str, ...]:
        """Live on under the configuration with `new` for `old`, up to these steps; returns the agents known."""
        assert old in self._text
        self._config.write_text(self._text.replace(old, new))
        return asyncio.run(self._live(then))

    async def _live(self, numbers: range) -> tuple[str, ...]:
        with pytest.MonkeyPatch.context() as patch:
            life = Life(self._config, self.world, patch)
            await life.service.begin()
            life.worker.connected(True)  # noqa: FBT003 - as the link calls it
            self.world.steps = {n: self.waiting[n] for n in numbers}
            await _turns(life)
            agents = life.worker.pipeline.agents()
            life.service.close()  # without the worker's end: as if killed
            return agents


def test_steps_that_moved_to_another_topic_do_not_undo_those_that_were_taken_over(
    config: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Restart(config, tmp_path)
    life.world.topic = "fleet/{}/steps"
    moved = HERE + ', steps: "fleet/+/steps"'
    assert life.again(HERE, moved, range(2, 8)) == ("bob", "ada")
    now = {topic: json.loads(life.retained[topic]) for topic in life.fired}
    assert {topic: (alert["id"], alert["state"]) for topic, alert in now.items()} == {
        topic: (name, "resolved") for topic, name in life.fired.items()
    }, "the alarms go on, on paths without a gap"
    assert life.cleared == []
    moved = "steps are now read from fleet/+/steps; messages on the former topic agents/+/steps are rejected"
    assert moved in caplog.text


def test_alerts_and_a_status_that_moved_leave_nothing_behind(config: Path, tmp_path: Path) -> None:
    life = Restart(config, tmp_path)
    [status] = [topic for topic in life.retained if topic.startswith("cfmon/status/")]
    life.again(HERE, HERE + ', alerts: "ward/alerts", status: "ward/status", client_id: renamed', range(0))
    assert sorted(life.cleared) == ["cfmon/alerts/ada/watch", "cfmon/alerts/bob/watch", status]
    alerts_now = {topic: json.loads(said)["id"] for topic, said in life.retained.items() if "/alerts/" in topic}
    assert alerts_now == {topic.replace("cfmon/", "ward/"): name for topic, name in life.fired.items()}
    assert life.retained.keys() - alerts_now.keys() == {"ward/status/renamed"}


def test_what_fired_since_the_snapshot_is_taken_back_where_it_cannot_happen_again(config: Path, tmp_path: Path) -> None:
    """With another policy the events happen to the paths alone; what the formulas said of them stands at the broker."""
    life = Restart(config, tmp_path)
    assert life.again("careful: careful.yaml", "careful: rash.yaml", range(0)) == ("bob", "ada")
    assert sorted(life.cleared) == sorted(
        topic.replace("watch", formula) for topic in life.fired for formula in ("watch", "chance")
    ), "and no other"
    assert not life.fired.keys() & life.retained.keys()


def test_time_goes_on_where_a_killed_process_heard_the_last_step(tmp_path: Path, corridor: MDP) -> None:
    """No step counts as late, and no agent as silent, for what an earlier process has seen of the time."""
    config = write_project(tmp_path / "project", corridor)
    with stopped_time() as passing:
        with by_hand(config) as there:
            asyncio.run(there.service.begin())
            there.worker.connected(True)  # noqa: FBT003 - as the link calls it
            passing.advance(RECONNECT_GRACE + 60.0)
            there.hear(World.step(0))
            heard = there.service.clock().ticks
        passing.now = 10.0  # another machine, or this one started anew
        with by_hand(config) as there:
            asyncio.run(there.service.begin())
            assert there.service.clock().ticks == heard
