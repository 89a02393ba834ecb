"""Swarms of seeds: nothing is lost, doubled or invented, whatever happens; and that this test would notice."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from cfmon_client import Alert, connection, takeover
from cfmon_client.takeover_logic import Current, Known

from monitor.sidecar import recovery
from monitor.sidecar.effects import Effects
from monitor.sidecar.health import Health
from monitor.sidecar.mqtt.connection import Connection
from monitor.sidecar.mqtt.inbox import Arrived, Dropped, Receipt
from monitor.sidecar.mqtt.keepalive import KeepAlive
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.store.alarm_history import AlarmHistory
from monitor.sidecar.store.store import Store
from monitor.sidecar.webhooks.sender import Sender
from monitor.sidecar.worker import Worker
from monitor.types import Instant, Judged
from tests.simulation.faults import FAULTS
from tests.simulation.loop import VirtualLoop
from tests.simulation.shrink import shrink
from tests.simulation.swarm import Plan, Result, run
from tests.simulation.world import World
from tests.tiers import slow

FEW = (2, 6)
MANY = range(1006, 1024)


def told(result: Result) -> str:
    """Say what failed, and how to run it again."""
    return "\n".join([result.plan.command, *result.problems])


@pytest.mark.parametrize("seed", FEW)
def test_a_few_seeds(seed: int) -> None:
    result = run(Plan(seed, 8.0))
    assert not result.problems, told(result)
    assert result.steps > 50
    assert sum(result.faults.values()) > 0


def test_one_seed_has_one_trace() -> None:
    first, second, other = (run(Plan(seed, 4.0)) for seed in (3, 3, 4))
    assert first.digest == second.digest
    assert first.digest != other.digest


@slow
def test_many_seeds() -> None:
    faults, takeovers = Counter[str](), Counter[str]()
    for seed in MANY:
        result = run(Plan(seed))
        assert not result.problems, told(result)
        faults += result.faults
        takeovers += result.takeovers
    for kind in sorted(FAULTS.keys() - faults.keys()):  # rare ones
        alone = [run(Plan(seed, 8.0, agents=8, kinds=(kind,))) for seed in MANY[:4]]
        assert not any(result.problems for result in alone), "\n".join(map(told, alone))
        assert any(result.faults[kind] for result in alone), f"{kind} never happens"
    assert takeovers.keys() >= {"alarm", "silent"}


def test_time_passes_only_where_somebody_waits() -> None:
    world = World(0)
    loop = VirtualLoop(world)
    passed: list[str] = []

    async def work() -> None:
        world.after(1.0, lambda: passed.append("event"))
        await asyncio.sleep(3600.0)
        passed.append("sleeper")

    loop.run_until_complete(work())
    loop.close()
    assert passed == ["event", "sleeper"]
    assert world.now == pytest.approx(3600.0, abs=0.01)


# ---- what the swarm finds: each is a mistake that the sidecar does not make ----


def forgets_at_reconnection(patch: pytest.MonkeyPatch) -> None:
    """What was sent and not acknowledged is not sent again."""
    patch.setattr(Outbox, "rewind", lambda _self: None)


def acknowledges_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Steps are acknowledged as soon as they are taken, and that is sent at once."""
    accept = Worker._accept  # noqa: SLF001 - that is what is broken
    acknowledge = Connection.acknowledge

    def at_once(self: Connection, receipts: Sequence[Receipt]) -> None:
        acknowledge(self, receipts)
        self._flush()

    def early(self: Worker, entry: Arrived | Dropped) -> Sequence[Receipt]:
        self.acknowledge(accept(self, entry))
        return ()

    patch.setattr(Worker, "_accept", early)
    patch.setattr(Connection, "acknowledge", at_once)


def does_not_store_messages(patch: pytest.MonkeyPatch) -> None:
    """Alerts that wait to be sent are not in the transaction of their steps."""
    commit = Store.commit
    patch.setattr(Store, "commit", lambda self, _messages=(), *rest, **more: commit(self, (), *rest, **more))


def does_not_replay(patch: pytest.MonkeyPatch) -> None:
    """After a restart, the events since the last snapshot are left out."""

    def none(_kept: object) -> Iterator[Any]:
        return iter(())

    patch.setattr(recovery, "_events", none)


def gives_up_posts(patch: pytest.MonkeyPatch) -> None:
    """A post that fails counts as delivered."""
    attempt = Sender._attempt  # noqa: SLF001 - likewise

    async def once(self: Sender, number: int) -> None:
        await attempt(self, number)

    patch.setattr(Sender, "_attempt", once)


def forgets_removals(patch: pytest.MonkeyPatch) -> None:
    """What is retained of a formula is not cleared when the formula is removed."""
    restore = Pipeline.restore

    def silent(self: Pipeline, *state: Any, **more: Any) -> Effects:  # noqa: ANN401 - passed on
        return msgspec.structs.replace(restore(self, *state, **more), publications=())

    patch.setattr(Pipeline, "restore", silent)


def never_pings(patch: pytest.MonkeyPatch) -> None:
    """A broker that is gone without a word is not missed."""
    patch.setattr(KeepAlive, "start", lambda _self: None)


def takes_the_retained_for_life(patch: pytest.MonkeyPatch) -> None:
    """A guard takes the status that a broker retains for a sign of life."""
    with_status = Known.with_status

    def fresh(self: Known, *status: Any, retained: bool = False, **more: Any) -> Known:  # noqa: ANN401, ARG001
        return with_status(self, *status, **more)

    patch.setattr(Known, "with_status", fresh)
    patch.setattr(takeover, "_document", lambda payload: {**json.loads(payload), "sent_unix": random.random()})


def counts_every_episode(patch: pytest.MonkeyPatch) -> None:
    """A guard acts on alarms of episodes that are over."""
    patch.setattr(Current, "has", lambda _self, _alert: True)


def listens_once(patch: pytest.MonkeyPatch) -> None:
    """A guard that has lost its connection waits for an hour."""
    patch.setattr(connection.Backoff, "pause", lambda _self: 3600.0)


def hands_back_never(patch: pytest.MonkeyPatch) -> None:
    """A guard notes no alert of an alarm that is over."""
    with_alert = Known.with_alert

    def deaf(self: Known, alert: Alert, **more: Any) -> Known:  # noqa: ANN401 - passed on
        return with_alert(self, alert, **more) if alert.firing else self

    patch.setattr(Known, "with_alert", deaf)


def is_always_ready(patch: pytest.MonkeyPatch) -> None:
    """`/readyz` says ok as soon as the state is restored."""
    patch.setattr(Health, "readiness", lambda self: self.starting)


def forgets_past_alarms(patch: pytest.MonkeyPatch) -> None:
    """After a restart the page does not list earlier alarms."""
    patch.setattr(AlarmHistory, "load", lambda _self, _rows: None)


def shows_what_is_next(patch: pytest.MonkeyPatch) -> None:
    """The page shows a verdict as that of the next step."""
    judged = StatusView._judged  # noqa: SLF001 - that is what is broken

    def early(self: StatusView, notice: Judged, now: Instant) -> None:
        judged(self, msgspec.structs.replace(notice, seq=notice.seq + 1), now)

    patch.setattr(StatusView, "_judged", early)


def marks_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The number of a transaction is flushed before the transaction."""
    commit = Store.commit

    def early(self: Store, *batch: Any, **more: Any) -> None:  # noqa: ANN401 - passed on
        if self._journal is not None:
            self._mark.write(self._journal.number + 1)
            self._mark.sync()
        commit(self, *batch, **more)

    patch.setattr(Store, "commit", early)


def hides_the_full_disk(patch: pytest.MonkeyPatch) -> None:
    """A store that fails does not say so."""
    fail = Store._fail  # noqa: SLF001 - likewise

    def silent(self: Store, error: Exception) -> None:
        fail(self, error)
        self.problem = ""

    patch.setattr(Store, "_fail", silent)


MISTAKES: list[tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...], str]] = [
    (forgets_at_reconnection, ("connection_lost", "network_slow"), " s: alerts to publish: "),
    (acknowledges_before_the_commit, ("killed_before_commit",), "the path was damaged (gap): "),
    (does_not_store_messages, ("killed_after_commit",), " has ["),
    (does_not_replay, ("killed",), "missing: topic=cfmon/alerts/"),
    (gives_up_posts, ("receiver_away",), " has ["),
    (forgets_removals, (), "retained, and removed: cfmon/alerts/"),
    (marks_before_the_commit, ("power_lost",), " s: the sidecar is not ready"),
    (hides_the_full_disk, ("disk_full",), "the disk is full, and the page says"),
    (is_always_ready, ("connections_refused",), "/readyz says ok, and nothing passes"),
    (forgets_past_alarms, ("restarted",), ", and the page says nothing"),
    (shows_what_is_next, (), "the page has shown the verdict "),
    (takes_the_retained_for_life, ("guard_loses_connection", "suspended"), " misses what is due: silent"),
    (counts_every_episode, ("suspended",), " acts on what is stale: alarm"),
    (listens_once, ("guard_loses_connection",), " s: guards that do not hear the monitor: "),
    (hands_back_never, (), " although all is over"),
    (never_pings, ("connection_half_open",), " s: steps at the broker: "),
]
"""Each with the kind of fault that shows it (with all kinds it takes more seeds), and what is found, word for word."""
SEEDS = range(20)


@slow
@pytest.mark.parametrize(("mistake", "kinds", "words"), MISTAKES, ids=[mistake.__name__ for mistake, *_ in MISTAKES])
def test_mistakes_are_found(mistake: Callable[[pytest.MonkeyPatch], None], kinds: tuple[str, ...], words: str) -> None:
    for seed in SEEDS:
        with pytest.MonkeyPatch.context() as patch:
            mistake(patch)
            result = run(Plan(seed, 15.0, kinds=kinds))
        assert not result.errors, "the mistake is not made as it should be"
        if any(words in problem for problem in result.problems):
            assert not run(Plan(seed, 15.0, kinds=kinds)).problems
            return
    pytest.fail(f"not found in {len(SEEDS)} seeds: {words}")


@slow
def test_a_failing_run_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    shows_what_is_next(monkeypatch)
    failed = run(Plan(FEW[0], 8.0))
    assert failed.problems
    smallest = shrink(failed).plan
    assert (smallest.kinds, smallest.agents) == ((), 1)
    assert smallest.seconds is not None
    assert smallest.seconds < 8.0
    assert run(smallest).problems
