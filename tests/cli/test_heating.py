"""The house of the demo: what is inferred from its numbers is what it does when it is run again with its noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from monitor.demo.agent import main
from monitor.demo.heating import DAY, House, weather_beside
from monitor.demo.watch import Watcher
from monitor.evidence.document import Evidence, read_evidence
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.types import Instant
from monitor.worlds import CheckedWorld
from tests.cli.test_demo import started
from tests.tiers import slow

CONFIG = Path(__file__).parents[2] / "config" / "heating.yaml"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return assemble(CONFIG, {})


@pytest.fixture(scope="module")
def house(loaded: Loaded) -> House:
    nominal = loaded.policies["nominal"]
    assert isinstance(loaded.model, CheckedWorld)
    return House.of(loaded.model, nominal.table, weather_beside(loaded.config.model), 0, nominal.sha256)


def alarms(loaded: Loaded, house: House, steps: int) -> Iterator[Evidence]:
    pipeline = loaded.pipeline("house")
    pipeline.step(Connected(Instant(0.0, 0.0), up=True))
    for n, message in enumerate(islice(house.messages(steps), steps)):
        now = Instant(1000.0 + n, float(n))
        pipeline.step(Message(now, "agents/demo/steps", json.dumps(message).encode()))
        yield from (read_evidence(file.content) for file in pipeline.step(Evaluate(now)).evidence)


def test_it_publishes_whole_days_the_same_for_a_seed(house: House) -> None:
    messages = list(house.messages(DAY + 1))
    assert len(messages) == 2 * DAY
    assert [m["seq"] for m in messages] == [*range(DAY)] * 2
    assert [m.get("truncated", False) for m in messages].count(True) == 2
    assert messages == list(house.messages(DAY + 1))


def test_what_is_inferred_is_what_the_house_does_again(loaded: Loaded, house: House) -> None:
    evidence = next(alarms(loaded, house, 40))
    for offset in (1, 4, 8):
        inferred, again = house.run_again(evidence, loaded.tables, "careful", offset)
        assert np.abs(inferred - again).max() < 1e-9
        own, observed = house.run_again(evidence, loaded.tables, "nominal", offset)
        assert np.abs(own - observed).max() < 1e-9
        assert np.abs(observed - np.array(evidence.path[-1][0])).max() < 1e-9
    assert again[0] > observed[0] + 0.2, "the careful controller keeps it warmer"


def test_the_watcher_shows_the_numbers(loaded: Loaded, house: House) -> None:
    watcher = Watcher(loaded.model, "")
    first = next(house.messages(1))
    assert watcher._where(first) == "room 20.5 °C store 54 °C price 0.12 €/kWh"  # noqa: SLF001 - what a line shows
    cold = {**first, "state": {"room": 17.0, "store": 30.0, "price": 0.3}}
    assert watcher._where(cold).startswith("cold room 17 °C")  # noqa: SLF001 - likewise


def test_an_agent_without_a_broker_says_so(loaded: Loaded, capsys: pytest.CaptureFixture[str]) -> None:
    config = loaded.config
    options = ["--model", config.model, "--policy", str(config.policies["nominal"]), "--topic", "agents/demo/steps"]
    options += ["--weather", str(weather_beside(config.model)), "--url", "mqtt://127.0.0.1:1", "--steps", "1"]
    assert main(options) == 2
    assert "agent: " in capsys.readouterr().err


@slow
def test_the_demo_compares_the_house_with_itself(tmp_path: Path) -> None:
    run = started("demo", "--scenario", "heating", "--steps", "1", "--interval", "0.0", cwd=tmp_path)
    assert run.code == 0, run.err
    assert "ALARM resolved" in run.out
    assert "the house, run again with its own noise" in run.out
    assert float(run.out.strip().splitlines()[-1].split()[-1]) < 1e-9
