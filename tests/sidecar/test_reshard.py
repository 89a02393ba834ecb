"""Stores divided and joined: the monitors that go on with them publish what one monitor would have."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.errors import ConfigError
from monitor.model import MDP
from monitor.runtime.resharding import later
from monitor.sidecar.events import Message
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.store import reshard
from monitor.sidecar.store.reshard import DATABASE, NewStore, merge_stores, split_stores
from monitor.stream.shard import Shard, shard_of
from monitor.types import Instant
from tests.hidden import robot
from tests.sidecar.by_hand import ByHand, by_hand, stopped_time
from tests.sidecar.chaos import DEEDS as ALL_DEEDS
from tests.sidecar.chaos import Life
from tests.sidecar.project import CONFIG, write_project
from tests.tiers import first, slow
from tests.worlds import plant

AGENTS = [f"a{n}" for n in range(6)]
NAMED = CONFIG.replace('"mqtt://127.0.0.1:1"}', '"mqtt://127.0.0.1:1", client_id: fleet}')
DEEDS = ("step",) * 9 + ("end",)
Said = dict[str, list[tuple[Any, ...]]]


PROJECTS = {"numbers": (plant.write_plant, plant.events), "hidden": (robot.write_robot, robot.events)}
"""States that are no rows of a table that is seen."""


def written(folder: Path, kind: str) -> Path:
    """Write one of these projects."""
    return PROJECTS[kind][0](
        folder, mqtt={"url": "mqtt://127.0.0.1:1", "client_id": "fleet"}, store={"path": "var/a.sqlite"}
    )


@contextmanager
def begun(folder: Path, model: MDP | str, shard: str | None, store: Path, config: str = NAMED) -> Iterator[ByHand]:
    """A monitor that has restored its store; it stores everything at its end, as a clean stop does.

    `model`: or the kind of a project.
    """
    environment = {"CFMON_STORE__PATH": str(store)} | ({} if shard is None else {"CFMON_MQTT__SHARD": shard})
    path = written(folder, model) if isinstance(model, str) else write_project(folder, model, config)
    with stopped_time(), by_hand(path, environment) as there:
        asyncio.run(there.service.begin())
        yield there
        there.worker.keep_changes()


def life(model: MDP, seed: int, count: int) -> list[Message]:
    rng = random.Random(seed)
    events = Life(model, rng, agents=len(AGENTS)).events(rng.choices(DEEDS, k=count))
    return [event for event in events if isinstance(event, Message)]


def feed(there: ByHand, messages: Iterable[Message]) -> None:
    for message in messages:
        there.hear(message.payload, agent=message.topic.split("/")[1])


def said(there: ByHand) -> Said:
    """Return topic -> what waits for the broker there, in order: id, revision and state of each alert."""
    found: Said = {}
    for _, message in there.service.outbox.waiting():
        if message.topic.startswith("cfmon/alerts/"):
            alert = json.loads(message.payload) if message.payload else {}
            found.setdefault(message.topic, []).append(
                (alert.get("id"), alert.get("revision"), alert.get("state"), alert.get("seq"))
            )
    return found


def alarms(there: ByHand) -> set[tuple[str, str]]:
    rows = there.service.sinks.view.history.rows().values()
    return {(row[0], row[4]) for row in map(msgspec.msgpack.decode, rows)}


@pytest.mark.parametrize("seed", first(1, [1, 2]))
@pytest.mark.parametrize("numbers", [(1, 3), (3, 1), (2, 3), (4, 2)])
def test_monitors_go_on_with_divided_and_joined_stores_as_one_would_have(
    tmp_path: Path, corridor: MDP, numbers: tuple[int, int], seed: int
) -> None:
    messages = life(corridor, seed, 240)
    half = len(messages) // 2
    with begun(tmp_path / "one", corridor, None, tmp_path / "one" / DATABASE) as one:
        feed(one, messages)
        expected, listed = said(one), alarms(one)
    stores = run_shards(tmp_path, corridor, [None] * numbers[0], messages[:half])[0]
    made = split_stores(stores, numbers[1], tmp_path / "new")
    assert {agent: store.shard for store in made for agent in store.agents} == {
        agent: Shard(shard_of(agent, numbers[1]), numbers[1]) for agent in AGENTS
    }
    _, found, history = run_shards(tmp_path, corridor, made, messages[:3] + messages[half - 20 :])
    assert {topic: told[-1] for topic, told in found.items()} == {topic: told[-1] for topic, told in expected.items()}
    assert found == expected, "nothing that waited was lost, and repeated steps changed nothing"
    assert history == listed


@slow
@pytest.mark.parametrize("kind", PROJECTS)
def test_other_states_are_divided_and_joined(tmp_path: Path, kind: str) -> None:
    many = PROJECTS[kind][1](written(tmp_path / "one", kind).parent, 24)
    messages = [event for event in many if isinstance(event, Message)]
    half = len(messages) // 2
    with begun(tmp_path / "one", kind, None, tmp_path / "one" / DATABASE) as one:
        feed(one, messages)
        expected, listed = said(one), alarms(one)
    stores = run_shards(tmp_path, kind, [None, None], messages[:half])[0]
    made = split_stores(stores, 3, tmp_path / "three")
    stores, found, history = run_shards(tmp_path, kind, made, messages[half:])
    assert (found, history) == (expected, listed)
    with begun(tmp_path / "one", kind, None, merge_stores(stores, tmp_path / "merged").path) as there:
        assert (said(there), alarms(there)) == (expected, listed)


def run_shards(
    tmp_path: Path, model: MDP | str, shards: Sequence[NewStore | None], messages: Sequence[Message]
) -> tuple[list[Path], Said, set[tuple[str, str]]]:
    """Let so many shards see these messages; return their stores, what they would publish, and the listed alarms."""
    stores, found, listed = [], Said(), set()
    for number, new in enumerate(shards):
        shard = f"{number}/{len(shards)}"
        store = tmp_path / f"old-{number}" / DATABASE if new is None else new.path
        with begun(tmp_path / f"project-{number}", model, shard, store) as there:
            feed(there, messages)
            found |= said(there)
            listed |= alarms(there)
        stores.append(store)
    return stores, found, listed


def test_joined_stores_are_one_monitors(tmp_path: Path, corridor: MDP) -> None:
    messages = life(corridor, 3, 120)
    stores, found, listed = run_shards(tmp_path, corridor, [None, None], messages)
    made = merge_stores(stores, tmp_path / "new")
    assert (made.path, made.shard, set(made.agents)) == (tmp_path / "new" / DATABASE, None, set(AGENTS))
    with begun(tmp_path / "one", corridor, None, made.path) as there:
        assert (said(there), alarms(there)) == (found, listed)
        statuses = {m.topic for _, m in there.service.outbox.waiting() if m.topic.startswith("cfmon/status/")}
        assert statuses == {"cfmon/status/fleet-0-2", "cfmon/status/fleet-1-2"}, "nobody else clears them"


@pytest.mark.parametrize("seed", first(1, range(5)))
def test_the_state_on_a_clock_that_is_ahead_is_that_of_later_events(
    make_pipeline: Callable[[], Pipeline], corridor: MDP, seed: int
) -> None:
    """Ticks are multiples of 1/4 and the difference a power of two, so sums are exact."""
    ahead, rng = 65536.0, random.Random(seed)
    here, there = make_pipeline(), make_pipeline()
    for event in Life(corridor, rng, agents=1).events(rng.choices(ALL_DEEDS, k=150)):
        here.step(event)
        there.step(replace(event, now=Instant(event.now.wall, event.now.ticks + ahead)))
        states = [pipeline.monitor.save(everything=True).agents.get("a0") for pipeline in (here, there)]
        assert states[0] is None or later(states[0], ahead) == states[1]
        assert (states[0] is None) == (states[1] is None)


# ---- what is refused ----


@pytest.fixture
def stores(tmp_path: Path, corridor: MDP) -> list[Path]:
    return run_shards(tmp_path, corridor, [None, None], life(corridor, 3, 60))[0]


def contents(stores: Iterable[Path]) -> list[bytes]:
    return [path.read_bytes() for store in stores for path in (store, store.with_name(f"{DATABASE}-mark"))]


def refused(stores: Sequence[Path], target: Path, words: str) -> None:
    """The refusal says why, writes nothing and leaves the old stores as they are."""
    before = sorted(target.parent.iterdir()), contents(store for store in stores if store.is_file())
    with pytest.raises(ConfigError, match=words):
        split_stores(stores, 3, target)
    assert (sorted(target.parent.iterdir()), contents(store for store in stores if store.is_file())) == before


def test_what_does_not_fit_together_is_refused(tmp_path: Path, corridor: MDP, stores: list[Path]) -> None:
    target = tmp_path / "new"
    refused(stores[:1], target, "stores of these shards are missing, and their agents would be lost: 1/2")
    refused([stores[0], stores[0]], target, "a store is given twice")
    refused([*stores, tmp_path / "none.sqlite"], target, "none.sqlite is no file")
    refused(stores, tmp_path / "old-0", "old-0 exists; give a new folder")
    copy = tmp_path / "copy" / DATABASE
    shutil.copytree(stores[0].parent, copy.parent)
    refused([*stores, copy], target, "agent a. is in .* and in .*; which state holds is unknown")
    other = run_shards(tmp_path / "other", corridor, [None], life(corridor, 3, 60))[0]
    refused([*stores, *other], target, "its shard is 0/1; the others are of 2 shards")


def test_stores_of_different_configurations_are_refused(tmp_path: Path, corridor: MDP, stores: list[Path]) -> None:
    config = NAMED.replace("P>=0.8", "P>=0.7").replace("client_id: fleet", "client_id: fleet, alerts: other/alerts")
    with begun(tmp_path / "again", corridor, "1/2", stores[1], config):
        pass
    refused(stores, tmp_path / "new", r"written under different configurations \(formulas, topics\)")


def test_a_store_that_was_not_stopped_cleanly_or_lost_its_end_is_refused(
    tmp_path: Path, corridor: MDP, stores: list[Path]
) -> None:
    with begun(tmp_path / "again", corridor, "1/2", stores[1]) as there:
        feed(there, life(corridor, 4, 60))
        copied = tmp_path / "killed" / DATABASE
        shutil.copytree(stores[1].parent, copied.parent)
        expected = said(there)
    with pytest.raises(ConfigError, match="its monitor was not stopped cleanly; start the monitor once"):
        split_stores([stores[0], copied], 3, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with begun(tmp_path / "again", corridor, "1/2", copied) as there:
        assert said(there) == expected, "it can still be restored"
    mark = stores[1].with_name(f"{DATABASE}-mark")
    kept = mark.read_bytes()
    mark.write_bytes(b"")
    refused(stores, tmp_path / "new", "its end is missing")
    mark.write_bytes(kept)
    damaged = stores[1].read_bytes()
    stores[1].write_bytes(damaged[:100])
    refused(stores, tmp_path / "new", "start its monitor once, and stop it with SIGTERM")


def test_stores_that_do_not_fit_on_the_disk_leave_nothing(stores: list[Path], tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 5000, 20_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            refused(stores, tmp_path / "new", r"new cannot be written: .*; the old stores are as they were")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_killed_split_left_is_removed_by_the_next(stores: list[Path], tmp_path: Path) -> None:
    theirs = tmp_path / ".new.new"
    theirs.mkdir()
    _die_while(stores, tmp_path / "new")
    left = [each.name for each in tmp_path.glob(".cfmon-*")]
    assert len(left) == 1
    split_stores(stores, 2, tmp_path / "other")
    assert not list(tmp_path.glob(".cfmon-*"))
    assert theirs.is_dir()


def _die_while(stores: Sequence[Path], target: Path) -> None:
    """Split in a process that is killed before the new stores get their name."""
    child = multiprocessing.get_context("forkserver").Process(target=_killed, args=(stores, target))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    child.close()


def _killed(stores: Sequence[Path], target: Path) -> None:
    reshard._copy_files = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: SLF001 - a moment at which all databases are there
    split_stores(stores, 2, target)


def test_a_store_in_use_is_refused(tmp_path: Path, corridor: MDP, stores: list[Path]) -> None:
    with begun(tmp_path / "again", corridor, "1/2", stores[1]), pytest.raises(ConfigError, match="in use by another"):
        split_stores(stores, 3, tmp_path / "new")


def test_evidence_goes_with_its_agent_and_objects_go_everywhere(tmp_path: Path, stores: list[Path]) -> None:
    made = split_stores(stores, 3, tmp_path / "new")
    before = {file.name for store in stores for file in (store.parent / "evidence").iterdir()}
    after = [{file.name for file in (store.path.parent / "evidence").iterdir()} for store in made]
    assert set().union(*after) == before
    assert sum(map(len, after)) == len(before)
    objects = {file.name for store in stores for file in (store.parent / "objects").iterdir()}
    assert all({file.name for file in (store.path.parent / "objects").iterdir()} == objects for store in made)


def test_the_commands_say_what_they_wrote(tmp_path: Path, stores: list[Path]) -> None:
    run = CliRunner().invoke
    done = run(app, ["store", "split", *map(str, stores), "--into", "3", "--to", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    assert f"{tmp_path}/new/0-3/{DATABASE}: shard 0/3, " in done.output
    new = [str(tmp_path / "new" / f"{number}-3" / DATABASE) for number in range(3)]
    done = run(app, ["store", "merge", *new, "--to", str(tmp_path / "one"), "--json"])
    assert json.loads(done.stdout) == {
        "stores": [{"path": f"{tmp_path}/one/{DATABASE}", "shard": None, "agents": len(AGENTS)}]
    }
    with pytest.raises(ConfigError, match="--into 0: must be from 1"):
        split_stores(stores, 0, tmp_path / "none")
