"""What a person sees of the demo: steps and alerts as any MQTT subscriber gets them, as a live table or as lines."""

from __future__ import annotations

import json
import shutil
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgpack
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from monitor.cli.output import on_terminal, printable, say
from monitor.cli.panel import Panel
from monitor.model.mdp import MDP

__all__ = ["Seen", "Watcher"]

MOST_STEPS, FEWEST_STEPS, OTHER_LINES = 10, 3, 20
"""Steps shown, as many as fit a terminal beside everything else on it."""

SHOWN_ALERTS = 4
STYLES = {"firing": "bold red", "resolved": "bold green", "ended": "yellow"}

Message = dict[str, Any]
"""A decoded step or alert; its keys are those of the documented messages."""


@dataclass
class Seen:
    """What came over MQTT so far. `alerts`: one a change, oldest first (a heartbeat repeats a revision)."""

    steps: int = 0
    episodes: int = 0
    alerts: list[Message] = field(default_factory=list)

    def alarms(self, state: str) -> list[Message]:
        """The alerts that told this state, oldest first."""
        return [alert for alert in self.alerts if alert["state"] == state]


class Watcher:
    """Takes messages and shows them: a table that stays in place on a terminal, else a line for what matters.

    Args:
        model: its labels name the states where episodes end.
        header: stays in sight: what runs, and where else to look.
    """

    def __init__(self, model: MDP, header: str) -> None:
        self.seen = Seen()
        self._model = model
        self._header = header
        self._table_stands = on_terminal(sys.stdout)
        self._steps: deque[Message] = deque(maxlen=MOST_STEPS)
        self._firing: set[object] = set()
        self._told: set[tuple[object, object]] = set()

    @property
    def settled(self) -> bool:
        """True while no alarm fires."""
        return not self._firing

    @property
    def over(self) -> bool:
        """True while the newest step is the last of its episode."""
        return bool(self._steps) and _is_last(self._steps[-1])

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show while the block lasts."""
        if not self._table_stands:
            say(self._header)
            yield
            return
        panel = Panel()
        panel.follow(lambda _ended: self._table())
        with panel.shown():
            yield

    def take_step(self, payload: bytes) -> None:
        """A step that the agent published."""
        step = msgpack.unpackb(payload)
        self.seen.steps += 1
        over = _is_last(step)
        self.seen.episodes += over
        self._steps.append(step)
        if over and not self._table_stands:
            say(f"episode {step['episode']}: {step['seq'] + 1} steps, {self._where(step)}")

    def take_alert(self, payload: bytes) -> None:
        """An alert that the monitor published; an empty one clears a retained topic."""
        if not payload:
            return
        alert = json.loads(payload)
        change = (alert["id"], alert["revision"])
        if change in self._told:
            return
        self._told.add(change)
        self.seen.alerts.append(alert)
        (self._firing.add if alert["state"] == "firing" else self._firing.discard)(alert["id"])
        if not self._table_stands:
            say(_alert_line(alert))

    def _where(self, step: Message) -> str:
        """What the model calls the state: its labels, or its number."""
        labels = [name for name, states in self._model.labels.items() if states[step["state"]]]
        return " ".join(labels) or f"state {step['state']}"

    def _table(self) -> RenderableType:
        steps = Table("episode", "seq", "state", "action", box=None, header_style="dim", min_width=60)
        lines = max(FEWEST_STEPS, shutil.get_terminal_size().lines - OTHER_LINES)
        for step in list(self._steps)[-lines:]:
            steps.add_row(
                printable(str(step["episode"])), str(step["seq"]), self._where(step), str(step.get("action", "-"))
            )
        place = Text("ALARM FIRING", style="bold red") if self._firing else Text("clear", style="green")
        tally = Text(f"{self.seen.steps} steps over MQTT, {self.seen.episodes} episodes; alarm: ").append_text(place)
        alerts = Table("alarm", "episode", "seq", "outcome", "effect", box=None, header_style="dim", min_width=60)
        for alert in self.seen.alerts[-SHOWN_ALERTS:]:
            state, outcome = Text(alert["state"], style=STYLES.get(alert["state"], "")), str(alert["outcome"])
            alerts.add_row(
                state, printable(str(alert["episode"])), str(alert["seq"]), outcome, _signed(alert["effect"])
            )
        latest = Text(self.seen.alerts[-1]["summary"] if self.seen.alerts else "no alarm so far")
        return Group(Text(self._header), Text(""), tally, steps, Text(""), alerts, latest)


def _is_last(step: Message) -> bool:
    return bool(step.get("terminated") or step.get("truncated"))


def _signed(effect: float | None) -> str:
    return "-" if effect is None else f"{effect:+.3f}"


def _alert_line(alert: Message) -> str:
    return f"ALARM {alert['state']:<8} {alert['episode']} step {alert['seq']}: {alert['summary']}"
