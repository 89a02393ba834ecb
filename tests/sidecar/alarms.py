"""Real alarms of a small corridor, of every kind there is, each with its evidence and the objects it names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
from tests.exact.learned import learned_model
from tests.sidecar.project import write_project

__all__ = ["KINDS", "Alarm", "alarm"]

RASH, CAREFUL, LOST, HOME, ELSEWHERE = 0, 1, 4, 5, 6


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
SURE = 'P>=0.9 [ G<=1 !"lost" ]'
SAFE = 'P>=0.4 [ G<=1 !"lost" ]'
NESTED = '@1.P>=0.99 [ F<=1 P>=0.9 [ G<=2 !"lost" ] ]'
BEST = 'regret(best@1, P>=0.2 [ F<=3 "home" ])'
EFFECT = 'model:icy@1.P>=0.9 [ G<=2 !"lost" ] & @-1.P>=0.9 [ G<=2 !"lost" ]'


@dataclass(frozen=True)
class Kind:
    """The formula as configured, the agent's steps (seq, state), and the alarm's settings.

    `visits`: how often each pair was recorded of a learned model; 0: the model is given. `acted`: the policy that acted
    at each step, if that was not always the deployed one. `ended`: the last step ends the episode.
    """

    formula: str
    steps: list[tuple[int, int]]
    alarm: dict[str, Any]
    visits: int = 0
    acted: list[str] = field(default_factory=list)
    ended: bool = False


KINDS: dict[str, Kind] = {
    "regret with bounds": Kind(f"'{REGRET}', causal_model: any", [(0, 0), (1, 1), (2, 2), (3, 3)], {"for": 4}),
    "regret at the first step": Kind(f"'{REGRET}', causal_model: stable", [(0, 0)], {"for": 1}),
    "plain, joined in mid-episode": Kind(f"'{CHANCE}'", [(5, 0), (6, 1), (7, 2)], {"for": 2}),
    "plain, the start dropped, other dynamics": Kind(f"'{EFFECT}'", [(s, min(s, 3)) for s in range(6)], {"for": 6}),
    "sampled": Kind(f"'{CHANCE}', engine: sampled", [(0, 0), (1, 1), (2, 2)], {"for": 2}),
    "started over under the same episode": Kind(
        f"'{SAFE}'", [(5, 0), (6, 1), (7, LOST), (5, LOST), (6, LOST)], {"for": 2}
    ),
    "ended": Kind(f"'{CHANCE}', every: 100", [(0, 0), (1, 1), (2, LOST)], {"for": 1}, ended=True),
    "learned": Kind(f"'{REGRET}', causal_model: any", [(0, 0), (1, 1), (2, 2)], {"for": 3}, visits=30),
    "learned from little": Kind(f"'{REGRET}', causal_model: any", [(0, 0), (1, 1)], {"for": 2}, visits=2),
    "learned, decided in every draw": Kind(f"'{SAFE}', causal_model: any", [(0, LOST)], {"for": 1}, visits=30),
    "learned, without a guarantee": Kind(f"'{NESTED}', causal_model: any", [(0, 0), (1, 1)], {"for": 2}, visits=30),
    "learned, without a credible band": Kind(
        f"'{SURE}', causal_model: any, bands: \"off\"", [(0, 0)], {"for": 1}, visits=30
    ),
    "decisions made for the goal": Kind(f"'{BEST}', causal_model: any", [(0, 0), (1, 1), (2, 2)], {"for": 2}),
    "another policy acted": Kind(
        f"'{REGRET}', causal_model: any", [(0, 0), (1, 0), (2, 0)], {"for": 3}, acted=["careful", "careful", "nominal"]
    ),
}
"""Every kind of alarm: together their evidence has every field that evidence can have, in every way that matters."""


@cache
def alarm(kind: str) -> Alarm:
    """The alarm of this kind: the first, and only, that its steps raise."""
    one = KINDS[kind]
    with TemporaryDirectory() as folder:
        loaded = assemble(_project(Path(folder), one), {})
        pipeline = loaded.pipeline("test")
        events = _events(one, loaded.identity.policies)
        (file,) = [file for event in events for file in pipeline.step(event).evidence]
        return Alarm(file.id, file.content, loaded.objects())


def _project(folder: Path, kind: Kind) -> Path:
    save_model(_corridor(0.3), folder / "icy.npz")
    formula, settings = kind.formula, kind.alarm
    return write_project(
        folder,
        _learned(kind.visits) if kind.visits else _corridor(0.5),
        f"""\
mqtt: {{url: "mqtt://127.0.0.1:1"}}
model: model.npz
{"" if kind.visits else "models: {icy: icy.npz}"}
policies: {{nominal: rash.yaml, careful: careful.yaml}}
path: {{window: 4}}
sampling: {{seed: 5, limit: 5000}}
bands: {{draws: 4, seed: 3, level: 0.5}}
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


def _learned(visits: int) -> MDP:
    """The corridor, learned from so many visits of each pair; if they are few, of none in state 2."""
    draws = [
        (state, action, min(state + 1, 3) if n % 2 == 0 else LOST) if action == RASH else (state, action, HOME)
        for state in range(4)
        if state != 2 or visits > 10
        for action in (RASH, CAREFUL)
        for n in range(visits)
    ]
    draws += [(state, action, state) for state in (LOST, HOME) for action in (RASH, CAREFUL) for _ in range(visits)]
    labels = {"lost": frozenset({LOST, ELSEWHERE}), "home": frozenset({HOME})}
    return learned_model(7, 2, draws, labels)[0]


def _events(kind: Kind, policies: Mapping[str, str]) -> Iterable[Event]:
    yield Connected(Instant(1000.0, 0.0), up=True)
    for place, (seq, state) in enumerate(kind.steps):
        now = Instant(1001.0 + seq, 1.0 + seq)
        step = {"v": 1, "episode": "one", "seq": seq, "state": state, "action": RASH, "time": now.wall}
        if kind.acted:
            step["policy"] = policies[kind.acted[place]]
            step["action"] = CAREFUL if kind.acted[place] == "careful" else RASH
        if kind.ended and state == LOST:
            step["terminated"] = True
        yield Message(now, "agents/ada/steps", json.dumps(step).encode())
        yield Evaluate(now)
