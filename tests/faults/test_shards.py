"""A fleet on several shards, killed, and changed from two shards to three under load: the alarms are one monitor's."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from monitor.sidecar.store.reshard import split_stores
from tests.faults.expected import Fault, Outcome, compare, replay
from tests.faults.harness import ENOUGH, LONG, RATE, Broker, Listener, Monitor, until_stepped
from tests.faults.world import AGENTS, write_world
from tests.servers import PATIENCE, end, wait_until
from tests.tiers import slow

pytestmark = slow


@dataclass
class Fleet:
    """Broker, listener, agents, and the shards that run now."""

    folder: Path
    broker: Broker
    listener: Listener
    log: Path
    agents: subprocess.Popen[str]
    shards: list[Monitor] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def shard(self, number: int, of: int, store: Path | None = None) -> Monitor:
        """Return a shard that is not started yet."""
        mqtt_section = {"url": f"mqtt://127.0.0.1:{self.broker.port}", "client_id": "fleet", "shard": f"{number}/{of}"}
        folder = self.folder / f"{number}-{of}"
        path = {"path": str(store or folder / "var" / "cfmon.sqlite")}
        return Monitor(write_world(folder, "mqtt://127.0.0.1:1", mqtt=mqtt_section, store=path))

    def start(self, stores: Sequence[Path | None]) -> None:
        """Start so many shards, and wait until they are ready."""
        self.shards = [self.shard(number, len(stores), store) for number, store in enumerate(stores)]
        for shard in self.shards:
            shard.start()
        for shard in self.shards:
            shard.until_ready(patience=5 * PATIENCE)

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Record a fault that lasts as long as the block."""
        begun = time.time()
        yield
        self.faults.append((begun, time.time()))

    def kill(self, number: int) -> None:
        with self.fault():
            self.shards[number].kill()
        self.shards[number].start()
        self.shards[number].until_ready()

    def reserve(self, shards: int) -> None:
        """Let the broker keep the steps for so many new shards, as `mosquitto_sub -c -E` does."""
        for number in range(shards):
            subscribed = threading.Event()
            client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"fleet-{number}-{shards}", clean_session=False)
            client.on_subscribe = lambda *_, done=subscribed: done.set()
            client.connect("127.0.0.1", self.broker.port)
            client.loop_start()
            client.subscribe("agents/+/steps", qos=1)
            assert subscribed.wait(PATIENCE)
            client.disconnect()
            client.loop_stop()

    def catch_up(self) -> None:
        """Return once every shard has what waited for it."""
        for shard in self.shards:
            shard.catch_up()

    def reshard(self, shards: int) -> None:
        """Follow the procedure of docs/fleets.md."""
        self.reserve(shards)
        self.catch_up()
        with self.fault():
            for shard in self.shards:
                code, _ = shard.stop()
                assert code == 0, shard.logs
        stores = [shard.config.parent / "var" / "cfmon.sqlite" for shard in self.shards]
        self.start([store.path for store in split_stores(stores, shards, self.folder / f"new-{shards}")])

    def outcome(self) -> Outcome:
        """End the agents after enough steps, and compare all alerts with those of one monitor without faults."""
        until_stepped(self.agents, self.log, ENOUGH)
        self.agents.send_signal(SIGTERM)
        printed, _ = self.agents.communicate(timeout=4 * PATIENCE)
        assert self.agents.returncode == 0, "the agents failed"
        expected = replay(write_world(self.folder / "one", "mqtt://127.0.0.1:1"), self.log, RATE)
        assert expected.steps == int(printed.split()[-1])
        wait_until(lambda: self.newest() == expected.newest, "the last steps are evaluated", patience=4 * PATIENCE)
        wait_until(lambda: not any(shard.unsent() for shard in self.shards), "all alerts are sent")
        self.listener.catch_up()
        outcome = compare(expected, self.listener.heard, self.faults, late=True)
        assert not outcome.problems, "\n".join(outcome.problems[:20])
        assert not any(lost := [shard.lost() for shard in self.shards]), lost
        assert outcome.alerts > 50, "too few alerts for a test"
        return outcome

    def newest(self) -> dict[tuple[str, str], tuple[int, float]]:
        """Return what the status pages of all shards show."""
        return {key: verdict for shard in self.shards for key, verdict in shard.newest().items()}


@contextmanager
def fleet(folder: Path, shards: int) -> Iterator[Fleet]:
    with ExitStack() as stack:
        broker = Broker(folder / "broker", saves="each second")
        broker.start()
        stack.callback(broker.remove)
        listener = Listener(broker.port)
        stack.callback(listener.write, folder / "heard.txt")
        stack.callback(listener.stop)
        log = folder / "steps.log"
        command = [sys.executable, "-m", "tests.faults.publisher", str(broker.port), str(log), str(RATE), "1"]
        made = Fleet(folder, broker, listener, log, None)  # type: ignore[arg-type] # they start when the shards are ready
        stack.callback(lambda: [end(shard.running.process) for shard in made.shards])
        made.start([None] * shards)
        made.agents = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(end, made.agents)
        wait_until(lambda: len(made.newest()) > AGENTS, "the first steps are evaluated")
        yield made


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_killed_shards_publish_the_alarms_of_one_monitor(
    tmp_path: Path, shards: int, report: Callable[..., None]
) -> None:
    with fleet(tmp_path, shards) as running:
        for number in [*range(shards)] * (3 if LONG else 1):
            running.kill(number)
        outcome = running.outcome()
    report(shards=shards, kills=len(running.faults), **outcome.figures())


def test_two_shards_become_three_under_load_and_no_alarm_is_missing_or_new(
    tmp_path: Path, report: Callable[..., None]
) -> None:
    with fleet(tmp_path, 2) as running:
        running.kill(0)
        running.reshard(3)
        running.kill(1)
        running.catch_up()
        outcome = running.outcome()
        agents = [len({agent for agent, _ in shard.newest()}) for shard in running.shards]
    report(agents_of_each_shard=agents, **outcome.figures())
