"""Choose the agent to drop for a new agent when `limits.agents` is reached.

Only a silent agent with few steps is dropped, never an established agent. Anyone can invent names, and a name is
forgotten only after `forget_after`. Without this module, a thousand invented names would keep out every new agent until
then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from monitor.types.notices import Notice, Received

ESTABLISHED: Final = 16
"""Number of accepted steps after which an agent is established and no longer dropped."""


class Admission:
    """The agents that are not established yet.

    Attributes:
        counts: agent -> number of accepted steps, for agents with fewer than `ESTABLISHED`; the longest silent agent
            first.
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
        """Count the accepted steps among the notices about a message of the agent."""
        steps = self.counts.pop(agent, None)
        if steps is None:
            return
        steps += sum(isinstance(notice, Received) and notice.result == "accepted" for notice in notices)
        if steps < ESTABLISHED:
            self.counts[agent] = steps

    def to_drop(self, silent: Callable[[str], float], patience: float) -> str | None:
        """Return the agent with the fewest steps among those silent for more than `patience` seconds, or None."""
        least: str | None = None
        for agent, count in self.counts.items():
            if silent(agent) <= patience:
                break  # the following agents were heard later
            if least is None or count < self.counts[least]:
                least = agent
        return least
