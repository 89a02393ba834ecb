"""Ctrl-C and SIGTERM while a command starts: it ends, quietly, whatever it was at."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from monitor.cli.interrupts import exit_immediately, exits_immediately, orderly
from tests.cli.interrupts import shoot
from tests.servers import interruptible
from tests.tiers import examples, scaled

MOMENTS = (0.0, 0.02, 0.1, 0.25, 0.4, 0.6, 0.9, 1.3)
"""Seconds from when the command hears signals; the many random moments are `python -m tests.cli.interrupts`."""


@scaled
def test_every_signal_while_it_starts_ends_it_without_a_word() -> None:
    plan = [(number, after) for after in MOMENTS[:: examples(3, 1)] for number in (signal.SIGINT, signal.SIGTERM)]
    with ThreadPoolExecutor(2) as pool:
        shots = list(pool.map(lambda one: shoot(*one, wait=True), plan))
    assert [shot for shot in shots if not shot.fine] == []


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [("run", signal.SIGINT, 130), ("run", signal.SIGTERM, 0), ("verify", signal.SIGTERM, 143)],
)
def test_the_exit_code_says_what_ended_it(command: str, number: int, code: int) -> None:
    """To be told to stop is no failure of `cfmon run`."""
    own = f"import os; from monitor.cli.interrupts import exit_immediately as e; e(); os.kill(os.getpid(), {number:d})"
    run = [sys.executable, "-c", f"{own}; os._exit(1)", command]
    assert subprocess.run(run, check=False, preexec_fn=interruptible).returncode == code


@pytest.mark.parametrize("ignored", [False, True])
def test_what_was_ignored_when_it_was_started_stays_ignored(*, ignored: bool) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
        exit_immediately()
        assert exits_immediately(signal.SIGINT) is not ignored
        assert exits_immediately(signal.SIGTERM)
        with orderly():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            assert signal.getsignal(signal.SIGINT) is (signal.SIG_IGN if ignored else signal.default_int_handler)
        assert exits_immediately(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
