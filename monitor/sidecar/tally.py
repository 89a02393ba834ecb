"""What happens with every message is counted in plain numbers here, and handed to the metrics when they are read.

A metric of prometheus_client takes two locks and a search for its labels at each change: with three thousand changes a
scrape that is most of a message's way. Here a change is one entry in a dict.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import Counter, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["Buckets", "Latest", "Settle", "Tally"]

PART: Final = 64
"""Series settled under one hold of the lock: so long may a message wait for a scrape."""


class Tally:
    """What a counter has yet to be increased by, for each of its labels."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._counts: dict[tuple[str, ...], int] = {}

    def inc(self, *labels: str, count: int = 1) -> None:
        """Count."""
        self._counts[labels] = self._counts.get(labels, 0) + count

    def drop(self, *labels: str) -> None:
        """This series is taken back: nothing is left to add to it."""
        self._counts.pop(labels, None)

    def settle(self) -> bool:
        """Hand a part over; whether anything is left."""
        for _ in range(min(PART, len(self._counts))):
            labels, count = self._counts.popitem()
            self._counter.labels(*labels).inc(count)
        return bool(self._counts)


class Latest:
    """What gauges have yet to be set to, for each of their labels; one value stands for all of `gauges` together."""

    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self._gauges = gauges
        self._values: dict[tuple[str, ...], tuple[float, ...]] = {}

    def set(self, labels: tuple[str, ...], values: tuple[float, ...]) -> None:
        """The newest value of each gauge; the one before was seen by nobody."""
        self._values[labels] = values

    def drop(self, *labels: str) -> None:
        """These series are taken back: nothing is left to set."""
        self._values.pop(labels, None)

    def settle(self) -> bool:
        """Hand a part over; whether anything is left."""
        for _ in range(min(PART, len(self._values))):
            labels, values = self._values.popitem()
            for gauge, value in zip(self._gauges, values, strict=True):
                gauge.labels(*labels).set(value)
        return bool(self._values)


class Buckets(Collector):
    """A histogram with at most one label, counted without locks by the one thread that observes."""

    def __init__(self, name: str, about: str, bounds: Sequence[float], *labels: str) -> None:
        self.labels = labels
        self._name = name
        self._about = about
        self._bounds = tuple(bounds)
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        if not labels:
            self.start()

    def start(self, *labels: str) -> None:
        """This series exists from now on."""
        self._counts[labels] = [0] * (len(self._bounds) + 1)
        self._sums[labels] = 0.0

    def observe(self, value: float, *labels: str, count: int = 1) -> None:
        """Count a value that occurred `count` times."""
        self._counts[labels][bisect_left(self._bounds, value)] += count
        self._sums[labels] += value * count

    def describe(self) -> Iterator[Metric]:
        """The family without samples, so that its name is known to be taken."""
        yield HistogramMetricFamily(self._name, self._about, labels=self.labels)

    def collect(self) -> Iterator[Metric]:
        """The family as it stands."""
        family = HistogramMetricFamily(self._name, self._about, labels=self.labels)
        for labels, counts in self._counts.items():
            upto, cumulative = 0, []
            for bound, count in zip([*map(str, self._bounds), "+Inf"], list(counts), strict=True):
                upto += count
                cumulative.append((bound, float(upto)))
            family.add_metric(labels, cumulative, self._sums[labels])
        yield family


class Settle(Collector):
    """Registered before every other collector: asked first, it sees to it that all others are up to date."""

    def __init__(self, lock: threading.Lock, parts: Sequence[Callable[[], bool]]) -> None:
        self._lock = lock
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        """Nothing of its own. The lock is given back between parts, so that messages need not wait for all of it."""
        for settle in self._parts:
            more = True
            while more:
                with self._lock:
                    more = settle()
        return ()
