"""How far long work is: on a terminal's stderr, and nowhere else; whatever ends it, the terminal stays sane."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.cli.compiling import EVENT, log_compilation
from monitor.cli.files import data_file
from tests.servers import PATIENCE
from tests.terminal import Terminal
from tests.tiers import slow

HALF_WAY = """
import signal, sys
from monitor.cli.output import progress, say
told_on = {signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, told_on)
with progress("counting [sheep]", total=10) as bar:
    bar.at(5)
    if sys.stderr.isatty():
        signal.sigwait(told_on)
    bar.at(6, "counting on")
    if sys.stderr.isatty():
        signal.sigwait(told_on)
say("counted")
"""


def test_a_bar_on_a_terminal_that_leaves_no_trace() -> None:
    with Terminal([sys.executable, "-c", HALF_WAY]) as terminal:
        for words in (("counting [sheep]", "50%"), ("counting on", "60%")):
            terminal.until(*words)
            terminal.process.send_signal(signal.SIGUSR1)
        assert terminal.end() == 0
        assert terminal.cursor_shown()
        assert terminal.text.strip() == "counted"


def test_nothing_elsewhere() -> None:
    command = [sys.executable, "-c", HALF_WAY]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert (run.stdout, run.stderr) == ("counted\n", "")


@slow
def test_machine_code_is_reported_and_sigterm_leaves_the_terminal_sane(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "monitor", "config", "check", str(data_file("config/frozen-lake.yaml"))]
    with Terminal(command, env={"NUMBA_CACHE_DIR": str(tmp_path)}) as terminal:
        terminal.until("reading the configuration", "compiling, once per machine")
        assert not terminal.cursor_shown()
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        assert terminal.cursor_shown()
        assert "Traceback" not in terminal.text


def test_making_machine_code_is_reported_once_in_a_log_that_nobody_watches(caplog: pytest.LogCaptureFixture) -> None:
    from numba.core import event  # noqa: PLC0415 - as slow as what it tells of

    with log_compilation():
        assert caplog.text == ""
        for _ in range(3):
            event.broadcast(event.Event(EVENT, event.EventStatus.START))  # type: ignore[no-untyped-call] # numba has none
            event.broadcast(event.Event(EVENT, event.EventStatus.END))  # type: ignore[no-untyped-call] # likewise
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "`cfmon warm` compiles in advance" in caplog.text
