"""The demo's stage: broker, sidecar, agent process and watcher, for the length of one run."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from paho.mqtt.client import Client, MQTTMessage, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion

from monitor.cli.embedded import embedded_broker, free_port
from monitor.cli.output import progress, say
from monitor.cli.watch import Watcher
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.mqtt.broker import parse_broker
from monitor.sidecar.service import Service
from monitor.sidecar.signals import when_ended
from monitor.sidecar.sinks.logbook import ALARMS
from monitor.sidecar.tasks import unless

__all__ = ["Show"]

AGENT = "demo"
PREFERRED_PORT = 9108
PATIENCE = 20.0
"""Seconds that start and end may take, beyond the agent's own pace, before the demo says that it is stuck."""


@dataclass(frozen=True)
class Show:
    """One run of what the configuration `config` says, under the name `scenario`.

    `steps`: the agent stops at the end of the episode in which this one comes; 0: never. `interval`: seconds between
    two steps. `output`: where the store and the evidence go.
    """

    config: Path
    scenario: str
    steps: int
    seed: int
    interval: float
    output: Path

    async def play(self) -> list[str]:
        """Run it; returns what should have happened and did not, one sentence each.

        Raises:
            ConfigError, ModelError, PolicyError: something it needs is missing or wrong; nothing was started.
        """
        broker_port, http_port = free_port(), free_port(PREFERRED_PORT)
        url = f"mqtt://127.0.0.1:{broker_port}"
        with progress("reading the model and running the policies on every state of it"):
            loaded = assemble(load_config(self.config, self._settings(url, http_port)))
        logging.getLogger(ALARMS).addHandler(logging.NullHandler())  # the watcher shows them as a subscriber gets them
        service = Service(loaded)
        watcher = Watcher(loaded.model, self._header(loaded, service.start()))
        with _interrupted() as stop:
            async with embedded_broker(broker_port), _running(service), _watching(loaded, url, watcher) as online:
                if not await _eventually(online.is_set):
                    return ["the monitor did not come online"]
                with watcher.shown():
                    trouble = await self._act(loaded, url, watcher, stop)
            return [trouble] if trouble else await self._epilogue(watcher, stop)

    def _settings(self, url: str, port: int) -> dict[str, str]:
        """What the demo sets otherwise than the configuration file, as the environment would."""
        store = self.output.absolute() / self.scenario / "cfmon.sqlite"
        for suffix in ("", "-wal"):  # a new run of the same episodes, not the old one going on
            store.with_name(store.name + suffix).unlink(missing_ok=True)
        return {"CFMON_MQTT__URL": url, "CFMON_HTTP__LISTEN": f"127.0.0.1:{port}", "CFMON_STORE__PATH": str(store)}

    def _header(self, loaded: Loaded, address: str) -> str:
        formulas = "\n".join(f"  watches for    {spec.name}: {spec.text}" for spec in loaded.formulas)
        stops = f"stops by itself after {self.steps} steps" if self.steps else "runs until Ctrl-C"
        return (
            f"cfmon demo, scenario {self.scenario}, seed {self.seed}; {stops}\n"
            f"  broker         {loaded.config.mqtt.url}, steps on agents/{AGENT}/steps, alerts on"
            f" {loaded.config.mqtt.alerts}/#\n{formulas}\n"
            f"  while it runs  open {address} in a browser\n"
            f"                 or curl {address}/metrics"
        )

    async def _act(self, loaded: Loaded, url: str, watcher: Watcher, stop: asyncio.Event) -> str:
        """Let the agent live its episodes, and the monitor answer the last of them; returns what went wrong."""
        process = await self._spawn(loaded, url)
        try:
            lived = await unless(stop, _ended(process))
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        if not lived:
            return ""
        if process.returncode != 0:
            return f"the agent ended with exit code {process.returncode}; what it said stands above"
        if not await _eventually(lambda: watcher.seen.steps >= self.steps and watcher.over):
            return "not every step that the agent published came back from the broker"
        if not await _eventually(lambda: watcher.settled):
            return "the monitor did not close an alarm although its episode is over"
        return ""

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
        flat = [part for pair in arguments.items() for part in pair]
        command = (sys.executable, "-m", "monitor.cli.agent", *flat)
        return await asyncio.create_subprocess_exec(*command, start_new_session=True)  # Ctrl-C is for us to hear

    async def _epilogue(self, watcher: Watcher, stop: asyncio.Event) -> list[str]:
        """Count the alarms, have the evidence of one that resolved derived again in a fresh process, say how to look.

        Interrupted, it only says where to look.
        """
        seen = watcher.seen
        fired, resolved, ended = (seen.alarms(state) for state in ("firing", "resolved", "ended"))
        say(
            f"\n{seen.steps} steps over MQTT in {seen.episodes} episodes; alarms: {len(fired)} fired, "
            f"{len(resolved)} resolved within their episode, {len(ended)} ended with it"
        )
        proven = [alert for alert in (*resolved, *ended, *fired) if alert["evidence"]]
        evidence = self.output / self.scenario / "evidence" / str(proven[0]["evidence"]["id"]) if proven else None
        if stop.is_set():
            _say_where_to_look(evidence)
            return ["it was stopped before its last step"] if self.steps else []
        if not resolved or evidence is None:
            missing = "no alarm fired" if not fired else "no alarm resolved within its episode"
            return [f"{missing}; let it run longer (--steps) or try another --seed"]
        if not await _eventually(evidence.is_file):  # the monitor writes it after it has published the alert
            return [f"the monitor did not write the evidence {evidence}"]
        say(f"the evidence of one that resolved, derived again in a fresh process:\n$ {_command()} verify {evidence}")
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "monitor", "verify", str(evidence))
        problems = [] if await process.wait() == 0 else ["the evidence did not verify"]
        _say_where_to_look(evidence)
        return problems


def _say_where_to_look(evidence: Path | None) -> None:
    if evidence is not None:
        say(f"\nevidence of an alarm  {evidence}")
        say(f"  see it              {_command()} explain {evidence} -o alarm.svg")
        say(f"  derive it again     {_command()} verify {evidence}")


def _command() -> str:
    """How a person calls us here: by our name, or by the path of the environment that is not on theirs."""
    beside = Path(sys.executable).with_name("cfmon")
    if shutil.which("cfmon") or not beside.is_file():
        return "cfmon"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


async def _ended(process: Process) -> None:
    await process.wait()


@contextmanager
def _interrupted() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set while the block lasts."""
    stop = asyncio.Event()
    with when_ended(stop.set):
        yield stop


@asynccontextmanager
async def _running(service: Service) -> AsyncIterator[None]:
    """The sidecar, from here to a clean end; whatever stops it early is raised."""
    stop = asyncio.Event()
    task = asyncio.create_task(service.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


@asynccontextmanager
async def _watching(loaded: Loaded, url: str, watcher: Watcher) -> AsyncIterator[asyncio.Event]:
    """A subscriber of its own, handing on what it hears; the event is set once the sidecar has said `online`."""
    broker, mqtt = parse_broker(url), loaded.config.mqtt
    loop, online = asyncio.get_running_loop(), asyncio.Event()

    def heard(message: MQTTMessage) -> None:
        if topic_matches_sub(mqtt.steps, message.topic):
            watcher.take_step(bytes(message.payload))
        elif topic_matches_sub(f"{mqtt.alerts}/#", message.topic):
            watcher.take_alert(bytes(message.payload))
        else:
            watcher.take_status(bytes(message.payload))
            if json.loads(message.payload)["state"] == "online":
                online.set()

    def on_message(_client: Client, _data: object, message: MQTTMessage) -> None:
        loop.call_soon_threadsafe(heard, message)  # this is paho's thread

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


async def _eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true while there is patience."""
    for _ in range(int(PATIENCE / 0.05)):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return False
