"""A monitor of one shard: what it takes, what it leaves to the others, and how it is told apart from them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgpack
import pytest

from monitor.errors import ConfigError
from monitor.model import MDP
from monitor.sidecar import worker as worker_module
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.mqtt.inbox import Arrived, Receipt
from monitor.sidecar.service import Service, make_client_id
from monitor.stream.shard import shard_of
from monitor.types import Instant
from tests.sidecar.conftest import RASH
from tests.sidecar.project import CONFIG, write_project

AGENTS = [f"robot-{n}" for n in range(12)]


def configured(mqtt: str) -> str:
    """The configuration of the project, with these settings of `mqtt` added."""
    return CONFIG.replace('"mqtt://127.0.0.1:1"}', f'"mqtt://127.0.0.1:1", {mqtt}}}')


NAMED = configured("client_id: fleet")


def environment(shard: str | None) -> dict[str, str]:
    return {} if shard is None else {"CFMON_MQTT__SHARD": shard}


@contextmanager
def monitor_of(folder: Path, model: MDP, shard: str | None) -> Iterator[Service]:
    service = Service(assemble(load_config(write_project(folder, model, NAMED), environment(shard))))
    try:
        yield service
    finally:
        service.close()


def arrived(agent: str, seq: int = 0, *, number: int = 1) -> Arrived:
    step = {"v": 1, "episode": 0, "seq": seq, "state": 0, "action": RASH}
    topic = f"agents/{agent}/steps"
    return Arrived(Instant(1000.0, time.monotonic()), topic, msgpack.packb(step), Receipt(1, number))


def count(service: Service, series: str) -> float:
    lines = service.sinks.metrics.exposition().decode().splitlines()
    [line] = [line for line in lines if line.startswith(f"{series} ")]
    return float(line.split()[-1])


def test_every_agent_is_monitored_by_one_of_three_shards(tmp_path: Path, corridor: MDP) -> None:
    with ExitStack() as stack:
        shards = [
            stack.enter_context(monitor_of(tmp_path / str(number), corridor, f"{number}/3")) for number in range(3)
        ]
        for shard in shards:
            for agent in AGENTS:
                shard.inbox.put(arrived(agent))
            shard.worker.turn()
        found = [shard.worker.pipeline.agents() for shard in shards]
        assert found == [tuple(name for name in AGENTS if shard_of(name, 3) == number) for number in range(3)]
        assert all(found)
        taken = sum(count(shard, 'cfmon_messages_total{result="accepted"}') for shard in shards)
        left = sum(count(shard, "cfmon_messages_of_other_shards_total") for shard in shards)
        assert (taken, left) == (len(AGENTS), 2 * len(AGENTS))


def test_a_message_of_another_shard_is_acknowledged_in_its_turn_and_leaves_no_trace(
    tmp_path: Path, corridor: MDP
) -> None:
    with monitor_of(tmp_path, corridor, "0/2") as service:
        acknowledged: list[int] = []
        service.worker.acknowledge = lambda receipts: acknowledged.extend(r.message_id for r in receipts)
        mine = [name for name in AGENTS if shard_of(name, 2) == 0]
        for number, agent in enumerate(AGENTS):
            service.inbox.put(arrived(agent, number=number))
        service.worker.turn()
        assert acknowledged == list(range(len(AGENTS)))
        assert service.worker.pipeline.agents() == tuple(mine)
        assert service.store is not None
        stored = (tmp_path / "var" / "cfmon.sqlite-wal").read_bytes()
        assert not any(f"agents/{name}/steps".encode() in stored for name in set(AGENTS) - set(mine))
        assert all(f"agents/{name}/steps".encode() in stored for name in mine)


def test_messages_of_other_shards_cost_no_write_to_the_store_and_few_evaluations(
    tmp_path: Path, corridor: MDP, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "EVALUATION_PAUSE", 3600.0)
    with monitor_of(tmp_path, corridor, "0/2") as service:
        assert service.store is not None
        assert service.store._journal is not None
        other = next(name for name in AGENTS if shard_of(name, 2) == 1)
        before = service.store._journal.number, service.worker.evaluated
        for _ in range(100):
            service.inbox.put(arrived(other))
            service.worker.turn()
        assert (service.store._journal.number, service.worker.evaluated) == before
        monkeypatch.setattr(worker_module, "EVALUATION_PAUSE", 0.0)
        service.inbox.put(arrived(other))
        service.worker.turn()
        assert service.worker.evaluated != before[1], "time passes nevertheless"


def test_what_is_lost_of_another_shards_agent_is_nobodys_gap_here(tmp_path: Path, corridor: MDP) -> None:
    with monitor_of(tmp_path, corridor, "0/2") as service:
        other = next(name for name in AGENTS if shard_of(name, 2) == 1)
        service.inbox._dropping = service.inbox._was_full = True
        service.inbox.put(arrived(other, number=7))
        acknowledged: list[int] = []
        service.worker.acknowledge = lambda receipts: acknowledged.extend(r.message_id for r in receipts)
        service.worker.turn()
        assert acknowledged == [7]
        assert count(service, 'cfmon_messages_total{result="dropped"}') == 0.0


@pytest.mark.parametrize(("shard", "reports"), [("0/2", 1.0), ("1/2", 0.0)])
def test_one_shard_reports_the_topics_that_name_no_agent(
    tmp_path: Path, corridor: MDP, shard: str, reports: float
) -> None:
    with monitor_of(tmp_path, corridor, shard) as service:
        service.inbox.put(Arrived(Instant(1000.0, time.monotonic()), "agents/no name/steps", b"{}", None))
        service.worker.turn()
        assert count(service, 'cfmon_rejected_total{reason="bad_agent"}') == reports


def test_shards_have_names_of_their_own_and_say_which_they_are(tmp_path: Path, corridor: MDP) -> None:
    with monitor_of(tmp_path, corridor, "2/3") as service:
        assert service.client_id == "fleet-2-3"
        assert service._link._session.status_topic == "cfmon/status/fleet-2-3"
        assert service.health.status()["shard"] == "2/3"
        status = service.worker.pipeline._status(Instant(0.0, 0.0))
        assert json.loads(status.payload)["shard"] == "2/3"
        assert count(service, 'cfmon_shards{fleet="fleet",shard="2/3"}') == 3.0


def test_without_a_shard_nothing_says_that_there_is_one(tmp_path: Path, corridor: MDP) -> None:
    with monitor_of(tmp_path, corridor, None) as service:
        assert service.client_id == "fleet"
        assert "cfmon_shards{" not in service.sinks.metrics.exposition().decode()
        assert json.loads(service.worker.pipeline._status(Instant(0.0, 0.0)).payload)["shard"] is None


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


def lived(service: Service) -> None:
    """Let it take a step of every agent, and keep the state."""
    for agent in AGENTS:
        service.inbox.put(arrived(agent))
    service.worker.turn()
    service.worker.keep_everything()


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
    with monitor_of(tmp_path, corridor, before) as service:
        lived(service)
        agents = service.worker.pipeline.agents()
    for _ in range(2):  # the first refusal does not keep it locked
        with pytest.raises(ConfigError, match=f"mqtt.shard: the store is {words}; move the agents with `cfmon store"):
            monitor_of(tmp_path, corridor, after).__enter__()
    with monitor_of(tmp_path, corridor, before) as service:
        assert service.store is not None
        assert set(service.store.kept.agents) == set(agents)


def test_an_empty_store_takes_any_shard(tmp_path: Path, corridor: MDP) -> None:
    with monitor_of(tmp_path, corridor, "0/2") as service:
        service.worker.keep_everything()
    with monitor_of(tmp_path, corridor, "1/3") as service:
        assert service.client_id == "fleet-1-3"
