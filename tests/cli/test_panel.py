"""`cfmon run` on a terminal: a live table below the log; lines elsewhere; never in the way of the monitor."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.cli.files import data_file
from tests.servers import PATIENCE, free_port, mosquitto
from tests.terminal import Terminal

RUN = [sys.executable, "-m", "monitor", "run", str(data_file("config/frozen-lake.yaml"))]
MODEL, POLICY = data_file("policies/frozen-lake/model.npz"), data_file("policies/frozen-lake/rash.yaml")
COLOUR = re.compile(rb"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])[0-9;]*m")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A broker that is not there, a free port, a store of its own."""
    return {
        "CFMON_MQTT__URL": f"mqtt://127.0.0.1:{free_port()}",
        "CFMON_HTTP__LISTEN": f"127.0.0.1:{free_port()}",
        "CFMON_STORE__PATH": str(tmp_path / "cfmon.sqlite"),
    }


def test_it_follows_what_happens(tmp_path: Path, env: dict[str, str]) -> None:
    with mosquitto(tmp_path / "broker") as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        with Terminal(RUN, env={**env, "CFMON_MQTT__URL": url}) as terminal:
            terminal.until("status page at", "connected to mqtt", "no agent has sent a step yet")
            agent = ["--model", str(MODEL), "--policy", str(POLICY), "--url", url, "--topic", "agents/ada/steps"]
            acting = [sys.executable, "-m", "monitor.cli.agent", *agent, "--seed", "1", "--interval", "0.05"]
            with subprocess.Popen(acting) as living:
                try:
                    seen = terminal.until("ada", "FIRING", "1 agent", "what to do: http")
                finally:
                    living.terminate()
            assert 0 <= seen.rfind(" monitor.") < seen.index("cfmon run")  # the log stands above
            terminal.process.send_signal(signal.SIGTERM)
            assert terminal.end() == 0
            assert terminal.cursor_shown()
            assert "ENDED at" in terminal.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
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


def test_another_size_leaves_no_pieces_of_the_old_table(env: dict[str, str]) -> None:
    with Terminal(RUN, env=env, lines=40, columns=130) as terminal:
        terminal.until("NOT CONNECTED", "cannot connect")
        for lines, columns in ((20, 60), (50, 160), (12, 45)):
            before = len(terminal.raw)
            terminal.resize(lines, columns)
            terminal.until_drawn(b"\x1b[2J", since=before)
            seen = terminal.until("NOT CONNECTED", "no agent has sent a step yet")
            assert seen.count("cfmon run") == 1
            assert seen.count("0 known to fire") == 1
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0


def test_without_colours_where_none_are_wanted(env: dict[str, str]) -> None:
    with Terminal(RUN, env=env) as colourful, Terminal(RUN, env={**env, "NO_COLOR": "1", **other(env)}) as plain:
        for terminal in (colourful, plain):
            terminal.until("NOT CONNECTED", "0 known to fire")
            terminal.process.send_signal(signal.SIGTERM)
            assert terminal.end() == 0
        assert COLOUR.search(colourful.raw)
        assert not COLOUR.search(plain.raw)


def other(env: dict[str, str]) -> dict[str, str]:
    """For a second sidecar beside the first."""
    port = f"127.0.0.1:{free_port()}"
    return {"CFMON_HTTP__LISTEN": port, "CFMON_STORE__PATH": f"{env['CFMON_STORE__PATH']}-2"}


@pytest.mark.parametrize(("more", "term"), [(["--plain"], "xterm"), ([], "dumb")])
def test_plain_lines_on_a_terminal_that_wants_them(env: dict[str, str], more: list[str], term: str) -> None:
    with Terminal([*RUN, *more], env={**env, "TERM": term}) as terminal:
        terminal.until("status page at")
        before = terminal.raw.index(b"status page at")
        terminal.until("cannot connect")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.raw[before:].removesuffix(b"\x1b[0m")  # colorama's goodbye, at exit
        assert "firing" not in terminal.text


def test_nothing_but_lines_in_a_pipe(env: dict[str, str]) -> None:
    with subprocess.Popen(
        RUN, env={**os.environ, **env, "FORCE_COLOR": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        heard = b""
        while b"cannot connect" not in heard:
            heard += process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, b"")
    assert b"\x1b" not in heard + err


def test_a_terminal_that_takes_nothing_holds_nothing_up(env: dict[str, str]) -> None:
    with Terminal(RUN, env=env) as terminal:
        terminal.until("NOT CONNECTED")
        terminal.stop_taking()  # as Ctrl-S does; what is drawn piles up until no more fits
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(30) == 0


def test_a_terminal_that_is_gone_ends_nothing(env: dict[str, str]) -> None:
    with Terminal(RUN, env=env) as terminal:
        terminal.until("NOT CONNECTED")
        terminal.hang_up()  # SIGHUP: the configuration is read again
        with pytest.raises(subprocess.TimeoutExpired):
            terminal.process.wait(2)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(30) == 0
