"""What sinks must know beforehand, and what they hear of, for tests that make one by hand."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.alarm.message import Identity
from monitor.runtime.query import read_query
from monitor.sidecar.effects import Effects
from monitor.sidecar.sinks.metrics import Metrics
from monitor.sidecar.sinks.sink import Sink, Watched
from monitor.sidecar.sinks.status_view import StatusView
from monitor.types import Alert, Figures, Fired, FormulaSpec, Instant, Judged, Notice, Quantity, Verdict

__all__ = ["NOBODY", "NOW", "REGRET", "alert", "judged", "metrics_of", "show", "take", "watched"]

NOBODY = Identity("none", "0" * 64, {}, {})
NOW = Instant(1000.0, 1.0)
REGRET = Verdict(
    "regret",
    "exact",
    "any",
    (
        Quantity("P", 0.25, 2, clipped=False, threshold=0.8, holds=False, bounds=(0.25, 0.25)),
        Quantity("P", 0.75, 2, clipped=False, threshold=0.8, holds=True, bounds=(0.5, 0.875)),
    ),
    outcome="regret",
    effect=0.5,
)


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


def judged(verdict: Verdict = REGRET, agent: str = "ada") -> Judged:
    return Judged(agent, "watch", verdict, 0, 3, 999.0)


def alert(state: str, revision: int, *, blind: str | None = None, name: str = "x") -> Alert:
    return Alert(
        id=name,
        revision=revision,
        agent="ada",
        formula="watch",
        text="",
        state=state,  # type: ignore[arg-type] # parametrised
        blind=blind,  # type: ignore[arg-type] # likewise
        severity="critical",
        verdict=REGRET,
        figures=Figures(0.25),
        fired=Fired("regret", 0.25, None, 3, 999.0),
        episode=0,
        seq=3,
        first_seq=3,
        time=999.0,
        since=999.0,
        late=False,
        summary="",
        runbook=None,
        path=((0, 0),),
        start_observed=True,
        terminated=False,
    )
