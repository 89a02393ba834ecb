"""The overview as text, in a terminal and over HTTP: firing alarms, blind formulas, then every agent and formula.

Order and colours are the same as on the status page. All information is in words; colours only repeat it. Control
characters are removed from text that agents send.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from monitor.errors import printable

TEXT_COLUMNS: Final = 132
TEXT_LINES: Final = 200
"""Number of lines of the table over HTTP."""

LOG_LINES: Final = 5
"""Number of terminal lines that are left for the log above the table."""

MIN_ROWS: Final = 3
"""Smallest number of rows, also on a small terminal."""

MAX_SENTENCES: Final = 2
"""Maximum number of alarms, and of reasons for blindness, shown as sentences. The table has rows for all of them."""

STYLES: Final = {
    "firing": "bold red",
    "pending": "yellow",
    "blind": "bold magenta",
    "unknown": "bright_black",
    "fine": "green",
}
"""Style of each state of a formula. States that need a person come first."""


class FleetTable:
    """Renderable of the document of `/api/overview`, at most as high as the terminal.

    `title`: the running command; `address`: the status page; `ended`: the monitor has stopped.
    """

    def __init__(self, overview: dict[str, Any], title: str, address: str, *, ended: bool) -> None:
        self._overview = overview
        self._title = title
        self._address = address
        self._ended = ended

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the most important lines first, because the terminal cuts off the last ones."""
        top = Group(*self._head(), *self._alarms(), *self._blind())
        yield top
        taken = len(console.render_lines(top, options))
        yield self._table(max(MIN_ROWS, console.height - taken - LOG_LINES))

    def _head(self) -> Iterator[RenderableType]:
        overview, status, count = self._overview, self._overview["status"], self._overview["count"]
        line = Text(f"{self._title}  ", style="bold", no_wrap=True, overflow="ellipsis")
        if self._ended:
            line.append(f"ENDED at {_clock(overview['now'])}: the monitor has stopped", style="bold red")
        else:
            line.append(f"{_clock(overview['now'])}  {self._address}", style="not bold")
        yield line
        link = Text("connected to " if status["connected"] else "NOT CONNECTED to ")
        link.stylize("green" if status["connected"] else "bold red")
        rest = f"{printable(status['broker'])}, {status['queue']} messages waiting, {status['unsent']} unsent"
        yield link.append(rest, style="not bold default")
        if status["store"] not in ("ok", "nothing is kept"):
            yield Text(f"STORE: {printable(status['store'])}", style="bold red")
        if overview["problem"] and status["connected"] and not self._ended:
            yield Text(f"NOT READY: {printable(overview['problem'])}", style="bold red")
        unknown = self._unknown()
        states = {**overview["states"], "firing": count["firing"]}
        known = {state: states[state] for state in STYLES if states[state] or state == "firing" or not unknown}
        words = {"firing": "known to fire"} if unknown else {}
        counts = Text(", ").join(
            Text(f"{many} {words.get(state, state)}", STYLES[state] if many else "dim") for state, many in known.items()
        )
        counts.append(f"; {_many(count['agents'], 'agent')}")
        yield counts.append(f"  UNKNOWN: {printable(unknown)}", style="bold bright_black") if unknown else counts

    def _unknown(self) -> str:
        """Return why there may be more firing alarms than are known, or "" if the count is complete."""
        if self._ended:
            return "the monitor has stopped"
        if self._overview["problem"]:
            return str(self._overview["problem"])
        if not self._overview["status"]["connected"]:
            return "not connected to the broker"
        return "" if self._overview["count"]["agents"] else "no agent has sent a step yet, so nothing is monitored"

    def _alarms(self) -> Iterator[RenderableType]:
        for alarm in self._overview["firing"][:MAX_SENTENCES]:
            head = f"FIRING since {_clock(alarm['since_unix'])} {alarm['severity']} {alarm['formula']['name']}: "
            yield Text(head, style="bold red").append(printable(alarm["summary"]), style="not bold default")
            if todo := " ".join(filter(None, (alarm.get("instructions"), alarm["runbook"]))):
                yield Text(f"  what to do: {printable(todo)}")

        for alarm in [] if self._overview["firing"] else self._overview["recent"][:1]:
            head = f"last alarm: {alarm['state']} {_clock(alarm['sent_unix'])} {alarm['formula']['name']}: "
            yield Text(head).append(printable(alarm["summary"]), style="dim")

    def _blind(self) -> Iterator[RenderableType]:
        for group in self._overview["blind"][:MAX_SENTENCES]:
            head = Text(f"BLIND {group['agent']} ", style=STYLES["blind"])
            why = f"({group['reason']}): {group['words']}"
            yield head.append(f"{why}; {', '.join(group['formulas'])}", style="not bold default")

    def _table(self, lines: int) -> RenderableType:
        rows = [(agent, row) for agent in self._overview["agents"] for row in agent["formulas"]]
        rows.sort(key=lambda pair: list(STYLES).index(pair[1]["state"]))
        agents = self._overview["count"]["agents"]
        if not rows:
            return Text("no agent has sent a step yet" if not agents else "no formula is configured", style="dim")
        table = Table(box=None, header_style="dim", pad_edge=False)
        for name, justify in (("agent", "left"), ("formula", "left"), ("state", "left"), ("verdict", "left")):
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
        for name in ("value", "required", "alternative", "step", "lag", "last step"):
            table.add_column(name, justify="right", no_wrap=True)
        shown = rows[: lines - 2]
        for agent, row in shown:
            table.add_row(*self._cells(agent, row))
        more = agents * len(self._overview["formulas"]) - len(shown)
        return (
            Group(Text(""), table, Text(f"and {more} more rows: see the status page", style="dim"))
            if more > 0
            else Group("", table)
        )

    def _cells(self, agent: dict[str, Any], row: dict[str, Any]) -> Iterator[RenderableType]:
        yield agent["name"]
        yield row["name"]
        state = row["state"]
        yield Text(state.upper() if state in ("firing", "blind") else state, STYLES[state])
        since = "" if row["blind_since"] is None else f" since {_clock(row['blind_since'])}"
        yield Text(f"blind: {row['blind']}{since}", STYLES["blind"]) if row["blind"] else Text(row["outcome"] or "-")
        threshold, alternative = row["threshold"], row["alternative"]
        yield _number(row["value"])
        yield "-" if threshold is None else f"{threshold['comparison']} {_number(threshold['bound'])}"
        yield "-" if alternative is None else _number(alternative["value"])
        yield "-" if row["seq"] is None else str(row["seq"])
        yield "-" if agent["lag"] is None else _seconds(agent["lag"])
        yield f"{_seconds(max(0, round(self._overview['now'] - agent['last_message'])))} ago"


def as_text(overview: dict[str, Any]) -> str:
    """Return the table of a document of `/api/overview` as plain text."""
    console = Console(file=io.StringIO(), width=TEXT_COLUMNS, height=TEXT_LINES, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(FleetTable(overview, overview["status"]["client_id"], "", ended=False))
    return capture.get()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:#.4g}".rstrip(".")


def _seconds(value: float) -> str:
    """Return a duration in ms, s, min or h."""
    if 0.0 < abs(value) < 1.0:
        return f"{value * 1000:.0f} ms"
    if abs(value) < 120.0:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if abs(value) < 7200.0 else f"{value / 3600:.0f} h"


def _clock(seconds: float | None) -> str:
    """Return the local time of day, or `?` if the time is out of range. An agent's clock may send any number."""
    if seconds is None:
        return "?"
    try:
        return time.strftime("%H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
