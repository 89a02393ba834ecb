"""Values of best decisions beside means over drawn noise."""

from __future__ import annotations

from functools import cache
from math import log, sqrt

import pytest

from tests.oracle.player import Player
from tests.oracle.recourse_cases import SETTINGS, Question, questions
from tests.tiers import examples, scaled

WORLDS = 20_000
CASES = examples(4, 12)
FALSE_ALARM = 1e-6  # of all comparisons together


@cache
def hard() -> list[tuple[Question, str]]:
    """Return questions in which the number of changes matters; half of them have a stochastic nominal policy."""
    found: dict[bool, list[tuple[Question, str]]] = {False: [], True: []}
    for asked in (each for seed in range(SETTINGS) for each in questions(seed)):
        recourse, word = asked.recourse, f"best[<={max(1, asked.changes)}]"
        if not asked.goal.startswith("P") or recourse.window.d < 2:
            continue
        nominal, few, best = (recourse.value(each) for each in ("nominal", word, "best"))
        if len({nominal, few, best}) == 3:
            stochastic = any(len(row) > 1 for row in asked.setting.policies["nominal"])
            found[stochastic].append((asked, word))
        if all(len(each) >= CASES // 2 for each in found.values()):
            return [each for group in found.values() for each in group[: CASES // 2]]
    raise AssertionError(found)


@scaled
@pytest.mark.parametrize("number", range(CASES))
def test_noise_agrees_with_induction(number: int) -> None:
    """Hoeffding at the false-alarm rate of one comparison among all."""
    width = sqrt(log(2 * 2 * CASES / FALSE_ALARM) / (2 * WORLDS))
    asked, few = hard()[number]
    recourse = asked.recourse
    for word in ("best", few):
        value = float(recourse.value(word))
        assert abs(Player(recourse, word, WORLDS, number).mean() - value) <= width, (asked, word)
