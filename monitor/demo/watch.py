"""Display of the demo: the steps and alerts that an MQTT subscriber receives, as a live table or as lines."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from monitor.cli.output import on_terminal, say
from monitor.cli.panel import Panel
from monitor.errors import printable
from monitor.evaluation.models import AnyModel
from monitor.model.mdp import MDP

MOST_STEPS, FEWEST_STEPS, OTHER_LINES = 10, 3, 20
"""Maximum and minimum number of steps shown, and number of terminal lines with other content."""

SHOWN_ALERTS = 4
SILENT_AFTER = 45.0
"""Seconds without a status of the monitor after which its alarms are unknown. The monitor sends a status at each
heartbeat (10 s by default)."""

STYLES = {"firing": "bold red", "resolved": "bold green", "ended": "yellow"}

JsonDocument = dict[str, Any]
"""A decoded step or alert. Its keys are the keys of the documented messages."""


@dataclass
class Seen:
    """Messages received so far.

    `alerts`: one alert for each revision, oldest first, without repetitions by heartbeats.
    """

    steps: int = 0
    episodes: int = 0
    alerts: list[JsonDocument] = field(default_factory=list)

    def alarms(self, state: str) -> list[JsonDocument]:
        """Return, for each alarm, its first alert with this state; oldest first."""
        first = {alert["id"]: alert for alert in reversed(self.alerts) if alert["state"] == state}
        return list(reversed(first.values()))


class Watcher:
    """Display of received messages: a live table on a terminal, otherwise a line for each alarm and episode.

    Args:
        model: model whose labels, or numbers, describe states.
        header: text shown above everything.
        clock: monotonic time in seconds.
    """

    def __init__(self, model: AnyModel, header: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.seen = Seen()
        self._model = model
        self._header = header
        self._live = on_terminal(sys.stdout)
        self._steps: deque[JsonDocument] = deque(maxlen=MOST_STEPS)
        self._firing: set[object] = set()
        self._shown: set[tuple[object, object]] = set()
        self._clock = clock
        self._status: tuple[JsonDocument, float] | None = None

    @property
    def settled(self) -> bool:
        """True while no alarm fires."""
        return not self._firing

    @property
    def over(self) -> bool:
        """True if the newest step is the last of its episode."""
        return bool(self._steps) and _is_last(self._steps[-1])

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the display until the block ends."""
        if not self._live:
            say(self._header)
            yield
            return
        panel = Panel()
        panel.follow(lambda ended: self.table(ended=ended))
        with panel.shown():
            yield

    def take_step(self, payload: bytes) -> None:
        """Show a step that the agent published."""
        step = msgpack.unpackb(payload)
        self.seen.steps += 1
        over = _is_last(step)
        self.seen.episodes += over
        self._steps.append(step)
        if over and not self._live:
            say(f"episode {step['episode']}: {step['seq'] + 1} steps, {self._where(step)}")

    def take_alert(self, payload: bytes) -> None:
        """Show an alert that the monitor published. An empty payload, which clears a retained alert, is ignored."""
        if not payload:
            return
        alert = json.loads(payload)
        change = (alert["id"], alert["revision"])
        if change in self._shown:
            return
        self._shown.add(change)
        self.seen.alerts.append(alert)
        continues = alert["id"] in self._firing and alert["state"] == "firing"
        (self._firing.add if alert["state"] == "firing" else self._firing.discard)(alert["id"])
        if not self._live:
            say(_alert_line(alert, "updated" if continues else alert["state"]))

    def take_status(self, payload: bytes) -> None:
        """Store the monitor's status and its time of arrival."""
        self._status = json.loads(payload), self._clock()

    def unknown(self, *, ended: bool = False) -> str:
        """Return the reason why firing alarms may not be shown; empty if all alarms are known."""
        if ended:
            return "the monitor has stopped"
        if self._status is None:
            return "the monitor has not sent its status yet"
        status, when = self._status
        if status["state"] != "online":
            return "the monitor is offline"
        if self._clock() - when > SILENT_AFTER:
            return f"the monitor has sent no status for {self._clock() - when:.0f} s"
        if not self.seen.steps:
            return "no step has been received yet"
        return f"{status['blind']} formulas are blind" if status.get("blind") else ""

    def _alarm_state(self, *, ended: bool) -> Text:
        unknown = self.unknown(ended=ended)
        if self._firing:
            return Text("ALARM FIRING" + (f" when last known: {unknown}" if unknown else ""), style="bold red")
        return Text(f"UNKNOWN: {unknown}", style="bold magenta") if unknown else Text("clear", style="green")

    def _where(self, step: JsonDocument) -> str:
        """Return the state's labels in the model, or its number; if it is hidden, the sensor's observation.

        In a world with numbers, return the numbers too.
        """
        if "observation" in step:
            seen = step["observation"]
            return "no observation" if seen is None else f"observation {seen}"
        model, state = self._model, step["state"]
        if isinstance(model, MDP):
            labels = [name for name, states in model.labels.items() if states[state]]
            return " ".join(labels) or f"state {state}"
        numbers = [state[each.name] for each in model.features]
        labels = [name for name in model.labels if model.holds(name, np.array([numbers]))[0]]
        shown = (f"{each.name} {n:.3g} {each.unit}".rstrip() for each, n in zip(model.features, numbers, strict=True))
        return " ".join([*labels, *shown])

    def table(self, *, ended: bool = False) -> RenderableType:
        """Return the table. `ended`: whether the monitor has stopped."""
        steps = Table("episode", "seq", "state", "action", box=None, header_style="dim", min_width=60)
        lines = max(FEWEST_STEPS, shutil.get_terminal_size().lines - OTHER_LINES)
        for step in list(self._steps)[-lines:]:
            steps.add_row(
                printable(str(step["episode"])), str(step["seq"]), self._where(step), str(step.get("action", "-"))
            )
        counts = Text(f"{self.seen.steps} steps over MQTT, {self.seen.episodes} episodes; alarm: ")
        counts.append_text(self._alarm_state(ended=ended))
        columns = ("alarm", "episode", "seq", "outcome", "value", "alternative")
        alerts = Table(*columns, box=None, header_style="dim", min_width=60)
        for alert in self.seen.alerts[-SHOWN_ALERTS:]:
            state, outcome = Text(alert["state"], style=STYLES.get(alert["state"], "")), str(alert["outcome"])
            figures = _figure(alert["value"]), _figure((alert["alternative"] or {}).get("value"))
            alerts.add_row(state, printable(str(alert["episode"])), str(alert["seq"]), outcome, *figures)
        latest = Text(self.seen.alerts[-1]["summary"] if self.seen.alerts else "no alarm so far")
        return Group(Text(self._header), Text(""), counts, steps, Text(""), alerts, latest)


def _is_last(step: JsonDocument) -> bool:
    return bool(step.get("terminated") or step.get("truncated"))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _alert_line(alert: JsonDocument, what: str) -> str:
    return f"ALARM {what:<8} {alert['episode']} step {alert['seq']}: {alert['summary']}"
