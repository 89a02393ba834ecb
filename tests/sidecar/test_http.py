"""What is served, and what is not: read-only, on loopback, with the right answer when something is wrong."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn
from uvicorn.server import ServerState

from monitor.alarm.blindness import BLINDNESS
from monitor.cli import streaming
from monitor.errors import ConfigError
from monitor.evidence.bundle import read_bundle
from monitor.sidecar.config import load
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Connected, Evaluate
from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.web import http as http_module
from monitor.sidecar.web import page as page_module
from monitor.sidecar.web import server as server_module
from monitor.sidecar.web.http import Sources, answering_probes, make_app, nothing_kept
from monitor.sidecar.web.page import FILES
from monitor.sidecar.web.pictures import Pictures
from monitor.sidecar.web.runbooks import default_runbook
from monitor.sidecar.web.server import HttpServer, _BoundedHttp
from monitor.types import AlarmMoved, Blind, FormulaSpec, Judged, Notice, Received, Trust
from tests.servers import PATIENCE
from tests.sidecar.alarms import alarm
from tests.sidecar.conftest import CAREFUL, HOME, Driver
from tests.sidecar.project import CONFIG
from tests.sidecar.side import let_pass, run
from tests.sidecar.watched import show, watched

STATUS: dict[str, Any] = {
    "version": "1",
    "client_id": "<script>",
    "broker": "mqtt://localhost:1883",
    "connected": True,
    "queue": 0,
    "unsent": 0,
    "store": "ok",
    "model": {"name": "corridor", "sha256": "c" * 64},
    "policies": [],
}


class World:
    """A board behind a server, and what its health is."""

    def __init__(self, board: StatusView) -> None:
        self.board = board
        self.problem = ""
        self.sources = Sources(
            view=board,
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
    return World(StatusView(watched(formulas)))


@pytest.fixture
def client(world: World) -> Iterator[httpx.Client]:
    with serving(world.sources) as client:
        yield client


@contextmanager
def serving(sources: Sources) -> Iterator[httpx.Client]:
    server = HttpServer(make_app(sources), HttpConfig(listen="127.0.0.1:0"))
    server.start()
    try:
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
            yield client
    finally:
        server.stop()


get = partial(httpx.get, timeout=PATIENCE)


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


def test_evidence_is_given_out_with_all_that_it_follows_from(world: World, tmp_path: Path) -> None:
    one = alarm("regret with bounds")
    sources = replace(
        world.sources,
        evidence={one.id: one.content, "abc": b"none"}.get,
        signature=lambda _name: None,
        objects=one.read,
    )
    with serving(sources) as client:
        answer = client.get(f"/evidence/{one.id}.zip")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
        assert f'filename="{one.id}.zip"' in answer.headers["content-disposition"]
        (tmp_path / "taken.zip").write_bytes(answer.content)
        assert client.get("/evidence/other.zip").status_code == 404
        assert client.get("/evidence/abc.zip").status_code == 404
    bundle = read_bundle(tmp_path / "taken.zip")
    assert (bundle.id, bundle.content, bundle.signature) == (one.id, one.content, None)
    assert {name: bundle.objects(name) for name in one.objects} == one.objects
    with serving(replace(sources, objects=nothing_kept)) as client:
        answer = client.get(f"/evidence/{one.id}.zip")
        assert (answer.status_code, "nothing is kept" in answer.text) == (404, True)


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/api/agents", "/evidence/abc"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(client: httpx.Client, method: str, path: str) -> None:
    assert client.request(method, path).status_code == 405


def test_the_api_tells_agents_formulas_values_and_alarms(client: httpx.Client, world: World, driver: Driver) -> None:
    world.board.take(driver.send(0, 0), driver.now)
    for effects in driver.effects:
        show(world.board, effects, driver.now)
    assert [formula["name"] for formula in client.get("/api/formulas").json()] == ["watch", "chance"]
    [agent] = client.get("/api/agents").json()
    assert agent == client.get("/api/agents/ada").json()
    assert (agent["name"], agent["episode"], agent["last_message"]) == ("ada", 0, driver.now.wall)
    watch, chance = agent["formulas"]
    assert (watch["alarm"], watch["outcome"], watch["blind"], watch["seq"]) == ("firing", "regret", None, 0)
    assert 0.0 <= chance["bounds"][0] <= chance["value"] <= chance["bounds"][1] <= 1.0
    assert (chance["alternative"], chance["threshold"]) == (None, None)
    assert watch["alternative"]["name"] == "careful"
    assert watch["value"] < 0.8 <= watch["alternative"]["value"]
    assert watch["threshold"] == {"comparison": ">=", "bound": 0.8}
    [alarm] = client.get("/api/alarms").json()
    assert (alarm["agent"], alarm["state"], alarm["formula"]["name"]) == ("ada", "firing", "watch")
    assert client.get("/api/status").json() == STATUS
    overview = client.get("/api/overview").json()
    assert overview["firing"] == [alarm]
    recent = [formula.pop("last_minutes") for formula in overview["agents"][0]["formulas"]]
    assert overview["agents"] == [agent]
    assert overview["count"] == {"firing": 1, "blind": 0, "agents": 1, "found": 1, "day": 1}
    assert overview["states"] == {"firing": 1, "pending": 0, "blind": 0, "unknown": 0, "fine": 1}
    assert [(curve["value"][-1], curve["alternative"][-1]) for curve in recent] == [
        (watch["value"], watch["alternative"]["value"]),
        (chance["value"], None),
    ]
    assert [alarm[name] for name in ("value", "threshold", "alternative")] == [
        watch[name] for name in ("value", "threshold", "alternative")
    ]
    shown = client.get("/text")
    assert (shown.headers["content-type"], shown.headers["refresh"]) == ("text/plain; charset=utf-8", "5")
    assert alarm["summary"].partition(";")[0] in shown.text
    assert "1 firing" in shown.text
    assert client.get("/api/overview", params={"search": "nobody"}).json()["agents"] == []
    [undrawn] = client.get("/api/overview", params={"drawn": "0"}).json()["agents"]
    assert [formula["last_minutes"] for formula in undrawn["formulas"]] == [None, None]
    [drawn] = client.get("/api/overview", params={"drawn": "all"}).json()["agents"]
    assert None not in [formula["last_minutes"] for formula in drawn["formulas"]]
    refused = client.get("/api/overview", params={"drawn": "101"})
    assert (refused.status_code, refused.text) == (400, "drawn must be a number from 0 to 100")


def test_a_step_is_as_long_as_those_of_its_episode_were(world: World, driver: Driver) -> None:
    verdict = next(notice for notice in driver.send(0, 0).notices if isinstance(notice, Judged))

    def after(episode: int, seq: int, time: float) -> float | None:
        notice = msgspec.structs.replace(verdict, episode=episode, seq=seq, time=time)
        world.board.take(Effects(notices=(notice,)), driver.now)
        [agent] = world.board.agents()
        return agent["seconds_per_step"]  # type: ignore[no-any-return]

    assert after(0, 0, 1000.0) is None, "one step has no length"
    assert after(0, 1, 1002.0) == 2.0
    assert after(0, 3, 1003.0) == 1.0, "a step that did not arrive counts"
    assert after(1, 0, 1033.0) is None, "the time between episodes is no step"
    assert after(1, 1, 1033.5) == 0.5
    assert after(1, 2, 1030.0) is None, "a clock that ran backwards"
    assert after(1, 0, 2000.0) is None, "the agent began the episode again"
    assert after(1, 1, 2003.0) == 3.0
    [agent] = world.board.agents()
    assert {formula["horizon"] for formula in agent["formulas"]} == {3}


def test_agents_that_need_a_person_come_first(world: World, driver: Driver) -> None:
    def hear(agent: str, *notices: Notice) -> None:
        world.board.take(Effects(notices=(Received(agent, "accepted"), *notices)), driver.now)

    hear("anna")
    hear("bert", Blind("bert", "watch", "gap", "seq 3 did not come"))
    hear("cleo", AlarmMoved("cleo", "watch", "firing"))
    hear("dora", Trust(doubted=True, log10_e=4.0, transitions=70, agent="dora"))
    hear("emma", AlarmMoved("emma", "watch", "pending"))
    told = world.board.overview("", 2, driver.now.wall)
    assert [agent["name"] for agent in told["agents"]] == ["cleo", "emma"]
    for name, firing, blind in (("anna", ["cleo"], ["bert"]), ("cleo", [], ["bert"]), ("bert", ["cleo"], [])):
        life = world.board.life(name, 5)
        assert life is not None
        assert life["others"] == {"firing": firing, "blind": blind}
    assert told["blind"] == [
        {
            "agent": "bert",
            "reason": "gap",
            "words": "steps are missing",
            "detail": "seq 3 did not come",
            "complete": False,
            "first": BLINDNESS["gap"].first,
            "runbook": "runbooks/CfmonFormulaBlind",
            "formulas": ["watch"],
        }
    ]
    assert told["count"]["found"] == 5
    everyone = world.board.overview("", 9, driver.now.wall)
    assert [agent["name"] for agent in everyone["agents"]] == ["cleo", "emma", "bert", "dora", "anna"]
    assert [agent["formulas"][0]["state"] for agent in everyone["agents"]] == [
        *("firing", "pending", "blind", "unknown", "unknown"),
    ]
    assert everyone["states"] == {"firing": 1, "pending": 1, "blind": 1, "unknown": 7, "fine": 0}
    assert sum(everyone["states"].values()) == 5 * len(everyone["formulas"])


def test_the_longest_lag_is_named_and_none_is_unknown(world: World, driver: Driver) -> None:
    def lag() -> object:
        return world.board.overview("", 1, driver.now.wall)["lag"]

    def hear(agent: str, lag: float | None) -> None:
        world.board.take(Effects(notices=(Received(agent, "accepted", lag=lag),)), driver.now)

    hear("anna", None)
    assert lag() is None
    hear("bert", 0.5)
    hear("cleo", 0.25)
    assert lag() == {"agent": "bert", "seconds": 0.5}
    world.board.take(Effects(notices=(Blind("bert", "watch", "stale"),)), driver.now)
    assert lag() == {"agent": "cleo", "seconds": 0.25}, "no message of the other arrives"


def test_all_files_of_the_pages_are_light() -> None:
    folder = Path(page_module.__file__).with_name("static")
    assert sum((folder / name).stat().st_size for name, _ in FILES.values()) < 150 * 1024


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
            show(world.board, effects, driver.now)

    assert world.board.seeing()  # nothing to see yet is not blindness
    send(0, 0)
    world.board.take(driver.feed(Connected(driver.now, up=False)), driver.now)
    assert not world.board.seeing()
    [agent] = world.board.agents()
    assert [(row["blind"], row["value"]) for row in agent["formulas"]] == [("disconnected", None)] * 2
    assert agent["formulas"][0]["alarm"] == "firing"
    lost = driver.now
    driver.ticks += 5.0
    world.board.take(Effects(notices=(Blind("ada", "watch", "stale"),)), driver.now)
    [agent] = world.board.agents()
    assert {row["name"]: row["blind_since"] for row in agent["formulas"]}["watch"] == lost.wall, "another reason"
    world.board.take(driver.feed(Connected(driver.now, up=True)), driver.now)
    world.board.take(Effects(notices=(Blind("ada", "watch", None),)), driver.now)
    assert world.board.seeing()
    [agent] = world.board.agents()
    assert [row["blind_since"] for row in agent["formulas"]] == [None] * 2
    world.board.recall(Effects(notices=(Blind("ada", "watch", "stale"),)), driver.now)
    [agent] = world.board.agents()
    assert [row["blind_since"] for row in agent["formulas"]] == [None] * 2, "a restart does not know since when"
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
        assert get(f"{server.url}/healthz").text == "ok"
    finally:
        server.stop()


def test_probes_are_answered_while_the_model_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    urls: list[str] = []
    told: dict[str, tuple[int, str]] = {}

    @contextmanager
    def noted(http: HttpConfig, doing: str) -> Iterator[HttpServer]:
        with answering_probes(http, doing) as server:
            urls.append(server.url)
            yield server

    def reading(_source: object) -> None:
        for path in ("/healthz", "/readyz", "/startupz", "/metrics"):
            answer = get(f"{urls[0]}{path}")
            told[path] = answer.status_code, answer.text
        raise ConfigError("enough")

    monkeypatch.setattr(http_module, "answering_probes", noted)
    monkeypatch.setattr(load, "assemble", reading)
    with pytest.raises(ConfigError, match="enough"):
        streaming.run(config, plain=True)
    assert told.pop("/healthz") == (200, "ok")
    assert set(told.values()) == {(503, "reading the configuration, the model and the policies")}
    assert "http" not in {thread.name for thread in threading.enumerate()}, "nothing is served any more"


def test_one_server_takes_over_from_another(world: World) -> None:
    config = HttpConfig(listen="127.0.0.1:0")
    with answering_probes(config, "reading") as before:
        assert get(f"{before.url}/startupz").text == "reading"
        after = HttpServer(make_app(world.sources), config, before)
        assert after.url == before.url
        after.start()
        before.stop()
        try:
            assert (get(f"{after.url}/startupz").text, get(f"{after.url}/api/status").json()) == (
                "ok",
                STATUS,
            )
        finally:
            after.stop()


def test_a_process_that_stood_still_closes_no_connection_for_it(world: World) -> None:
    """A machine that is suspended wakes up with every patience over, before it has read what has come meanwhile."""
    config = uvicorn.Config(make_app(world.sources), http=_BoundedHttp, lifespan="off", ws="none", log_config=None)
    config.load()

    async def scenario() -> None:
        loop, served = asyncio.get_running_loop(), list[_BoundedHttp]()

        def connected() -> _BoundedHttp:
            served.append(_BoundedHttp(config=config, server_state=ServerState(), app_state={}, _loop=loop))
            return served[-1]

        async with await loop.create_server(connected, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            while not served:  # noqa: ASYNC110 - what is waited for is in the hands of uvicorn
                await asyncio.sleep(0.005)
            let_pass(2.5 * server_module.PATIENCE)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 OK")
            while served[0].open:  # as it is idle now
                let_pass(server_module.PATIENCE)
                await asyncio.sleep(0.005)
            writer.close()

    run(scenario())


def test_runbooks_are_served_to_everyone_who_reaches_the_page(client: httpx.Client) -> None:
    for name in ("CfmonAlarmCritical", "CfmonAlarmWarning.md", "CfmonDown"):
        answer = client.get(f"/runbooks/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert answer.text.startswith(f"# {name.removesuffix('.md')}\n")
    for name in ("none", "%2e%2e%2fcfmon", "..%2f..%2fpyproject.toml"):
        assert client.get(f"/runbooks/{name}").status_code == 404


@pytest.mark.parametrize(
    ("http", "base"),
    [
        ({"listen": "127.0.0.1:9108"}, "http://127.0.0.1:9108"),
        ({"listen": "0.0.0.0:9108"}, None),
        ({"listen": "127.0.0.1:0"}, None),
        ({"listen": "0.0.0.0:9108", "url": "https://cfmon.example/ward/"}, "https://cfmon.example/ward"),
    ],
)
@pytest.mark.parametrize(("severity", "page"), [("critical", "CfmonAlarmCritical"), ("warning", "CfmonAlarmWarning")])
def test_an_alarm_without_a_runbook_of_its_own_leads_to_ours(
    http: dict[str, str], base: str | None, severity: str, page: str
) -> None:
    expected = None if base is None else f"{base}/runbooks/{page}"
    assert default_runbook(HttpConfig.model_validate(http), severity) == expected
