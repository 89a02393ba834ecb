"""Bets against the model on a transition: what `ModelTest.step` and `RowTests.step` do, where nothing is decided."""

from __future__ import annotations

from monitor.arrays import Floats, Ints
from monitor.jit import helper, ints_at, reals_at
from monitor.runtime.lanes.layout import (
    ALL_DISTINCT,
    ALL_MEMORY,
    ALL_MOST,
    ALL_SEEN,
    ALL_STEPS,
    BY_ROW,
    CALM_OFTEN,
    CALM_RARE,
    CALM_ROW,
    LAST,
    NEAR_ROW,
    ODDS,
    OWN_DISTINCT,
    OWN_MEMORY,
    OWN_MOST,
    OWN_SEEN,
    OWN_STEPS,
    PLACE_OF,
    ROW_COUNTS,
    ROW_DISTINCT,
    ROW_MEMORY,
    ROW_MOST,
    ROW_SEEN,
    ROW_STAKES,
    ROW_STEPS,
    ROWS,
    STAKES,
    STARTS,
    TOTALS,
    TRANSITIONS,
)
from monitor.statistics.betting_odds import PRIOR
from monitor.statistics.model_test import FLATTER, HIGHEST, LEARNED, NEAR, OFTEN, PART, RARE, SHARPER, TESTED, TOGETHER

__all__ = ["bet", "can_bet", "doublings", "part_of"]


@helper
def can_bet(words: Ints, reals: Floats, index: int) -> bool:
    """Return whether `bet` can settle this transition: its odds are known, nothing begins and nothing is decided."""
    before, transitions, rows = words[LAST], words[TRANSITIONS], words[ROWS]
    odds, stakes = reals_at(words[ODDS], 3 * transitions), reals_at(words[STAKES], NEAR + 1)
    if odds[index] == 0.0 or stakes[TESTED] == 0.0:
        return False
    own, of_own = ints_at(words[OWN_SEEN], transitions)[index], ints_at(words[OWN_STEPS], rows)[before]
    seen, of = ints_at(words[ALL_SEEN], transitions)[index], ints_at(words[ALL_STEPS], rows)[before]
    if own == 0 and ints_at(words[OWN_DISTINCT], 1)[0] >= words[OWN_MOST]:
        return False
    if seen == 0 and ints_at(words[ALL_DISTINCT], 1)[0] >= words[ALL_MOST]:
        return False
    if words[BY_ROW] and not _can_bet_on_row(words, reals, index, odds[index]):
        return False
    part = _part(stakes[PART], int(stakes[TESTED]) + 1)
    learned = (stakes[LEARNED] + part) * ((PRIOR + own * odds[index]) / (PRIOR + of_own))
    together = (stakes[TOGETHER] + part) * ((PRIOR + seen * odds[index]) / (PRIOR + of))
    flatter = (stakes[FLATTER] + part) * odds[transitions + index]
    sharper = (stakes[SHARPER] + part) * odds[2 * transitions + index]
    rare, often = (stakes[RARE] + part) * reals[CALM_RARE], (stakes[OFTEN] + part) * reals[CALM_OFTEN]
    return learned + flatter + sharper + rare + often + together < stakes[NEAR]


@helper
def _can_bet_on_row(words: Ints, reals: Floats, index: int, odds: float) -> bool:
    """Return whether the test of the row can go on here."""
    before = words[LAST]
    place = ints_at(words[PLACE_OF], words[ROWS])[before]
    if place < 0:
        return False
    seen, of = ints_at(words[ROW_SEEN], words[TRANSITIONS])[index], ints_at(words[ROW_STEPS], words[ROWS])[before]
    if seen == 0 and ints_at(words[ROW_DISTINCT], 1)[0] >= words[ROW_MOST]:
        return False
    visits = ints_at(words[ROW_COUNTS], 2 * place + 1)[2 * place]
    stakes = reals_at(words[ROW_STAKES], 3 * place + 3)
    part = _part(stakes[3 * place + 2], visits + 1)
    learned = (stakes[3 * place] + part) * ((PRIOR + seen * odds) / (PRIOR + of))
    return learned + (stakes[3 * place + 1] + part) * reals[CALM_ROW] < reals[NEAR_ROW]


@helper
def bet(words: Ints, reals: Floats, index: int) -> None:
    """Bet on the transition, and settle the bets by it."""
    before, transitions = words[LAST], words[TRANSITIONS]
    odds = reals_at(words[ODDS], 3 * transitions)
    totals, stakes = ints_at(words[TOTALS], 2), reals_at(words[STAKES], NEAR + 1)
    totals[0] += 1
    totals[1] += 1
    if words[BY_ROW]:
        place = ints_at(words[PLACE_OF], words[ROWS])[before]
        counts, rows = ints_at(words[ROW_COUNTS], 2 * place + 1), reals_at(words[ROW_STAKES], 3 * place + 3)
        counts[2 * place] += 1
        rows[3 * place + 2] = _part(rows[3 * place + 2], counts[2 * place])
        paid = _settled(words, ROW_SEEN, words[ROW_MEMORY], before, index, odds[index])
        rows[3 * place] = (rows[3 * place] + rows[3 * place + 2]) * paid
        rows[3 * place + 1] = (rows[3 * place + 1] + rows[3 * place + 2]) * reals[CALM_ROW]
    stakes[TESTED] += 1.0
    stakes[PART] = part = _part(stakes[PART], int(stakes[TESTED]))
    learned = (stakes[LEARNED] + part) * _settled(words, OWN_SEEN, words[OWN_MEMORY], before, index, odds[index])
    together = _settled(words, ALL_SEEN, words[ALL_MEMORY], before, index, odds[index])
    stakes[TOGETHER] = (stakes[TOGETHER] + part) * together
    flatter = (stakes[FLATTER] + part) * odds[transitions + index]
    sharper = (stakes[SHARPER] + part) * odds[2 * transitions + index]
    rare, often = (stakes[RARE] + part) * reals[CALM_RARE], (stakes[OFTEN] + part) * reals[CALM_OFTEN]
    stakes[LEARNED], stakes[FLATTER], stakes[SHARPER] = learned, flatter, sharper
    stakes[RARE], stakes[OFTEN] = rare, often
    stakes[HIGHEST] = max(stakes[HIGHEST], learned + flatter + sharper + rare + often)


@helper
def _settled(words: Ints, seen_of: int, memory: int, row: int, index: int, odds: float) -> float:
    """Return q / p of a transition and count it (`DenseLearner.settle`); its three addresses are in a row."""
    all_seen = ints_at(words[seen_of], words[TRANSITIONS])
    all_steps = ints_at(words[seen_of + 1], words[ROWS])
    distinct = ints_at(words[seen_of + 2], 1)
    seen, of = all_seen[index], all_steps[row]
    all_seen[index] = seen + 1
    all_steps[row] = of + 1
    if seen == 0:
        distinct[0] += 1
    if of >= memory:
        starts = ints_at(words[STARTS], row + 2)
        left = 0
        for each in range(starts[row], starts[row + 1]):
            if all_seen[each] == 1:
                distinct[0] -= 1
            all_seen[each] //= 2
            left += all_seen[each]
        all_steps[row] = left
    return (PRIOR + seen * odds) / (PRIOR + of)


@helper
def _part(before: float, number: int) -> float:
    """Return the wealth that each bet begins with at a step (`ModelTest._begin`). `before`: of the last one."""
    return part_of(number) if number & (number - 1) == 0 else before


@helper
def part_of(step: int) -> float:
    """Return what `late_bets.part_of` does."""
    k = doublings(step)
    return 1.0 / ((k + 1) * (k + 2) << k)


@helper
def doublings(number: int) -> int:
    """Return k with 2^k <= number < 2^(k+1)."""
    k = 0
    while number >> (k + 1) > 0:
        k += 1
    return k
