"""From bytes to an ordered path: decoding, one session per agent, the sliding path. Pure; time is an argument."""

from __future__ import annotations

from monitor.stream.agenda import Agenda
from monitor.stream.decode import REASONS, agent_of, decode, validate
from monitor.stream.path import SlidingPath
from monitor.stream.session import Session, SessionState
from monitor.stream.snapshot import seal, unseal

__all__ = [
    "REASONS",
    "Agenda",
    "Session",
    "SessionState",
    "SlidingPath",
    "agent_of",
    "decode",
    "seal",
    "unseal",
    "validate",
]
