"""Decode messages, order the messages of each agent, and hold each agent's path. Pure: time is an argument."""

from __future__ import annotations

from monitor.stream.decode import REASONS, agent_of, decode, validate
from monitor.stream.path import SlidingPath
from monitor.stream.session import Session, SessionState
from monitor.stream.snapshot import seal, unseal
from monitor.stream.timer_queue import TimerQueue

__all__ = [
    "REASONS",
    "Session",
    "SessionState",
    "SlidingPath",
    "TimerQueue",
    "agent_of",
    "decode",
    "seal",
    "unseal",
    "validate",
]
