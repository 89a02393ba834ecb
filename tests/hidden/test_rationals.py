"""Answers on tiny worlds with hidden states, against a sum over all that may have happened, in rational arithmetic.

Every pair of a true and a counterfactual course is one term. Counterfactual rows are those of exponential races
(`tests.oracle.race`); neither the closed form nor a forward product is used.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import monitor
from tests.hidden.played import Mind, Small
from tests.hidden.scores import KINDS, model_of, policy
from tests.oracle.race import counterfactual_row
from tests.oracle.setting import Dist
from tests.tiers import examples, scaled

BAD = 0
Pair = tuple[int | None, int | None]


def row(random: Random, size: int) -> list[Fraction]:
    """Return a random distribution of eighths, often sparse."""
    cuts = sorted(random.randint(0, 8) for _ in range(size - 1))
    return [Fraction(high - low, 8) for low, high in zip([0, *cuts], [*cuts, 8], strict=True)]


def world(random: Random, *, memories: int = 1, sees_state: bool = False, shadows: bool = True) -> Small:
    """Return a world of two or three states, two observations and two actions, whose arrays hold fractions."""
    states, shown, actions = random.randint(2, 3), 2, 2
    width = states if sees_state else shown

    def mind() -> Mind:
        following = np.array([[random.randrange(memories) for _ in range(width)] for _ in range(memories)])
        choice = np.array([[row(random, actions) for _ in range(width)] for _ in range(memories)])
        return Mind(following, choice, sees_state=sees_state, shadows=shadows)

    rows = np.array([[row(random, states) for _ in range(actions)] for _ in range(states)])
    emissions = np.array([row(random, shown) for _ in range(states)])
    return Small(rows, emissions, np.array(row(random, states)), mind(), mind())


def rounded(small: Small) -> Small:
    """Return the same world in floating-point numbers, which have its eighths exactly."""
    minds = [replace(mind, choice=mind.choice.astype(float)) for mind in (small.nominal, small.alternative)]
    arrays = [array.astype(float) for array in (small.rows, small.emissions, small.initial)]
    return Small(*arrays, *minds)


def dist(chances: Any) -> Dist:  # noqa: ANN401 - an array of fractions
    return {n: chance for n, chance in enumerate(chances) if chance}


class Sum:
    """The sum of all courses: of those that show the path, and of those in which BAD is visited as well."""

    def __init__(self, small: Small, path: list[Pair], start: int, horizon: int) -> None:
        self.small, self.path, self.start, self.horizon = small, path, start, horizon
        self.shown = self.hit = Fraction(0)
        for state, chance in dist(small.initial).items():
            self._pair(0, chance, (state, 0), (state, 0))

    def _pair(
        self, k: int, weight: Fraction, true: tuple[int, int], other: tuple[int, int], *, hit: bool = False
    ) -> None:
        """Go on from pair k; `true`, `other`: state and memory in both worlds, where they differ from `start` on."""
        small, (seen, known) = self.small, self.path[k]
        (state, memory), (apart, apart_memory) = true, other
        hit = hit or (self.start <= k <= self.start + self.horizon and apart == BAD)
        for shown, chance in dist(small.emissions[state]).items():
            if seen not in {None, shown}:
                continue
            after, choice = read(small.nominal, memory, state, shown)
            instead = counterfactual_row(dist(small.emissions[state]), dist(small.emissions[apart]), shown)
            for taken, (apart_shown, part) in product(choice, instead.items()):
                if known not in {None, taken}:
                    continue
                acted = choice[taken] * chance * weight
                apart_after, apart_choice = read(small.alternative, apart_memory, apart, apart_shown)
                if k < self.start:
                    self._move(k, acted * part, (state, taken, after), (state, taken, apart_after), hit=hit)
                    continue
                for action, share in counterfactual_row(choice, apart_choice, taken).items():
                    moved = acted * part * share
                    self._move(k, moved, (state, taken, after), (apart, action, apart_after), hit=hit)

    def _move(
        self, k: int, weight: Fraction, true: tuple[int, int, int], other: tuple[int, int, int], *, hit: bool
    ) -> None:
        small, (state, action, memory), (apart, apart_action, apart_memory) = self.small, true, other
        if k == len(self.path) - 1:
            self.shown += weight
            left = self.horizon - (k - self.start)
            self.hit += weight * (1 if hit else self._ahead(apart, apart_action, apart_memory, left))
            return
        rows = dist(small.rows[state, action]), dist(small.rows[apart, apart_action])
        for successor, chance in rows[0].items():
            for apart_successor, part in counterfactual_row(*rows, successor).items():
                there = apart_successor, apart_memory if k >= self.start or small.alternative.shadows else 0
                self._pair(k + 1, weight * chance * part, (successor, memory), there, hit=hit)

    def _ahead(self, state: int, action: int, memory: int, steps: int) -> Fraction:
        """Return the probability that BAD is visited within so many steps, with fresh noise."""
        if steps <= 0:
            return Fraction(0)
        found = Fraction(0)
        for successor, chance in dist(self.small.rows[state, action]).items():
            if successor == BAD:
                found += chance
                continue
            for shown, part in dist(self.small.emissions[successor]).items():
                after, choice = read(self.small.alternative, memory, successor, shown)
                for chosen, share in choice.items():
                    found += chance * part * share * self._ahead(successor, chosen, after, steps - 1)
        return found


def read(mind: Mind, memory: int, state: int, shown: int) -> tuple[int, Dist]:
    """Return what a policy remembers after it has read, and the actions it then chooses from."""
    z = state if mind.sees_state else shown
    after = int(mind.following[memory, z])
    return after, dist(mind.choice[after, z])


@scaled
@pytest.mark.parametrize("kind", KINDS)
def test_answer_and_evidence_are_the_sums_over_all_courses(kind: str) -> None:
    random, asked, wanted = Random(list(KINDS).index(kind)), 0, examples(4, 60)
    while asked < wanted:
        small, pairs = world(random, **KINDS[kind]), random.randint(1, 3)
        path: list[Pair] = [(random.choice((0, 1, None)), random.choice((0, 0, 1, 1, None))) for _ in range(pairs)]
        offset, horizon = random.randrange(pairs), random.randint(0, 4)
        total = Sum(small, path, pairs - 1 - offset, horizon)
        if not total.shown:
            continue
        given = rounded(small)
        verdict = monitor.check(
            f'other@{offset}.P=? [ F<={horizon} "bad" ]',
            model=model_of(given),
            policies={"nominal": policy(given.nominal), "other": policy(given.alternative)},
            path=path,
        )
        assert verdict.value == pytest.approx(float(total.hit / total.shown), abs=1e-12)
        assert verdict.evidence == pytest.approx(float(total.shown), abs=1e-12)
        asked += 1
