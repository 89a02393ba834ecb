"""Run `cfmon demo --takeover` once: a broker, a monitor, agents that hand over, and agents that never hand over."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import math
import sys
import urllib.request
from asyncio.subprocess import PIPE, Process
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.live import Live
from rich.table import Table

from monitor.cli.output import on_terminal, progress, say
from monitor.demo.embedded import embedded_broker, held_port
from monitor.demo.stage import PREFERRED_PORT, ended, eventually, interrupted, load, running
from monitor.errors import ConfigError
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.service import Service
from monitor.sidecar.sinks.logbook import ALARMS
from monitor.sidecar.tasks import unless

NAME: Final = "icu-sepsis-takeover"
OUTCOMES: Final = ("needed", "needless", "harmful", "futile")
"""Outcomes of a takeover (docs/takeover.md), except `undecided`."""

KINDS: Final = {"guarded": "with takeover", "alone": "without"}
ERRORS: Final = 2.0
"""Number of standard errors by which survival must differ for the demo to succeed."""

OutcomeCounts = dict[str, int]
"""Numbers of `episodes`, of `survived` episodes, and of `takeovers`."""


@dataclass
class LoopResult:
    """Reports of the agents (kind of agents -> counts), and the monitor's counts of takeover outcomes."""

    tallies: dict[str, OutcomeCounts] = field(default_factory=lambda: {kind: _empty() for kind in KINDS})
    outcomes: dict[str, int] = field(default_factory=dict)

    def rate(self, kind: str, what: str) -> tuple[float, float]:
        """Return the fraction of a kind's episodes that count as `what`, and its standard error; NaN without episodes.

        It is the standard error of a binomial proportion.
        """
        tally = self.tallies[kind]
        if not tally["episodes"]:
            return math.nan, math.nan
        fraction = tally[what] / tally["episodes"]
        return fraction, math.sqrt(fraction * (1.0 - fraction) / tally["episodes"])

    @property
    def gain(self) -> tuple[float, float]:
        """Survival rate of guarded agents minus that of other agents, and the standard error of this difference."""
        guarded, alone = (self.rate(kind, "survived") for kind in KINDS)
        return guarded[0] - alone[0], math.hypot(guarded[1], alone[1])

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the rows of the table: name, value with takeover, value without."""
        counts = [f"{self.tallies[kind]['episodes']:,}" for kind in KINDS]
        survived = [_percent(*self.rate(kind, "survived")) for kind in KINDS]
        rows = [
            ("episodes", counts[0], counts[1]),
            ("survived", survived[0], survived[1]),
            ("handed over", _percent(*self.rate("guarded", "takeovers")), "-"),
        ]
        judged = sum(self.outcomes.values())
        for outcome in (*OUTCOMES, "undecided"):
            count = self.outcomes.get(outcome, 0)
            if judged and (count or outcome != "undecided"):
                rows.append((f"  {outcome}", f"{100 * count / judged:.1f} % of {judged:,}", ""))
        return rows


@dataclass(frozen=True)
class ClosedLoop:
    """One run of `config`, with `episodes` episodes for each kind of agents and `interval` seconds per step."""

    config: Path
    episodes: int
    seed: int
    interval: float
    output: Path

    async def run(self) -> list[str]:
        """Run the agents beside the monitor; return a sentence for each expected event that did not happen.

        Raises:
            ConfigError, ModelError, PolicyError: an input is missing or invalid, and nothing was started.
        """
        if importlib.util.find_spec("cfmon_client") is None:
            raise ConfigError("the agents of this demo need cfmon-client: pip install ./client (`make demo` does this)")
        with held_port() as broker_port, held_port(PREFERRED_PORT) as http_port:
            url = f"mqtt://127.0.0.1:{broker_port}"
            with progress("reading the model, and running the policies on each of its states"):
                loaded = load(self.config, self.output.absolute() / NAME, url, http_port)
        logging.getLogger(ALARMS).addHandler(logging.NullHandler())  # hides hundreds of lines
        service, result = Service(loaded), LoopResult()
        address = service.start()
        say(self._header(loaded, address))
        with interrupted() as stop:
            async with embedded_broker(broker_port), running(service):
                if not await eventually(lambda: _get(f"{address}/readyz") is not None):
                    return ["the monitor did not come online"]
                problem = await self._act(loaded, url, address, result, stop)
        if problem:
            return [problem]
        return summarise(result)

    def _header(self, loaded: Loaded, address: str) -> str:
        formulas = "\n".join(f"  formula        {spec.name}: {spec.text}" for spec in loaded.formulas)
        return (
            f"cfmon demo --takeover, seed {self.seed}: {self.episodes:,} episodes of agents that hand over to\n"
            f"'fallback' when an alarm calls for it, and as many of agents that do not\n{formulas}\n"
            f"  while it runs  open {address} in a browser"
        )

    async def _act(self, loaded: Loaded, url: str, address: str, result: LoopResult, stop: asyncio.Event) -> str:
        """Run the agents to their end, and show their reports; return the problem, or an empty text."""
        process = await self._spawn(loaded, url)
        try:
            with _table(result) as live:
                finished = await unless(stop, _follow(process, address, result, live))
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        if not finished:
            return "stopped before its last episode"
        if process.returncode != 0:
            return f"the agents exited with code {process.returncode}; their output is above"
        await eventually(lambda: _take_outcomes(address, result) >= result.tallies["guarded"]["takeovers"])
        return ""

    async def _spawn(self, loaded: Loaded, url: str) -> Process:
        config = loaded.config
        arguments = {
            "--model": config.model,
            "--policy": str(config.policies["nominal"]),
            "--fallback": str(config.policies["fallback"]),
            "--url": url,
            "--steps": config.mqtt.steps,
            "--alerts": config.mqtt.alerts,
            "--status": config.mqtt.status,
            "--episodes": str(self.episodes),
            "--seed": str(self.seed),
            "--interval": str(self.interval),
        }
        flat = [part for pair in arguments.items() for part in pair]
        command = (sys.executable, "-m", "monitor.demo.guarded_agents", *flat)
        return await asyncio.create_subprocess_exec(*command, stdout=PIPE, start_new_session=True)


async def _follow(process: Process, address: str, result: LoopResult, live: Live | None) -> None:
    """Read the agents' reports until they end."""
    assert process.stdout is not None
    async for line in process.stdout:
        result.tallies = json.loads(line)
        await asyncio.to_thread(_take_outcomes, address, result)
        if live is not None:
            live.update(_drawn(result), refresh=True)
    await ended(process)


def _take_outcomes(address: str, result: LoopResult) -> int:
    """Read the monitor's counters of takeovers; return their sum."""
    text = _get(f"{address}/metrics") or ""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    counts: dict[str, int] = {}
    for sample in samples:
        if sample.name == "cfmon_takeovers_total":
            outcome = sample.labels["outcome"]
            counts[outcome] = counts.get(outcome, 0) + int(sample.value)
    result.outcomes = counts or result.outcomes
    return sum(result.outcomes.values())


def summarise(result: LoopResult) -> list[str]:
    """Print the result, and the table if it is not on the screen; return a sentence for each unmet expectation."""
    if not on_terminal(sys.stdout):
        for row in [("", *KINDS.values()), *result.lines()]:
            say(f"{row[0]:<14} {row[1]:>20} {row[2]:>20}".rstrip())
    gain, error = result.gain
    say(f"survival with takeover minus without: {100 * gain:+.1f} ± {100 * error:.1f} percentage points (1 s.e.)")
    return [] if gain > ERRORS * error else ["survival with takeovers is not clearly higher; run more --episodes"]


def _table(result: LoopResult) -> Live | nullcontext[None]:
    """Return a live table on a terminal, else an empty context."""
    if not on_terminal(sys.stdout):
        return nullcontext()
    return Live(_drawn(result), console=Console(), auto_refresh=False)


def _drawn(result: LoopResult) -> Table:
    table = Table("", *KINDS.values(), box=None, header_style="dim")
    for row in result.lines():
        table.add_row(*row)
    return table


def _percent(fraction: float, error: float) -> str:
    return "-" if math.isnan(fraction) else f"{100 * fraction:.1f} % ± {100 * error:.1f}"


def _empty() -> OutcomeCounts:
    return {"episodes": 0, "survived": 0, "takeovers": 0}


def _get(address: str) -> str | None:
    """Return the body of a page of the monitor; None if it does not respond with success."""
    try:
        with urllib.request.urlopen(address, timeout=5.0) as response:  # noqa: S310 - our own loopback address
            content: bytes = response.read()
            return content.decode()
    except OSError:
        return None
