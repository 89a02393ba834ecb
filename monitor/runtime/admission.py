"""Which agent is dropped for a new one at `limits.agents`: a silent one with few steps, never an established one.

Names cost nothing to make up, and a name is forgotten only after `forget_after`. Without this a thousand of them would
keep out every new agent for that long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from monitor.types import Notice, Received

ESTABLISHED: Final = 16
"""Accepted steps after which an agent is established and no longer dropped."""


class Admission:
    """The agents that are not established yet.

    Attributes:
        counts: accepted steps of each agent that has fewer than `ESTABLISHED`, the longest silent first.
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts = dict(counts or {})

    def dump(self) -> dict[str, int]:
        """Return plain data for the constructor."""
        return dict(self.counts)

    def add(self, agent: str) -> None:
        """Start to count a new agent."""
        self.counts[agent] = 0

    def forget(self, agent: str) -> None:
        """Stop counting an agent."""
        self.counts.pop(agent, None)

    def count(self, agent: str, notices: Iterable[Notice]) -> None:
        """Count a message of the agent by its notices."""
        steps = self.counts.pop(agent, None)
        if steps is None:
            return
        steps += sum(isinstance(notice, Received) and notice.result == "accepted" for notice in notices)
        if steps < ESTABLISHED:
            self.counts[agent] = steps

    def to_drop(self, silent: Callable[[str], float], patience: float) -> str | None:
        """Return the agent to drop: of those silent for `patience` seconds, fewest steps first, then silent longest."""
        least: str | None = None
        for agent, count in self.counts.items():
            if silent(agent) <= patience:
                break  # those behind it were heard later
            if least is None or count < self.counts[least]:
                least = agent
        return least
