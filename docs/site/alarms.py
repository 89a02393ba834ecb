"""Real alarms, drawn: the demo's own agents and configurations through the monitor's own route, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np

from monitor.alarm.document import Evidence, read_evidence
from monitor.cli.agent import SimulatedAgent
from monitor.cli.files import data_file
from monitor.cli.simulator import Simulator
from monitor.picture import draw, explain
from monitor.policy.session import Actor
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.types import Instant

__all__ = ["alarm", "lived"]

BEGIN = 1_795_259_760.0
"""When the agents' lives begin, in seconds since the epoch: the same in every picture."""


def alarm(scenario: str, number: int, *, steps: int) -> str:
    """The picture, as SVG, of the alarm that fires as the `number`-th within so many steps of the demo, seed 0."""
    loaded = assemble(data_file(f"config/{scenario}.yaml"))
    fired: dict[str, Evidence] = {}
    for effects in lived(loaded, steps):
        for evidence in map(read_evidence, (found.content for found in effects.evidence)):
            fired.setdefault(evidence.alert, evidence)
    asked = list(fired.values())[number - 1]
    story = explain(asked, loaded.model, loaded.tables, loaded.models)
    return draw(story, loaded.model)


def lived(loaded: Loaded, steps: int) -> Iterator[Effects]:
    """What comes out as the demo's agent lives, a tenth of a second a step."""
    world, own = np.random.default_rng(0).spawn(2)
    actor = Actor.load(loaded.config.policies["nominal"], loaded.model)
    pipeline = loaded.pipeline("sidecar-1")
    yield pipeline.step(Connected(Instant(BEGIN, 0.0), up=True))
    agent = SimulatedAgent(Simulator(loaded.model, world), actor, own, "seed0")
    for tick, step in enumerate(agent.messages(steps), start=1):
        now = Instant(BEGIN + tick / 10, tick / 10)
        message: dict[str, Any] = {**step, "time": now.wall}
        yield pipeline.step(Message(now, "agents/demo/steps", msgpack.packb(message)))
        yield pipeline.step(Evaluate(now))
