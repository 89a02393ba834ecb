"""Time series of bounded size, for the charts of the status page.

The newest points are unchanged. Older points are merged in pairs, and each pair keeps the worse value.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

MOST = 512
"""Maximum number of points, which take 12 KB for each agent and formula, and of ends of episodes, which take 4 KB."""

CurvePoint = tuple[float, float, float]
"""Seconds since the epoch, the agent's own value, the alternative's value; NaN for no value."""


class Curve:
    """Points in order of arrival. `low`: whether the lower of two values is the worse one.

    When the curve is full, neighbouring points in the older half are merged into the worse one, so a bad value stays
    visible. A missing value (hole) is kept, and also the values before and after it. Without these values, the hole
    would seem longer. The value before it may also be the last value of an episode. If merging frees too few points,
    the oldest points are removed. The ends of episodes are kept separately, because a hole may begin before the end of
    its episode.
    """

    def __init__(self, *, low: bool = True, most: int = MOST) -> None:
        self._low = low
        self._most = most
        self._columns = (array("d"), array("d"), array("d"))
        self._ended = array("d")

    def add(self, when: float, own: float | None, alternative: float | None) -> None:
        """Add a point; None: no value (hole). Consecutive holes count as one."""
        times, values, others = self._columns
        if own is None and alternative is None and times and math.isnan(values[-1]) and math.isnan(others[-1]):
            return
        times.append(when)
        values.append(math.nan if own is None else own)
        others.append(math.nan if alternative is None else alternative)
        if len(times) > self._most:
            self._coarsen()

    def end_episode(self, when: float) -> None:
        """Note that an episode has ended, after which there is no value."""
        self.add(when, None, None)
        self._ended.append(when)
        del self._ended[: -self._most]

    def since(self, when: float) -> Curve:
        """Return a copy with the points from `when` on, and the last earlier point, whose value is valid at `when`."""
        start = max(bisect_left(self._columns[0], when) - 1, 0)
        copy = Curve(low=self._low, most=self._most)
        copy._columns = tuple(column[start:] for column in self._columns)  # type: ignore[assignment] # they are three
        copy._ended = self._ended[bisect_left(self._ended, when) :]
        return copy

    def thinned(self, most: int) -> dict[str, list[float | None]]:
        """Return at most about `most` merged points, in the form of `columns`. With holes there are more points.

        The newest point is unchanged, because its value is shown as the value now.
        """
        points = list(zip(*self._columns, strict=True))
        while len(points) > most and len(fewer := [*self._merged(points[:-1], points[-1]), points[-1]]) < len(points):
            points = fewer
        columns = zip(*points, strict=True) if points else ((), (), ())
        return self._named(columns)

    def columns(self) -> dict[str, list[float | None]]:
        """Return all points, as one list of times and two of values, and the times at which episodes ended."""
        return self._named(self._columns)

    def _named(self, columns: Iterable[Iterable[float]]) -> dict[str, list[float | None]]:
        names = ("time", "value", "alternative", "ended")
        return {name: list(map(_known, column)) for name, column in zip(names, (*columns, self._ended), strict=True)}

    def _coarsen(self) -> None:
        points = list(zip(*self._columns, strict=True))
        half = len(points) // 2
        older = list(self._merged(points[:half], points[half]))
        kept = (older + points[half:])[-(self._most * 3 // 4 + 1) :]
        self._columns = tuple(array("d", column) for column in zip(*kept, strict=True))  # type: ignore[assignment]

    def _merged(self, points: list[CurvePoint], following: CurvePoint | None = None) -> Iterator[CurvePoint]:
        """Merge neighbours, but no value beside a hole. `following`: the point after these, if there is one."""
        missing = [math.isnan(value) for _, value, _ in [*points, *([] if following is None else [following])]]
        waiting: CurvePoint | None = None
        for n, point in enumerate(points):
            beside = not missing[n] and any(missing[max(n - 1, 0) : n + 2])
            if waiting is not None and not beside and math.isnan(waiting[1]) == missing[n]:
                yield self._worse(waiting, point)
                waiting = None
                continue
            if waiting is not None:
                yield waiting
            waiting = None if beside else point
            if beside:
                yield point
        if waiting is not None:
            yield waiting

    def _worse(self, one: CurvePoint, two: CurvePoint) -> CurvePoint:
        return two if math.isnan(two[1]) or (two[1] <= one[1]) == self._low else one


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None
