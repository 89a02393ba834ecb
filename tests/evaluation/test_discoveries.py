"""Discoveries by the number of the draw, against a count over the draws themselves."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from monitor.evaluation.posterior import discoveries
from tests.exact.learned import learned_model

Draws = list[tuple[int, int, int]]


def by_count(draws: Draws) -> tuple[list[int], list[int], dict[tuple[int, int], int]]:
    """Return discoveries and draws of each class with the one before, and the class of each row's next draw."""
    rows: dict[tuple[int, int], list[int]] = {}
    for state, action, successor in draws:
        rows.setdefault((state, action), []).append(successor)
    following = {key: next(j for j in range(60) if len(row) + 1 <= 2 ** (j + 1)) for key, row in sorted(rows.items())}
    found, made = [], []
    for j in range(max(following.values()) + 1):
        numbers = range(max(2 ** (j - 1), 1) + 1, 2 ** (j + 1) + 1)  # of class j and, from class 1 on, that before it
        pooled = [(row, m) for row in rows.values() for m in numbers if m <= len(row)]
        made.append(len(pooled))
        found.append(sum(row[m - 1] not in row[: m - 1] for row, m in pooled))
    return found, made, following


@pytest.mark.parametrize("seed", range(20))
def test_discoveries_are_those_of_the_draws(seed: int) -> None:
    chance = Random(seed)
    often = [chance.choice((1, 2, 5, 40)) for _ in range(4)]
    draws = [
        (state, action, chance.choice((0, 0, 0, 1, 2, 3)))
        for state in range(4)
        for action in range(2)
        for _ in range(chance.randint(0, often[state]))
    ] + [(0, 0, 1)]
    chance.shuffle(draws)
    model, _ = learned_model(5, 2, draws, {})
    assert model.counts is not None
    found = discoveries(model.counts, model.indptr)
    expected = by_count(draws)
    assert (found.found.tolist(), found.draws.tolist()) == expected[:2]
    assert found.of_row.tolist() == list(expected[2].values())


def test_a_model_without_draws_has_none() -> None:
    model, _ = learned_model(3, 1, [], {})
    assert model.counts is not None
    found = discoveries(model.counts, model.indptr)
    assert (found.found.tolist(), found.draws.tolist(), len(found.of_row)) == ([0], [0], 0)


def test_classes_end_at_powers_of_two() -> None:
    sizes = [1, 2, 3, 4, 7, 8, 2**20 - 1, 2**20]
    model, _ = learned_model(9, 1, [(s, 0, 0) for s, size in enumerate(sizes) for _ in range(min(size, 64))], {})
    assert model.counts is not None
    assert discoveries(model.counts, model.indptr).of_row.tolist() == [0, 1, 1, 2, 2, 3, 6, 6]
    assert np.all(discoveries(model.counts, model.indptr).found == 0)
