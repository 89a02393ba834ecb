"""Who makes room where `limits.agents` are watched: agents that said little and fell silent, never one that is known.

Names cost nothing to make up, and a name is only forgotten after `forget_after`. Without this a thousand of them would
keep every new agent out for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from monitor.types import Notice, Received

__all__ = ["ESTABLISHED", "Admission"]

ESTABLISHED: Final = 16
"""Accepted steps after which an agent is no newcomer any more."""


class Admission:
    """Accepted steps of each agent that has fewer than `ESTABLISHED`, the one heard longest ago first."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts = dict(counts or {})

    def dump(self) -> dict[str, int]:
        """Plain data, for the constructor."""
        return dict(self._counts)

    def add(self, agent: str) -> None:
        """A name is heard for the first time."""
        self._counts[agent] = 0

    def forget(self, agent: str) -> None:
        """It is not watched any more."""
        self._counts.pop(agent, None)

    def heard(self, agent: str, notices: Iterable[Notice]) -> None:
        """What became of a message of the agent."""
        count = self._counts.pop(agent, None)
        if count is None:
            return
        count += sum(isinstance(notice, Received) and notice.result == "accepted" for notice in notices)
        if count < ESTABLISHED:
            self._counts[agent] = count

    def leaving(self, silent: Callable[[str], float], patience: float) -> str | None:
        """The agent that makes room: with the fewest steps, then silent longest, of those silent for `patience` s."""
        least: str | None = None
        for agent, count in self._counts.items():
            if silent(agent) <= patience:
                break  # those behind it were heard later
            if least is None or count < self._counts[least]:
                least = agent
        return least
