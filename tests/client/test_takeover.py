"""The guard with a real broker and with the monitor: it hands over, hands back, and never fails in the agent's loop."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cfmon_client import Acting, ClientError, Takeover
from cfmon_client.shard import shard_of
from cfmon_client.takeover_logic import Known
from paho.mqtt.publish import single

from monitor.model import MDP
from tests.client.test_alert import example
from tests.servers import PATIENCE, Mosquitto, sidecar, wait_until
from tests.sidecar.conftest import CAREFUL, HOME, RASH
from tests.sidecar.project import CONFIG, write_project

NOWHERE = "mqtt://127.0.0.1:1"
CARRY_ON = {"when_blind": "carry_on", "when_silent": "carry_on"}
FAIL_SAFE = {"when_blind": "fallback", "when_silent": "fallback"}


class Clock:
    """Monotonic time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guarded(clock: Clock) -> Iterator[Callable[..., Takeover[int, str]]]:
    made: list[Takeover[int, str]] = []

    def make(
        url: str = NOWHERE,
        policy: Callable[[int], str] = lambda state: f"brake in {state}",
        **more: Any,  # noqa: ANN401 - arguments of Takeover
    ) -> Takeover[int, str]:
        made.append(Takeover(url, "demo", {"fallback": policy}, **{"rules": CARRY_ON, "clock": clock, **more}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def say(broker: Mosquitto, topic: str, document: dict[str, Any] | bytes) -> None:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    single(topic, payload, qos=1, retain=True, hostname="127.0.0.1", port=broker.port)


SENT = itertools.count(1_780_000_000)
"""When a monitor of a test sends its heartbeats, on its own clock."""


def beat(broker: Mosquitto, monitor: str = "m", **changes: Any) -> bool:  # noqa: ANN401 - fields of the message
    """Publish a heartbeat, retained as the monitor's; return whether it was heard, which is not known."""
    say(broker, f"cfmon/status/{monitor}", {"state": "online", "sent_unix": next(SENT), **changes})
    return False


def alarm(broker: Mosquitto, **changes: Any) -> None:  # noqa: ANN401 - fields of the message
    say(broker, "cfmon/alerts/demo/regret_fallback", {**example(), **changes})


# ---- without a monitor ----


def test_without_broker_and_monitor_the_agent_acts_until_the_rules_say_otherwise(
    guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    careless, careful = guarded(rules=CARRY_ON), guarded(rules=FAIL_SAFE)
    assert [guard.action(7, "go") for guard in (careless, careful)] == ["go", "go"]
    assert careful.acting == Acting("nominal", None, None, 0)
    clock.now = 31.0
    assert [guard.action(7, "go") for guard in (careless, careful)] == ["go", "brake in 7"]
    assert careful.acting == Acting("fallback", None, "silent", 1)
    assert careful.action(8, "go") == "brake in 8"
    assert careful.acting.steps == 2
    status = careful.status
    assert (status.silent, status.takeovers, status.steps) == (True, {"silent": 1}, {"nominal": 1, "fallback": 2})
    assert (status.failures, status.problem) == (0, None)


def test_a_policy_that_fails_leaves_the_agents_own_action_and_is_reported(
    guarded: Callable[..., Takeover[int, str]], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(state: int) -> str:
        raise KeyError(state)

    guard = guarded(policy=broken, rules=FAIL_SAFE)
    clock.now = 31.0
    with caplog.at_level(logging.WARNING, "cfmon_client"):
        assert [guard.action(state, "go") for state in range(3)] == ["go"] * 3
        guard.close()  # what is logged is logged by then
    assert guard.acting == Acting()
    assert (guard.status.failures, guard.status.problem) == (3, "policy 'fallback' raised KeyError: 2")
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "demo: 'fallback' takes over (silent)" in lines
    failed = [line for line in lines if "raised" in line]
    assert len(failed) == 1, "at most one a minute"
    assert guard.action(3, "go") == "go", "closed, and still no error"


def test_a_takeover_ends_with_the_episode_or_when_it_is_released(
    guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    for_good = guarded(rules={**FAIL_SAFE, "back": "never"})
    until_resolved = guarded(rules=FAIL_SAFE)
    clock.now = 31.0
    for guard in (for_good, until_resolved):
        assert guard.action(0, "go") == "brake in 0"
        clock.now = 0.0
        guard.reset("next")
        clock.now = 31.0
    clock.now = 0.0
    assert (for_good.action(1, "go"), until_resolved.action(1, "go")) == ("brake in 1", "go")
    for_good.release()
    assert for_good.action(2, "go") == "go"


def test_a_policys_digest_can_be_given(guarded: Callable[..., Takeover[int, str]], clock: Clock) -> None:
    guard = guarded(rules=FAIL_SAFE, sha256={"nominal": "a" * 64, "fallback": "b" * 64})
    guard.action(0, "go")
    assert guard.acting.sha256 == "a" * 64
    clock.now = 31.0
    guard.action(0, "go")
    assert guard.acting.sha256 == "b" * 64


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"broker": "localhost"}, "the broker's URL must be mqtt://"),
        ({"agent": "an agent"}, "the agent's name is 'an agent'"),
        ({"rules": None}, "rules are missing"),
        ({"policies": {}}, "policies must map names to functions"),
        ({"policies": {"fallback": 1}}, "policies must map names to functions"),
        ({"policies": {"nominal": abs}}, "'nominal' is the agent's own policy"),
        ({"policies": {"a": abs, "b": abs}, "rules": FAIL_SAFE}, "several policies; add the rule policy: a or b"),
        ({"rules": {**FAIL_SAFE, "policy": "pilot"}}, "the rules say policy: 'pilot', but there is fallback"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_at_the_beginning(arguments: dict[str, Any], problem: str) -> None:
    given = {"broker": NOWHERE, "agent": "demo", "policies": {"fallback": abs}, "rules": CARRY_ON, **arguments}
    with pytest.raises(ClientError, match=re.escape(problem)):
        Takeover(**given)


def test_the_rules_name_the_policy_that_acts_in_silence(clock: Clock) -> None:
    policies: dict[str, Callable[[int], str]] = {"a": lambda _: "a", "b": lambda _: "b"}
    with Takeover(NOWHERE, "demo", policies, rules={**FAIL_SAFE, "policy": "b"}, clock=clock) as guard:
        clock.now = 31.0
        assert guard.action(1, "go") == "b"


def test_several_policies_need_no_rule_if_none_of_them_acts_in_silence() -> None:
    policies: dict[str, Callable[[int], int]] = {"a": abs, "b": abs}
    with Takeover(NOWHERE, "demo", policies, rules=CARRY_ON) as guard:
        assert guard.action(1, 2) == 2


# ---- with a broker ----


def test_an_alarm_hands_over_and_its_end_hands_back(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]]
) -> None:
    guard = guarded(broker.url)
    assert guard.action(1, "go") == "go"
    alarm(broker)
    wait_until(lambda: guard.action(2, "go") == "brake in 2", "the alarm is acted on")
    acting, policies = guard.acting, {each["name"]: each["sha256"] for each in example()["policies"]}
    assert (acting.policy, acting.sha256, acting.cause) == ("fallback", policies["fallback"], "alarm")
    alarm(broker, revision=2, state="resolved", handover=None)
    wait_until(lambda: guard.action(3, "go") == "go", "the alarm is over")
    assert guard.acting == Acting("nominal", policies["nominal"], None, 0)
    assert guard.status.takeovers == {"alarm": 1}


def test_a_repetition_with_newer_numbers_is_acted_on(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]]
) -> None:
    guard = guarded(broker.url)
    alarm(broker, handover={"policy": "fallback", "helps_now": False, "latest_useful": 2})
    wait_until(lambda: guard.action(1, "go") and guard.acting.sha256, "the alarm is heard, with the policies' digests")
    assert guard.acting.policy == "nominal"
    alarm(broker)  # the same id and revision, as at a heartbeat
    wait_until(lambda: guard.action(2, "go") == "brake in 2", "the repetition is heard")


def test_alarms_of_the_last_episode_do_not_count_in_the_next(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]]
) -> None:
    guard = guarded(broker.url)
    alarm(broker)
    wait_until(lambda: guard.action(1, "go") != "go", "the alarm is acted on")
    guard.reset("the next")
    assert guard.action(2, "go") == "go"
    alarm(broker, id="late", policies=[{"name": "nominal", "sha256": "c" * 64}])
    wait_until(lambda: guard.action(3, "go") and guard.acting.sha256 == "c" * 64, "a late alarm is heard")
    assert guard.acting.policy == "nominal", "it is about the last episode, although it first came in this one"
    alarm(broker, id="mine", episode="the next")
    wait_until(lambda: guard.action(4, "go") != "go", "an alarm of this episode is acted on")


def test_a_takeover_until_the_next_episode_is_not_begun_by_a_late_alarm(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]]
) -> None:
    """It would last for the whole episode."""
    guard = guarded(broker.url, rules={**CARRY_ON, "back": "episode"})
    guard.reset("the next")
    alarm(broker, policies=[{"name": "nominal", "sha256": "c" * 64}])
    wait_until(lambda: guard.action(1, "go") and guard.acting.sha256 == "c" * 64, "a late alarm is heard")
    assert guard.status.takeovers == {}


def test_without_a_name_a_late_alarm_counts_and_the_log_says_so(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be told apart hands over; an alarm that was known does not."""
    guard = guarded(broker.url)
    alarm(broker)
    wait_until(lambda: guard.action(1, "go") != "go", "the alarm is acted on")
    guard.reset(None)
    assert guard.action(2, "go") == "go"
    alarm(broker, id="late")
    wait_until(lambda: guard.action(3, "go") != "go", "a late alarm is acted on")
    guard.close()
    assert "demo: reset() without the episode's name: a late alarm of the last one counts" in caplog.text


def test_alarms_under_another_name_than_the_guards_are_reported(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    """Else a guard that is given wrong names hears no alarm and says nothing."""
    guard = guarded(broker.url)
    guard.reset("mine")
    alarm(broker, policies=[{"name": "nominal", "sha256": "c" * 64}])
    wait_until(lambda: guard.action(1, "go") and guard.acting.sha256 == "c" * 64, "the alarm is heard")
    assert guard.status.problem is None, "it may be a late one"
    clock.now = 31.0
    alarm(broker)
    wait_until(lambda: guard.status.problem, "the difference is reported")
    assert guard.status.problem == (
        "alarm 'regret_fallback' is about episode 'seed0-0', and reset() was given 'mine', so it does not count: "
        "the monitor is far behind, or steps are published under another name"
    )


def test_it_survives_the_broker_and_messages_that_are_none(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    for number, payload in enumerate((b"{", b"[]", b"\xff", b'{"v": 9}')):
        say(broker, f"cfmon/alerts/demo/odd{number}", payload)
        say(broker, f"cfmon/status/odd{number}", payload)
    guard = guarded(broker.url)
    clock.now = 100.0
    assert guard.status.silent
    wait_until(lambda: not guard.status.silent or beat(broker), "the monitor is heard")
    broker.kill()
    assert guard.action(1, "go") == "go"
    broker.start()
    alarm(broker)
    wait_until(lambda: guard.action(2, "go") == "brake in 2", "it has connected again")
    assert guard.status.problem is None


def test_a_bug_in_the_thread_ends_the_listening_and_nothing_else(
    broker: Mosquitto,
    guarded: Callable[..., Takeover[int, str]],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object, **__: object) -> Known:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Known, "with_alert", broken)
    guard = guarded(broker.url, rules=FAIL_SAFE)
    alarm(broker)
    wait_until(lambda: guard.status.problem, "the thread has ended")
    assert guard.status.problem == "listening ended: a bug"
    assert guard.action(0, "go") == "go"
    clock.now = 31.0
    assert guard.action(0, "go") == "brake in 0"
    guard.close()
    assert "demo: listening to the monitor ended" in caplog.text


def connected(broker: Mosquitto, guard: Takeover[int, str], clock: Clock) -> None:
    """Wait until the guard listens. Its monitor is then silent."""
    clock.now += 100.0
    wait_until(lambda: not guard.status.silent or beat(broker), "the guard listens")
    clock.now += 100.0


def retained(broker: Mosquitto, guard: Takeover[int, str]) -> None:
    """Wait until the guard has heard all that the broker retains: it comes before what is published afterwards."""
    for digit in "de":
        policies = [{"name": name, "sha256": digit * 64} for name in ("nominal", "fallback")]
        alarm(broker, id="over", state="resolved", handover=None, policies=policies)
        wait_until(lambda: guard.action(0, "go") and guard.acting.sha256 == digit * 64, "an alert is heard")  # noqa: B023 - called at once


def test_a_monitor_that_died_is_not_taken_for_alive(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    """The broker retains its last heartbeat: a power cut leaves no last will, and a broker may have lost it."""
    beat(broker)
    guard = guarded(broker.url, rules=FAIL_SAFE)
    retained(broker, guard)
    assert not guard.wait(0.0)
    clock.now = 31.0
    assert (guard.status.silent, guard.action(1, "go"), guard.acting.cause) == (True, "brake in 1", "silent")
    beat(broker)
    assert guard.wait(PATIENCE)
    assert not guard.status.silent


def test_an_agent_can_wait_for_the_monitor(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    guard = guarded(broker.url)
    say(broker, "cfmon/status/m", {"state": "offline"})
    retained(broker, guard)
    assert not guard.wait(0.0)
    beat(broker)
    assert guard.wait(PATIENCE)
    assert guard.wait(0.0)
    clock.now += 31.0
    assert not guard.wait(0.0), "it was there, and is silent now"
    beat(broker)
    assert guard.wait(PATIENCE)
    say(broker, "cfmon/status/m", {"state": "offline"})
    wait_until(lambda: not guard.wait(0.0), "it says that it ends")
    beat(broker)
    assert guard.wait(PATIENCE), "it was started again"


def test_it_waits_for_as_long_as_silence_takes(guarded: Callable[..., Takeover[int, str]]) -> None:
    assert not guarded(rules={**CARRY_ON, "silent_after": 0.05}).wait()


def test_a_broker_that_lost_what_it_retained_ends_no_takeover(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    """The monitor says all of it again once it is connected; until then nothing is known, and nothing changes."""
    guard = guarded(broker.url)
    alarm(broker)
    wait_until(lambda: guard.action(1, "go") != "go", "the alarm is acted on")
    broker.kill()
    broker.start()
    connected(broker, guard, clock)
    assert guard.action(2, "go") == "brake in 2"
    beat(broker)
    wait_until(lambda: not guard.status.silent, "the monitor is heard")
    assert guard.action(3, "go") == "brake in 3"
    alarm(broker, revision=2, state="resolved", handover=None)
    wait_until(lambda: guard.action(4, "go") == "go", "the alarm is over")


def test_of_two_shards_only_the_agents_own_is_alive_for_it(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    own = shard_of("demo", 2)
    guard = guarded(broker.url, rules=FAIL_SAFE)
    clock.now = 100.0
    beat(broker, "other", shard=f"{1 - own}/2")
    retained(broker, guard)
    assert guard.status.silent
    beat(broker, "own", shard=f"{own}/2")
    wait_until(lambda: not guard.status.silent, "its own is heard")
    say(broker, "cfmon/status/own", {"state": "offline"})
    clock.now = 200.0
    beat(broker, "other", shard=f"{1 - own}/2")
    retained(broker, guard)
    assert guard.status.silent


def test_only_the_named_monitor_is_listened_to(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    own, any_monitor = guarded(broker.url, monitor="ours"), guarded(broker.url)
    for guard in (own, any_monitor):
        retained(broker, guard)
    clock.now = 100.0
    beat(broker, "theirs")
    wait_until(lambda: not any_monitor.status.silent, "a monitor is heard")
    assert own.status.silent
    beat(broker, "ours")
    wait_until(lambda: not own.status.silent, "ours is heard")


def test_a_forked_process_hears_nothing_and_leaves_the_parents_guard_alone(
    broker: Mosquitto, guarded: Callable[..., Takeover[int, str]], clock: Clock
) -> None:
    guard = guarded(broker.url, rules=FAIL_SAFE)
    alarm(broker)
    wait_until(lambda: guard.action(1, "go") != "go", "the alarm is acted on")
    guard.reset(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        child = os.fork()
    if child == 0:  # pragma: no cover - another process
        before = guard.action(2, "go")
        clock.now = 31.0
        after = guard.action(3, "go")
        guard.close()
        os._exit(0 if (before, after) == ("go", "brake in 3") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert guard.action(4, "go") == "go"
    alarm(broker, id="another")
    wait_until(lambda: guard.action(5, "go") == "brake in 5", "the parent still listens")


# ---- with the monitor ----


def test_with_the_monitor_the_loop_is_closed(broker: Mosquitto, corridor: MDP, clock: Clock, tmp_path: Path) -> None:
    """Rash is lost soon; careful gets home, where the alarm resolves. Then the monitor is killed, and comes back."""
    config = write_project(tmp_path / "project", corridor, CONFIG.replace("mqtt://127.0.0.1:1", broker.url))
    rules = tmp_path / "rules.yaml"
    rules.write_text("{when_blind: carry_on, when_silent: fallback, hold: 2, silent_after: 60}\n")

    def publish(seq: int, state: int, action: int) -> None:
        step = {"v": 1, "episode": "one", "seq": seq, "state": state, "action": action}
        single("agents/arm-7/steps", json.dumps(step), qos=1, hostname="127.0.0.1", port=broker.port)

    with Takeover(broker.url, "arm-7", {"careful": lambda _: CAREFUL}, rules=rules, clock=clock) as guard:
        guard.reset("one")
        with sidecar(config):
            publish(0, 0, guard.action(0, RASH))
            assert guard.acting.policy == "nominal"
            wait_until(lambda: guard.action(0, RASH) == CAREFUL, "the alarm hands over")
            careful = json.loads((config.parent / "careful.yaml").read_text())["sha256"]
            assert (guard.acting.policy, guard.acting.sha256, guard.acting.cause) == ("careful", careful, "alarm")
            publish(1, 1, CAREFUL)
            for seq in range(2, 6):
                publish(seq, HOME, guard.action(HOME, RASH))
            wait_until(lambda: guard.action(HOME, RASH) == RASH, "the alarm resolves at home, and hands back")
            assert guard.acting.policy == "nominal"

        def silent() -> bool:
            clock.now += 100.0
            return guard.action(HOME, RASH) == CAREFUL

        wait_until(silent, "the monitor is down: the rules say fallback")
        assert guard.acting.cause == "silent"
        with sidecar(config):
            wait_until(lambda: guard.action(HOME, RASH) == RASH, "the monitor is back")
        assert guard.status.takeovers == {"alarm": 1, "silent": 1}
