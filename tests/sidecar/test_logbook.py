"""The log says what happens: what is watched, each alarm as it fires and closes, what goes blind."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.settings import LoggingConfig
from monitor.sidecar.effects import Effects
from monitor.sidecar.log import MAX_KINDS, RateLimitedLog, set_up_logging
from monitor.sidecar.sinks.logbook import Logbook
from monitor.types import Blind, Contradictions, Deviates, Instant, TakenOver, WrongAgent, WrongRow
from tests.sidecar.by_hand import ByHand, by_hand
from tests.sidecar.conftest import CAREFUL, HOME, RASH
from tests.sidecar.project import write_project
from tests.sidecar.watched import watched

NOW = Instant(1000.0, 1.0)
WARNING, INFO = "WARNING", "INFO"


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("monitor", "uvicorn.error")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", logger="monitor")
    return caplog


@pytest.fixture
def config(tmp_path: Path, corridor: MDP) -> Path:
    return write_project(tmp_path / "project", corridor)


@pytest.fixture
def there(config: Path) -> Iterator[ByHand]:
    with by_hand(config) as there:
        yield there


def lived(there: ByHand, *steps: dict[str, Any], agent: str = "ada") -> None:
    for seq, step in enumerate(steps):
        there.hear(json.dumps({"v": 1, "episode": "one", "seq": seq, **step}), agent=agent)


def entries(log: pytest.LogCaptureFixture, name: str = "monitor.alarms") -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in log.records if record.name == name]


def fields(log: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fields for record in log.records if record.name == "monitor.alarms"]  # type: ignore[attr-defined] # ours


def test_at_start_it_says_what_is_watched_and_where(there: ByHand, config: Path, log: pytest.LogCaptureFixture) -> None:
    url, client_id = there.service.start(), there.service.client_id
    told = [text for level, text in entries(log, "monitor.service") if level == INFO]
    identity = assemble(config, {}).identity
    assert told[0].startswith("counterfactual-monitor 0.")
    assert told[0].endswith(f"starts as {client_id}")
    assert told[1] == f"model model.npz: 6 states, 2 actions, sha256 {identity.model_sha256[:12]}"
    assert told[2:4] == [f"policy {name}: sha256 {identity.policies[name][:12]}" for name in ("careful", "nominal")]
    assert told[4] == (
        'formula watch: regret(careful@2, P>=0.8 [ G<=3 !"lost" ]) (critical; fires after 1, resolves after 1)'
    )
    assert told[5].startswith("formula chance: ")
    assert told[6] == (
        "steps from agents/+/steps at mqtt://127.0.0.1:1; alerts to cfmon/alerts/<agent>/<formula>, "
        f"status to cfmon/status/{client_id}"
    )
    assert told[7].startswith("state and evidence are kept in ")
    assert told[8] == f"metrics, health and status page at {url}"


def test_every_alarm_is_logged_as_it_fires_and_as_it_closes(there: ByHand, log: pytest.LogCaptureFixture) -> None:
    lived(
        there,
        {"state": 0, "action": RASH},
        {"state": 1, "action": CAREFUL},
        {"state": HOME, "action": RASH},
        {"state": HOME, "action": RASH, "terminated": True},
    )
    lived(there, {"state": 0, "action": RASH}, {"state": 1, "truncated": True}, agent="bob")
    told = entries(log)
    assert [(level, text.partition(": ")[0]) for level, text in told] == [
        (WARNING, "ALARM firing"),
        (INFO, "ALARM resolved"),
        (WARNING, "ALARM firing"),
        (INFO, "ALARM ended"),
    ]
    first, second = fields(log)[:2]
    assert told[0][1].startswith("ALARM firing: watch: ada: P(no lost in 3 steps) = 0.12; at least 0.80 required.")
    assert told[0][1].endswith(f"[evidence {first['evidence']}]")
    assert (first["agent"], first["formula"], first["state"], first["outcome"]) == ("ada", "watch", "firing", "regret")
    assert first["summary"] in told[0][1]
    assert (second["alarm"], second["evidence"], second["state"]) == (first["alarm"], first["evidence"], "resolved")


def test_in_json_the_parts_are_fields(there: ByHand, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LoggingConfig(format="json"))
    lived(there, {"state": 0, "action": RASH})
    [entry] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (entry["level"], entry["logger"]) == ("warning", "monitor.alarms")
    assert (entry["agent"], entry["formula"], entry["state"], entry["severity"]) == (
        "ada",
        "watch",
        "firing",
        "critical",
    )
    assert entry["summary"] in entry["message"]
    assert len(entry["evidence"]) == len(entry["alarm"]) == 32


def test_a_policy_that_is_not_the_configured_one_is_named(
    there: ByHand, config: Path, log: pytest.LogCaptureFixture
) -> None:
    other = "c" * 64
    lived(there, {"state": 0, "action": RASH, "policy": other})
    policies = assemble(config, {}).identity.policies
    configured = ", ".join(f"{name} {policies[name][:12]}" for name in ("nominal", "careful"))
    why = f"policy_mismatch: it runs policy {other[:12]}, configured: {configured}"
    assert (WARNING, f"ada: blind ({why}): watch, chance") in entries(log)
    told = next(entry for entry in fields(log) if entry.get("blind") == "policy_mismatch")
    assert (told["agent"], told["formulas"]) == ("ada", ["watch", "chance"])


def blind(reason: str | None, agents: int, detail: str = "") -> list[Blind]:
    return [
        Blind(f"a{n}", name, reason, detail)  # type: ignore[arg-type] # one of them
        for n in range(agents)
        for name in ("watch", "chance")
    ]


def test_blindness_is_one_entry_for_each_agent_and_of_many_agents_one(log: pytest.LogCaptureFixture) -> None:
    book = Logbook(watched([]))
    book.take(Effects(notices=tuple(blind("gap", 2, "seq 3 did not come"))), NOW)
    book.take(Effects(notices=tuple(blind(None, 2))), NOW)
    book.take(Effects(notices=tuple(blind("disconnected", 1000))), NOW)
    book.take(Effects(notices=tuple(blind(None, 1000))), NOW)
    book.take(Effects(notices=tuple(blind("model_doubt", 1))), NOW)
    book.take(Effects(notices=tuple(blind("model_doubt", 9))), NOW)
    assert entries(log) == [
        (WARNING, "a0: blind (gap: seq 3 did not come): watch, chance"),
        (WARNING, "a1: blind (gap: seq 3 did not come): watch, chance"),
        (INFO, "a0: answered again: watch, chance"),
        (INFO, "a1: answered again: watch, chance"),
        (WARNING, "1000 agents are blind (disconnected: the connection to the broker is down)"),
        (INFO, "1000 agents are answered again"),
        (WARNING, "a0: in doubt (model_doubt: observed transitions contradict the model): watch, chance"),
        (WARNING, "9 agents are in doubt (model_doubt: observed transitions contradict the model)"),
    ]


def test_rows_and_agents_that_contradict_the_model_are_logged_when_they_come_and_go(
    log: pytest.LogCaptureFixture,
) -> None:
    book = Logbook(watched([]))
    row = WrongRow("hill", "walk", 4.0, "plain", 40, 100, 0.1, 3)
    known = Contradictions((), (WrongAgent("bob", 3.0),), agents_rejected=1, rows_tested=64)
    book.recall(Effects(notices=(known,)), NOW)
    for n in range(2):  # the second one is no news
        agents = (WrongAgent("bob", 5.0), WrongAgent("ada", 5.0))
        found = Contradictions((replace(row, seen=40 + n),), agents, 1, 2, 64)
        book.take(Effects(notices=(found,)), NOW)
    book.take(Effects(notices=(Contradictions(agents=agents, agents_rejected=2, rows_tested=64),)), NOW)
    words = "state hill, action walk: next state plain seen 40 times of 100, the model's probability is 0.1"
    words += "; 3 of these steps led where the model gives probability 0; e-value 1e4.0"
    assert entries(log, "monitor.service") == [
        ("ERROR", f"row (hill, walk) contradicts the model: {words}"),
        ("ERROR", "agent ada contradicts the model: e-value 1e5.0"),
        (INFO, "row (hill, walk) is not among those that contradict the model any more"),
    ]


def test_an_agent_that_is_blind_again_and_again_is_logged_once_a_minute(log: pytest.LogCaptureFixture) -> None:
    book = Logbook(watched([]))
    for n in range(100):
        book.take(Effects(notices=tuple(blind("stale" if n % 2 else None, 1))), Instant(1000.0 + n, float(n)))
    assert [text for _, text in entries(log) if "blind" in text] == [
        "a0: blind (stale: no step has arrived for too long): watch, chance",
        "a0: blind (stale: no step has arrived for too long): watch, chance",
    ]


def test_an_agent_that_hands_over_again_and_again_is_logged_once_a_minute_for_each_outcome(
    log: pytest.LogCaptureFixture,
) -> None:
    book = Logbook(watched([]))
    for n in range(100):
        judged = [
            TakenOver(agent, "watch", "safe", "undecided", "e", n, 0.0, n, 0.0, "cut off") for agent in ("ada", "bob")
        ]
        book.take(Effects(notices=tuple(judged)), Instant(1000.0 + n, float(n)))
    assert [text for _, text in entries(log, "monitor.service")] == [
        f"{agent}: the takeover by 'safe' at step {n} of 'e' is not judged by watch: cut off"
        for n in (0, 60)
        for agent in ("ada", "bob")
    ]


def test_an_agent_that_departs_from_its_policy_is_logged_once_until_it_follows_it_again(
    log: pytest.LogCaptureFixture,
) -> None:
    book = Logbook(watched([]))
    for n, share in enumerate((0.05, 0.12, 0.5, 0.08, 0.11, 0.0, 0.02)):
        book.take(Effects(notices=(Deviates("ada", share, 100),)), Instant(1000.0 + n, float(n)))
    would = "would have acted otherwise on 12 % of its last 100 steps"
    assert entries(log) == [
        (WARNING, f"ada deviates from its nominal policy, which {would}"),
        (INFO, "ada follows its nominal policy again"),
    ]
    assert [entry["off_policy_ratio"] for entry in fields(log)] == [0.12, 0.0]


def test_what_is_said_seldom_is_not_remembered_for_ever() -> None:
    class Kind:
        pass

    limited, remembered = RateLimitedLog(logging.getLogger("monitor.test")), weakref.WeakSet[Kind]()
    for n in range(2 * MAX_KINDS):
        remembered.add(kind := Kind())
        limited.warn(kind, Instant(0.0, float(n)), "kind %d", n)
    assert len(remembered) <= MAX_KINDS + 60
