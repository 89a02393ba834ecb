"""Real alarms of a small corridor, of every kind there is, each with its evidence and the objects it names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from monitor.errors import ConfigError
from monitor.model import MDP
from monitor.model.io import save_model
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Connected, Evaluate, Event, Message
from monitor.types import Instant
from tests.sidecar.project import write_project

__all__ = ["KINDS", "Alarm", "alarm"]

RASH, CAREFUL, LOST, HOME = 0, 1, 4, 5


@dataclass(frozen=True)
class Alarm:
    """`id`: of the evidence, as the alert gives it. `objects`: sha256 -> what lies under it."""

    id: str
    content: bytes
    objects: Mapping[str, bytes]

    def read(self, sha256: str) -> bytes:
        """As `cfmon verify` reads an object; ConfigError if there is none."""
        if sha256 not in self.objects:
            raise ConfigError(f"cannot read {sha256}: No such file or directory")
        return self.objects[sha256]

    def keep(self, folder: Path) -> Path:
        """Write all of it as a monitor does; returns the evidence file."""
        for name, content in {f"objects/{name}": object_ for name, object_ in self.objects.items()}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        file = folder / "evidence" / self.id
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(self.content)
        return file


REGRET = 'regret(careful@2, P>=0.8 [ G<=3 !"lost" ])'
CHANCE = 'careful@1.P>=0.9 [ F<=3 "home" ]'
SAFE = 'P>=0.4 [ G<=1 !"lost" ]'
EFFECT = 'model:icy@1.P>=0.9 [ G<=2 !"lost" ] & @-1.P>=0.9 [ G<=2 !"lost" ]'

KINDS: dict[str, tuple[str, list[tuple[int, int]], dict[str, Any]]] = {
    "regret with bounds": (f"'{REGRET}', causal_model: any", [(0, 0), (1, 1), (2, 2), (3, 3)], {"for": 4}),
    "regret at the first step": (f"'{REGRET}', causal_model: stable", [(0, 0)], {"for": 1}),
    "plain, joined in mid-episode": (f"'{CHANCE}'", [(5, 0), (6, 1), (7, 2)], {"for": 2}),
    "plain, the start dropped, other dynamics": (f"'{EFFECT}'", [(s, min(s, 3)) for s in range(6)], {"for": 6}),
    "sampled": (f"'{CHANCE}', engine: sampled", [(0, 0), (1, 1), (2, 2)], {"for": 2}),
    "started over under the same episode": (f"'{SAFE}'", [(5, 0), (6, 1), (7, LOST), (5, LOST), (6, LOST)], {"for": 2}),
    "ended": (f"'{CHANCE}', every: 100", [(0, 0), (1, 1), (2, LOST)], {"for": 1}),
}
"""Kind -> the formula as configured, the agent's steps (seq, state), and the alarm's settings."""


@cache
def alarm(kind: str) -> Alarm:
    """The alarm of this kind: the first, and only, that its steps raise."""
    formula, steps, settings = KINDS[kind]
    with TemporaryDirectory() as folder:
        loaded = assemble(_project(Path(folder), formula, settings), {})
        pipeline = loaded.pipeline("test")
        found = [file for event in _events(steps, ended=kind == "ended") for file in pipeline.step(event).evidence]
        (file,) = found
        return Alarm(file.id, file.content, loaded.objects())


def _project(folder: Path, formula: str, settings: Mapping[str, Any]) -> Path:
    save_model(_corridor(0.3), folder / "icy.npz")
    return write_project(
        folder,
        _corridor(0.5),
        f"""\
mqtt: {{url: "mqtt://127.0.0.1:1"}}
model: model.npz
models: {{icy: icy.npz}}
policies: {{nominal: rash.yaml, careful: careful.yaml}}
path: {{window: 4}}
sampling: {{seed: 5, limit: 5000}}
formulas: [{{name: watch, formula: {formula}, alarm: {json.dumps(settings)}}}]
store: {{path: var/cfmon.sqlite}}
""",
    )


def _corridor(slip: float) -> MDP:
    """States 0..3 in a row, 4 lost, 5 home. Rash moves on fast and may be lost; careful gets home."""
    rows = [(s, RASH, t, p) for s in range(4) for t, p in ((min(s + 1, 3), 1 - slip), (LOST, slip))]
    rows += [(s, CAREFUL, t, p) for s in range(4) for t, p in ((s, 0.9), (HOME, 0.1))]
    rows += [(s, a, s, 1.0) for s in (LOST, HOME) for a in (RASH, CAREFUL)]
    return MDP.from_transitions(states=6, actions=2, transitions=rows, labels={"lost": [LOST], "home": [HOME]})


def _events(steps: Iterable[tuple[int, int]], *, ended: bool) -> Iterable[Event]:
    yield Connected(Instant(1000.0, 0.0), up=True)
    for seq, state in steps:
        now = Instant(1001.0 + seq, 1.0 + seq)
        step = {"v": 1, "episode": "one", "seq": seq, "state": state, "action": RASH, "time": now.wall}
        if state == LOST and ended:
            step["terminated"] = True
        yield Message(now, "agents/ada/steps", json.dumps(step).encode())
        yield Evaluate(now)
