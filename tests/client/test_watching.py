"""The agents of the README, word for word, beside a real broker and a real monitor."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import cfmon_client
import pytest
from cfmon_client import Alert

from tests.client.test_publishing import durable
from tests.servers import Mosquitto, Sidecar, end, mosquitto, sidecar, wait_until

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "client/README.md").read_text(encoding="utf-8")
PATIENCE = 300.0


def program(name: str, broker: Mosquitto) -> str:
    """The program of this name in the README, for this broker."""
    found = re.search(rf'^```python title="{name}"\n(.*?)^```', README, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    assert '"mqtt://localhost"' in found[1]
    return found[1].replace('"mqtt://localhost"', repr(broker.url))


@pytest.fixture
def config(tmp_path: Path, broker: Mosquitto) -> Path:
    """The demo's configuration for FrozenLake, with paths and addresses of this test."""
    text = (ROOT / "config/frozen-lake.yaml").read_text(encoding="utf-8")
    text = text.replace("mqtt://localhost:1883", broker.url).replace("127.0.0.1:9108", "127.0.0.1:0")
    text = text.replace("../var/frozen-lake", "var").replace("../policies", str(ROOT / "policies"))
    (tmp_path / "project").mkdir()
    file = tmp_path / "project/config.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto that keeps sessions when it is killed."""
    with mosquitto(tmp_path / "broker", *durable(tmp_path / "data")) as running:
        yield running


def accepted(running: Sidecar) -> float | None:
    return running.metric('cfmon_messages_total{result="accepted"}')


def blindness_of_steps(running: Sidecar) -> float:
    """How many messages were anything else than accepted or repeated."""
    results = ("stale", "conflict", "gap", "rejected", "dropped")
    return sum(running.metric(f'cfmon_messages_total{{result="{result}"}}') or 0.0 for result in results)


@pytest.mark.parametrize("name", ["agent.py", "watched.py"])
def test_an_agent_of_ten_lines_is_watched(config: Path, broker: Mosquitto, name: str) -> None:
    code = program(name, broker)
    assert len(code.splitlines()) <= 14
    listen = compile(program("listen.py", broker), "listen.py", "exec")
    listening = threading.Thread(target=exec, args=(listen, {}), daemon=True)
    with sidecar(config) as running:
        listening.start()
        deadline = time.monotonic() + PATIENCE
        while listening.is_alive():  # it may begin to listen when the alarms of the first run have ended
            assert time.monotonic() < deadline, "an alert that asks for a takeover arrives"
            exec(compile(code, name, "exec"), {})
            wait_until(
                lambda: running.metric("cfmon_queue_length") == 0 and (accepted(running) or 0) > 100, "all arrives"
            )
        assert blindness_of_steps(running) == 0
        fired = running.metric('cfmon_alarms_total{formula="regret_fallback",severity="critical",state="firing"}')
        assert fired is not None
        assert fired > 0


def test_kills_of_broker_and_monitor_lose_no_step(config: Path, broker: Mosquitto) -> None:
    config.write_text(
        config.read_text(encoding="utf-8").replace("stale_after: 5s", "stale_after: 30m") + "trust: {enabled: false}\n",
        encoding="utf-8",
    )
    pace, total = 0.002, 0  # one episode: any step that is lost is a gap
    with cfmon_client.publish(broker.url, agent="walker") as steps:

        def walk(count: int) -> None:
            nonlocal total
            for _ in range(count):
                steps.step(0, 2)  # the model allows to stay in state 0
                total += 1
                time.sleep(pace)

        with sidecar(config) as running:
            walk(100)
            broker.kill()
            walk(50)
            broker.start()
            walk(100)
            wait_until(lambda: accepted(running) == total, "the monitor has all steps")
            walk(20)
            running.process.kill()
            end(running.process)
            walk(50)
        broker.kill()
        walk(50)
        broker.start()
        with sidecar(config) as running:
            walk(50)
            wait_until(steps.flush, "the broker has all steps")
            wait_until(lambda: last_seq(running) == total - 1, "the last step arrives")
            assert blindness_of_steps(running) == 0
        assert (steps.status.published, steps.status.dropped, steps.status.refused) == (total, 0, {})


def last_seq(running: Sidecar) -> int | None:
    """The newest step of the agent that the monitor has evaluated; None while it is blind."""
    agents = json.loads(running.get("/api/agents"))
    return max((row["seq"] or 0 for agent in agents for row in agent["formulas"]), default=None)


def test_alerts_come_once_each_and_again_after_the_broker_was_killed(broker: Mosquitto) -> None:
    document = example()
    links: list[bool] = []

    async def scenario() -> list[tuple[str, int]]:
        received: list[Alert] = []
        stream = cfmon_client.alerts(broker.url, client_id="operator", on_link=links.append)

        async def listen() -> None:
            async with aclosing(stream):
                async for alert in stream:
                    received.append(alert)  # noqa: PERF401 - read while it grows

        task = asyncio.create_task(listen())
        await until(lambda: links == [True])
        await send_alert(broker, document, revision=1)
        await until(lambda: len(received) == 1)
        await send_alert(broker, document, revision=1)
        await send_alert(broker, document, revision=2, state="resolved")
        await until(lambda: len(received) == 2)
        broker.kill()
        await until(lambda: links == [True, False])
        broker.start()
        await until(lambda: links == [True, False, True])
        await send_alert(broker, {**document, "id": "another"}, revision=1)
        await send_alert(broker, {**document, "v": 2}, revision=9)
        await send_alert(broker, {**document, "id": "third"}, revision=1)
        await until(lambda: len(received) == 4)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [(alert.id, alert.revision) for alert in received]

    assert asyncio.run(scenario()) == [(document["id"], 1), (document["id"], 2), ("another", 1), ("third", 1)]


def test_who_comes_late_gets_the_retained_alert_and_repeats_on_request(broker: Mosquitto) -> None:
    document = example()

    async def scenario() -> list[float | None]:
        await send_alert(broker, document, revision=3)
        found = []
        async with aclosing(cfmon_client.alerts(broker.url, "demo", "regret_fallback", repeats=True)) as stream:
            async for alert in stream:
                found.append(alert.value)
                if len(found) == 3:
                    break
                await send_alert(broker, document, revision=3, value=0.1 * len(found))
        return found

    assert asyncio.run(scenario()) == [pytest.approx(document["value"]), pytest.approx(0.1), pytest.approx(0.2)]


def example() -> dict[str, object]:
    page = (ROOT / "docs/messages/alert.md").read_text(encoding="utf-8")
    found = re.search(r"^```json\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    document: dict[str, object] = json.loads(found[1])
    return document


async def send_alert(broker: Mosquitto, document: dict[str, object], **changes: object) -> None:
    """Publish an alert as the monitor does."""
    from cfmon_client.connection import connection  # noqa: PLC0415 - the other side of the same library

    async with connection(cfmon_client.Broker(broker.url), "monitor") as client:
        payload = json.dumps({**document, **changes})
        await client.publish("cfmon/alerts/demo/regret_fallback", payload, qos=1, retain=True)


async def until(happened: object) -> None:
    """Wait until a condition holds, in the event loop."""
    assert callable(happened)
    limit = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < limit
        await asyncio.sleep(0.02)
