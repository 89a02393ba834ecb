"""The wall clock is set by an hour while agents act: durations are monotonic, so no answer and no alarm changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Evaluate, Heartbeat, Message
from monitor.types import Blind, Instant
from tests.faults.expected import Expected
from tests.faults.harness import RATE
from tests.faults.world import agent_steps, write_world

STEPS = 2000
EPOCH = 1.7e9
HOUR = 3600.0


def told(config: Path, jump: float) -> tuple[list[dict[str, Any]], list[Blind]]:
    """All alerts, and what went blind, where our clock is set by `jump` seconds half-way; that of the agents is not."""
    pipeline, steps = assemble(config, {}).pipeline("monitor"), agent_steps(1)
    found, blind = Expected(), []
    for n in range(STEPS):
        ticks = n / RATE
        now = Instant(EPOCH + ticks + (jump if n >= STEPS // 2 else 0.0), ticks)
        agent, step = next(steps)
        payload = msgpack.packb({**step, "time": EPOCH + ticks})
        pipeline.step(Message(now, f"agents/{agent}/steps", payload))
        effects = pipeline.step(Evaluate(now))
        found.take(effects)
        blind += [notice for notice in effects.notices if isinstance(notice, Blind)]
        if n % RATE == 0:
            pipeline.step(Heartbeat(now))
    return found.alerts, blind


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A configuration, and all alerts where no clock is set."""
    config = write_world(tmp_path_factory.mktemp("world"), "mqtt://127.0.0.1:1")
    return config, told(config, 0.0)[0]


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_jump_changes_nothing_but_when_it_was_sent(
    undisturbed: tuple[Path, list[dict[str, Any]]], jump: float, report: Callable[..., None]
) -> None:
    config, steady = undisturbed
    jumped, blind = told(config, jump)
    moments = dict.fromkeys(("sent", "sent_unix", "late"))
    without = [[{**alert, **moments} for alert in alerts] for alerts in (steady, jumped)]
    assert without[0] == without[1]
    assert not blind
    assert len(steady) > 100
    assert not any(alert["late"] for alert in steady)
    # Against our clock the agents' steps are an hour old now, and alerts say so.
    assert any(alert["late"] for alert in jumped) == (jump > 0)
    report(steps=STEPS, alerts=len(steady))
