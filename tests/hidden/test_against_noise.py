"""Answers on hidden states against worlds that are played with explicit noise, at random over kinds of policies."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tests.hidden.scores import KINDS, scores
from tests.tiers import slow


@pytest.mark.parametrize("missing", [False, True], ids=["all seen", "one missing"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [3, pytest.param(40, marks=slow)])
def test_answers_are_the_shares_of_worlds_played_with_the_same_noise(kind: str, count: int, *, missing: bool) -> None:
    found = np.array(list(islice(scores(kind, missing=missing), count)))
    assert np.abs(found).max() < 4.5
    assert np.sqrt((found**2).mean()) < (1.25 if count > 10 else 2.5)
