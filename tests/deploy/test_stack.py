"""What compose.yaml starts, started by hand: the same commands and the same files, with hosts and folders of here.

No container engine is needed, so this sees whether the files fit together, not whether the images hold what they say;
Grafana has no package here and is left out.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tests.deploy.test_compose import SERVICES, here
from tests.deploy.test_mosquitto_conf import broker, written_for
from tests.servers import PATIENCE, Prometheus, Sidecar, end, free_port, need, wait_until
from tests.tiers import slow

STARTED = ("mosquitto", "cfmon", "agent", "prometheus", "alertmanager", "receiver")
PORTS = {"mosquitto": 1883, "cfmon": 9108, "prometheus": 9090, "alertmanager": 9093, "receiver": 9095}
"""Each service's own port, by which the others know it."""

LONG = 4 * PATIENCE
"""Seconds until the monitor has read its model and is ready."""


class Stack:
    """The services, each on a free port of loopback with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in PORTS}

    def at_home(self, text: str) -> str:
        """Names and ports of services in a text exchanged for those of here."""
        for name, port in PORTS.items():
            text = re.sub(rf"\b{name}:{port}\b", f"127.0.0.1:{self.ports[name]}", text)
        return text

    def mounted(self, service: str, target: str) -> Path:
        """A copy of what the service finds at `target`, with every address in it exchanged."""
        source = here(f"{target}/", service)
        copy = self.folder / service / "mounted"
        shutil.copytree(source, copy)
        for file in (path for path in copy.rglob("*.y*ml") if path.is_file()):
            file.write_text(self.at_home(file.read_text()))
        return copy

    @contextmanager
    def process(self, name: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> Iterator[Sidecar]:
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            environment = {**os.environ, **(more or {})}
            process = subprocess.Popen(list(command), stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            yield Sidecar(process, log)
        finally:
            end(process)


def commanded(service: str) -> list[str]:
    words: list[str] = [*SERVICES[service].get("entrypoint", []), *SERVICES[service].get("command", [])]
    return [word.replace("$$", "$") for word in words]


def monitor(stack: Stack) -> AbstractContextManager[Sidecar]:
    verb, config = commanded("cfmon")
    more = {name: stack.at_home(value) for name, value in SERVICES["cfmon"]["environment"].items()}
    more |= {
        "CFMON_HTTP__LISTEN": f"127.0.0.1:{stack.ports['cfmon']}",
        "CFMON_STORE__PATH": str(stack.folder / "state" / "cfmon.sqlite"),
    }
    return stack.process("cfmon", [sys.executable, "-m", "monitor", verb, str(here(config, "cfmon"))], more)


def agent(stack: Stack) -> AbstractContextManager[Sidecar]:
    shell, option, script = commanded("agent")
    script = (
        stack.at_home(script).replace("exec python", f"exec {sys.executable}").replace("--interval 1", "--interval .1")
    )
    script = re.sub(r"/etc/cfmon/\S+", lambda path: str(here(path[0], "agent")), script)
    return stack.process("agent", [shell, option, script])


def server(stack: Stack, name: str, program: str) -> AbstractContextManager[Sidecar]:
    """Prometheus or Alertmanager, whose settings lie in `/etc/NAME` and whose data in `/NAME`."""
    files, data = stack.mounted(name, f"/etc/{name}"), stack.folder / name / "data"
    options = [word.replace(f"=/etc/{name}", f"={files}").replace(f"=/{name}", f"={data}") for word in commanded(name)]
    listen = f"--web.listen-address=127.0.0.1:{stack.ports[name]}"
    return stack.process(name, [need(program, program), *options, listen])


def receiver(stack: Stack) -> AbstractContextManager[Sidecar]:
    _python, program, address = commanded("receiver")
    address = f"127.0.0.1:{stack.ports['receiver']}"
    return stack.process("receiver", [sys.executable, str(here(program, "receiver")), address])


def test_every_service_but_grafana_is_started_here() -> None:
    assert {*STARTED, "grafana"} == set(SERVICES)


@slow
def test_a_step_gets_from_the_agent_to_prometheus_and_a_sign_of_life_to_the_switches(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    with ExitStack() as running:
        conf = tmp_path / "mosquitto"
        conf.mkdir()
        running.enter_context(broker(written_for(stack.ports["mosquitto"], conf), stack.ports["mosquitto"]))
        heard = running.enter_context(receiver(stack))
        running.enter_context(server(stack, "alertmanager", "prometheus-alertmanager"))
        watched = running.enter_context(monitor(stack))
        running.enter_context(agent(stack))
        running.enter_context(server(stack, "prometheus", "prometheus"))
        down = {"CfmonDown", "CfmonBrokerDisconnected"}
        measured = Prometheus(stack.ports["prometheus"])

        def answered() -> bool:
            assert watched.process.poll() is None, watched.log
            try:
                return bool(measured.query("sum(cfmon_verdicts_total) > 0"))
            except OSError:
                return False

        wait_until(answered, "Prometheus knows of answers to the agent's steps", patience=LONG)
        assert measured.query('up{job="cfmon"} == 1')
        wait_until(lambda: not down & set(measured.alerts()), "what was said before the monitor was up is over")
        wait_until(lambda: "switch heard chain" in heard.log, "a sign of life of the chain", patience=LONG)
        wait_until(lambda: "switch heard monitors" in heard.log, "a sign of life of the monitor", patience=LONG)
