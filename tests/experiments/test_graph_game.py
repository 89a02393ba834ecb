"""The graph game: effects against a simulation of its rules, the authors' estimates to the digit, the kept results."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from experiments.graph_effects import (
    AGENTS,
    MOVES,
    POLICY,
    STATES,
    Choice,
    Game,
    alternatives,
    lost,
    monotone,
    moved,
    values,
)
from experiments.graph_game import CONVERGED, DRAWS, GAMES, PRINTED, SEED, converged, printed, summary, table
from experiments.synthetic import Floats
from monitor.causal.row import conditional_choices
from tests.oracle.race import counterfactual_row
from tests.tiers import examples, scaled

DOCS = Path(__file__).parents[2] / "docs"
KEPT = DOCS / "experiments"
SHOWN = sorted({game for game, *_ in PRINTED})
SIMULATED = examples(100, 400)
FALSE_ALARMS = 1e-6


def kept(name: str) -> list[dict[str, str]]:
    with (KEPT / name).open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return lost(SEED, GAMES)[0]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return table(SEED, GAMES, SHOWN)


# ---- an independent simulation: the rules, and noise by rejection ----


def chances(agent: int, levels: list[int]) -> list[float]:
    """Return the probabilities of up, down and straight."""
    random = (agent + 1) / 20
    crowd = levels.count(levels[agent])
    result = [random / 3] * 3
    if crowd <= 2:
        result[2] += 1 - random
        return result
    result[2] += (1 - random) * 2 / crowd
    leaves = (1 - random) * (crowd - 2) / crowd
    free = [level for level in range(3) if levels.count(level) < 2]
    if len(free) == 2:
        return [result[0] + leaves / 2, result[1] + leaves / 2, result[2]]
    result[0 if free[0] < levels[agent] else 1] += leaves
    return result


def by_gumbel(noise: Floats, probabilities: list[float]) -> int:
    return int(np.argmax(np.log(probabilities) + noise))


def by_uniform(noise: Floats, probabilities: list[float]) -> int:
    return int(sum(noise[0] >= limit for limit in np.cumsum(probabilities)[:2]))


Draw = Callable[[np.random.Generator], Floats]
MEANINGS: list[tuple[Choice, Callable[[Floats, list[float]], int], Draw]] = [
    (monotone, by_uniform, lambda rng: rng.random(1)),
    (conditional_choices, by_gumbel, lambda rng: rng.gumbel(size=3)),
]


def won(levels: list[int]) -> bool:
    return sorted(levels) == [0, 0, 1, 1, 2, 2]


def step(levels: list[int], actions: list[int]) -> list[int]:
    return [min(max(level + (-1, 1, 0)[a], 0), 2) for level, a in zip(levels, actions, strict=True)]


def simulated(game: Game, changed: tuple[int, int, int], meaning: int, rng: np.random.Generator) -> int:
    """Return the wins in SIMULATED games with the same noise; `changed`: move, agent and its other action."""
    move, agent, action = changed
    _, choose, draw = MEANINGS[meaning]
    wins = 0
    for _ in range(SIMULATED):
        levels = [1] * AGENTS
        for now in range(MOVES):
            before = STATES[game.states[now]].tolist()
            actions = []
            for one in range(AGENTS):
                noise = draw(rng)
                while choose(noise, chances(one, before)) != game.actions[now, one]:
                    noise = draw(rng)
                actions.append(action if (now, one) == (move, agent) else choose(noise, chances(one, levels)))
            levels = step(levels, actions)
        wins += won(levels)
    return wins


@scaled
@pytest.mark.parametrize("meaning", [0, 1], ids=["monotone", "gumbel"])
def test_effects_are_those_of_a_simulation(games: list[Game], meaning: int) -> None:
    """Of the first move, whose effect has the longest way to go."""
    rng = np.random.default_rng(1)
    between = 0
    for number in (0, 1, 7):
        game = games[number]
        ahead = values(game, MEANINGS[meaning][0])
        for move, agent, action in ((0, 2, 0), (1, 4, 1)):
            changed = game.actions[move].copy()
            changed[agent] = action
            levels = moved(STATES[game.states[move]], changed)
            state = int(np.flatnonzero((levels == STATES).all(axis=1))[0])
            exact = float(ahead[move + 1, state])
            wins = simulated(game, (move, agent, action), meaning, rng)
            assert binomtest(wins, SIMULATED, min(max(exact, 0.0), 1.0)).pvalue > FALSE_ALARMS
            between += 0.02 < exact < 0.98
    assert between >= 3


def test_policies_are_those_of_the_paper() -> None:
    for levels, found in zip(STATES, POLICY, strict=True):
        assert np.allclose(found, [chances(n, levels.tolist()) for n in range(AGENTS)], rtol=0, atol=1e-15)
    start = POLICY[(STATES == 1).all(axis=1)]
    assert np.allclose(start, 1 / 3)


def test_conditional_choices_average_to_the_policy() -> None:
    """Over the observed actions; the noise's prior is that of the policy."""
    for choice in (monotone, conditional_choices):
        for observed, target in ((POLICY[0, 3], POLICY[364, 3]), (POLICY[5, 0], POLICY[700, 0])):
            mean = sum(observed[a] * choice(observed, a, target) for a in range(3))
            assert np.allclose(mean, target, rtol=0, atol=1e-14)
            for action in range(3):
                assert np.allclose(choice(observed, action, observed), np.eye(3)[action], rtol=0, atol=1e-14)


def test_gumbel_choices_are_those_of_exponential_races() -> None:
    p, q = ({k: Fraction(float(row[k])) for k in range(3)} for row in (POLICY[40, 2], POLICY[364, 2]))
    for action in range(3):
        found = conditional_choices(POLICY[40, 2], action, POLICY[364, 2])
        expected = counterfactual_row(p, q, action)
        assert found.tolist() == pytest.approx([float(expected.get(k, 0)) for k in range(3)], abs=1e-14)


def test_a_lost_game_without_another_action_stays_lost(games: list[Game]) -> None:
    for game in games[:5]:
        for choice in (monotone, conditional_choices):
            ahead = values(game, choice)
            assert [ahead[move, game.states[move]] for move in range(MOVES + 1)] == pytest.approx([0] * (MOVES + 1))
            assert ahead.max() <= 1 + 1e-12


def test_the_games_have_as_many_other_actions_as_the_authors(games: list[Game]) -> None:
    assert sum(len(actions) for game in games for _, _, actions in alternatives(game)) == 14_428


def test_estimates_from_the_authors_draws_are_theirs(rows: list[dict[str, Any]]) -> None:
    lines = printed(rows)
    assert [line["drawn"] for line in lines] == [estimate for *_, estimate in PRINTED]
    for line, old in zip(lines, kept("graph-game-printed.csv"), strict=True):
        assert {name: float(value) for name, value in line.items()} == pytest.approx(
            {name: float(value) for name, value in old.items()}, abs=1e-9
        )


def test_estimates_are_within_their_sampling_error(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        wins = round(row["drawn"] * DRAWS)
        assert binomtest(wins, DRAWS, min(row["exact"], 1.0)).pvalue > FALSE_ALARMS


def test_the_kept_summary_agrees_with_the_authors_and_with_itself() -> None:
    lines = {
        line["move"]: {name: float(line[name]) for name in line if name != "move"}
        for line in kept("graph-game-summary.csv")
    }
    every = lines["all"]
    assert (every["effects"], every["selected"]) == (14_428, 854)
    for line in lines.values():
        assert abs(line["drawn"] - line["exact"]) <= 4 * line["error"]
        assert abs(line["selected"] - line["expected"]) <= 4 * line["expected_error"]
    for name in ("effects", "at_threshold", "selected", "selected_below", "gumbel_at_threshold"):
        assert every[name] == sum(lines[str(move)][name] for move in range(MOVES - 1))


def test_the_kept_fractions_are_within_the_error_of_the_figure() -> None:
    """Four standard errors of 500 effects, and one hundredth for reading."""
    lines = kept("graph-game-converged.csv")
    assert [int(line["draws"]) for line in lines] == list(CONVERGED)
    for line in lines:
        assert abs(float(line["exact"]) - CONVERGED[int(line["draws"])]) <= 4 * float(line["error"]) + 0.01


def test_the_summary_counts_and_averages() -> None:
    one: dict[str, Any] = {"game": 0, "agent": 0, "move": 0, "action": 0, "exact": 0.5, "drawn": 0.8, "gumbel": 1.0}
    two = {**one, "move": 1, "exact": 1.0, "drawn": 1.0, "gumbel": 0.0}
    lines = summary([one, two, {**two, "move": 2}])
    first, second, third, every = lines
    assert (first["effects"], first["selected"], first["selected_below"], first["at_threshold"]) == (1, 1, 1, 0)
    assert (second["expected"], second["expected_error"], second["gumbel_at_threshold"]) == (1.0, 0.0, 0)
    assert third == {**second, "move": 2}
    assert (every["exact"], every["drawn"], every["gumbel"]) == (0.83333, 0.93333, 0.33333)
    assert every["error"] == round(0.05 / 3, 5)


def test_certain_effects_converge_at_once() -> None:
    lines = converged([{"exact": 1.0}, {"exact": 0.0}], np.random.default_rng(0), repeats=2)
    assert [line["exact"] for line in lines] == [1.0] * len(CONVERGED)


def test_the_page_has_the_kept_results() -> None:
    page = (DOCS / "experiments.md").read_text(encoding="utf-8")
    section = page[page.index("## Total effects in the graph game") :]
    number, spread = r"([\d,.]+)", r"([\d.]+) ± ([\d.]+)"
    columns = (r"(\w+)", number, number, spread, number, spread, number, number, number)
    pattern = r"^\| " + r" \| ".join(columns) + r" \|$"
    names = (
        "effects",
        "exact",
        "drawn",
        "error",
        "selected",
        "expected",
        "expected_error",
        "at_threshold",
        "gumbel",
        "gumbel_at_threshold",
    )
    found = re.findall(pattern, section, re.MULTILINE)
    lines = {line["move"]: line for line in kept("graph-game-summary.csv")}
    assert [move for move, *_ in found] == list(lines)
    for move, *numbers in found:
        for number, name in zip(numbers, names, strict=True):
            digits = len(number.partition(".")[2])
            assert abs(float(number.replace(",", "")) - float(lines[move][name])) <= 0.51 * 10**-digits, (move, name)
