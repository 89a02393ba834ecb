"""How forecasts turned out, from steps to the document that an agent's page reads, also beyond a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.alarm.message import Identity
from monitor.runtime.forecasts import NOTHING_OWN
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Evaluate, Event, Message
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.sinks.status_view import StatusView
from monitor.types import Calibrated, Forecast, FormulaSpec, Instant, Judged, Verdict
from tests.sidecar.conftest import LOST, Driver
from tests.sidecar.watched import metrics_of, watched
from tests.statistics.test_calibration import counted

Make = Callable[[], Pipeline]


def shown(board: StatusView, agent: str = "ada") -> list[dict[str, Any]]:
    """Of each formula, what its page is told."""
    life = board.life(agent, 10)
    assert life is not None
    return [{name: row[name] for name in ("calibration", "not_followed")} for row in life["formulas"]]


def live(driver: Driver, board: StatusView) -> None:
    """Seven episodes: of each a forecast comes due, or does not."""
    for episode in range(7):
        driver.send(0, 0, episode=episode)
        driver.send(1, LOST if episode % 3 == 0 else 1, episode=episode, truncated=episode == 5)
        if episode != 5:
            driver.send(2, LOST if episode % 3 == 0 else 2, episode=episode, terminated=True)
    for effects in driver.effects:
        board.take(effects, driver.now)


def test_the_document_of_an_agent_tells_how_forecasts_turned_out(formulas: list[FormulaSpec], driver: Driver) -> None:
    board = StatusView(watched(formulas))
    live(driver, board)
    told = [notice for effects in driver.effects for notice in effects.notices]
    over = [notice for notice in told if isinstance(notice, Forecast)]
    watch, chance = shown(board)
    assert chance == {"calibration": None, "not_followed": NOTHING_OWN}
    assert watch["not_followed"] == ""
    tally = counted([(one.value, one.came_true) for one in over if one.came_true is not None])
    [point] = tally.reliability()
    assert [one.came_true for one in over].count(None) == 1
    assert watch["calibration"] == {
        "path": 'G<=3 !"lost"',
        "resolved": tally.resolved,
        "dropped": 1,
        "brier_score": tally.brier,
        "brier_score_expected": tally.expected_brier,
        "bins": [
            {
                "from": point.low,
                "to": point.high,
                "forecast": point.forecast,
                "came_true": point.frequency,
                "interval": list(point.interval),
                "count": point.count,
                "agrees": point.agrees,
            }
        ],
    }
    assert point.count == 6
    assert point.frequency == 0.5


def test_a_restart_neither_forgets_nor_counts_twice(
    formulas: list[FormulaSpec],
    make_pipeline: Make,
    identity: Identity,
) -> None:
    driver, board = Driver(make_pipeline()), StatusView(watched(formulas))
    live(driver, board)
    for seq in range(3):
        driver.send(seq, seq, episode=7)
    assert [
        notice for effects in driver.effects[-6:] for notice in effects.notices if isinstance(notice, Forecast)
    ] == []
    board.take(driver.effects[-1], driver.now)
    kept = driver.pipeline.snapshot(everything=True)
    since = [Message(Instant(2000.0, 20.0), "agents/ada/steps", b'{"v":1,"episode":7,"seq":3,"state":4,"action":0}')]
    events: list[Event] = [*since, Evaluate(Instant(2000.0, 20.0))]
    for event in events:
        board.take(driver.pipeline.step(event), event.now)
    again = make_pipeline()
    again.restore(kept.common, kept.agents, kept.pages)
    for event in events:  # the journal: it happens again, and nobody is shown its effects
        again.step(event)
    later, metrics = StatusView(watched(formulas)), metrics_of(formulas, identity, agents=9)
    later.take(again.standing(), driver.now)
    metrics.recall(again.standing(), driver.now)
    assert shown(later) == shown(board)
    calibration = shown(board)[0]["calibration"]
    assert calibration["resolved"] == 7
    lines = metrics.exposition().decode().splitlines()
    assert f'cfmon_brier_score{{formula="watch"}} {calibration["brier_score"]!r}' in lines
    assert 'cfmon_forecasts_total{formula="watch",outcome="true"} 0.0' in lines


def test_the_counts_of_all_processes_replace_those_of_this_one() -> None:
    spec = FormulaSpec("watch", 'P>=0.5 [ X "lost" ]')
    board, now = StatusView(watched([spec])), Instant(1.0, 1.0)
    board.take(Effects(notices=(Judged("ada", "watch", Verdict("", "sampled", "gumbel", ()), 0, 0, 1.0),)), now)
    board.take(Effects(notices=(Forecast("ada", "watch", 0.5, came_true=True),)), now)
    assert shown(board)[0]["calibration"]["resolved"] == 1
    board.take(Effects(notices=(Calibrated("watch", counted([(0.5, True)] * 3).dump(), "ada"),)), now)
    assert shown(board)[0]["calibration"]["resolved"] == 3


@pytest.mark.parametrize("agent", ["", "bob"])
def test_what_concerns_others_is_not_shown(formulas: list[FormulaSpec], agent: str) -> None:
    board, now = StatusView(watched(formulas)), Instant(1.0, 1.0)
    board.take(Effects(notices=(Forecast("ada", "watch", 0.5, came_true=True),)), now)
    before = shown(board)
    board.take(Effects(notices=(Calibrated("watch", counted([(0.5, True)] * 3).dump(), agent),)), now)
    assert shown(board) == before
    assert {told["name"] for told in board.agents()} == {"ada"} | {agent} - {""}
