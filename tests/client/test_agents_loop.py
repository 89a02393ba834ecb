"""The agent's loop does not wait for the client: `step` calls nothing that could wait.

Times would say little about that, since any thread of a busy machine can lose the processor.
`test_a_thread_that_gets_no_processor_costs_steps_and_not_memory` has the thread at the other end held up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import cfmon_client
import numpy as np
import pytest

from tests.servers import PATIENCE, Mosquitto, wait_until

PACKAGES = {"cfmon_client", "msgpack", "collections"}
"""Where the functions of Python are that a step may call."""

FUNCTIONS = {
    *("callable", "getattr", "isfinite", "isinstance", "len", "setprofile"),
    *("deque.append", "dict.update", "ndarray.tolist"),
    *("getpid", "monotonic", "time"),
}
"""Those of C: no lock, and no system call but three that cannot wait."""


def calls_of(work: Callable[[], None]) -> tuple[set[str], set[str]]:
    """The folders of the functions of Python that are called, and the names of those of C."""
    folders, functions = set(), set()

    def note(frame: FrameType, event: str, called: object) -> None:
        if event == "call":
            folders.add(Path(frame.f_code.co_filename).parent.name)
        elif event == "c_call":
            functions.add(getattr(called, "__qualname__", repr(called)))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return folders, functions


@pytest.mark.parametrize("reachable", [True, False])
def test_a_step_calls_nothing_that_could_wait(broker: Mosquitto, *, reachable: bool) -> None:
    if not reachable:
        broker.stop()
    with cfmon_client.publish(broker.url, "arm-7") as steps:
        wait_until(lambda: steps.status.connected or steps.status.problem, "the first attempt to connect")
        state = np.zeros(8)
        steps.step(state, 0)
        folders, functions = calls_of(lambda: steps.step(state, 1, reward=1.0))
        assert steps.flush(PATIENCE if reachable else 0.0) is reachable
        steps.close(timeout=0.0)
    assert folders <= {*PACKAGES, Path(__file__).parent.name}
    assert functions <= FUNCTIONS


def test_what_waits_would_be_seen() -> None:
    _, functions = calls_of(lambda: open("/dev/null").close())  # noqa: PTH123 - a function of C
    assert not functions <= FUNCTIONS
