"""What sinks must know beforehand, for tests that make one by hand."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.alarm.message import Identity
from monitor.runtime.query import read_query
from monitor.sidecar.effects import Effects
from monitor.sidecar.sinks.metrics import Metrics
from monitor.sidecar.sinks.sink import Sink, Watched
from monitor.sidecar.sinks.status_view import StatusView
from monitor.types import FormulaSpec, Instant, Notice

__all__ = ["NOBODY", "NOW", "metrics_of", "show", "take", "watched"]

NOBODY = Identity("none", "0" * 64, {}, {})
NOW = Instant(1000.0, 1.0)


def watched(formulas: Iterable[FormulaSpec], identity: Identity = NOBODY, *, agents: int = 2) -> Watched:
    """These formulas, whose alerts are under `cfmon/alerts`."""
    queries = [read_query(spec, None, window=65536) for spec in formulas]
    return Watched(queries, identity, agents, "cfmon/alerts")


def metrics_of(formulas: Iterable[FormulaSpec], identity: Identity = NOBODY, *, agents: int = 2) -> Metrics:
    return Metrics(watched(formulas, identity, agents=agents), lambda: 7.0)


def take(sink: Sink, *notices: Notice, now: Instant = NOW) -> None:
    """Let a sink hear of what one event caused."""
    sink.take(Effects(notices=notices), now)


def show(view: StatusView, effects: Effects, now: Instant) -> None:
    """Show what one event caused, as the worker does: its alerts are listed first."""
    view.history.note(effects.publications)
    view.take(effects, now)
