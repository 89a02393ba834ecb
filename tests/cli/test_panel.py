"""`cfmon run` on a terminal: a live table below the log; lines elsewhere; never in the way of the monitor."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.cli.input_files import data_file
from tests.processes import fork_monitor
from tests.servers import PATIENCE, mosquitto, wait_until
from tests.terminal import Terminal
from tests.tiers import first, slow

RUN = ["cfmon", "run", str(data_file("config/frozen-lake.yaml"))]
MODEL, POLICY = data_file("policies/frozen-lake/model.npz"), data_file("policies/frozen-lake/rash.yaml")
COLOUR = re.compile(rb"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])[0-9;]*m")


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A broker that is not there, and a store of its own; any free port for the status page."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets the port
        yield {
            "CFMON_MQTT__URL": f"mqtt://127.0.0.1:{taken.getsockname()[1]}",
            "CFMON_HTTP__LISTEN": "127.0.0.1:0",
            "CFMON_HTTP__URL": "http://monitor.example",  # where alerts say what to do
            "CFMON_STORE__PATH": str(tmp_path / "cfmon.sqlite"),
        }


def test_it_follows_what_happens(tmp_path: Path, env: dict[str, str]) -> None:
    with mosquitto(tmp_path / "broker") as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        with Terminal(RUN, env={**env, "CFMON_MQTT__URL": url}) as terminal:
            terminal.until("status page at", "connected to mqtt", "no agent has sent a step yet")
            agent = ["--model", str(MODEL), "--policy", str(POLICY), "--url", url, "--topic", "agents/ada/steps"]
            acting = [sys.executable, "-m", "monitor.demo.agent", *agent, "--seed", "1", "--interval", "0.05"]
            with subprocess.Popen(acting) as living:
                try:
                    seen = terminal.until("ada", "FIRING", "1 agent", "what to do: http")
                finally:
                    living.kill()
            assert 0 <= seen.rfind(" monitor.") < seen.index("cfmon run")  # the log stands above
            terminal.process.send_signal(signal.SIGTERM)
            assert terminal.end() == 0
            assert terminal.cursor_shown()
            assert "ENDED at" in terminal.text


@pytest.mark.parametrize("number", first(1, [signal.SIGINT, signal.SIGTERM]))
def test_a_signal_ends_it_with_a_sane_terminal(env: dict[str, str], number: signal.Signals) -> None:
    with Terminal(RUN, env=env) as terminal:
        terminal.until("NOT CONNECTED", "0 known to fire")
        assert not terminal.cursor_shown()
        if number == signal.SIGINT:
            terminal.press_ctrl_c()
        else:
            terminal.process.send_signal(number)
        assert terminal.end() == 0
        assert terminal.cursor_shown()
        assert "Traceback" not in terminal.text
        assert COLOUR.search(terminal.raw)


def test_another_size_leaves_no_pieces_of_the_old_table(env: dict[str, str]) -> None:
    with Terminal(RUN, env=env, lines=40, columns=130) as terminal:
        terminal.until("NOT CONNECTED", "cannot connect")
        for lines, columns in ((20, 60), (50, 160), (12, 45)):
            before = len(terminal.raw)
            terminal.resize(lines, columns)
            terminal.until_drawn(b"\x1b[2J", since=before)
            seen = terminal.until("cfmon run", "NOT CONNECTED", "0 known to fire", "no agent has sent a step yet")
            assert seen.count("cfmon run") == 1
            assert seen.count("0 known to fire") == 1
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0


def test_without_colours_where_none_are_wanted(env: dict[str, str]) -> None:
    with Terminal(RUN, env={**env, "NO_COLOR": "1"}) as terminal:
        terminal.until("NOT CONNECTED", "0 known to fire")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0
        assert not COLOUR.search(terminal.raw)


@pytest.mark.parametrize(("more", "term"), [(["--plain"], "xterm"), pytest.param([], "dumb", marks=slow)])
def test_plain_lines_on_a_terminal_that_wants_them(env: dict[str, str], more: list[str], term: str) -> None:
    with Terminal([*RUN, *more], env={**env, "TERM": term}) as terminal:
        terminal.until("status page at")
        before = terminal.raw.index(b"status page at")
        terminal.until("cannot connect")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.raw[before:].removesuffix(b"\x1b[0m")  # colorama's goodbye, at exit
        assert "firing" not in terminal.text


def test_nothing_but_lines_where_no_terminal_is(env: dict[str, str], tmp_path: Path) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    process = fork_monitor(*RUN[1:], log=out, errors=log, env={**os.environ, **env, "FORCE_COLOR": "1"})
    try:
        wait_until(
            lambda: process.poll() is not None or (log.exists() and b"cannot connect" in log.read_bytes()),
            "it looks for its broker",
        )
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
    finally:
        process.kill()
    assert (code, out.read_bytes()) == (0, b"")
    assert b"cannot connect" in log.read_bytes()
    assert b"\x1b" not in log.read_bytes()


def test_a_terminal_that_takes_nothing_holds_nothing_up(env: dict[str, str]) -> None:
    with Terminal(RUN, env=env) as terminal:
        terminal.until("NOT CONNECTED")
        terminal.stop_taking()  # as Ctrl-S does; what is drawn piles up until no more fits
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(PATIENCE) == 0


def test_a_terminal_that_is_gone_ends_nothing(env: dict[str, str], patient: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(patient.read_text())
    with Terminal(["cfmon", "run", str(config)], env=env) as terminal:
        terminal.until("NOT CONNECTED", "status page at")
        (page,) = set(re.findall(r"status page at (http://[\d.:]+\d)", terminal.text))
        config.write_text("none")
        terminal.hang_up()  # SIGHUP: the configuration is read again
        wait_until(lambda: b"\ncfmon_config_reload_success 0.0" in fetched(f"{page}/metrics"), "it reads it again")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(PATIENCE) == 0


def fetched(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=PATIENCE) as response:  # our own loopback
        return bytes(response.read())
