"""How far long work is: on a terminal's stderr, and nowhere else; whatever ends it, the terminal stays sane."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.servers import PATIENCE
from tests.terminal import Terminal

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

ENDLESS = """
import time
from monitor.cli.output import progress
with progress("reading the model"):
    time.sleep(600)
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


def test_sigterm_leaves_the_terminal_sane() -> None:
    with Terminal([sys.executable, "-c", ENDLESS]) as terminal:
        terminal.until("reading the model")
        assert not terminal.cursor_shown()
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        assert terminal.cursor_shown()
        assert "Traceback" not in terminal.text
