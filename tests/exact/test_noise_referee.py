"""Whole questions against the Gumbel-Max causal model itself: draw noise, keep what explains the path, act differently.

Nothing is computed but argmax(log p + Gumbel noise). Each probability is compared by an exact binomial test, each
expected reward by Hoeffding's inequality. All comparisons of this file together raise a false alarm with probability
at most 1e-6 (Bonferroni); the seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest

from tests.exact.small import Small, question, small_world
from tests.oracle import syntax as ast
from tests.oracle.evaluate import Evaluator, horizon, resolve
from tests.oracle.setting import Dist
from tests.tiers import examples, first, scaled

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

QUESTIONS, SAMPLES = 120, 20_000
FALSE_ALARM = 1e-6 / QUESTIONS
WORLDS = ["alt@1", "alt@2", "alt@3", "alt@-1", "alt[1]@2", "alt[2]@3", "do(1)@2", "model:icy@2", "nominal@2"]


def logs(rows: list[Dist], outcomes: int) -> Floats:
    """log probabilities [rows, outcomes]; minus infinity for 0."""
    table = np.full((len(rows), outcomes), -np.inf)
    for n, row in enumerate(rows):
        for j, p in row.items():
            table[n, j] = math.log(p)
    return table


@dataclass
class Sampler:
    """Plays the causal model forward, `SAMPLES` worlds at once."""

    small: Small
    change: ast.Change
    offset: int
    rng: np.random.Generator

    def __post_init__(self) -> None:
        setting = self.small.setting
        _, position = resolve(self.offset, len(setting.path))
        self.seen = setting.path[position:]
        self.nominal = logs(list(setting.policies["nominal"]), setting.actions)
        self.rows = {name: self._rows(rows) for name, rows in {"": setting.rows, **setting.models}.items()}

    def _rows(self, rows: Mapping[tuple[int, int], Dist]) -> Floats:
        setting = self.small.setting
        pairs = [rows[s, a] for s in range(setting.states) for a in range(setting.actions)]
        return logs(pairs, setting.states).reshape(setting.states, setting.actions, setting.states)

    def posterior(self, scores: Floats, outcome: int | None) -> Floats:
        """Noise under which `scores` lead to `outcome`: draws of the prior, the others thrown away."""
        kept: list[Floats] = []
        while sum(map(len, kept)) < SAMPLES:
            noise = self.rng.gumbel(size=(SAMPLES, len(scores)))
            kept.append(noise if outcome is None else noise[(scores + noise).argmax(axis=1) == outcome])
        return np.concatenate(kept)[:SAMPLES]

    def action_noise(self, k: int) -> Floats:
        """An action nominal never takes tells nothing about the noise; nor does one not yet taken."""
        if k < len(self.seen):
            state, action = self.seen[k]
            if action is not None and np.isfinite(self.nominal[state, action]):
                return self.posterior(self.nominal[state], action)
        return self.posterior(self.nominal[0], None)

    def move_noise(self, k: int) -> Floats:
        plain = self.rows[""]
        if k < len(self.seen) - 1:
            state, action = self.seen[k]
            assert action is not None
            return self.posterior(plain[state, action], self.seen[k + 1][0])
        return self.posterior(plain[0, 0], None)

    def actions(self, k: int, states: Ints) -> Ints:
        setting, change = self.small.setting, self.change
        noise = self.action_noise(k)
        if change.kind in ("policy", "do") and (change.length is None or k < change.length):
            if change.kind == "do":
                return np.full(SAMPLES, int(change.name))
            scores = logs(list(setting.policies[change.name]), setting.actions)
            planned: Ints = np.argmax(scores[states] + noise, axis=1)
            return planned
        chosen: Ints = np.argmax(self.nominal[states] + noise, axis=1)
        seen, taken = self.seen[k] if k < len(self.seen) else (-1, None)
        if taken is not None:
            chosen[states == seen] = taken
        return chosen

    def trails(self, length: int) -> Ints:
        """States and actions [SAMPLES, length, 2]."""
        rows = self.rows[self.change.name if self.change.kind == "model" else ""]
        states = np.full(SAMPLES, self.seen[0][0])
        pairs = []
        for k in range(length):
            actions = self.actions(k, states)
            pairs.append(np.stack([states, actions], axis=1))
            states = (rows[states, actions] + self.move_noise(k)).argmax(axis=1)
        return np.stack(pairs, axis=1)


def asked_for(text: str) -> ast.Quantity:
    formula = ast.Parser().parse(text)
    assert isinstance(formula, ast.Ask)
    return formula.quantity


def outcomes(small: Small, text: str, rng: np.random.Generator) -> Floats:
    """What each sampled world is worth: 0 or 1 for a path formula, the sum for a reward."""
    quantity = asked_for(text)
    length = 1 + (quantity.last if isinstance(quantity, ast.Reward) else horizon(quantity.body))
    trails = Sampler(small, quantity.world.change, quantity.world.offset, rng).trails(length)
    distinct, which = np.unique(trails.reshape(SAMPLES, -1), axis=0, return_inverse=True)
    worth = [value_of(small, text, tuple(map(tuple, flat.reshape(length, 2).tolist()))) for flat in distinct]
    return np.array(worth)[which.reshape(-1)]


def value_of(small: Small, text: str, trail: tuple[tuple[int, int], ...]) -> float:
    quantity = asked_for(text)
    if isinstance(quantity, ast.Reward):
        return sum(float(small.setting.rewards[pair]) for pair in trail[quantity.first :])
    rows = small.setting.models[quantity.world.change.name] if quantity.world.change.kind == "model" else None
    happened = replace(small.setting, path=trail, rows=rows or small.setting.rows)
    value = Evaluator(happened).answer(f"nominal@{len(trail) - 1}.P=? {text.partition('.P=?')[2]}").value
    assert value in {0, 1}  # what was observed is certain
    return float(value)


@pytest.mark.parametrize("seed", first(30, range(QUESTIONS)))
def test_exact_answers_are_what_the_causal_model_does(seed: int) -> None:
    chance = Random(1000 + seed)
    small = small_world(chance, stochastic=seed % 2 == 0, length=chance.randint(2, 4), open_end=chance.random() < 0.2)
    text = question(chance, chance.choice(WORLDS))
    quantity = asked_for(text)
    exact, sampled = small.number(text), outcomes(small, text, np.random.default_rng(seed))
    if isinstance(quantity, ast.Reward):
        span = (quantity.last - quantity.first + 1) * np.ptp([float(r) for r in small.setting.rewards.values()])
        allowed = span * math.sqrt(math.log(2 / FALSE_ALARM) / (2 * SAMPLES))
        assert abs(sampled.mean() - exact) <= allowed + 1e-9
    elif min(exact, 1 - exact) < 1e-12:
        assert sampled.mean() == round(exact)
    else:
        assert binomtest(int(sampled.sum()), SAMPLES, exact).pvalue >= FALSE_ALARM


@scaled
def test_the_queries_are_not_trivial() -> None:
    """Enough of them have an answer strictly between 0 and 1 that no plain, unconditioned row gives."""
    telling, asked = 0, examples(QUESTIONS // 3, QUESTIONS)
    for seed in range(asked):
        chance = Random(1000 + seed)
        small = small_world(
            chance, stochastic=seed % 2 == 0, length=chance.randint(2, 4), open_end=chance.random() < 0.2
        )
        text = question(chance, chance.choice(WORLDS))
        offset = asked_for(text).world.offset
        _, position = resolve(offset, len(small.setting.path))
        plain = text.replace(f"@{offset}.", "@0.", 1)
        forgetful = small.ask(plain, path=[(small.setting.path[position][0], None)]).value
        telling += 1e-3 < small.number(text) % 1 < 1 - 1e-3 and forgetful != pytest.approx(small.number(text), abs=1e-3)
    assert telling >= asked // 6
