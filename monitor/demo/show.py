"""Run the demo once: start the broker, the monitor, the agent process and the watcher."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from paho.mqtt.client import Client, MQTTMessage, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion

from monitor.alarm.figures import change_of
from monitor.cli.output import progress, say
from monitor.demo.embedded import embedded_broker, held_port
from monitor.demo.heating import House, weather_beside
from monitor.demo.stage import PREFERRED_PORT, ended, eventually, interrupted, load, running
from monitor.demo.watch import Watcher
from monitor.evidence.document import read_evidence
from monitor.logic import parse
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.mqtt.broker import parse_broker
from monitor.sidecar.service import Service
from monitor.sidecar.sinks.logbook import ALARMS
from monitor.sidecar.tasks import unless
from monitor.worlds import CheckedWorld

AGENT = "demo"
CLOSE = 1e-9
"""Maximum difference between an inferred state and the state of the simulated plant."""


@dataclass(frozen=True)
class DemoRun:
    """One run of the configuration `config` under the name `scenario`.

    `steps`: the agent stops at the end of the episode that contains this step; with 0 it never stops. `interval`:
    seconds between two steps. `output`: folder for the store and the evidence. `record`: file for the recording.
    """

    config: Path
    scenario: str
    steps: int
    seed: int
    interval: float
    output: Path
    record: Path | None = None

    async def run(self) -> list[str]:
        """Run the demo; return a sentence for each expected event that did not happen.

        Raises:
            ConfigError, ModelError, PolicyError: an input is missing or invalid, and nothing was started.
        """
        with held_port() as broker_port, held_port(PREFERRED_PORT) as http_port:
            url = f"mqtt://127.0.0.1:{broker_port}"
            with progress("reading the model, and running the policies on each of its states"):
                loaded = load(self.config, self.output.absolute() / self.scenario, url, http_port)
        logging.getLogger(ALARMS).addHandler(logging.NullHandler())  # the watcher shows them
        service = Service(loaded, record=self.record)
        watcher = Watcher(loaded.model, self._header(loaded, service.start()))
        with interrupted() as stop:
            async with embedded_broker(broker_port), running(service), _watching(loaded, url, watcher) as online:
                if not await eventually(online.is_set):
                    return ["the monitor did not come online"]
                with watcher.shown():
                    problem = await self._act(loaded, url, watcher, stop)
            if problem:
                return [problem]
            stopped = stop.is_set()
            problems = await summarise(watcher, self.output / self.scenario / "evidence", stopped=stopped)
            if not problems and not stopped and isinstance(loaded.model, CheckedWorld):
                problems = self._compare(loaded, watcher)
            return ["stopped before its last step"] if stopped and self.steps else problems

    def _header(self, loaded: Loaded, address: str) -> str:
        formulas = "\n".join(f"  formula        {spec.name}: {spec.text}" for spec in loaded.formulas)
        stops = f"stops at the end of the episode with step {self.steps}" if self.steps else "runs until Ctrl-C"
        return (
            f"cfmon demo, scenario {self.scenario}, seed {self.seed}; {stops}\n"
            f"  broker         {loaded.config.mqtt.url}, steps on agents/{AGENT}/steps, alerts on"
            f" {loaded.config.mqtt.alerts}/#\n{formulas}\n"
            f"  while it runs  open {address} in a browser\n"
            f"                 or curl {address}/metrics"
        )

    async def _act(self, loaded: Loaded, url: str, watcher: Watcher, stop: asyncio.Event) -> str:
        """Run the agent until it ends and the monitor has caught up; return the problem, or an empty text."""
        process = await self._spawn(loaded, url)
        try:
            finished = await unless(stop, ended(process))
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        if not finished:
            return ""
        if process.returncode != 0:
            return f"the agent exited with code {process.returncode}; its output is above"
        if not await eventually(lambda: watcher.seen.steps >= self.steps and watcher.over):
            return "the broker did not deliver every step that the agent published"
        if not await eventually(lambda: watcher.settled):
            return "the monitor did not close an alarm although its episode is over"
        return ""

    def _compare(self, loaded: Loaded, watcher: Watcher) -> list[str]:
        """Print the house's state under the other controller with the same noise, beside the inferred state."""
        world, folder = loaded.model, self.output / self.scenario / "evidence"
        assert isinstance(world, CheckedWorld)
        nominal = loaded.policies["nominal"]
        house = House.of(world, nominal.table, weather_beside(loaded.config.model), self.seed, nominal.sha256)
        for alert in watcher.seen.alarms("firing"):
            file = folder / str(alert["evidence"]["id"])
            if not file.is_file():  # the evidence is written after the alert is published
                continue
            evidence = read_evidence(file.read_bytes())
            change, offset = change_of(parse(evidence.text)), evidence.verdict.offset
            if change is not None and change.kind == "policy" and offset > 0:
                inferred, again = house.run_again(evidence, loaded.tables, change.name, offset)
                apart = float(np.abs(inferred - again).max())
                say(f"\nhad {change.name!r} taken over {offset} steps before the alarm of episode {evidence.episode}:")
                say(f"  inferred from the published numbers     {world.shown(inferred)}")
                say(f"  the house, run again with its own noise {world.shown(again)}")
                say(f"  largest difference                      {apart:.1e}")
                return [] if apart < CLOSE else [f"the two differ by {apart:g}"]
        return []

    async def _spawn(self, loaded: Loaded, url: str) -> Process:
        config = loaded.config
        arguments = {
            "--model": config.model,
            "--policy": str(config.policies["nominal"]),
            "--url": url,
            "--topic": config.mqtt.steps.replace("+", AGENT),
            "--steps": str(self.steps),
            "--seed": str(self.seed),
            "--interval": str(self.interval),
        }
        if isinstance(loaded.model, CheckedWorld):
            arguments["--weather"] = str(weather_beside(config.model))
        flat = [part for pair in arguments.items() for part in pair]
        command = (sys.executable, "-m", "monitor.demo.agent", *flat)
        return await asyncio.create_subprocess_exec(
            *command, start_new_session=True
        )  # Ctrl-C goes to this process only


async def summarise(watcher: Watcher, folder: Path, *, stopped: bool) -> list[str]:
    """Print the number of alarms, and verify the evidence of one alarm in a new process; return the problems.

    `folder`: folder with the evidence. `stopped`: whether Ctrl-C stopped the run; then only print the path of the
    evidence.
    """
    seen = watcher.seen
    fired, resolved, ended = (seen.alarms(state) for state in ("firing", "resolved", "ended"))
    say(
        f"\n{seen.steps} steps over MQTT in {seen.episodes} episodes; alarms: {len(fired)} fired, "
        f"{len(resolved)} resolved within their episode, {len(ended)} ended with it"
    )
    alerts = [alert for alert in (*resolved, *ended, *fired) if alert["evidence"]]
    evidence = folder / str(alerts[0]["evidence"]["id"]) if alerts else None
    if stopped:
        _print_evidence(evidence)
        return []
    if not resolved:
        missing = "no alarm fired" if not fired else "no alarm resolved within its episode"
        return [f"{missing}; run longer (--steps) or try another --seed"]
    if evidence is None:
        return ["no alarm has evidence; the monitor's log says why"]
    if not await eventually(evidence.is_file):  # the monitor writes the evidence after it has published the alert
        return [f"the monitor did not write the evidence {evidence}"]
    say(f"verify the evidence of a resolved alarm in a new process:\n$ {_command()} verify {evidence}")
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "monitor", "verify", str(evidence))
    problems = [] if await process.wait() == 0 else ["the evidence could not be verified"]
    _print_evidence(evidence)
    return problems


def _print_evidence(evidence: Path | None) -> None:
    if evidence is not None:
        say(f"\nevidence of an alarm  {evidence}")
        say(f"  draw it             {_command()} explain {evidence} -o alarm.svg")
        say(f"  verify it           {_command()} verify {evidence}")


def _command() -> str:
    """Return the command to type: `cfmon`, or its path if its environment is not on PATH."""
    beside = Path(sys.executable).with_name("cfmon")
    if shutil.which("cfmon") or not beside.is_file():
        return "cfmon"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


@asynccontextmanager
async def _watching(loaded: Loaded, url: str, watcher: Watcher) -> AsyncIterator[asyncio.Event]:
    """Subscribe the watcher. The yielded event is set when the monitor has published that it is `online`."""
    broker, mqtt = parse_broker(url), loaded.config.mqtt
    loop, online = asyncio.get_running_loop(), asyncio.Event()

    def receive(message: MQTTMessage) -> None:
        if topic_matches_sub(mqtt.steps, message.topic):
            watcher.take_step(bytes(message.payload))
        elif topic_matches_sub(f"{mqtt.alerts}/#", message.topic):
            watcher.take_alert(bytes(message.payload))
        else:
            watcher.take_status(bytes(message.payload))
            if json.loads(message.payload)["state"] == "online":
                online.set()

    def on_message(_client: Client, _data: object, message: MQTTMessage) -> None:
        loop.call_soon_threadsafe(receive, message)  # called in paho's thread

    client = Client(CallbackAPIVersion.VERSION2, client_id="cfmon-demo-watcher")
    client.on_message = on_message
    await asyncio.to_thread(client.connect, broker.host, broker.port)
    client.subscribe([(topic, 1) for topic in (mqtt.steps, f"{mqtt.alerts}/#", f"{mqtt.status}/+")])
    client.loop_start()
    try:
        yield online
    finally:
        client.disconnect()
        await asyncio.to_thread(client.loop_stop)
