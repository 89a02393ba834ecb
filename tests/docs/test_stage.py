"""The stage itself: a command that looks at what a started one does waits for it, any other has one try."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Command
from tests.docs.stage import Stage

WAITING = "until [ -e looked ]; do sleep 0.05; done; touch evidence; while :; do sleep 0.05; done"
STARTED = Command(f"trap 'exit 0' INT; echo ready; {WAITING}", "ready", root=False, forever=True)
"""Without the trap, bash passes over a Ctrl-C that comes just as one of its children ends."""

LOOKED = Command("ls evidence || { touch looked; false; }", "evidence", root=False, forever=False)
"""Its first try always fails: what it looks at is made after it."""


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stage]:
    """A stage without a network of its own; what was started on it is gone afterwards."""
    made = Stage(tmp_path)
    yield made
    made.interrupt()


def test_a_look_is_repeated_until_there_is_what_the_page_shows(bare: Stage) -> None:
    bare.do(STARTED)
    bare.do(LOOKED)
    assert (bare.folder / "evidence").exists()


def test_where_nothing_runs_a_look_has_one_try(bare: Stage) -> None:
    with pytest.raises(AssertionError, match="ls evidence"):
        bare.do(LOOKED)


def test_a_command_that_does_something_has_one_try(bare: Stage) -> None:
    bare.do(STARTED)
    with pytest.raises(AssertionError, match="tries"):
        bare.do(Command("echo x >> tries; ls evidence", "evidence", root=False, forever=False))
    assert (bare.folder / "tries").read_text() == "x\n"


def test_a_look_in_vain_fails_in_the_end(tmp_path: Path, bare: Stage) -> None:
    bare.do(STARTED)
    impatient = Stage(tmp_path, running=bare.running, looks_for=0.0)
    with pytest.raises(AssertionError, match="ls nothing"):
        impatient.do(Command("ls nothing", "nothing", root=False, forever=False))
