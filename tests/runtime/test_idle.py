"""Evaluations at which nothing is due have no effect; a monitor that begins anew is as a new one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.types import AlarmSpec, FormulaSpec, Instant, Notice, Observation, StreamSettings

LOST = 2


def fresh() -> Monitor:
    rows = [(0, 0, t, p) for t, p in ((0, 0.6), (1, 0.2), (LOST, 0.2))]
    rows += [(1, 0, t, 0.5) for t in (0, LOST)] + [(LOST, 0, LOST, 1.0)]
    model = MDP.from_transitions(states=3, actions=1, transitions=rows, labels={"lost": [LOST]})
    formulas = [
        FormulaSpec("steps", 'P>=0.7 [ G<=2 !"lost" ]', alarm=AlarmSpec(for_=1, keep=2)),
        FormulaSpec("seconds", 'P>=0.5 [ G<=1 !"lost" ]', every=2.0),
    ]
    settings = StreamSettings(window=8, reorder_steps=3, reorder_wait=0.5, stale_after=4.0, forget_after=30.0)
    return Monitor(model, {"nominal": [0, 0, 0]}, formulas, settings)


def stream(seed: int) -> Iterator[tuple[Observation | None, Instant]]:
    """Steps of three agents, some missing, with silences; None: only an evaluation."""
    rng = random.Random(seed)
    ticks = 0.0
    seqs = {"ada": 0, "bob": 0, "eve": 0}
    for _ in range(400):
        ticks += rng.choice((0.05, 0.3, 0.3, 1.0, 12.0)) if rng.random() < 0.3 else 0.05
        now = Instant(1000.0 + ticks, ticks)
        if rng.random() < 0.4:
            agent = rng.choice(list(seqs))
            seqs[agent] += 1 + (rng.random() < 0.1)
            yield Observation(agent, 1, seqs[agent], 0 if seqs[agent] % 3 else 1, 0, now.wall), now
        yield None, now


def state(monitor: Monitor) -> bytes:
    """All of it, as a store keeps it."""
    saved = monitor.save(everything=True)
    return msgspec.msgpack.encode((saved.common, [saved.agents[name] for name in monitor.agents()]))


def test_an_evaluation_at_which_nothing_is_due_changes_nothing_and_reports_nothing() -> None:
    idle = busy = 0
    for seed in range(5):
        monitor = fresh()
        for observation, now in stream(seed):
            if observation is not None:
                monitor.observe(observation, now)
                continue
            by_time = monitor.due is None or now.ticks >= monitor.due
            before, was_due = state(monitor), by_time or monitor.save().common.ready
            said = monitor.evaluate(now)
            if was_due:
                busy += bool(said)
            else:
                assert said == []
                assert state(monitor) == before
                idle += 1
    assert idle > 200
    assert busy > 200


def test_silent_agents_are_looked_for_four_times_before_one_is_silent() -> None:
    monitor, now = fresh(), Instant(1000.0, 10.0)
    nobody = monitor.due
    assert nobody is None
    monitor.observe(Observation("ada", 1, 0, 0, 0), now)
    monitor.evaluate(now)
    assert (monitor.due, monitor.pause) == (11.0, 1.0)
    assert (monitor.pause, monitor.patience) == (1.0, 4.0)


def test_a_monitor_that_begins_anew_reports_what_a_new_one_reports() -> None:
    def reported(monitor: Monitor) -> list[Notice]:
        found: list[Notice] = []
        for observation, now in stream(7):
            found += monitor.evaluate(now) if observation is None else monitor.observe(observation, now)
        return found

    used = fresh()
    first = reported(used)
    assert reported(used.anew()) == first
    assert used.anew().agents() == ()


def test_what_an_evaluation_spends_is_less_than_it_was_given_if_it_left_nothing() -> None:
    monitor = fresh()
    for seq in range(10):
        monitor.observe(Observation("ada", 1, seq, 0, 0), Instant(1000.0, 1.0))
    spent = []
    while monitor.waiting.steps:
        monitor.evaluate(Instant(1000.0, 1.0), steps=4)
        spent.append(monitor.spent)
    assert spent == [4, 4, 2]


def test_what_a_missing_step_held_back_is_spent_too_when_it_is_given_up() -> None:
    monitor = fresh()
    for seq in (0, 2, 3):
        monitor.observe(Observation("ada", 1, seq, 0, 0), Instant(1000.0, 1.0))
    monitor.evaluate(Instant(1000.0, 1.0))
    spent = []
    for _ in range(3):
        monitor.evaluate(Instant(1001.0, 2.0), steps=2)
        spent.append(monitor.spent)
    assert spent == [2, 1, 0], "the gap and two steps, in two evaluations"
