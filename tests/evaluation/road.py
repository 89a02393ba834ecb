"""A world small enough to know everything about: whoever waits on the road may get lost, whoever goes gets home."""

from __future__ import annotations

from monitor.model import MDP

__all__ = ["PATH", "POLICIES", "ROAD"]

WAIT, GO = 0, 1
ROAD = MDP.from_transitions(
    states=3,
    actions=2,
    labels={"home": [1], "lost": [2]},
    rewards=[(0, WAIT, 1.0), (0, GO, -1.0)],
    transitions=[
        *((0, WAIT, s, p) for s, p in ((0, 0.8), (2, 0.2))),
        *((0, GO, s, p) for s, p in ((0, 0.5), (1, 0.5))),
        *((s, a, s, 1.0) for s in (1, 2) for a in (WAIT, GO)),
    ],
)
PATH: list[tuple[int, int | None]] = [(0, WAIT), (0, WAIT), (0, WAIT)]
POLICIES = {"nominal": [WAIT] * 3, "bold": [GO] * 3}
