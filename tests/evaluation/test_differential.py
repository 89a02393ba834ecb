"""Sampled verdicts against exact ones on random small worlds: every kind of formula, alone and as on a stream.

Bounds lie at least `APART` from the values, twice the region within which either answer will do. Every test fails of
itself with probability 1e-6 at most, which its strength is divided for.
"""

from __future__ import annotations

from random import Random

import pytest

from monitor.evaluation.procedures import span
from monitor.logic.syntax import Goal, Reward
from monitor.types import Drawn, Sampling
from tests.exact.small import Small, path_formula, question, small_world
from tests.sampled.worlds import FALSE_ALARM, goal, width
from tests.tiers import examples, heavy, scaled

APART, REGION = 0.1, 0.05
"""Parts of the range one world's outcome may have."""
WORLDS = range(0, 120, examples(5, 1))
PARTS = 4
"""Most tests a combination has here."""
CHANGES = ["alt", "alt[1]", "third[2]", "do(1)", "do(0)[1]", "model:icy"]


def world_of(chance: Random) -> Small:
    """Stochastic policies, deviations from nominal, actions not yet taken, ended episodes."""
    stochastic, open_end, terminated = (chance.random() < part for part in (0.5, 0.3, 0.3))
    return small_world(chance, stochastic=stochastic, open_end=open_end, terminated=terminated)


def figure(chance: Random) -> str:
    """A `=?` question: a probability or a reward, of one world or of the difference of two, some of them nested."""
    change = chance.choice(["nominal", *CHANGES])
    if chance.random() < 0.3:
        change = f"delta({change},{chance.choice(['nominal', 'third', 'model:icy'])})"
    asked = f"{change}@{chance.randint(-3, 3)}"
    if chance.random() < 0.2:
        inner = f'{chance.choice(["nominal", "alt"])}@0.P>{chance.choice([0, 0.3, 0.6])} [ F<=2 "b" ]'
        return f'{asked}.P=? [ {chance.choice("FG")}<=2 ("a" | {inner}) ]'
    return question(chance, asked)


def bounded(small: Small, text: str, chance: Random) -> str:
    """The question with a comparison that the exact value meets, or fails, by `APART`."""
    value, asked = small.number(text), goal(text)
    gap = APART * one_world(small, asked)
    effect, reward = asked.world.baseline is not None, isinstance(asked.measure, Reward)
    least, most = (-float("inf"), float("inf")) if reward else (-1.0 if effect else 0.0, 1.0)
    fitting = [bound for bound in (value - gap, value + gap) if least <= bound <= most]
    bound = round(chance.choice(fitting), 9)
    return text.replace("=?", f"{chance.choice(['>=', '>', '<', '<='])}{bound!r}", 1)


def one_world(small: Small, asked: Goal) -> float:
    return width(asked, small.model.rewards) / (1.0 if asked.world.baseline is None else 2.0) or 1.0


def combination(small: Small, chance: Random, parts: int = PARTS) -> str:
    """Nested `!`, `&`, `|`, `=>`, `<=>` over at most so many tests, labels and constants."""
    if parts == 1 or chance.random() < 0.15:
        return bounded(small, figure(chance), chance) if chance.random() < 0.85 else chance.choice(['"a"', "true"])
    if chance.random() < 0.3:
        return f"!({combination(small, chance, parts)})"
    first = chance.randint(1, parts - 1)
    one, other = combination(small, chance, first), combination(small, chance, parts - first)
    return f"({one}) {chance.choice(['&', '|', '=>', '<=>'])} ({other})"


def regret(small: Small, chance: Random) -> str | None:
    """A regret whose bound lies apart from both values; None: this goal has none."""
    change, offset, formula = chance.choice(CHANGES), chance.randint(0, 3), path_formula(chance)
    values = [small.number(f"{one}@{offset}.P=? [ {formula} ]") for one in ("nominal", change)]
    bounds = [n / 20 for n in range(21) if all(abs(n / 20 - value) >= APART for value in values)]
    return f"regret({change}@{offset}, P>={chance.choice(bounds)!r} [ {formula} ])" if bounds else None


def drawn(seed: int, strength: float, test: int) -> Drawn:
    return Drawn(Sampling(delta=REGION, error=0.1, error_alpha=strength), seed, 0, strength, strength, test)


@heavy
@scaled
@pytest.mark.parametrize("test", [0, 1], ids=["alone", "stream"])
@pytest.mark.parametrize("kind", ["one test", "combination", "regret"])
def test_decided_verdicts_are_correct(kind: str, test: int) -> None:
    """Each formula errs with a probability of at most its share."""
    strength, decided, outcomes = FALSE_ALARM / len(WORLDS), 0, set()
    for n in WORLDS:
        chance = Random(f"{kind} {n}")
        small = world_of(chance)
        match kind:
            case "one test":
                text: str | None = bounded(small, figure(chance), chance)
            case "combination":
                text = combination(small, chance)
            case _:
                text = regret(small, chance)
        if text is None:
            continue
        exact = small.ask(text)
        sampled = small.ask(text, engine="sampled", drawn=drawn(n, strength, test))
        assert (sampled.holds, sampled.outcome) == (exact.holds, exact.outcome), (n, text, exact, sampled)
        decided += 1
        outcomes.add(exact.holds if exact.outcome is None else exact.outcome)
    assert decided > len(WORLDS) / 2
    assert outcomes == ({"safe", "regret", "unavoidable"} if kind == "regret" else {True, False})


@heavy
@scaled
@pytest.mark.parametrize("test", [0, 1], ids=["alone", "stream"])
def test_every_interval_holds_the_exact_value_and_keeps_to_its_range(test: int) -> None:
    """Means and intervals of probabilities lie in [0, 1], of their effects in [-1, 1], exactly: whatever rounds."""
    strength = FALSE_ALARM / len(WORLDS)
    for n in WORLDS:
        chance = Random(f"figure {n}")
        small = world_of(chance)
        text = figure(chance)
        asked, value = goal(text), small.number(text)
        verdict = small.ask(text, engine="sampled", drawn=drawn(n, strength, test))
        assert verdict.bounds is not None
        assert verdict.value is not None
        low, high = verdict.bounds
        assert low - 1e-9 <= value <= high + 1e-9, (n, text, value, verdict)
        within = span(asked, (float(small.model.rewards.min()), float(small.model.rewards.max())))
        assert within is not None
        assert within.lo <= low <= high <= within.hi
        assert within.lo <= verdict.value <= within.hi
        assert high - low <= 2 * 0.1 * one_world(small, asked) * (1 + 1e-9) + 2e-3 * width(asked, small.model.rewards)
