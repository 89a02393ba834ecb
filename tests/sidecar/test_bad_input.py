"""Everything that can be wrong with what comes in, on one page: each gets its answer, and the stream goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgpack
import pytest

from monitor.errors import ConfigError, ModelError
from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Evaluate, Message
from monitor.types import Blind, Judged, Notice, Received
from tests.sidecar.conftest import CAREFUL, Driver
from tests.sidecar.project import write_project

WHOLE = msgpack.packb({"v": 1, "episode": 0, "seq": 2, "state": 0, "action": CAREFUL})


def told(driver: Driver, payloads: Sequence[bytes]) -> list[Notice]:
    """What is said of messages after two good steps, until a missing one is given up."""
    driver.send(0, 0, CAREFUL)
    driver.send(1, 0, CAREFUL)
    notices: list[Notice] = []
    for payload in payloads:
        driver.ticks += 1.0
        notices += driver.feed(Message(driver.now, "agents/ada/steps", payload)).notices
        notices += driver.feed(Evaluate(driver.now)).notices
    driver.ticks += 1.0
    return [*notices, *driver.feed(Evaluate(driver.now)).notices]


def step(seq: int, state: object, action: object = CAREFUL, **more: object) -> bytes:
    packed = msgpack.packb({"v": 1, "episode": 0, "seq": seq, "state": state, "action": action, **more})
    assert isinstance(packed, bytes)
    return packed


@pytest.mark.parametrize(
    ("payloads", "result", "reason"),
    [
        pytest.param([bytes(range(256))], "rejected", "malformed", id="bytes that mean nothing"),
        pytest.param([WHOLE[:-3]], "rejected", "malformed", id="truncated msgpack"),
        pytest.param([step(2, 99)], "rejected", "unknown_state", id="unknown state"),
        pytest.param([step(2, 0, 7)], "rejected", "unknown_action", id="unknown action"),
        pytest.param([step(2, 0, colour="red")], "rejected", "unknown_key", id="unknown key"),
        pytest.param([step(2, float("nan"))], "rejected", "wrong_type", id="not a number"),
        pytest.param([step(2, 0, episode=0, reward=float("inf"))], "rejected", "not_finite", id="infinity"),
        pytest.param([step(2, "x" * 2000)], "rejected", "too_large", id="too large"),
        pytest.param([step(4, 0)], "gap", "", id="gap"),
        pytest.param([step(2, 0), step(2, 0)], "duplicate", "", id="duplicate"),
        pytest.param([step(2, 0), step(2, 0, reward=1.0)], "conflict", "", id="conflict"),
    ],
)
def test_each_bad_message_is_counted_and_the_next_episode_is_judged(
    driver: Driver, payloads: list[bytes], result: str, reason: str
) -> None:
    notices = told(driver, payloads)
    counted = [(n.result, n.reason) for n in notices if isinstance(n, Received) and n.result != "accepted"]
    assert counted == [(result, reason)]
    goes_on = driver.send(0, 0, CAREFUL, episode=1, terminated=False).notices
    driver.ticks += 1.0  # the unfinished episode is given up
    goes_on += driver.feed(Evaluate(driver.now)).notices
    assert [n.seq for n in goes_on if isinstance(n, Judged) and n.episode == 1] != []


@pytest.mark.parametrize(
    ("payloads", "reason"),
    [
        pytest.param([step(2, 3)], "impossible_step", id="impossible transition"),
        pytest.param([step(2, 99)], "unknown_state", id="unknown state"),
        pytest.param([step(4, 0)], "gap", id="gap"),
        pytest.param([step(2, 0), step(2, 0, reward=1.0)], "conflict", id="conflict"),
    ],
)
def test_what_breaks_the_path_blinds_until_it_is_long_enough_again(
    driver: Driver, payloads: list[bytes], reason: str
) -> None:
    blinded = [n.reason for n in told(driver, payloads) if isinstance(n, Blind) and n.formula == "watch"]
    assert blinded[:1] == [reason]
    last = max(msgpack.unpackb(payload)["seq"] for payload in payloads)
    seen = [
        n
        for seq in range(last + 1, last + 4)
        for n in driver.send(seq, 0 if reason != "impossible_step" else 3, CAREFUL).notices
    ]
    assert [n.reason for n in seen if isinstance(n, Blind) and n.formula == "watch"] == [None]


@pytest.mark.parametrize(
    ("wrong", "right", "says"),
    [
        ("formulas:", "formulae:", "formulae"),
        ('"lost"', '"lots"', "did you mean 'lost'"),
    ],
)
def test_a_config_with_a_typo_or_an_unknown_label_stops_before_connecting(
    tmp_path: Path, corridor: MDP, wrong: str, right: str, says: str
) -> None:
    config = write_project(tmp_path, corridor)
    text = config.read_text()
    assert wrong in text
    config.write_text(text.replace(wrong, right))
    with pytest.raises(ConfigError, match=says):
        assemble(config, {})


def test_a_row_that_sums_to_99_percent_is_named() -> None:
    with pytest.raises(ModelError, match=r"state 0, action 0.*0\.99"):
        MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 0.99)])
