"""What is served, and what is not: read-only, on loopback, with the right answer when something is wrong."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitor.errors import ConfigError
from monitor.sidecar.board import Board
from monitor.sidecar.events import Connected, Evaluate
from monitor.sidecar.http import HttpServer, Sources, make_app
from monitor.sidecar.pictures import Pictures
from monitor.sidecar.pipeline import Effects
from monitor.sidecar.settings import HttpConfig
from monitor.types import AlarmMoved, Blind, FormulaSpec, Notice, Received
from tests.sidecar.conftest import CAREFUL, HOME, Driver

STATUS: dict[str, Any] = {
    "version": "1",
    "client_id": "<script>",
    "broker": "mqtt://localhost:1883",
    "connected": True,
    "queue": 0,
    "unsent": 0,
    "model": {"name": "corridor", "sha256": "c" * 64},
    "policies": [],
}


class World:
    """A board behind a server, and what its health is."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.problem = ""
        self.sources = Sources(
            board=board,
            exposition=lambda: b"cfmon_metric 1\n",
            evidence=lambda name: b"proof" if name == "abc" else None,
            signature=lambda name: b"signature" if name == "abc" else None,
            health=lambda: self.problem,
            readiness=lambda: self.problem,
            status=lambda: STATUS,
            pictures=Pictures(lambda _name: None, Path("objects")),
        )


@pytest.fixture
def world(formulas: list[FormulaSpec]) -> World:
    return World(Board(formulas, "cfmon/alerts"))


@pytest.fixture
def client(world: World) -> Iterator[httpx.Client]:
    server = HttpServer(make_app(world.sources), HttpConfig(listen="127.0.0.1:0"))
    server.start()
    try:
        with httpx.Client(base_url=server.url) as client:
            yield client
    finally:
        server.stop()


def test_metrics_are_what_prometheus_reads(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert answer.text == "cfmon_metric 1\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_probe_says_what_is_wrong(client: httpx.Client, world: World, path: str) -> None:
    assert (client.get(path).status_code, client.get(path).text) == (200, "ok")
    world.problem = "no evaluation for 31.0 s"
    assert (client.get(path).status_code, client.get(path).text) == (503, "no evaluation for 31.0 s")


def test_evidence_is_given_out_by_its_id(client: httpx.Client) -> None:
    answer = client.get("/evidence/abc")
    assert answer.content == b"proof"
    assert "attachment" in answer.headers["content-disposition"]
    for path in ("/evidence/other", "/evidence/../objects", "/evidence/%2e%2e%2fobjects", "/api/agents/nobody", "/no"):
        assert client.get(path).status_code == 404


def test_a_signature_is_given_out_beside_its_evidence(client: httpx.Client) -> None:
    answer = client.get("/evidence/abc.sig")
    assert answer.content == b"signature"
    assert 'filename="abc.sig"' in answer.headers["content-disposition"]
    for path in ("/evidence/other.sig", "/evidence/abc.sig.sig", "/evidence/.sig", "/evidence/%2e%2e%2fabc.sig"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/api/agents", "/evidence/abc"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(client: httpx.Client, method: str, path: str) -> None:
    assert client.request(method, path).status_code == 405


def test_the_api_tells_agents_formulas_values_and_alarms(client: httpx.Client, world: World, driver: Driver) -> None:
    world.board.take(driver.send(0, 0), driver.now)
    for effects in driver.effects:
        world.board.take(effects, driver.now)
    assert [formula["name"] for formula in client.get("/api/formulas").json()] == ["watch", "chance"]
    [agent] = client.get("/api/agents").json()
    assert agent == client.get("/api/agents/ada").json()
    assert (agent["name"], agent["episode"], agent["last_message"]) == ("ada", 0, driver.now.wall)
    watch, chance = agent["formulas"]
    assert (watch["alarm"], watch["outcome"], watch["blind"], watch["seq"]) == ("firing", "regret", None, 0)
    assert 0.0 <= chance["lower"] <= chance["value"] <= chance["upper"] <= 1.0
    [alarm] = client.get("/api/alarms").json()
    assert (alarm["agent"], alarm["state"], alarm["formula"]["name"]) == ("ada", "firing", "watch")
    assert client.get("/api/status").json() == STATUS
    overview = client.get("/api/overview").json()
    assert overview["firing"] == [alarm]
    assert overview["agents"] == [agent]
    assert overview["count"] == {"firing": 1, "blind": 0, "agents": 1, "found": 1}
    assert overview["agents"][0]["formulas"][1]["history"][-1] == [chance["value"], None]
    assert overview["agents"][0]["formulas"][0]["threshold"] == watch["threshold"] > 0.0
    assert client.get("/api/overview", params={"search": "nobody"}).json()["agents"] == []


def test_agents_that_need_a_person_come_first(world: World, driver: Driver) -> None:
    def hear(agent: str, *notices: Notice) -> None:
        world.board.take(Effects(notices=(Received(agent, "accepted"), *notices)), driver.now)

    hear("anna")
    hear("bert", Blind("bert", "watch", "gap", "seq 3 did not come"))
    hear("cleo", AlarmMoved("cleo", "watch", "firing"))
    told = world.board.overview("", 2)
    assert [agent["name"] for agent in told["agents"]] == ["cleo", "bert"]
    assert told["blind"] == [
        {
            "agent": "bert",
            "reason": "gap",
            "words": "steps are missing",
            "detail": "seq 3 did not come",
            "formulas": ["watch"],
        }
    ]
    assert told["count"]["found"] == 3


def test_the_page_is_whole_and_holds_no_data(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    named = set(re.findall(r'(?:href|src)="([a-z]+\.(?:css|js))"', page.text))
    assert named == {"style.css", "app.js"}
    for name in named:
        assert client.get(f"/{name}").status_code == 200
    everything = page.text + client.get("/app.js").text + client.get("/style.css").text
    assert "//" not in re.sub(r"^\s*//.*$", "", everything, flags=re.MULTILINE)  # nothing is loaded from elsewhere
    assert "<script>" not in page.text


def test_the_board_follows_blindness_ends_and_forgetting(world: World, driver: Driver) -> None:
    def send(*arguments: Any, **more: Any) -> None:  # noqa: ANN401 - passed on
        count = len(driver.effects)
        driver.send(*arguments, **more)
        for effects in driver.effects[count:]:
            world.board.take(effects, driver.now)

    assert world.board.seeing()  # nothing to see yet is not blindness
    send(0, 0)
    world.board.take(driver.feed(Connected(driver.now, up=False)), driver.now)
    assert not world.board.seeing()
    [agent] = world.board.agents()
    assert [(row["blind"], row["value"]) for row in agent["formulas"]] == [("disconnected", None)] * 2
    assert agent["formulas"][0]["alarm"] == "firing"
    world.board.take(driver.feed(Connected(driver.now, up=True)), driver.now)
    assert world.board.seeing()
    doubt = tuple(Blind("ada", name, "model_doubt") for name in ("watch", "chance"))
    world.board.take(Effects(notices=doubt), driver.now)
    assert world.board.seeing()  # it answers, if with a warning
    world.board.take(Effects(notices=tuple(Blind("ada", name, None) for name in ("watch", "chance"))), driver.now)
    send(1, 1, CAREFUL)
    send(2, HOME, terminated=True)
    [agent] = world.board.agents()
    assert [(row["alarm"], row["outcome"]) for row in agent["formulas"]] == [("clear", None)] * 2
    driver.ticks += 100.0
    world.board.take(driver.feed(Evaluate(driver.now)), driver.now)
    assert world.board.agents() == []
    assert world.board.agent("ada") is None
    assert world.board.alarms() == []


def test_a_port_in_use_is_an_error_at_start(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"http.listen: cannot listen on {listen}: "):
            HttpServer(make_app(world.sources), HttpConfig(listen=listen))


def test_an_address_of_ipv6_works_where_there_is_one(world: World) -> None:
    try:
        server = HttpServer(make_app(world.sources), HttpConfig(listen="[::1]:0"))
    except ConfigError as error:
        pytest.skip(f"no IPv6 here: {error}")
    server.start()
    try:
        assert server.url.startswith("http://[::1]:")
        assert httpx.get(f"{server.url}/healthz").text == "ok"
    finally:
        server.stop()
