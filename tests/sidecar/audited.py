"""A recording of several agents over several days, and what one process publishes for it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from monitor.audit.partition import alert_line
from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.parquet_recorder import ParquetRecorder
from monitor.sidecar.recording import Header
from monitor.types import Instant
from tests.sidecar.project import write_project

__all__ = ["CONFIG", "DAY", "FORMULAS", "START", "events", "recorded", "replayed", "world"]

START, DAY = 1_790_000_000.0, 86_400.0
LOST, HOME = 4, 5
FORMULAS = """\
  - name: watch
    formula: 'regret(careful@2, P>=0.8 [ G<=3 !"lost" ])'
    alarm: {for: 1, keep: 2}
  - name: safe
    formula: 'P>=0.6 [ G<=1 !"lost" ]'
    alarm: {for: 2, keep: 1}
"""
CONFIG = """\
mqtt: {url: "mqtt://127.0.0.1:1"}
model: model.npz
policies: {nominal: rash.yaml, careful: careful.yaml}
path: {window: 8, reorder: {steps: 16, wait: 200ms}}
stream: {stale_after: 5s, idle_after: 60s, forget_after: 1d}
store: {path: var/cfmon.sqlite}
formulas:
"""


def world(folder: Path, formulas: str = FORMULAS, more: str = "") -> Path:
    """Write a project; return its configuration. States 0..3 in a row, 4 lost, 5 home."""
    rows = [(s, 0, t, p) for s in range(4) for t, p in ((min(s + 1, 3), 0.5), (LOST, 0.5))]
    rows += [(s, 1, t, p) for s in range(4) for t, p in ((s, 0.9), (HOME, 0.1))]
    rows += [(s, a, s, 1.0) for s in (LOST, HOME) for a in (0, 1)]
    model = MDP.from_transitions(states=6, actions=2, transitions=rows, labels={"lost": [LOST], "home": [HOME]})
    return write_project(folder, model, CONFIG + formulas + more)


def events(
    steps: int = 400, agents: int = 12, seed: int = 1, *, batch: int = 1, budget: int = 1000, taking_over: str = ""
) -> list[Event]:
    """Steps of agents over three days, with everything that goes wrong on the way.

    `taking_over`: sha256 of the policy `careful`, which takes over in every third episode then.
    """
    rng = random.Random(seed)
    states, episodes, seqs = [0] * agents, [0] * agents, [0] * agents
    found: list[Event] = [Connected(Instant(START, 0.0), up=True)]
    pause = 3 * DAY / steps
    for n in range(steps * agents):
        agent = n % agents
        ticks = n // agents * pause + agent * 0.01
        now = Instant(START + ticks, ticks)
        state, topic = states[agent], f"agents/a{agent}/steps"
        action = 0 if rng.random() < 0.8 or state == HOME else 1
        taken = bool(taking_over) and episodes[agent] % 3 == 0 and seqs[agent] > 0
        action = 1 if taken else action
        ended = state >= LOST and rng.random() < 0.5
        step = {"v": 1, "episode": f"e{episodes[agent]}", "seq": seqs[agent], "state": state, "time": now.wall}
        step |= {"terminated": True} if ended else {"action": action}
        step |= {"policy": taking_over} if taken else {}
        luck = rng.random()
        message = Message(now, topic, msgspec.msgpack.encode(step) if agent % 3 else json.dumps(step).encode())
        if luck > 0.03:
            found.append(message)
        if luck > 0.98:
            found.append(message)  # delivered twice
        if luck < 0.01:
            found.append(Lost(now, topic, 1))
        elif 0.03 < luck < 0.04:
            found += [Message(now, topic, b"nonsense"), Message(now, "agents/no agent/steps", b"{}")]
        if 0.04 < luck < 0.042:
            found += [Connected(now, up=False), Connected(now, up=True)]
        if n % batch == 0:
            found.append(Evaluate(now, steps=budget))
        if n % 40 == 0:
            found.append(Heartbeat(now))
        seqs[agent] += 1
        if ended:
            states[agent], seqs[agent], episodes[agent] = 0, 0, episodes[agent] + 1
        elif state < 4:
            states[agent] = rng.choice((min(state + 1, 3), LOST)) if action == 0 else rng.choice((state,) * 9 + (HOME,))
    return [*found, Evaluate(Instant(START + 3 * DAY, 3 * DAY))]


def recorded(path: Path, many: Sequence[Event]) -> Path:
    """Write a recording as Parquet."""
    recorder = ParquetRecorder(path, Header("one", "c" * 64, "m" * 64, "0"), "agents/+/steps", live=False)
    for event in many:
        recorder.write(event)
    recorder.close()
    return path


def replayed(config: Path, many: Sequence[Event], *, repeats: bool = False) -> list[str]:
    """All that one process publishes, as lines; what a heartbeat or a new connection repeats only if asked for."""
    pipeline = assemble(config, {}).pipeline("one")
    published = [each for event in many for each in pipeline.step(event).publications]
    messages = [each for each in published if repeats or not each.repeats]
    return [alert_line(message.topic, message.payload) for message in messages]
