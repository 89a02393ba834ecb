"""Random lives of a sidecar: agents in a model's world, and all that can go wrong between them and the monitor."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgpack

from monitor.model import MDP
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.types import Instant

__all__ = ["DEEDS", "Life"]

DEEDS = (
    *("step",) * 12,
    *("evaluate",) * 6,
    *("skip", "delay", "release", "twice", "contradict", "end", "stray", "garbage"),
    *("latest", "one", "beat", "down", "up", "lost", "wait"),
)
"""What may happen; each as often as it stands here."""

PAUSES = (0.0, 0.0, 0.0, 0.25, 1.0)


class Life:
    """Turns deeds into the events of a sidecar. The same seed and deeds give the same events."""

    def __init__(self, model: MDP, rng: random.Random, *, agents: int = 3) -> None:
        self._model, self._rng = model, rng
        self._where: list[tuple[int, int, int | None]] = [(0, 0, None)] * agents  # episode, seq, state
        self._delayed: list[Message] = []
        self._sent: list[Message] = []
        self._ticks = 0.0

    def events(self, deeds: Sequence[str]) -> list[Event]:
        """What the deeds come to."""
        return [event for deed in deeds if (event := self._event(deed)) is not None]

    def _event(self, deed: str) -> Event | None:
        self._ticks += self._rng.choice(PAUSES) + (self._rng.choice([6.0, 61.0]) if deed == "wait" else 0.0)
        now = Instant(1000.0 + self._ticks, self._ticks)
        match deed:
            case "evaluate" | "latest" | "one" | "wait":
                return Evaluate(now, latest_only=deed == "latest", steps=int(deed == "one"))
            case "beat":
                return Heartbeat(now)
            case "down" | "up":
                return Connected(now, deed == "up")
            case "lost":
                return Lost(now, f"agents/a{self._rng.randrange(len(self._where))}/steps", 1)
            case "garbage":
                return Message(now, "agents/a0/steps", b"\xff\x00")
            case "release" if self._delayed:
                late = self._delayed.pop(self._rng.randrange(len(self._delayed)))
                return Message(now, late.topic, late.payload)
            case "twice" if self._sent:
                again = self._rng.choice(self._sent[-8:])
                return Message(now, again.topic, again.payload)
            case _:
                return self._message(deed, now)

    def _message(self, deed: str, now: Instant) -> Message | None:
        """The next step of one agent, as the deed spoils it."""
        rng, agent = self._rng, self._rng.randrange(len(self._where))
        episode, seq, state = self._where[agent]
        if state is None:
            state = rng.randrange(self._model.states)
        actions = [a for a in range(self._model.actions) if len(self._model.row(state, a)[0])]
        ends = deed == "end" or not actions
        fields = {"v": 1, "episode": episode, "seq": seq, "state": state, "terminated": ends, "time": now.wall}
        if actions:
            action = rng.choice(actions)
            fields["action"] = action
            successors, chances = self._model.row(state, action)
            follows = int(rng.choices([int(s) for s in successors], [float(p) for p in chances])[0])
            self._where[agent] = (episode + 1, 0, None) if ends else (episode, seq + 1, follows)
        else:
            self._where[agent] = (episode + 1, 0, None)
        if deed == "stray":
            fields["state"] = rng.randrange(self._model.states)
        if deed == "contradict":
            fields["seq"] = max(0, seq - 1)
            self._where[agent] = (episode, seq, state)
        message = Message(now, f"agents/a{agent}/steps", bytes(msgpack.packb(fields)))
        if deed == "skip":
            return None
        if deed == "delay":
            self._delayed.append(message)
            return None
        self._sent.append(message)
        return message
