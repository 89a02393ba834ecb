"""Ten million messages through all of the sidecar but its sockets: `python -m tests.faults.soak --messages 10_000_000`.

Worker, pipeline, store on disk, metrics, status view and outbox are those of the service; only broker and clock are
simulated: each step of an agent takes a second. Agents appear and fall silent, episodes end, alarms fire, and messages
are malformed, missing, duplicated, late or contradictory. The memory of the process must not grow.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgpack

from monitor.model import MDP
from monitor.sidecar.clock import Clock
from monitor.sidecar.config.load import assemble
from monitor.sidecar.gc_tuning import collector_at_ease
from monitor.sidecar.mqtt.inbox import (
    Arrived,
    Dropped,
    Inbox,
    Receipt,
)
from monitor.sidecar.outbox import Numbers, Outbox
from monitor.sidecar.outboxes import Outboxes
from monitor.sidecar.recovery import setting_of
from monitor.sidecar.sinks.sinks import Sinks
from monitor.sidecar.store.store import Store
from monitor.sidecar.webhooks.webhooks import Webhooks
from monitor.sidecar.worker import Worker
from monitor.types import Instant
from tests.sidecar.project import CONFIG, write_project

__all__ = ["Soak", "Traffic", "corridor", "settings"]

RASH, CAREFUL, LOST, HOME = 0, 1, 4, 5
ACTIVE: Final = 100
"""Number of agents that send at a time; about as many again are silent and not yet forgotten."""

ROUND: Final = 64
"""Messages between two cycles of the worker."""

DAILY: Final = 100_000
"""Messages between two clean-ups of evidence on disk, and between two disconnections."""

SETTINGS: Final = """\
stream: {stale_after: 20s, forget_after: 60s, max_lag: 1h}
limits: {agents: 400, deadline: 1s}
store: {path: var/cfmon.sqlite, size: 2MB}
heartbeat: 10s
"""


class PlayedClock(Clock):
    """Simulated clock, advanced by the traffic."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def stop(self) -> None:
        """Do nothing: disconnections are short."""

    def go(self) -> None:
        """Do nothing: the clock never stops."""

    def __call__(self) -> Instant:
        return Instant(1.7e9 + self.seconds, self.seconds)


@dataclass
class Sender:
    """Agent with its episode, its state, and the number of episodes left."""

    name: str
    episodes: int
    rash: bool
    number: int = 0
    seq: int = 0
    state: int = 0
    late: bytes | None = None


@dataclass
class Traffic:
    """Traffic of a fleet of agents. `count`: number of events by kind."""

    rng: random.Random
    count: Counter[str] = field(default_factory=Counter)

    def messages(self) -> Iterator[tuple[str, bytes]]:
        senders = [self._sender() for _ in range(ACTIVE)]
        while True:
            for at, sender in enumerate(senders):
                for payload in self._spoil(sender, self._step(sender)):
                    yield f"agents/{sender.name}/steps", payload
                if sender.episodes == 0:
                    senders[at] = self._sender()
            if self.rng.random() < 0.1:
                self.count["nobody"] += 1
                yield self.rng.choice(("agents/a b/steps", "agents/steps", "agents/é/steps")), b"{}"

    def _sender(self) -> Sender:
        self.count["agents"] += 1
        return Sender(f"agent-{self.count['agents']}", 1 + self.rng.randrange(15), rash=self.rng.random() < 0.03)

    def _step(self, sender: Sender) -> dict[str, Any]:
        """Return one step in the corridor; careful agents stay or get home, rash ones move on or are lost."""
        action = RASH if sender.rash and self.rng.random() < 0.5 else CAREFUL
        over = sender.state >= LOST or sender.seq >= 200
        sent = {
            "v": 1,
            "episode": sender.number,
            "seq": sender.seq,
            "state": sender.state,
            "action": action,
            **({"terminated": True} if sender.state >= LOST else {"truncated": True} if over else {}),
        }
        if over:
            self.count["episodes"] += 1
            sender.number, sender.seq, sender.state = sender.number + 1, 0, 0
            sender.episodes -= 1
        else:
            sender.seq += 1
            if action == RASH:
                sender.state = LOST if self.rng.random() < 0.5 else min(sender.state + 1, 3)
            elif self.rng.random() < 0.02:
                sender.state = HOME
        return sent

    def _spoil(self, sender: Sender, sent: dict[str, Any]) -> Iterator[bytes]:
        """Yield the step as it arrives: usually once and intact."""
        payload = bytes(msgpack.packb(sent))
        late, sender.late = sender.late, None
        match self.rng.randrange(10_000):
            case n if n < 10:
                self.count["gaps"] += 1
            case 10 | 11:
                self.count["conflicts"] += 1
                yield from (payload, bytes(msgpack.packb({**sent, "state": (sent["state"] + 1) % 4})))
            case n if n < 30:
                self.count["doubled"] += 1
                yield from (payload, payload)
            case n if n < 50:
                self.count["late"] += 1
                sender.late = payload
            case n if n < 70:
                self.count["malformed"] += 1
                yield from (payload, payload[: self.rng.randrange(len(payload))])
            case 70:
                self.count["unknown"] += 1
                yield from (payload, json.dumps({**sent, "seq": sent["seq"] + 1, "state": "nowhere"}).encode())
            case _:
                yield payload
        if late is not None:
            yield late


class Soak:
    """Parts of the service, connected as in `Service`, on a project in `folder`."""

    def __init__(self, folder: Path, *, seed: int = 1) -> None:
        self.loaded = assemble(write_project(folder, corridor(), settings()), {})
        config = self.loaded.config
        assert config.store.path is not None
        self.clock, self.inbox, self.outbox = PlayedClock(), Inbox(config.limits.queue), Outbox()
        self.store = Store(config.store.path)
        self.store.keep_objects(self.loaded.objects)
        self.sinks = Sinks(self.loaded.watched)
        self.worker = Worker(
            self.loaded.pipeline("soak"),
            config=config,
            clock=self.clock,
            inbox=self.inbox,
            outbox=Outboxes(self.outbox, Webhooks({}, "soak", Numbers())),
            sinks=self.sinks,
            store=self.store,
            setting=lambda ticks: setting_of(self.loaded, "soak", ticks),
        )
        self.acknowledged = self.sent = 0
        self.worker.acknowledge = self._acknowledge
        self.traffic = Traffic(random.Random(seed))
        self.messages = 0
        self._coming = self.traffic.messages()
        self._beaten = self._looked = 0.0
        self.worker.keep_everything()

    async def run(self, messages: int) -> None:
        """Process this number of further messages."""
        until = self.messages + messages
        if not self.messages:
            self.worker.connected(True)  # noqa: FBT003 - the one thing there is to say
        while self.messages < until:
            await self._round()
            if self.messages // DAILY != (self.messages - ROUND) // DAILY:
                await self._day()
            elif self.clock.seconds - self._beaten > 10.0:
                await self._beat()

    async def _round(self) -> None:
        for _ in range(ROUND):
            topic, payload = next(self._coming)
            self.messages += 1
            self.clock.seconds += 1.0 / ACTIVE
            receipt = Receipt(1, self.messages % 65535 + 1)
            if self.traffic.rng.random() < 1e-4:
                self.traffic.count["dropped"] += 1
                dropped = Dropped(self.clock(), topic, [receipt], 1)
                self.inbox._entries.append(dropped)  # noqa: SLF001 - as if it had been full; that takes 100,000 messages
            else:
                self.inbox.put(Arrived(self.clock(), topic, payload, receipt))
        self.worker.turn()
        await self._broker()

    async def _beat(self) -> None:
        self._beaten = self.clock.seconds
        self.worker.beat()
        await self.worker.tidy()
        await self._broker()
        if self.clock.seconds - self._looked > 60.0:  # Prometheus and a person, once a minute
            self._looked = self.clock.seconds
            self.traffic.count["scrapes"] += 1
            assert b"cfmon_messages_total" in self.sinks.metrics.exposition()
            json.dumps([self.sinks.view.agents(), self.sinks.view.alarms()], allow_nan=False)

    async def _day(self) -> None:
        """Disconnect and reconnect; remove old evidence."""
        self.traffic.count["disconnections"] += 1
        for up in (False, True):
            self.worker.connected(up)
        store = self.loaded.config.store
        await self.store.prune(keep=store.keep, size=store.size)

    async def _broker(self) -> None:
        """Take all messages, as the broker."""
        while len(self.outbox):
            number, _ = await self.outbox.take()
            self.sent += 1
            self.outbox.done(number)

    def _acknowledge(self, receipts: Sequence[Receipt]) -> None:
        self.acknowledged += len(receipts)

    def figures(self) -> dict[str, Any]:
        """Return current figures. Sizes in MiB; `objects`: objects tracked by Python's garbage collector."""
        place = self.loaded.config.store.path
        assert place is not None
        files = [file.stat().st_size for file in place.parent.rglob("*") if file.is_file()]
        return {
            "messages": self.messages,
            "resident": round(_resident(), 2),
            "objects": len(gc.get_objects()),
            "agents_known": len(self.loaded.monitor.agents()),
            "disk": round(sum(files) / 2**20, 2),
            "published": self.sent,
            "waiting": len(self.outbox),
        }


def corridor() -> MDP:
    """Return the model: states 0..3 in a row, 4 lost, 5 home."""
    rows = [(s, RASH, min(s + 1, 3), 0.5) for s in range(4)] + [(s, RASH, LOST, 0.5) for s in range(4)]
    rows += [(s, CAREFUL, s, 0.98) for s in range(4)] + [(s, CAREFUL, HOME, 0.02) for s in range(4)]
    rows += [(s, a, s, 1.0) for s in (LOST, HOME) for a in (RASH, CAREFUL)]
    return MDP.from_transitions(states=6, actions=2, transitions=rows, labels={"lost": [LOST], "home": [HOME]})


def settings() -> str:
    kept = [line for line in CONFIG.splitlines() if line.split(":")[0] not in ("heartbeat", "store")]
    return "\n".join([*kept, SETTINGS])


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


async def _soak(soak: Soak, messages: int, piece: int) -> dict[str, Any]:
    began, series = time.perf_counter(), []
    while soak.messages < messages:
        await soak.run(min(piece, messages - soak.messages))
        gc.collect()
        series.append(soak.figures())
        print(json.dumps(series[-1]), flush=True)  # noqa: T201 - what this command is for
    warm = next((f for f in series if f["messages"] >= 1_000_000), series[0])
    seconds = time.perf_counter() - began
    assert soak.acknowledged == soak.messages, "every message is acknowledged once"
    return {
        "messages": soak.messages,
        "seconds": round(seconds, 1),
        "messages_per_second": round(soak.messages / seconds),
        "done": dict(soak.traffic.count),
        "resident_after_first_million": warm["resident"],
        "resident_at_end": series[-1]["resident"],
        "growth_percent": round(
            100 * (max(f["resident"] for f in series[series.index(warm) :]) / warm["resident"] - 1), 2
        ),
        "series": series,
    }


def main() -> None:
    """Run the soak, print and write the result; fail if memory grows by 5 % after the first million messages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=Path("var/soak.json"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cfmon-soak-") as folder, collector_at_ease():
        soak = Soak(Path(folder))
        with closing(soak.store):
            result = asyncio.run(_soak(soak, chosen.messages, max(1, min(500_000, chosen.messages // 10))))
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "series"}))  # noqa: T201 - likewise
    if result["growth_percent"] >= 5.0:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
