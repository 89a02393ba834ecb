"""`cfmon demo --takeover`: the figures it prints, the agents' process, and one short run of everything."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from cfmon_client.steps import Steps

from monitor.demo import guarded_agents
from monitor.demo.closed_loop import OUTCOMES, ClosedLoop, LoopResult, summarise
from monitor.demo.guarded_agents import ALONE, GUARDED, MAX_EPISODE_STEPS, Agent, EpisodeTally, Ward
from monitor.demo.model_environment import ModelEnvironment
from monitor.demo.stage import load
from monitor.errors import ConfigError
from monitor.model import MDP
from tests.cli.test_demo import started
from tests.tiers import slow

CONFIG = Path(__file__).parents[2] / "config" / "icu-sepsis-takeover.yaml"
LONG = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(0, 0, 1, 1.0), (0, 1, 0, 1.0), (1, 0, 1, 1.0), (2, 0, 2, 1.0), (1, 1, 1, 1.0), (2, 1, 2, 1.0)],
    initial={0: 1.0},
    labels={"death": [2]},
)
DEADLY = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(0, 0, 2, 1.0), (0, 1, 1, 1.0), (1, 0, 1, 1.0), (2, 0, 2, 1.0), (1, 1, 1, 1.0), (2, 1, 2, 1.0)],
    initial={0: 1.0},
    labels={"death": [2]},
)


class Published:
    """In place of `Steps`: what an agent published."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.episode = 0

    def reset(self) -> None:
        self.episode += 1
        self.said.append(("reset",))

    def step(self, state: int, action: int, *, policy: str) -> None:
        self.said.append((state, action, policy))

    def end(self, state: int, *, terminated: bool) -> None:
        self.said.append(("end", state, terminated))


class Guard:
    """In place of `Takeover`: hands over to an action, or does not."""

    def __init__(self, action: int | None) -> None:
        self._action = action
        self.episodes: list[int] = []
        self.acting = SimpleNamespace(policy="nominal", sha256="a" * 64)

    def reset(self, episode: int) -> None:
        self.episodes.append(episode)

    def action(self, _state: int, proposed: int) -> int:
        if self._action is None:
            return proposed
        self.acting = SimpleNamespace(policy="fallback", sha256="f" * 64)
        return self._action


def agent(model: MDP, guard: Guard | None, episodes: int) -> tuple[Agent, Published]:
    published = Published()
    simulator = ModelEnvironment(model, np.random.default_rng(0))
    return Agent(simulator, cast("Steps", published), cast("Any", guard), episodes), published


def ward(model: MDP, *agents: Agent) -> Ward:
    nominal = SimpleNamespace(
        decide_all=lambda states, _rng: np.zeros(len(states), dtype=int), manifest=SimpleNamespace(sha256="a" * 64)
    )
    publisher = SimpleNamespace(flush=lambda _timeout: True)
    return Ward(model, cast("Any", nominal), cast("Any", publisher), list(agents), np.random.default_rng(0))


def test_a_guard_saves_its_agent_and_both_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    guard = Guard(1)
    (saved, of_saved), (lost, of_lost) = agent(DEADLY, guard, 3), agent(DEADLY, None, 2)
    both = ward(DEADLY, saved, lost)
    both.run(0.0)
    assert both.tallies == {GUARDED: EpisodeTally(3, 3, 3), ALONE: EpisodeTally(2, 0, 0)}
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {
        "guarded": {"episodes": 3, "survived": 3, "takeovers": 3},
        "alone": {"episodes": 2, "survived": 0, "takeovers": 0},
    }
    assert of_saved.said == [("reset",), (0, 1, "f" * 64), ("end", 1, True)] * 3
    assert of_lost.said == [("reset",), (0, 0, "a" * 64), ("end", 2, True)] * 2
    assert guard.episodes == [1, 2, 3]


def test_a_guard_that_hears_no_alarm_changes_nothing() -> None:
    calm, published = agent(DEADLY, Guard(None), 1)
    alone = ward(DEADLY, calm)
    alone.run(0.0)
    assert alone.tallies[GUARDED] == EpisodeTally(1, 0, 0)
    assert published.said[1] == (0, 0, "a" * 64)


def test_an_episode_without_end_is_cut_off() -> None:
    endless, published = agent(LONG, Guard(1), 1)
    ward(LONG, endless).run(0.0)
    assert len(published.said) == MAX_EPISODE_STEPS + 2
    assert published.said[-1] == ("end", 0, False)


def test_rates_have_binomial_errors_and_the_gain_adds_them() -> None:
    result = LoopResult()
    assert math.isnan(result.rate("guarded", "survived")[0])
    assert result.lines()[1] == ("survived", "-", "-")
    result.tallies = {
        "guarded": {"episodes": 1000, "survived": 800, "takeovers": 600},
        "alone": {"episodes": 400, "survived": 200, "takeovers": 0},
    }
    assert result.rate("guarded", "survived") == pytest.approx((0.8, 0.0126491), abs=1e-7)
    assert result.gain == pytest.approx((0.3, 0.0280179), abs=1e-7)
    assert result.lines() == [
        ("episodes", "1,000", "400"),
        ("survived", "80.0 % ± 1.3", "50.0 % ± 2.5"),
        ("handed over", "60.0 % ± 1.5", "-"),
    ]


def test_outcomes_are_fractions_of_what_is_judged() -> None:
    result = LoopResult(outcomes={"needed": 30, "needless": 50, "futile": 20})
    shown = result.lines()[3:]
    assert [(row[0].strip(), row[1]) for row in shown] == [
        ("needed", "30.0 % of 100"),
        ("needless", "50.0 % of 100"),
        ("harmful", "0.0 % of 100"),
        ("futile", "20.0 % of 100"),
    ]
    result.outcomes["undecided"] = 100
    assert result.lines()[-1] == ("  undecided", "50.0 % of 200", "")


@pytest.mark.parametrize(("survived", "fine"), [(800, True), (544, False)])
def test_a_gain_within_two_errors_is_no_success(
    survived: int, capsys: pytest.CaptureFixture[str], *, fine: bool
) -> None:
    result = LoopResult()
    result.tallies = {
        "guarded": {"episodes": 1000, "survived": survived, "takeovers": 1},
        "alone": {"episodes": 1000, "survived": 500, "takeovers": 0},
    }
    assert (summarise(result) == []) == fine
    assert "percentage points" in capsys.readouterr().out


def test_a_missing_client_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install \./client"):
        asyncio.run(ClosedLoop(CONFIG, 1, 0, 0.0, tmp_path).run())


def test_options_that_do_not_go_together_are_refused(cfmon: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = cfmon("demo", "--takeover", "--forever")
    assert (code, "leave out" in err) == (2, True)


def test_a_fallback_that_is_missing_is_one_line(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.NOTSET, "cfmon_client")  # the agents' process sets it; restored after the test
    arguments = (
        "--model", CONFIG.parent.parent / "policies/icu-sepsis/model.npz",
        "--policy", CONFIG.parent.parent / "policies/icu-sepsis/deployed.yaml",
        "--fallback", CONFIG.parent.parent / "policies/icu-sepsis/missing.yaml",
        "--url", "mqtt://127.0.0.1:1", "--steps", "agents/+/steps", "--alerts", "a", "--status", "s", "--episodes", "1",
    )  # fmt: skip
    assert guarded_agents.main([*map(str, arguments)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("agents: ")
    assert said.count("\n") == 1
    assert "missing.yaml" in said


def test_a_run_starts_afresh(tmp_path: Path) -> None:
    """A mark without its store would be reported as damage."""
    for suffix in ("", "-wal", "-shm", "-mark"):
        (tmp_path / f"cfmon.sqlite{suffix}").touch()
    load(CONFIG, tmp_path, "mqtt://127.0.0.1:1", 0)
    assert list(tmp_path.iterdir()) == []


@slow
def test_everything_together(tmp_path: Path) -> None:
    for interval in ("0.02", "0.1", "0.5"):  # a slow machine hears of alarms after their episodes, unless these last
        run = started("demo", "--takeover", "--episodes", "10", "--interval", interval, cwd=tmp_path)
        rows = {line.split()[0]: line for line in run.out.splitlines() if line.strip()}
        assert run.err == ""
        assert run.code in {0, 1}  # by chance: too few episodes
        takeovers = round(10 * float(rows["handed"].split()[2]) / 100)
        if takeovers:
            break
    assert takeovers > 0, run.out
    assert rows["episodes"].split()[1:] == ["10", "10"]
    assert " % ± " in rows["survived"]
    judged = [rows[outcome].split() for outcome in (*OUTCOMES, "undecided") if outcome in rows]
    assert {words[4] for words in judged} == {str(takeovers)}, run.out
    assert sum(float(words[1]) for words in judged) == pytest.approx(100, abs=0.3)
    assert "percentage points" in rows["survival"]
