"""How many series there can be: labels come from closed lists and configured names, agents from a bounded set."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import msgpack
import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitor.alarm.message import Identity
from monitor.errors import InputError
from monitor.sidecar.events import Evaluate, Message
from monitor.stream.decode import REASONS, agent_of
from monitor.types import BlindReason, FormulaSpec
from tests.sidecar.conftest import Driver
from tests.sidecar.watched import metrics_of

MONITOR = Path(__file__).parents[2] / "monitor"
NOT_OF_MESSAGES = {"bad_sample", "bad_snapshot"}
"""Reasons of input that is handed in by code, not by a message: none becomes a label."""

BEYOND_DECODING = {"too_many_agents"}
AGENTS = 5


def reasons_in_the_code() -> set[str]:
    """First arguments of every `InputError(...)`; a reason that is not written out would be found here."""
    found = set()
    for file in MONITOR.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError":
                reason = node.args[0]
                if isinstance(reason, ast.Attribute) and reason.attr == "reason":
                    continue  # that of another InputError, with more words
                assert isinstance(reason, ast.Constant), f"{file}:{node.lineno}: the reason must be a word"
                found.add(str(reason.value))
    return found


def test_every_reason_a_message_is_rejected_under_is_of_a_closed_list() -> None:
    assert reasons_in_the_code() <= REASONS | NOT_OF_MESSAGES | BEYOND_DECODING


def storm(driver: Driver) -> None:
    """Messages of far more agents than are let in, good and bad, with hostile names, states and episodes."""
    for n in range(200):
        driver.ticks += 0.1
        agent = f"agent-{n}" if n % 3 else f'x"}} {n}\n'
        payload = msgpack.packb({"v": 1, "episode": f"e{n}", "seq": n % 3, "state": n % 7, "action": 0, f"k{n % 2}": n})
        good = msgpack.packb({"v": 1, "episode": f"e{n}", "seq": 0, "state": 0, "action": 0})
        for content in (payload, good, bytes([n]) * 50):
            driver.feed(Message(driver.now, f"agents/{agent}/steps", content))
        driver.feed(Evaluate(driver.now))


def test_series_are_bounded_by_agents_formulas_and_closed_lists(
    driver: Driver, formulas: list[FormulaSpec], identity: Identity
) -> None:
    metrics = metrics_of(formulas, identity, agents=AGENTS)
    storm(driver)
    for effects in driver.effects:
        metrics.take(effects, driver.now)
    families = list(text_string_to_metric_families(metrics.exposition().decode()))
    samples = [sample for family in families for sample in family.samples]
    agents = {sample.labels["agent"] for sample in samples if "agent" in sample.labels}
    assert len(agents) == AGENTS
    assert agents <= {f"agent-{n}" for n in range(200)}
    for sample in samples:
        if "reason" in sample.labels:
            allowed = set(get_args(BlindReason)) if "agent" in sample.labels else REASONS | BEYOND_DECODING
            assert sample.labels["reason"] in allowed
    by_agent = [sample for sample in samples if "agent" in sample.labels]
    each = len(formulas) * (len(get_args(BlindReason)) + 12) + 4
    assert len(by_agent) <= AGENTS * each
    assert len(samples) - len(by_agent) < 300


@pytest.mark.parametrize(
    "name", ["", "a/b", "a b", "+", "#", "ä", 'x"}', "a\nb", "a\0b", "../x", "a" * 65, "$SYS", "a\u202eb", "%2e"]
)
def test_an_agent_is_who_its_topic_says_in_plain_characters(name: str) -> None:
    with pytest.raises(InputError) as raised:
        agent_of(f"agents/{name}/steps", "agents/+/steps")
    assert raised.value.reason == "bad_agent"


def test_what_a_message_says_of_its_sender_is_refused(driver: Driver) -> None:
    content = {"v": 1, "episode": "e", "seq": 0, "state": 0, "action": 0, "agent": "someone-else"}
    effects = driver.feed(Message(driver.now, "agents/ada/steps", msgpack.packb(content)))
    [received] = effects.notices
    assert getattr(received, "reason", None) == "unknown_key"
