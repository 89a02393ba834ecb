"""Update a published alert with a newer verdict, when it is shown."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from monitor.alarm.figures import figures_of
from monitor.alarm.summary import tell
from monitor.logic.parser import parse
from monitor.types.alerts import Alert
from monitor.types.notices import Refreshed

_read: Final = lru_cache(maxsize=4096)(parse)
"""Parser with a cache of its results."""


def refreshed(alert: Alert, news: Refreshed) -> Alert:
    """Return the `alert` of a firing alarm with the verdict of `news`. The revision is unchanged.

    The path is unchanged too, because it belongs to the evidence, which proves the verdict on which the alarm fired.
    """
    judged, spec = news.judged, news.spec
    formula = _read(spec.text)
    told = tell(
        agent=alert.agent,
        formula=spec,
        parsed=formula,
        state=alert.state,
        blind=alert.blind,
        verdict=judged.verdict,
        path_length=news.pairs,
        seq=judged.seq,
    )
    return replace(
        alert,
        verdict=judged.verdict,
        figures=figures_of(formula, judged.verdict, state=alert.state, blind=alert.blind),
        episode=judged.episode,
        seq=judged.seq,
        time=judged.time,
        late=judged.late,
        summary=told.summary,
        details=told.details,
        worst=news.worst,
    )
