"""Degree of responsibility of each decision for a missed goal (Chockler & Halpern, JAIR 2004).

The degree of a decision is 1 / m. Here m is the size of the smallest minimal set of decisions that contains this
decision. A set is minimal if the goal can be met by changing these decisions, but not by changing only some of them
(docs/semantics/decisions.md, section 14.4).

Before the first decision of a set, the path is the observed path. Let j be this decision. So the value of the set
follows from the values of the actions at j, in the lane of the set's other decisions (`lanes_of_sets`). For n
decisions, sets of size m need the lanes of all sets of size m - 1: about n^(m - 1) / (m - 1)! numbers for each state.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from monitor.exact.best.lanes import lanes_of_sets
from monitor.exact.best.values import BestValues, Observed

Meets = Callable[[float], bool]


def responsibility(values: BestValues, path: Observed, meets: Meets, within: int, *, largest: bool) -> list[float]:
    """Return the degree [L] of each decision on a path.

    The degree is 0 if no minimal set of at most `within` decisions contains the decision.

    Args:
        values: the values of the goal's measure.
        path: the path from the intervention state on, on which the goal is missed.
        meets: returns whether a value meets the goal.
        within: size of the largest sets, at least 1.
        largest: whether the goal asks for large values.

    Raises:
        LimitError: the path has too many decisions for sets of this size.
    """
    levels = len(values.layout(path).used)
    lanes, lane_of = lanes_of_sets(levels, max(within - 1, 1))
    found = values.backward(path, lanes)
    happened = float(found.values[0, lane_of[()]])
    best = np.fmax.reduce(found.actions, axis=1) if largest else np.fmin.reduce(found.actions, axis=1)
    sufficient: set[tuple[int, ...]] = set()
    degrees = [0.0] * len(path.states)
    for size in range(1, within + 1):
        for each in combinations(range(levels), size):
            first, lane = each[0], lane_of[each[1:]]
            value = happened - found.held[first, lane_of[()]] + best[first, lane]  # rewards before `first` are the same
            if np.isnan(value) or not meets(float(value)) or _has_part(each, sufficient):
                continue
            sufficient.add(each)
            for decision in each:
                degrees[decision] = max(degrees[decision], 1.0 / size)
    return degrees


def _has_part(each: tuple[int, ...], sufficient: set[tuple[int, ...]]) -> bool:
    """Return whether a proper subset of a set is sufficient."""
    return any(part in sufficient for size in range(1, len(each)) for part in combinations(each, size))
