"""Lanes hold the values of one node under several decision rules, which the backward pass computes side by side."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from monitor.exact.best.induction import Lanes
from monitor.exact.best.layouts import NEVER


class DecisionRule(NamedTuple):
    """A rule that says which decisions of a path are made for the goal.

    `free`: the first `until` decisions are best, and later decisions are unchanged. `few`: at most `changes` decisions
    are best, and all others are unchanged. `optimal`: decisions follow the policy that is best without hindsight.
    """

    kind: Literal["free", "few", "optimal"]
    changes: int = 0
    until: int = NEVER


@lru_cache(256)
def lanes_of(rules: tuple[DecisionRule, ...]) -> tuple[Lanes, list[int]]:
    """Return the lanes, and the lane of each rule. A rule `few` with n changes also has lanes for fewer changes.

    Calls with equal rules return the same object, so callers must not change it.
    """
    most = max((rule.changes for rule in rules if rule.kind == "few"), default=-1)
    free = list(dict.fromkeys(rule.until for rule in rules if rule.kind == "free"))
    optimal = any(rule.kind == "optimal" for rule in rules)
    first_few = len(free)
    spends = [*range(len(free)), *range(first_few - 1, first_few + most)]
    if most >= 0:
        spends[first_few] = -1
    count = len(spends) + optimal
    lanes = Lanes(
        np.array([*spends, *[-1] * optimal], dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.array([*free, *[NEVER] * (count - len(free))], dtype=np.int64),
        np.array([0] * first_few + [1] * (count - first_few), dtype=np.uint8),
        len(free) + max(most, 0),
        optimal,
    )
    places = {"free": 0, "few": first_few, "optimal": count - 1}
    return lanes, [
        places[rule.kind] + (free.index(rule.until) if rule.kind == "free" else rule.changes) for rule in rules
    ]


def lanes_of_sets(levels: int, size: int) -> tuple[Lanes, dict[tuple[int, ...], int]]:
    """Return a lane for each set of at most `size` of the first `levels` levels, and a map from set to lane.

    In the lane of a set, the decisions at the set's levels are best and all others are unchanged. After the first level
    of the set, the path continues in the lane of the remaining levels. So the values of a lane are valid only up to the
    first level of its set.
    """
    sets = [each for count in range(size + 1) for each in combinations(range(levels), count)]
    lane = {each: n for n, each in enumerate(sets)}
    first = [each[0] if each else 0 for each in sets]
    lanes = Lanes(
        np.array([lane[each[1:]] if each else -1 for each in sets], dtype=np.int64),
        np.array(first, dtype=np.int64),
        np.array(first, dtype=np.int64) + 1,
        np.ones(len(sets), dtype=np.uint8),
        sum(len(each) < size for each in sets),
        False,  # noqa: FBT003 - a field
    )
    return lanes, lane
