"""The agent's loop does not wait for the client.

Time on a busy machine says little about that: any thread can lose the processor. So the tests count how often the
system put the agent's thread to sleep within `step` (voluntary context switches: a lock, the interpreter lock, input or
output), which an interruption by other processes does not change.
"""

from __future__ import annotations

import resource
import time

import cfmon_client
import numpy as np
import pytest

from tests.servers import Mosquitto, free_port, wait_until

STEPS = 3000
ALLOWED = STEPS // 1000
"""One step in a thousand: the 99.9th percentile."""


def waits() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


@pytest.mark.parametrize("reachable", [True, False])
def test_at_most_one_step_in_a_thousand_waits_for_anything(broker: Mosquitto, reachable: bool) -> None:  # noqa: FBT001
    url = broker.url if reachable else f"mqtt://127.0.0.1:{free_port()}"
    state, waited = np.zeros(8), 0
    steps = cfmon_client.publish(url, "arm-7")
    wait_until(lambda: steps.status.connected or steps.status.problem, "the first attempt to connect")
    for number in range(STEPS):
        before = waits()
        steps.step(state, number % 4, reward=1.0)
        waited += waits() - before
        time.sleep(0.001)  # the agent's own work
    assert steps.flush() is reachable
    assert steps.close(timeout=5.0 if reachable else 0.0) is reachable
    assert waited <= ALLOWED


def test_the_measure_sees_a_wait() -> None:
    before = waits()
    time.sleep(0.001)
    assert waits() > before
