"""The deviation from a policy against its definition: enumerated draws, windows summed anew, agents that follow it."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from monitor.policy.table import PolicyTable
from monitor.statistics.deviation import NOTABLE, Deviation, DeviationState

WINDOW, LEAST, CHANCE = 100, 20, 4.0  # docs/semantics/streams.md, section 11.3
ROWS = [[0.5, 0.5, 0.0], [0.125, 0.25, 0.625], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]]


def excess(row: list[float], action: int) -> float:
    """How likely a draw differs from the action, less how likely two draws differ: by enumeration."""
    other = sum(Fraction(p) for drawn, p in enumerate(row) if drawn != action)
    differ = sum(Fraction(p) * Fraction(q) for i, p in enumerate(row) for j, q in enumerate(row) if i != j)
    return float(other - differ)


def test_what_a_policy_leaves_to_chance_is_that_of_its_draws() -> None:
    repeats = PolicyTable(probabilities=np.array(ROWS)).repeats
    for row, (same, variance) in zip(ROWS, repeats, strict=True):
        terms = [Fraction(excess(row, action)) for action in range(3)]
        mean = sum(Fraction(p) * x for p, x in zip(row, terms, strict=True))
        assert mean == 0
        assert variance == sum(Fraction(p) * x * x for p, x in zip(row, terms, strict=True))
        assert all(same - p == x for p, x in zip(row, terms, strict=True))


def test_the_share_is_that_of_the_last_steps_less_what_chance_explains() -> None:
    chance = random.Random(7)
    agent = Deviation()
    pushed: list[tuple[float, float]] = []
    seen = set()
    for number in range(1000):
        row = chance.choice(ROWS)
        action = chance.choices(range(3), row)[0] if number % 300 < 100 else chance.randrange(3)
        square = sum(p * p for p in row)
        pushed.append((square - row[action], sum(p**3 for p in row) - square**2))
        agent.push(*pushed[-1])
        last = pushed[-WINDOW:]
        beyond = sum(x for x, _ in last) - CHANCE * math.sqrt(sum(v for _, v in last))
        fraction = max(0.0, beyond) / len(last) if len(last) >= LEAST else 0.0
        assert agent.fraction == pytest.approx(fraction, abs=1e-12)
        assert agent.steps == len(last)
        seen.add(agent.fraction > 0.0)
    assert seen == {True, False}


def test_of_a_deterministic_policy_it_is_the_share_of_other_actions() -> None:
    agent = Deviation()
    agent.push(1, 0.0)
    assert agent.fraction == 0.0, "one step is not taken for all"
    for _ in range(LEAST - 1):
        assert agent.fraction == 0.0
        agent.push(0, 0.0)
    assert agent.fraction == 1 / LEAST
    for _ in range(WINDOW - LEAST):
        agent.push(0, 0.0)
    assert agent.fraction == 1 / WINDOW
    agent.push(0, 0.0)
    assert agent.fraction == 0.0
    for _ in range(WINDOW):
        agent.push(1, 0.0)
    assert agent.fraction == 1.0


def test_an_agent_that_follows_its_policy_is_not_notable() -> None:
    """100,000 steps of one that draws, and of one that does not."""
    chance = random.Random(11)
    table = np.array(ROWS)
    repeats = PolicyTable(probabilities=table).repeats.tolist()
    agent, above = Deviation(), 0
    for _ in range(100_000):
        state = chance.randrange(4)
        action = chance.choices(range(3), ROWS[state])[0]
        agent.push(repeats[state][0] - ROWS[state][action], repeats[state][1])
        assert agent.fraction < NOTABLE
        above += agent.fraction > 0.0
    assert above < 100


def test_an_agent_that_does_not_is_notable_soon() -> None:
    agent = Deviation()
    row = [0.9, 0.1]
    square, cube = sum(p * p for p in row), sum(p**3 for p in row)
    for number in range(WINDOW):
        if agent.fraction >= NOTABLE:
            break
        agent.push(square - row[number % 2], cube - square**2)  # as often the one as the other
    assert number < 40


def test_it_goes_on_where_it_was() -> None:
    chance = random.Random(3)
    agent, again = Deviation(), Deviation()
    assert again.dump() == DeviationState()
    for number in range(350):
        step = (chance.uniform(-0.5, 0.7), chance.uniform(0.0, 0.01))
        agent.push(*step)
        again.push(*step)
        if number % 7 == 0:
            again = Deviation.load(again.dump())
        assert again.fraction == pytest.approx(agent.fraction, abs=1e-12)
    sure = Deviation()
    sure.push(1, 0.0)
    assert sure.dump() == DeviationState([1], [])
    assert Deviation.load(sure.dump()).fraction == sure.fraction
