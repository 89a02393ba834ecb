"""What `cfmon run` shows on a terminal, as text: what fires, what is blind, then every agent and formula.

Everything is told in words; colours only repeat them. What agents say of themselves is shown with anything that could
steer the terminal taken out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from monitor.cli.output import printable

__all__ = ["Fleet"]

ROOM: Final = 5
"""Lines left to the log, above."""

FEWEST: Final = 3
"""Rows shown, however low the terminal is."""

MOST_TOLD: Final = 2
"""Alarms told in a sentence, and reasons of blindness; the others are rows of the table."""

MOST_AGENTS: Final = 100
"""More agents than any terminal has lines."""

FIRING, BLIND, CALM = range(3)
STYLES: Final = {"firing": "bold red", "pending": "yellow", "clear": "green", "unknown": "bold magenta"}
Row = tuple[int, dict[str, Any], dict[str, Any]]


class Fleet:
    """The document of `/api/overview` as it is drawn, as high as the terminal allows.

    `title`: what runs; `address`: where the page is; `ended`: nobody watches any more.
    """

    def __init__(self, told: dict[str, Any], title: str, address: str, *, ended: bool) -> None:
        self._told = told
        self._title = title
        self._address = address
        self._ended = ended

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw: what matters most stands first, because what does not fit is cut off below."""
        top = Group(*self._head(), *self._alarms(), *self._blind())
        yield top
        taken = len(console.render_lines(top, options))
        yield self._table(max(FEWEST, console.height - taken - ROOM))

    def _head(self) -> Iterator[RenderableType]:
        told, status, count = self._told, self._told["status"], self._told["count"]
        line = Text(f"{self._title}  ", style="bold", no_wrap=True, overflow="ellipsis")
        if self._ended:
            line.append(f"ENDED at {_clock(told['now'])}: nothing is watched any more", style="bold red")
        else:
            line.append(f"{_clock(told['now'])}  {self._address}", style="not bold")
        yield line
        link = Text("connected to " if status["connected"] else "NOT CONNECTED to ")
        link.stylize("green" if status["connected"] else "bold red")
        rest = f"{printable(status['broker'])}, {status['queue']} waiting, {status['unsent']} to be sent"
        yield link.append(rest, style="not bold default")
        if status["store"] not in ("ok", "nothing is kept"):
            yield Text(f"STORE: {printable(status['store'])}", style="bold red")
        if told["problem"] and status["connected"] and not self._ended:
            yield Text(f"NOT READY: {printable(told['problem'])}", style="bold red")
        unknown = self._unknown()
        calm = "bold magenta" if unknown else "green"
        tally = Text(f"{count['firing']} known to fire" if unknown else f"{count['firing']} firing")
        tally.stylize("bold red" if count["firing"] else calm)
        tally.append(f", {count['blind']} blind", style="not bold magenta" if count["blind"] else f"not bold {calm}")
        tally.append(f"; {_many(count['agents'], 'agent')}", style="not bold default")
        yield tally.append(f"  UNKNOWN: {printable(unknown)}", style="bold magenta") if unknown else tally

    def _unknown(self) -> str:
        """Why it is not known that nothing more fires; empty if it is."""
        told = self._told
        if self._ended:
            return "nothing is watched any more"
        if told["problem"]:
            return str(told["problem"])
        if not told["status"]["connected"]:
            return "not connected to the broker"
        return "" if told["count"]["agents"] else "no agent has been heard of, so nothing is watched yet"

    def _alarms(self) -> Iterator[RenderableType]:
        for alarm in self._told["firing"][:MOST_TOLD]:
            head = f"FIRING since {_clock(alarm['since_unix'])} {alarm['severity']} {alarm['formula']['name']}: "
            yield Text(head, style="bold red").append(printable(alarm["summary"]), style="not bold default")
            if alarm["runbook"]:
                yield Text(f"  what to do: {printable(alarm['runbook'])}")

        for alarm in [] if self._told["firing"] else self._told["recent"][:1]:
            head = f"last alarm: {alarm['state']} {_clock(alarm['sent_unix'])} {alarm['formula']['name']}: "
            yield Text(head).append(printable(alarm["summary"]), style="dim")

    def _blind(self) -> Iterator[RenderableType]:
        for group in self._told["blind"][:MOST_TOLD]:
            head = Text(f"BLIND {group['agent']} ", style="bold magenta")
            why = f"({group['reason']}): {group['words']}"
            yield head.append(f"{why}; {', '.join(group['formulas'])}", style="not bold default")

    def _table(self, lines: int) -> RenderableType:
        rows = sorted(self._rows(), key=lambda row: row[0])
        agents = self._told["count"]["agents"]
        if not rows:
            return Text("no agent has been heard of so far" if not agents else "no formula is watched", style="dim")
        table = Table(box=None, header_style="dim", pad_edge=False)
        for name, justify in (("agent", "left"), ("formula", "left"), ("alarm", "left"), ("outcome", "left")):
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
        for name in ("value", "required", "alternative", "step", "lag", "heard"):
            table.add_column(name, justify="right", no_wrap=True)
        shown = rows[: lines - 2]
        for rank, agent, row in shown:
            table.add_row(*self._cells(agent, row), style="" if rank != CALM else "default")
        more = agents * len(self._told["formulas"]) - len(shown)
        return (
            Group(Text(""), table, Text(f"and {more} more: see the page", style="dim"))
            if more > 0
            else Group("", table)
        )

    def _rows(self) -> Iterator[Row]:
        for agent in self._told["agents"]:
            for row in agent["formulas"]:
                yield FIRING if row["alarm"] == "firing" else BLIND if row["blind"] else CALM, agent, row

    def _cells(self, agent: dict[str, Any], row: dict[str, Any]) -> Iterator[RenderableType]:
        yield agent["name"]
        yield row["name"]
        alarm = "unknown" if row["blind"] and row["alarm"] != "firing" else row["alarm"]
        yield Text(alarm.upper() if alarm == "firing" else alarm, STYLES.get(alarm, ""))
        yield Text(f"BLIND {row['blind']}", "bold magenta") if row["blind"] else Text(row["outcome"] or "-")
        threshold, alternative = row["threshold"], row["alternative"]
        yield _number(row["value"])
        yield "-" if threshold is None else f"{threshold['comparison']} {_number(threshold['bound'])}"
        yield "-" if alternative is None else _number(alternative["value"])
        yield "-" if row["seq"] is None else str(row["seq"])
        yield "-" if agent["lag"] is None else _seconds(agent["lag"])
        yield f"{_seconds(max(0, round(self._told['now'] - agent['last_message'])))} ago"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:#.4g}".rstrip(".")


def _seconds(value: float) -> str:
    """Short, in the unit that suits it."""
    if 0.0 < abs(value) < 1.0:
        return f"{value * 1000:.0f} ms"
    if abs(value) < 120.0:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if abs(value) < 7200.0 else f"{value / 3600:.0f} h"


def _clock(seconds: float | None) -> str:
    """Local time of day; an agent's clock may say anything."""
    if seconds is None:
        return "?"
    try:
        return time.strftime("%H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
