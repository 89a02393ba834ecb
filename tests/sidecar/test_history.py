"""The list of alarms and the curves: complete, bounded, in order; what does not fire is never said to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitor.model import MDP
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.effects import Effects, Publication
from monitor.sidecar.events import Evaluate
from monitor.sidecar.sinks.curve import Curve
from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.store.alarm_history import AlarmFilter, AlarmHistory, AlarmRecord
from monitor.sidecar.web.http import Sources, make_app
from monitor.sidecar.web.pictures import Pictures
from monitor.sidecar.web.server import HttpServer
from monitor.types import (
    AlarmMoved,
    AlarmSpec,
    Blind,
    Contradictions,
    Deviates,
    Ended,
    FormulaSpec,
    Instant,
    Trust,
    WrongAgent,
    WrongRow,
)
from tests.servers import Mosquitto, wait_until
from tests.sidecar.conftest import CAREFUL, RASH, REGRET, Driver
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.running import Inside, inside, publish, steps
from tests.sidecar.watched import show, watched

SPEC = FormulaSpec("watch", REGRET, alarm=AlarmSpec(severity="critical"))
NOW = Instant(1_800_000_000.0, 0.0)


def alert(name: str, state: str = "firing", revision: int = 1, sent: float | None = 100.0, **more: str) -> Publication:
    who = {"agent": "ada", "severity": "critical", **more}
    formula = {"name": more.get("formula", "watch"), "text": REGRET}
    document = {"id": name, "state": state, "revision": revision, "sent_unix": sent, **who, "formula": formula}
    return Publication(f"cfmon/alerts/{who['agent']}/{formula['name']}", json.dumps(document).encode())


def names(history: AlarmHistory, **asked: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - passed on
    return [(alarm.id, alarm.state) for alarm in history.find(AlarmFilter(**asked))]


# ---- the list ----


def test_an_alarm_that_fires_again_leaves_the_one_before() -> None:
    history = AlarmHistory("cfmon/alerts")
    first = [alert("a"), alert("a", "resolved", 2, 110.0)]
    changes = history.note([*first, alert("b", sent=120.0)])
    assert names(history) == [("b", "firing"), ("a", "resolved")]
    assert sorted(changes.rows) == [1, 2]
    [found] = history.find(AlarmFilter(state="over"))
    shown = found.shown()
    assert (shown["began_unix"], shown["over_unix"], shown["began"]) == (100.0, 110.0, "1970-01-01T00:01:40.000Z")


def test_what_is_known_changes_nothing() -> None:
    history = AlarmHistory("cfmon/alerts")
    assert history.note([alert("a"), alert("a", "resolved", 2)]).rows
    for again in (alert("a"), alert("a", "resolved", 2), Publication("cfmon/status/me", b"{}"), Publication("x", b"")):
        assert not history.note([again]).rows
    heartbeat = Publication("cfmon/alerts/ada/watch", alert("a", revision=9).payload, repeats=True)
    assert not history.note([heartbeat]).rows
    assert names(history) == [("a", "resolved")]


def test_revisions_of_a_firing_alarm_are_not_written_and_its_end_is() -> None:
    history = AlarmHistory("cfmon/alerts")
    history.note([alert("a")])
    assert not history.note([alert("a", revision=2), alert("a", revision=3)]).rows
    assert not history.note([alert("a", "resolved", 2)]).rows  # older than what was heard
    assert history.note([alert("a", "ended", 4)]).rows


def test_it_is_bounded_and_keeps_what_fires() -> None:
    history = AlarmHistory("cfmon/alerts", limit=3)
    history.note([alert("fires")])
    gone: list[int] = []
    for n in range(5):
        gone += history.note([alert(f"{n}"), alert(f"{n}", "resolved", 2)]).gone
    assert names(history) == [("4", "resolved"), ("3", "resolved"), ("fires", "firing")]
    assert gone == [2, 3, 4]
    assert sorted(history.rows()) == [1, 5, 6]


def test_what_is_shown_leaves_the_list_as_it_was_stored(board: StatusView) -> None:
    """An alarm that closes may be dropped at once; shown, it would be listed anew and drop another one."""
    board.history = AlarmHistory("cfmon/alerts", limit=2)
    for stored in ([alert("a")], [alert("b"), alert("b", "resolved", 2)], [alert("a", "resolved", 2), alert("c")]):
        board.history.note(stored)
        board.take(Effects(tuple(stored)), NOW)
    assert names(board.history) == [("c", "firing"), ("b", "resolved")]


def test_what_was_kept_is_restored_and_goes_on() -> None:
    before, after = AlarmHistory("cfmon/alerts"), AlarmHistory("cfmon/alerts")
    before.note([alert("a"), alert("a", "resolved", 2), alert("b")])
    found = zip((1, 2), reversed(before.find(AlarmFilter())), strict=True)
    names = AlarmRecord.__struct_fields__
    kept = {number: AlarmRecord(**{name: getattr(alarm, name) for name in names}) for number, alarm in found}
    after.load(kept.items())
    assert after.rows() == before.rows()
    assert sorted(after.note([alert("b", "resolved", 2), alert("c")]).rows) == [2, 3]


def test_what_does_not_fire_any_more_after_a_restart_is_not_said_to() -> None:
    history = AlarmHistory("cfmon/alerts")
    history.note([alert("lost"), alert("stands")])
    history.mark_unknown({"stands"})
    assert names(history) == [("stands", "firing"), ("lost", "unknown")]
    assert names(history, state="over") == [("lost", "unknown")]


def test_filters() -> None:
    history = AlarmHistory("cfmon/alerts")
    history.note([alert("a", sent=100.0), alert("a", "resolved", 2, 200.0)])
    history.note([alert("b", sent=150.0, agent="bob", severity="warning", formula="chance")])
    for asked, found in (
        ({"agent": "bob"}, ["b"]), ({"formula": "watch"}, ["a"]), ({"severity": "warning"}, ["b"]),
        ({"state": "firing"}, ["b"]), ({"since": 201.0}, ["b"]), ({"since": 200.0}, ["b", "a"]),
        ({"until": 149.0}, ["a"]), ({"until": 99.0}, []), ({"agent": "bob", "formula": "watch"}, []),
    ):  # fmt: skip
        assert [name for name, _ in names(history, **asked)] == found, asked
    assert [alarm.id for alarm in history.find(AlarmFilter(), 1)] == ["b"]


# ---- over HTTP ----


@pytest.fixture
def board(formulas: list[FormulaSpec]) -> StatusView:
    return StatusView(watched(formulas))


@pytest.fixture
def client(board: StatusView) -> Iterator[httpx.Client]:
    sources = Sources(
        view=board,
        exposition=lambda: b"",
        evidence=lambda _name: None,
        signature=lambda _name: None,
        health=lambda: "",
        readiness=lambda: "",
        status=dict,
        pictures=Pictures(lambda _name: None, Path("objects")),
    )
    server = HttpServer(make_app(sources), HttpConfig(listen="127.0.0.1:0"))
    server.start()
    try:
        with httpx.Client(base_url=server.url) as client:
            yield client
    finally:
        server.stop()


def test_the_list_over_http_with_filters(client: httpx.Client, board: StatusView) -> None:
    board.history.note([alert("a", sent=1_800_000_000.0), alert("a", "resolved", 2, 1_800_000_100.0)])
    board.history.note([alert("b", sent=1_800_000_200.0, agent="bob")])

    def ids(**query: str) -> list[str]:
        return [found["id"] for found in client.get("/api/alarms", params=query).raise_for_status().json()]

    assert ids() == ["b", "a"]
    assert ids(agent="ada", formula="watch", severity="critical") == ["a"]
    assert ids(state="over") == ["a"]
    assert ids(limit="1") == ["b"]
    assert (
        ids(until="2027-01-15T08:01:00Z") == ids(until="2027-01-15T09:01:00+01:00") == ids(until="1800000060") == ["a"]
    )
    assert ids(agent="", since="") == ["b", "a"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("agents=ada", "unknown filter 'agents'"),
        ("since=yesterday", "since must be a time such as"),
        ("until=nan", "until must be a time"),
        ("limit=0", "limit must be a number from 1 to 1000"),
        ("limit=99999999999999", "limit must be a number"),
    ],
)
def test_a_filter_that_is_none_is_refused_in_words(client: httpx.Client, query: str, words: str) -> None:
    answer = client.get(f"/api/alarms?{query}")
    assert (answer.status_code, words in answer.text) == (400, True)


def test_alarms_stay_in_the_list_when_their_agent_is_forgotten(
    client: httpx.Client, board: StatusView, driver: Driver
) -> None:
    driver.send(0, 0)
    for effects in driver.effects:
        show(board, effects, driver.now)
    driver.ticks += 100.0
    show(board, driver.feed(Evaluate(driver.now)), driver.now)
    assert board.agents() == []
    [alarm] = client.get("/api/alarms?agent=ada").json()
    assert alarm["state"] == "ended"
    told = client.get("/api/agents/ada/history").json()
    assert (told["known"], told["alarms"]) == (False, [alarm])
    assert client.get("/api/overview").json()["recent"] == [alarm]
    assert client.get("/api/agents/nobody/history").status_code == 404


def test_critical_stands_above_warning_whenever_it_fired(board: StatusView) -> None:
    board.history.note([alert(severity, severity=severity) for severity in ("critical", "info", "page", "warning")])
    firing = board.overview("", 10, 0.0)["firing"]
    assert [found["severity"] for found in firing] == ["critical", "page", "warning", "info"]


def test_the_alarms_of_the_last_day_are_outlined_and_all_are_counted(board: StatusView) -> None:
    board.history.note([alert("old"), alert("old", "resolved", 2, 110.0), alert("late", sent=200.0)])
    board.history.note([alert("late", "resolved", 2, 300.0)])
    told = board.overview("", 1, 86_400.0 + 200.0)
    times = {"began_unix": 200.0, "over_unix": 300.0}
    words = {"agent": "ada", "formula": "watch", "severity": "critical", "state": "resolved"}
    assert told["day"] == [{"id": "late", **words, **times}]
    assert told["count"]["day"] == 1
    board.history.note([alert(f"{n}", sent=400.0 + n) for n in range(300)])
    told = board.overview("", 1, 86_400.0)
    assert (len(told["day"]), told["count"]["day"]) == (200, 302)
    assert told["day"][0]["id"] == "299"


def test_an_agent_over_time(client: httpx.Client, board: StatusView, driver: Driver) -> None:
    driver.send(0, 0)
    for effects in driver.effects:
        show(board, effects, driver.now)
    told = client.get("/api/agents/ada/history").json()
    watch, chance = told["formulas"]
    assert watch["curve"] == {
        "time": [driver.now.wall], "value": [watch["value"]], "alternative": [watch["alternative"]["value"]],
        "ended": [],
    }  # fmt: skip
    assert watch["summary"].startswith("ada: ")
    assert watch["profile"] == told["alarms"][0]["profile"]
    assert chance["curve"]["value"] == [chance["value"]]


def test_doubt_of_one_agent_stands_beside_the_models_own(board: StatusView, driver: Driver) -> None:
    board.take(driver.send(0, 0), driver.now)
    assert board.overview("", 1, driver.now.wall)["doubt"] == {
        "model": {"doubted": None, "log10_e": None, "transitions": 0, "departing": []}, "agents": [],
    }  # fmt: skip
    told = (
        Trust(doubted=False, log10_e=0.5, transitions=90),
        Trust(doubted=True, log10_e=4.0, transitions=70, agent="ada"),
    )
    board.take(Effects(notices=told), driver.now)
    doubted = {"doubted": True, "log10_e": 4.0, "transitions": 70, "departing": []}
    assert board.overview("", 1, driver.now.wall)["doubt"] == {
        "model": {"doubted": False, "log10_e": 0.5, "transitions": 90, "departing": []},
        "agents": [{"agent": "ada", **doubted}],
    }  # fmt: skip
    life = board.life("ada", 1)
    assert life is not None
    assert (life["doubt"], life["model_doubt"]["doubted"]) == (doubted, False)
    board.take(Effects(notices=(Trust(doubted=False, log10_e=0.0, transitions=0, agent="ada"),)), driver.now)
    assert board.overview("", 1, driver.now.wall)["doubt"]["agents"] == []


def test_rows_and_agents_that_contradict_the_model_are_listed(board: StatusView, driver: Driver) -> None:
    nothing = {"rows": [], "agents": [], "rows_rejected": 0, "agents_rejected": 0, "rows_tested": 0}
    assert board.overview("", 1, driver.now.wall)["contradictions"] == nothing
    row = WrongRow("hill", "walk", 4.0, "plain", 40, 100, 0.1, 3)
    found = Contradictions((row,), (WrongAgent("ada", 5.0),), rows_rejected=1, agents_rejected=1, rows_tested=64)
    board.take(Effects(notices=(found,)), driver.now)
    assert board.overview("", 1, driver.now.wall)["contradictions"] == {
        "rows": [
            {
                "state": "hill",
                "action": "walk",
                "log10_e": 4.0,
                "successor": "plain",
                "seen": 40,
                "visits": 100,
                "probability": 0.1,
                "impossible": 3,
            }
        ],
        "agents": [{"agent": "ada", "log10_e": 5.0}],
        "rows_rejected": 1,
        "agents_rejected": 1,
        "rows_tested": 64,
    }


def test_who_departs_from_its_policy_is_named_from_a_tenth_on(board: StatusView, driver: Driver) -> None:
    board.take(driver.send(0, 0), driver.now)
    life = board.life("ada", 1)
    assert life is not None
    assert life["deviation"] == {"share": 0.0, "steps": 0, "notable": False}
    for share, notable in ((0.09, False), (0.1, True), (0.0, False)):
        board.take(Effects(notices=(Deviates("ada", share, 100),)), driver.now)
        deviation = {"share": share, "steps": 100, "notable": notable}
        assert board.overview("", 1, driver.now.wall)["deviating"] == (
            [{"agent": "ada", **deviation}] if notable else []
        )
        life = board.life("ada", 1)
        assert life is not None
        assert life["deviation"] == deviation


def test_an_agents_formulas_that_need_a_person_are_first() -> None:
    board = StatusView(watched(FormulaSpec(name, REGRET) for name in ("idle", "pending", "blind", "firing")))
    moved = (AlarmMoved("ada", "pending", "pending"), AlarmMoved("ada", "firing", "firing"))
    board.take(Effects(notices=(*moved, Blind("ada", "blind", "gap"))), NOW)
    life = board.life("ada", 1)
    assert life is not None
    shown = [(formula["name"], formula["state"]) for formula in life["formulas"]]
    assert shown == [("firing", "firing"), ("pending", "pending"), ("blind", "blind"), ("idle", "unknown")]
    assert [formula["text"] for formula in life["formulas"]] == [REGRET] * 4


# ---- curves ----


@pytest.mark.parametrize("low", [True, False])
def test_a_curve_is_bounded_and_keeps_the_worst_and_the_newest(*, low: bool) -> None:
    curve, worst = Curve(low=low, most=64), 0.1 if low else 0.9
    for n in range(5000):
        curve.add(float(n), worst if n == 2500 else 0.5, 0.7)
    columns = curve.columns()
    assert 32 <= len(columns["time"]) <= 64
    assert columns["time"] == sorted(columns["time"])  # type: ignore[type-var] # there is no None among them
    assert columns["time"][-20:] == [float(n) for n in range(4980, 5000)]
    assert [time for time, value in zip(columns["time"], columns["value"], strict=True) if value == worst] == [2500.0]


def test_a_hole_stays_a_hole_and_many_take_no_room() -> None:
    curve = Curve(most=8)
    for n in range(3):
        curve.add(float(n), None, None)
    curve.add(3.0, 0.5, None)
    assert curve.columns() == {"time": [0.0, 3.0], "value": [None, 0.5], "alternative": [None, None], "ended": []}
    for n in range(4, 100):
        curve.add(float(n), None if n % 2 else 0.5, None)
    values = curve.columns()["value"]
    assert len(values) <= 8
    assert all((one is None) != (two is None) for one, two in pairwise(values))
    assert not any(value is not None and math.isnan(value) for value in values)


def test_a_hole_seems_no_longer_than_it_was() -> None:
    curve = Curve(most=512)
    for n in range(400):
        curve.add(float(n), None if n % 20 == 0 else 0.9 - 0.01 * (n % 20), None)
    shown = curve.thinned(60)
    times, values = shown["time"], shown["value"]
    lasted = [times[n + 1] - times[n] for n, value in enumerate(values) if value is None]  # type: ignore[operator] # times are known
    assert lasted == [1.0] * 20
    assert len(times) <= 80
    worst = [value for value in values if value is not None and value < 0.72]
    assert worst == [pytest.approx(0.71)] * 20


def test_the_last_minutes_begin_with_the_point_before_and_keep_the_worst_and_every_hole() -> None:
    curve = Curve(most=512)
    for n in range(400):
        curve.add(float(n), None if n == 250 else 0.1 if n == 333 else 0.5, None)
    assert curve.since(300.0).columns()["time"] == [float(n) for n in range(299, 400)]
    assert curve.since(0.0).columns() == curve.columns()
    assert curve.since(1e9).columns()["time"] == [399.0]
    assert Curve().since(0.0).thinned(9) == {"time": [], "value": [], "alternative": [], "ended": []}
    thinned = curve.since(200.0).thinned(60)
    assert len(thinned["time"]) <= 60
    assert dict(zip(thinned["time"], thinned["value"], strict=True))[333.0] == 0.1
    assert thinned["value"].count(None) == 1
    assert curve.since(390.0).thinned(60) == curve.since(390.0).columns()
    assert len(curve.columns()["time"]) == 400, "it is a copy"
    for n in range(400, 440):
        curve.add(float(n), None if n % 2 else 0.5, None)
    assert len(curve.since(400.5).thinned(10)["time"]) == 40, "a hole is never merged away"


@pytest.mark.parametrize("points", range(2, 40))
def test_the_newest_point_is_shown_as_it_is_although_the_one_before_was_worse(points: int) -> None:
    curve = Curve(most=512)
    for n in range(points):
        curve.add(float(n), 0.2 if n % 2 else 0.5, 0.9)
    curve.add(float(points), 0.7, 0.8)
    shown = curve.thinned(9)
    assert len(shown["time"]) <= 9
    assert [shown[name][-1] for name in ("time", "value", "alternative")] == [float(points), 0.7, 0.8]


def test_the_end_of_an_episode_is_kept_also_after_missing_data() -> None:
    curve = Curve(most=8)
    curve.add(0.0, 0.9, None)
    curve.end_episode(1.0)
    curve.add(2.0, 0.9, None)
    curve.add(3.0, None, None)  # blind
    curve.end_episode(5.0)
    curve.add(6.0, 0.8, None)
    shown = curve.columns()
    assert (shown["time"], shown["ended"]) == ([0.0, 1.0, 2.0, 3.0, 6.0], [1.0, 5.0])
    assert shown["value"] == [0.9, None, 0.9, None, 0.8], "a line across it is interrupted"
    assert curve.since(2.5).columns()["ended"] == [5.0]
    assert curve.since(0.0).thinned(2)["ended"] == [1.0, 5.0]
    for n in range(100):
        curve.end_episode(10.0 + n)
    assert curve.columns()["ended"] == [102.0 + n for n in range(8)], "their number is bounded"


@pytest.mark.parametrize("low", [True, False])
def test_the_last_value_of_an_episode_is_kept_although_another_was_worse(*, low: bool) -> None:
    curve, (usual, last) = Curve(low=low, most=128), ((0.5, 1.0) if low else (0.5, 0.0))
    for n in range(2000):
        if n % 50 == 49:
            curve.end_episode(float(n))
        else:
            curve.add(float(n), last if n % 50 == 48 else usual, None)
    for shown in (curve.columns(), curve.thinned(40)):
        times, values = shown["time"], shown["value"]
        before = {times[n]: values[n - 1] for n in range(1, len(times)) if values[n] is None}
        assert len(before) > 2
        assert set(before.values()) == {last}


def test_the_board_marks_where_an_episode_ended_while_it_was_blind(board: StatusView, driver: Driver) -> None:
    driver.send(0, 0)
    for effects in driver.effects:
        show(board, effects, driver.now)
    then = driver.now.wall
    board.take(Effects(notices=(Blind("ada", "watch", "stale"),)), Instant(then + 1.0, then + 1.0))
    board.take(Effects(notices=(Ended("ada", "e"),)), Instant(then + 7.0, then + 7.0))
    life = board.life("ada", 5)
    assert life is not None
    watch, chance = (formula["curve"] for formula in life["formulas"])
    assert (watch["time"][1:], watch["ended"]) == ([then + 1.0], [then + 7.0])
    assert (chance["time"][1:], chance["ended"]) == ([then + 7.0], [then + 7.0])


@pytest.mark.parametrize(("alarms", "most", "older"), [(3, 2, True), (3, 3, False), (3, 9, False)])
def test_an_agents_page_says_if_there_are_older_alarms(
    board: StatusView, alarms: int, most: int, *, older: bool
) -> None:
    board.history.note([alert(f"{n}", sent=400.0 + n) for n in range(alarms)])
    life = board.life("ada", most)
    assert life is not None
    assert (len(life["alarms"]), life["older_alarms"]) == (min(alarms, most), older)


# ---- a restart ----


def test_the_list_outlives_a_restart(tmp_path: Path, corridor: MDP, broker: Mosquitto) -> None:
    config = write_project(tmp_path / "project", corridor, CONFIG.replace("mqtt://127.0.0.1:1", broker.url))

    def listed(there: Inside) -> list[tuple[str, str, str | None]]:
        found = there.http.get("/api/alarms?formula=watch").json()
        return [(alarm["id"], alarm["state"], alarm["over"]) for alarm in found]

    with inside(config) as there:
        there.until_ready()
        for episode in ("one", "two"):
            publish(broker, steps([(0, RASH), (1, CAREFUL)], episode=episode))
        wait_until(lambda: [state for _, state, _ in listed(there)] == ["firing", "ended"], "it fires again")
        before = listed(there)
    with inside(config) as there:
        there.until_ready()
        assert listed(there) == before
        assert [alarm["id"] for alarm in there.http.get("/api/overview").json()["recent"]] == [before[1][0]]
