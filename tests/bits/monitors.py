"""Digests of what monitors say: notices of streams, the test of the model, evidence of alarms."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from monitor import AgentState, Instant, step
from monitor.alarm.message import identity_of
from monitor.evidence.document import read_evidence
from monitor.evidence.maker import EvidenceMaker
from monitor.exact import tables
from monitor.types import Alert, Contradictions, Notice, Observation, TakenOver, Trust
from tests.bits.digest import Bits
from tests.bits.streams import Kind, random_fleet

__all__ = ["agent_steps", "evidence", "learned_streams", "model_tests", "notices", "sampled_streams"]

STEPS: Final[Mapping[Kind, int]] = {"given": 400, "learned": 60, "sampled": 120}
"""Messages of a stream; on learned models, and by sampling, an answer takes longer."""


class _Heard(NamedTuple):
    """Digests of one stream: of all notices, and of those of the tests of the model."""

    notices: str
    tests: str


@cache
def _heard(number: int) -> _Heard:
    """Return the digests of a stream, which two parts look at."""
    notices, tests = Bits(), Bits()
    for notice in _said(30_000 + number, "given"):
        notices.value(_without_logarithms(notice))
        if isinstance(notice, Trust | Contradictions):
            tests.value(notice)
    return _Heard(notices.digest, tests.digest)


def notices(number: int) -> str:
    """What a monitor says of a stream; but for the logarithms of the tests of the model."""
    return _heard(number).notices


def _said(seed: int, kind: Kind) -> Iterator[Notice]:
    fleet = random_fleet(seed, kind)
    return fleet.played(STEPS[kind], fleet.monitor())


def _without_logarithms(notice: Notice) -> Notice:
    match notice:
        case Trust():
            return replace(notice, log10_e=0.0)
        case Contradictions():
            rows = tuple(replace(each, log10_e=0.0) for each in notice.rows)
            return replace(notice, rows=rows, agents=tuple(replace(each, log10_e=0.0) for each in notice.agents))
    return notice


def model_tests(number: int) -> str:
    """The evidence against the model, of each agent, of all together, and of each row."""
    return _heard(number).tests


def learned_streams(number: int) -> str:
    """Notices of streams whose model is learned: with bands, and tests against intervals."""
    bits = Bits()
    for notice in _said(31_000 + number, "learned"):
        bits.value(notice)
    return bits.digest


def sampled_streams(number: int) -> str:
    """Notices of streams whose formulas are sampled."""
    bits = Bits()
    for notice in _said(32_000 + number, "sampled"):
        bits.value(notice)
    return bits.digest


def agent_steps(number: int) -> str:
    """The pure step of one agent, from bytes to bytes: its notices, and when it is due next."""
    fleet, chance, bits = random_fleet(33_000 + number), random.Random(number), Bits()
    made, state, now = fleet.monitor(), None, Instant(0.0, 0.0)
    for now, observation in fleet.sent(STEPS["given"]):
        if observation.agent != fleet.agents[0]:
            continue
        stepped = step(made, observation.agent, state, _message(observation, chance), now)
        state = stepped.state
        bits.value([stepped.due, [_without_logarithms(each) for each in stepped.notices]])
    assert isinstance(state, AgentState)
    stepped = step(made, fleet.agents[0], state, None, Instant(now.wall + 10.0, now.ticks + 10.0))
    bits.value([stepped.due, [_without_logarithms(each) for each in stepped.notices]])
    return bits.digest


def _message(observation: Observation, chance: random.Random) -> bytes | Observation:
    """Return what was sent: JSON, msgpack, or decoded."""
    if chance.random() < 0.1:
        return observation
    fields = {name: getattr(observation, name) for name in observation.__struct_fields__ if name != "agent"}
    sent = {"v": 1, **{name: each for name, each in fields.items() if each is not None and each is not False}}
    return msgspec.json.encode(sent) if chance.random() < 0.5 else msgspec.msgpack.encode(sent)


def evidence(number: int) -> str:
    """Evidence of every alarm, and of every judged takeover, of a stream."""
    fleet, bits = random_fleet(34_000 + number), Bits()
    policies = tables(fleet.policies, fleet.model)
    maker = EvidenceMaker(identity_of(fleet.model, policies, {}), policies, {})
    for notice in fleet.played(STEPS["given"], fleet.monitor()):
        match notice:
            case Alert(state="firing", revision=1) | TakenOver() if notice.verdict is not None and notice.path:
                bits.value(replace(read_evidence(maker.make(notice)), digest=""))
    return bits.digest
