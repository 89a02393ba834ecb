"""A monitor of one shard: what it takes, what it leaves to the others, and how it is told apart from them."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import msgpack
import pytest

from monitor.errors import ConfigError
from monitor.model import MDP
from monitor.sidecar import worker as worker_module
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.service import make_client_id
from monitor.stream.shard import shard_of
from tests.sidecar.by_hand import ByHand, by_hand, stopped_time
from tests.sidecar.conftest import RASH
from tests.sidecar.project import CONFIG, write_project

AGENTS = [f"robot-{n}" for n in range(12)]


def configured(mqtt: str) -> str:
    """The configuration of the project, with these settings of `mqtt` added."""
    return CONFIG.replace('"mqtt://127.0.0.1:1"}', f'"mqtt://127.0.0.1:1", {mqtt}}}')


NAMED = configured("client_id: fleet")


def environment(shard: str | None) -> dict[str, str]:
    return {} if shard is None else {"CFMON_MQTT__SHARD": shard}


def monitor_of(folder: Path, model: MDP, shard: str | None, config: str = NAMED) -> AbstractContextManager[ByHand]:
    return by_hand(write_project(folder, model, config), environment(shard))


STEP: bytes = msgpack.packb({"v": 1, "episode": 0, "seq": 0, "state": 0, "action": RASH})
MINE = [name for name in AGENTS if shard_of(name, 2) == 0]
OTHERS = [name for name in AGENTS if shard_of(name, 2) == 1]
"""Those of the first of two shards, and of the second."""


def test_every_agent_is_monitored_by_one_of_three_shards(tmp_path: Path, corridor: MDP) -> None:
    with ExitStack() as stack:
        shards = [
            stack.enter_context(monitor_of(tmp_path / str(number), corridor, f"{number}/3")) for number in range(3)
        ]
        for shard in shards:
            for agent in AGENTS:
                shard.put(STEP, agent=agent)
            shard.worker.turn()
        found = [shard.worker.pipeline.agents() for shard in shards]
        assert found == [tuple(name for name in AGENTS if shard_of(name, 3) == number) for number in range(3)]
        assert all(found)
        taken = sum(shard.metric('cfmon_messages_total{result="accepted"}') or 0 for shard in shards)
        left = sum(shard.metric("cfmon_messages_of_other_shards_total") or 0 for shard in shards)
        assert (taken, left) == (len(AGENTS), 2 * len(AGENTS))


def test_a_message_of_another_shard_is_acknowledged_in_its_turn_and_leaves_no_trace(
    tmp_path: Path, corridor: MDP
) -> None:
    with monitor_of(tmp_path, corridor, "0/2") as there:
        for number, agent in enumerate(AGENTS):
            there.put(STEP, agent=agent, number=number)
        there.worker.turn()
        assert there.acknowledged == list(range(len(AGENTS)))
        assert there.worker.pipeline.agents() == tuple(MINE)
        stored = log_of(tmp_path)
        assert not any(f"agents/{name}/steps".encode() in stored for name in OTHERS)
        assert all(f"agents/{name}/steps".encode() in stored for name in MINE)


def log_of(folder: Path) -> bytes:
    """What has been written to the store since it was opened."""
    return (folder / "var" / "cfmon.sqlite-wal").read_bytes()


def test_messages_of_other_shards_cost_no_write_to_the_store_and_few_evaluations(tmp_path: Path, corridor: MDP) -> None:
    with stopped_time() as time, monitor_of(tmp_path, corridor, "0/2") as there:
        before = log_of(tmp_path), there.worker.evaluated
        for _ in range(100):
            time.advance(worker_module.EVALUATION_PAUSE / 200)
            there.hear(STEP, agent=OTHERS[0])
        assert (log_of(tmp_path), there.worker.evaluated) == before
        time.advance(worker_module.EVALUATION_PAUSE)
        there.hear(STEP, agent=OTHERS[0])
        assert there.worker.evaluated == time.instant, "time passes nevertheless"


def test_what_is_lost_of_another_shards_agent_is_nobodys_gap_here(tmp_path: Path, corridor: MDP) -> None:
    with monitor_of(tmp_path, corridor, "0/2", NAMED + "limits: {queue: 2}\n") as there:
        for number, agent in enumerate((MINE[0], MINE[1], OTHERS[0])):
            there.put(STEP, agent=agent, number=number)
        there.worker.turn()
        there.worker.turn()
        assert there.acknowledged == [0, 1, 2]
        assert there.metric('cfmon_messages_total{result="dropped"}') == 0
        for number, agent in enumerate((MINE[0], MINE[1], MINE[2])):
            there.put(STEP, agent=agent, number=number)
        there.worker.turn()
        there.worker.turn()
        assert there.metric('cfmon_messages_total{result="dropped"}') == 1, "of its own"


@pytest.mark.parametrize(("shard", "reports"), [("0/2", 1.0), ("1/2", 0.0)])
def test_one_shard_reports_the_topics_that_name_no_agent(
    tmp_path: Path, corridor: MDP, shard: str, reports: float
) -> None:
    with monitor_of(tmp_path, corridor, shard) as there:
        there.hear(b"{}", agent="no name")
        assert there.metric('cfmon_rejected_total{reason="bad_agent"}') == reports


def status(there: ByHand) -> tuple[str, Any]:
    """Where it publishes its status once it has reached the broker, and which shard it says it is."""
    there.worker.connected(True)  # noqa: FBT003 - as the link calls it
    [message] = there.sent()
    return message.topic, json.loads(message.payload)["shard"]


def test_shards_have_names_of_their_own_and_say_which_they_are(tmp_path: Path, corridor: MDP) -> None:
    with stopped_time(), monitor_of(tmp_path, corridor, "2/3") as there:
        assert there.service.client_id == "fleet-2-3"
        assert there.service.health.status()["shard"] == "2/3"
        assert there.metric('cfmon_shards{fleet="fleet",shard="2/3"}') == 3.0
        assert status(there) == ("cfmon/status/fleet-2-3", "2/3")


def test_without_a_shard_nothing_says_that_there_is_one(tmp_path: Path, corridor: MDP) -> None:
    with stopped_time(), monitor_of(tmp_path, corridor, None) as there:
        assert there.service.client_id == "fleet"
        assert "cfmon_shards{" not in there.service.sinks.metrics.exposition().decode()
        assert status(there) == ("cfmon/status/fleet", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client_id: fleet, shard: 8/8", r"line \d+, mqtt.shard: shards are numbered from 0"),
        ("client_id: fleet, shard: 3", r"mqtt.shard: must be a text such as 3/8"),
        ("shard: 3/8", r"mqtt: shard needs client_id, the same for all shards"),
    ],
)
def test_a_shard_that_cannot_be_is_refused_with_its_place(tmp_path: Path, corridor: MDP, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(write_project(tmp_path, corridor, configured(text)), {})


def test_the_environment_says_which_shard_it_is(tmp_path: Path, corridor: MDP) -> None:
    config = write_project(tmp_path, corridor, NAMED)
    assert make_client_id(assemble(load_config(config, environment("1/4")))) == "fleet-1-4"


# ---- a store belongs to one shard ----


def lived(there: ByHand) -> None:
    """Let it take a step of every agent, and keep the state."""
    for agent in AGENTS:
        there.put(STEP, agent=agent)
    there.worker.turn()
    there.worker.keep_everything()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (None, "0/2", "that of a monitor of all agents, and this is shard 0/2"),
        ("0/2", "0/3", "that of shard 0/2, and this is shard 0/3"),
        ("0/2", None, "that of shard 0/2, and this is a monitor of all agents"),
    ],
)
def test_the_store_of_other_agents_is_refused_and_left_as_it_is(
    tmp_path: Path, corridor: MDP, before: str | None, after: str | None, words: str
) -> None:
    with monitor_of(tmp_path, corridor, before) as there:
        lived(there)
        agents = there.worker.pipeline.agents()
    for _ in range(2):  # the first refusal does not keep it locked
        with pytest.raises(ConfigError, match=f"mqtt.shard: the store is {words}; move the agents with `cfmon store"):
            monitor_of(tmp_path, corridor, after).__enter__()
    with monitor_of(tmp_path, corridor, before) as there:
        assert there.service.store is not None
        assert set(there.service.store.kept.agents) == set(agents)


def test_an_empty_store_takes_any_shard(tmp_path: Path, corridor: MDP) -> None:
    with monitor_of(tmp_path, corridor, "0/2") as there:
        there.worker.keep_everything()
    with monitor_of(tmp_path, corridor, "1/3") as there:
        assert there.service.client_id == "fleet-1-3"
