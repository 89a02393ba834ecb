"""Steps over a real broker: what arrives, what happens when it is away, and that the agent is never held up."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing
from pathlib import Path

import cfmon_client
import pytest
from cfmon_client.publisher import HANDED_OVER, Publisher
from cfmon_client.steps import Steps

from tests.client.listening import listening
from tests.servers import PATIENCE, Mosquitto, mosquitto, wait_until

NOWHERE = "mqtt://127.0.0.1:1"
SHA = "0bba4e75f97a5222462a17d435976da794c224bfde4090dc4401698580c86619"


def durable(folder: Path) -> tuple[str, ...]:
    """The settings of a broker that keeps sessions, and saves them as the shipped configuration says."""
    folder.mkdir()
    return "persistence true", f"persistence_location {folder}/", "autosave_on_changes true", "autosave_interval 1"


def test_steps_arrive_in_order_with_episodes_and_numbers(broker: Mosquitto) -> None:
    with listening(broker) as listener:
        with cfmon_client.publish(broker.url, "arm-7", policy=SHA.upper()) as steps:
            steps.step(3, 1)
            steps.step(4, 0, reward=0.5, extra={"camera": 2})
            first = steps.episode
            steps.end(5, reward=1, terminated=True)
            assert steps.episode is None
            steps.step(0, 1, policy="a" * 64)
            steps.end(1)
            steps.reset("mine")
            steps.step(0, "left")
        arrived = listener.until(6)
    assert {agent for agent, _ in listener.steps} == {"arm-7"}
    assert [message["seq"] for message in arrived] == [0, 1, 2, 0, 1, 0]
    assert [message["state"] for message in arrived] == [3, 4, 5, 0, 1, 0]
    assert [message.get("reward") for message in arrived] == [None, 0.5, 1.0, None, None, None]
    assert [message["policy"] for message in arrived] == [SHA, SHA, SHA, "a" * 64, SHA, SHA]
    assert arrived[1]["extra"] == {"camera": 2}
    episodes = [message["episode"] for message in arrived]
    assert episodes[:3] == [first] * 3
    assert episodes[3] == episodes[4] not in {first, "mine"}
    assert episodes[5] == "mine"
    ends = [(message.get("terminated"), message.get("truncated"), "action" in message) for message in arrived]
    assert ends[2] == (True, None, False)
    assert ends[4] == (None, True, False), "an end is taken for a time limit unless it is said to be more"
    assert all(abs(message["time"] - time.time()) < 3600 for message in arrived)


def test_what_cannot_be_published_is_counted_logged_and_leaves_a_gap(
    broker: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def tolist(self) -> object:
            raise ZeroDivisionError

    with listening(broker) as listener, cfmon_client.publish(broker.url, "arm-7") as steps:
        steps.step(0, 0)
        steps.step([0.5, math.nan], 0)
        steps.step([math.nan], 0)
        steps.step(object(), 0)
        steps.step(Broken(), 0)
        steps.step(1, 0, reward=math.nan)
        steps.end(terminated=True)
        steps.end(2)
        steps.reset(1.5)  # type: ignore[arg-type] # that is the point
        assert [(message["seq"], message.get("reward")) for message in listener.until(2)] == [(0, None), (5, None)]
        assert steps.flush()
        status = steps.status
    assert status.refused == {"not_finite": 3, "wrong_type": 2, "error": 1, "missing_state": 1, "no_episode": 1}
    assert (status.published, status.waiting, status.dropped, status.connected) == (2, 0, 0, True)
    assert status.problem is not None
    assert status.problem.startswith("agent arm-7: the episode is 1.5")
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len([line for line in logged if "not_finite" in line]) == 1, "one line a minute for each reason"
    assert any("the state is a object; give an integer, a name, or a flat list or dict" in line for line in logged)
    assert any("ZeroDivisionError" in line for line in logged)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"agent": "arm 7"}, "the agent's name is 'arm 7'"),
        ({"agent": 7}, "the agent's name is 7"),
        ({"policy": "ppo"}, "the policy is 'ppo'; give the SHA-256"),
        ({"topic": "agents/steps"}, 'the topic is "agents/steps"'),
        ({"memory": 0}, "memory is 0"),
        ({"broker": "localhost"}, "the broker's URL must be mqtt://host:port"),
        ({"broker": 1883}, "the broker is a int"),
    ],
)
def test_a_wrong_argument_is_an_error_at_once(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(cfmon_client.ClientError, match=problem):
        cfmon_client.publish(**{"broker": "mqtt://127.0.0.1:9", "agent": "a", **arguments})  # type: ignore[arg-type]


def test_without_a_broker_steps_wait_and_go_out_when_it_comes(
    broker: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    broker.stop()
    with cfmon_client.publish(broker.url, "arm-7") as steps:
        for number in range(10):
            steps.step(number, 0)
        wait_until(lambda: steps.status.problem, "a failed attempt is reported")
        assert not steps.flush(0.0)
        assert (steps.status.connected, steps.status.published, steps.status.waiting) == (False, 0, 10)
        assert f"no connection to {broker.url}" in caplog.text
        broker.start()
        wait_until(steps.flush, "the steps go out")
        assert (steps.status.connected, steps.status.published, steps.status.waiting) == (True, 10, 0)


def test_the_end_waits_for_a_limited_time_only(caplog: pytest.LogCaptureFixture) -> None:
    steps = cfmon_client.publish(NOWHERE, "arm-7")
    steps.step(0, 0)
    assert not steps.close(timeout=0.2)
    assert "1 steps were not published" in caplog.text
    steps.step(1, 0)
    assert steps.status.refused == {"closed": 1}
    assert not steps.flush()


def test_beyond_its_memory_the_oldest_steps_are_dropped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mosquitto(tmp_path / "broker", *durable(tmp_path / "data")) as broker, listening(broker) as listener:
        broker.stop()
        with cfmon_client.publish(broker.url, "arm-7", memory=4000) as steps:
            for number in range(100):
                steps.step(number, 0)
            wait_until(lambda: "the memory for them is full" in caplog.text, "the loss is logged")
            steps.step(object(), 0)
            wait_until(lambda: "wrong_type" in caplog.text, "all steps before are seen")
            dropped = steps.status.dropped
            assert dropped + steps.status.waiting == 100
            broker.start()
            arrived = listener.until(100 - dropped)
            wait_until(steps.flush, "the rest goes out")
    assert 80 < dropped < 100
    assert [message["state"] for message in arrived] == list(range(dropped, 100)), "the newest in a row"


def test_a_thread_that_gets_no_processor_costs_steps_and_not_memory() -> None:
    """Here it is held up in a handler of the log; the agent is not."""
    held, release = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            held.set()
            release.wait(PATIENCE)

    slow = Slow(logging.ERROR)
    logging.getLogger("cfmon_client").addHandler(slow)
    publisher = Publisher(NOWHERE, memory=1 << 30)
    try:
        publisher.refuse("arm-7", "error", "a problem")
        assert held.wait(PATIENCE)
        for _ in range(HANDED_OVER + 7):
            publisher.put("t", b"")
        assert (publisher.status.waiting, publisher.status.dropped) == (HANDED_OVER, 7)
    finally:
        logging.getLogger("cfmon_client").removeHandler(slow)
        release.set()
        publisher.close(0.0)
    wait_until(lambda: "cfmon-client" not in {thread.name for thread in threading.enumerate()}, "its thread has ended")


def test_a_broker_that_is_killed_costs_no_step(tmp_path: Path) -> None:
    with (
        mosquitto(tmp_path / "broker", *durable(tmp_path / "data")) as broker,
        listening(broker) as listener,
        cfmon_client.publish(broker.url, "arm-7") as steps,
    ):
        total = 0
        for _ in range(3):
            published = steps.status.published
            for _ in range(200):
                steps.step(total, 0)
                total += 1
                time.sleep(0.001)  # the agent's own pace
            wait_until(lambda published=published: steps.status.published > published, "some are acknowledged")  # type: ignore[misc]
            broker.kill()
            for _ in range(20):
                steps.step(total, 0)
                total += 1
            broker.start()
            wait_until(steps.flush, "the steps of the outage go out")
        wait_until(lambda: len(listener.distinct()) == total, "every step arrives")
        assert (steps.status.published, steps.status.dropped, steps.status.refused) == (total, 0, {})
    first = list(dict.fromkeys(message["seq"] for _, message in listener.steps))
    assert sorted(first) == list(range(total))
    assert len(listener.steps) > total, "the last seconds before a kill are published again"


def test_a_forked_process_publishes_nothing_and_leaves_the_parents_connection_alone(broker: Mosquitto) -> None:
    with listening(broker) as listener, cfmon_client.publish(broker.url, "arm-7") as steps:
        steps.step(0, 0)
        assert steps.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
            child = os.fork()
        if child == 0:  # pragma: no cover - another process
            steps.step(1, 0)
            steps.step(None, 0)
            good = steps.status.refused == {"forked": 1, "wrong_type": 1} and not steps.status.connected
            os._exit(0 if good and not steps.flush() and not steps.close() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        steps.step(2, 0)
        assert steps.flush()
        assert [message["state"] for message in listener.until(2)] == [0, 2]


def published_by_a_child(url: str) -> None:
    with cfmon_client.publish(url, "arm-8") as steps:
        steps.step(7, 0)


def test_a_forked_process_can_make_a_publisher_of_its_own(broker: Mosquitto) -> None:
    with listening(broker) as listener, cfmon_client.publish(broker.url, "arm-7") as steps:
        steps.step(0, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = multiprocessing.get_context("fork").Process(target=published_by_a_child, args=(broker.url,))
            child.start()
        child.join()
        assert child.exitcode == 0
        listener.until(2)
    assert sorted(agent for agent, _ in listener.steps) == ["arm-7", "arm-8"]


def test_a_program_that_forgets_to_close_still_flushes(broker: Mosquitto) -> None:
    code = (
        "import cfmon_client\n"
        f"steps = cfmon_client.publish({broker.url!r}, 'arm-7')\n"
        "steps.step(1, 0); steps.flush(); steps.step(2, 0)\n"
    )
    with listening(broker) as listener:
        subprocess.run([sys.executable, "-c", code], check=True)
        assert [message["state"] for message in listener.until(2)] == [1, 2]


def test_agents_share_a_connection(broker: Mosquitto) -> None:
    with closing(Publisher(broker.url)) as publisher, listening(broker) as listener:
        arms = [Steps(publisher, f"arm-{number}", run="r") for number in range(3)]
        for arm in arms:
            arm.step(0, 0)
        listener.until(3)
        assert publisher.close()
    assert sorted(agent for agent, _ in listener.steps) == ["arm-0", "arm-1", "arm-2"]
    assert {message["episode"] for _, message in listener.steps} == {"r-0"}
