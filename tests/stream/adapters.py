"""Adapters of tables, for tests of sessions."""

from __future__ import annotations

from monitor.model import MDP
from monitor.policy.table import PolicyTable
from monitor.stream.model_adapter import ModelAdapter
from monitor.stream.session import Session
from monitor.types import Break, End, Step, StreamSettings

__all__ = ["adapter", "begun", "drained"]


def adapter(model: MDP, settings: StreamSettings, nominal: PolicyTable | None = None) -> ModelAdapter:
    return ModelAdapter(model, settings, nominal)


def begun(
    model: MDP, settings: StreamSettings, nominal: PolicyTable | None = None, *, kind: type[Session] = Session
) -> Session:
    """A session of agent a that has seen nothing."""
    return kind("a", adapter(model, settings, nominal), settings)


def drained(session: Session) -> list[Step | Break | End]:
    """Advance over all that is pending; return it."""
    return [event for _ in range(len(session.pending)) if (event := session.advance()) is not None]
