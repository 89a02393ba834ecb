"""Pictures of real alarms: the demo's agents and configurations run through the pipeline, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack

from monitor.cli.input_files import data_file
from monitor.demo.agent import SimulatedAgent
from monitor.evidence.document import Evidence, read_evidence
from monitor.picture.alarm_picture import draw_alarm
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.types import Instant

__all__ = ["alarm", "simulated"]

BEGIN = 1_795_259_760.0
"""Time of the agents' first step, in seconds since the epoch: the same in every picture."""


def alarm(scenario: str, number: int, *, steps: int) -> str:
    """Return the SVG picture of the `number`-th alarm within `steps` steps of the demo, seed 0."""
    loaded = assemble(data_file(f"config/{scenario}.yaml"))
    fired: dict[str, Evidence] = {}
    for effects in simulated(loaded, steps):
        for found in map(read_evidence, (file.content for file in effects.evidence)):
            fired.setdefault(found.alert, found)
    evidence = list(fired.values())[number - 1]
    picture, _ = draw_alarm(evidence, loaded.model, loaded.tables, loaded.models)
    return picture


def simulated(loaded: Loaded, steps: int) -> Iterator[Effects]:
    """Yield the effects of each event while the demo's agent runs, with a tenth of a second between steps."""
    pipeline = loaded.pipeline("sidecar-1")
    yield pipeline.step(Connected(Instant(BEGIN, 0.0), up=True))
    agent = SimulatedAgent.of(loaded.model, loaded.config.policies["nominal"], 0)
    for tick, step in enumerate(agent.messages(steps), start=1):
        now = Instant(BEGIN + tick / 10, tick / 10)
        message: dict[str, Any] = {**step, "time": now.wall}
        yield pipeline.step(Message(now, "agents/demo/steps", msgpack.packb(message)))
        yield pipeline.step(Evaluate(now))
