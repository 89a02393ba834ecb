"""A small world with a rash and a careful policy, a monitor for it, and a pipeline around that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgpack
import pytest

from monitor.alarm.message import Identity
from monitor.evidence.document import evidence_id
from monitor.model import MDP, model_sha256
from monitor.policy import PolicyTable, as_table
from monitor.runtime.monitor import Monitor
from monitor.sidecar.effects import Effects, EvidenceFile
from monitor.sidecar.events import Evaluate, Event, Message
from monitor.sidecar.pipeline import Pipeline, Topics
from monitor.types import AlarmSpec, Alert, FormulaSpec, Instant, StreamSettings, TakenOver
from tests.evidence.rederived import make_evidence

RASH, CAREFUL = 0, 1
LOST, HOME = 4, 5
REGRET = 'regret(careful@2, P>=0.8 [ G<=3 !"lost" ])'


@pytest.fixture(scope="session")
def corridor() -> MDP:
    """States 0..3 in a row, 4 lost, 5 home. Rash moves on fast and may be lost; careful waits or gets home."""
    transitions = [(s, RASH, min(s + 1, 3), 0.5) for s in range(4)] + [(s, RASH, LOST, 0.5) for s in range(4)]
    transitions += [(s, CAREFUL, s, 0.9) for s in range(4)] + [(s, CAREFUL, HOME, 0.1) for s in range(4)]
    transitions += [(s, a, s, 1.0) for s in (LOST, HOME) for a in (RASH, CAREFUL)]
    return MDP.from_transitions(states=6, actions=2, transitions=transitions, labels={"lost": [LOST], "home": [HOME]})


@pytest.fixture(scope="session")
def tables(corridor: MDP) -> dict[str, PolicyTable]:
    return {"nominal": as_table([RASH] * 6, corridor), "careful": as_table([CAREFUL] * 6, corridor)}


@pytest.fixture(scope="session")
def identity(corridor: MDP) -> Identity:
    return Identity("corridor", model_sha256(corridor), {"nominal": "a" * 64, "careful": "b" * 64}, {"test": "1"})


@pytest.fixture(scope="session")
def formulas() -> list[FormulaSpec]:
    return [
        FormulaSpec("watch", REGRET, alarm=AlarmSpec(severity="critical")),
        FormulaSpec("chance", 'careful@1.P=? [ F<=3 "home" ]', causal_model="any"),
    ]


class Driver:
    """A pipeline fed one second apart, and everything that came out of it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.ticks = 0.0
        self.events: list[Event] = []
        self.effects: list[Effects] = []

    @property
    def now(self) -> Instant:
        return Instant(1000.0 + self.ticks, self.ticks)

    def feed(self, event: Event) -> Effects:
        self.events.append(event)
        self.effects.append(self.pipeline.step(event))
        return self.effects[-1]

    def send(self, seq: int, state: int, action: int | None = RASH, *, agent: str = "ada", **more: object) -> Effects:
        """One step of an agent, then its evaluation; the effects of the latter."""
        self.ticks += 1.0
        fields = {"v": 1, "episode": 0, "seq": seq, "state": state, "time": self.now.wall, **more}
        if action is not None:
            fields["action"] = action
        self.feed(Message(self.now, f"agents/{agent}/steps", msgpack.packb(fields)))
        return self.feed(Evaluate(self.now))


@pytest.fixture
def make_pipeline(
    corridor: MDP, tables: dict[str, PolicyTable], identity: Identity, formulas: Sequence[FormulaSpec]
) -> Callable[[], Pipeline]:
    def evidence_of(alert: Alert | TakenOver) -> EvidenceFile:
        content = make_evidence(alert, identity, tables, {name: {"name": name} for name in tables})
        return EvidenceFile(evidence_id(content), content)

    def make() -> Pipeline:
        return Pipeline(
            Monitor(corridor, tables, formulas, StreamSettings(forget_after=60.0), identity=identity),
            identity,
            topics=Topics("agents/+/steps", "cfmon/alerts", "cfmon/status"),
            client_id="test",
            message_bytes=1000,
            evidence_of=evidence_of,
        )

    return make


@pytest.fixture
def driver(make_pipeline: Callable[[], Pipeline]) -> Driver:
    return Driver(make_pipeline())
