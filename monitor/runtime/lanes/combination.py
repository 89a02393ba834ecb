"""The tests of the model, combined in compiled code (`Fleet.combine`), where nobody reads that they reject nothing."""

from __future__ import annotations

import math

from monitor.arrays import Floats
from monitor.jit import helper, ints_at, reals_at
from monitor.runtime.lanes.bets import doublings, part_of
from monitor.statistics.discoveries import KEPT, LEVEL
from monitor.statistics.fleet import (
    COUNT,
    ENOUGH,
    EVERY,
    FRACTIONS,
    LOG10_E,
    LOGS,
    LOST,
    REALS,
    REALS_SIZE,
    REPORTED,
    SILENT,
    TESTS,
    TOTALS,
    WORDS,
)
from monitor.statistics.model_test import BETS, DECIDED, HIGHEST, LEARNED, NUMBER, OFTEN, OWN_BETS, PART, STAKES, TESTED

__all__ = ["combine"]

FULL, TENTH, HUNDREDTH, THOUSANDTH = FRACTIONS
LN_10 = math.log(10.0)
SURELY = 0.99
"""Part of the evidence for a rejection below which there is none, however it is rounded."""


@helper
def combine(combination: int, sweeps: bool) -> bool:
    """Combine the tests if that is due and nothing is rejected; False: it is for the ordinary way, and nothing changed.

    `combination`: address of the words; 0: nothing is tested. `sweeps`: it is due if anything was observed since.
    """
    if combination == 0:
        return True
    words = ints_at(combination, WORDS)
    observed = ints_at(words[TOTALS], 2)[1]
    if observed < words[REPORTED] + (1 if sweeps else words[EVERY]):
        return True
    if words[SILENT] == 0:
        return False
    count, reals = words[COUNT], reals_at(words[REALS], REALS_SIZE)
    tests = ints_at(words[TESTS], count)
    _begin(reals)
    for n in range(count):
        stakes = reals_at(tests[n], STAKES)
        if stakes[DECIDED] != 0.0 or _is_evidence(stakes, count):
            return False
        _add(reals, _wealth(stakes) - 1.0)
    log_e = _mean(reals)
    if log_e >= reals[ENOUGH]:
        return False
    reals[LOG10_E] = log_e / LN_10
    words[REPORTED] = observed
    return True


@helper
def _begin(reals: Floats) -> None:
    reals[LOGS : LOGS + 4] = 0.0


@helper
def _add(reals: Floats, profit: float) -> None:
    """Multiply the wealth by that of another agent."""
    reals[LOGS] += math.log1p(FULL * profit)
    reals[LOGS + 1] += math.log1p(TENTH * profit)
    reals[LOGS + 2] += math.log1p(HUNDREDTH * profit)
    reals[LOGS + 3] += math.log1p(THOUSANDTH * profit)


@helper
def _mean(reals: Floats) -> float:
    """Return the log of the mean over the fractions."""
    most = -math.inf
    for f in range(4):
        reals[LOGS + f] += reals[LOST + f]
        most = max(most, reals[LOGS + f])
    total = 0.0
    for f in range(4):
        total += math.exp(reals[LOGS + f] - most)
    return most + math.log(total / 4.0)


@helper
def _is_evidence(stakes: Floats, count: int) -> bool:
    """Return whether e-BH might reject an agent, be it the only one or one of all (`wrong_agents`)."""
    highest = stakes[HIGHEST] / OWN_BETS
    if stakes[NUMBER] == 0.0 or highest < 1.0:
        return False
    evidence = (1.0 - KEPT) * highest**KEPT * part_of(int(stakes[NUMBER]))
    return bool(evidence * LEVEL * count >= SURELY)


@helper
def _wealth(stakes: Floats) -> float:
    """Return the wealth of a test in which nothing is decided (`ModelTest.wealth`)."""
    staked = 0.0
    for bet in range(LEARNED, OFTEN + 1):
        staked += stakes[bet]
    steps = int(stakes[TESTED])
    idle = 1.0
    if steps > 0:
        k = doublings(steps)
        idle = 1.0 / (k + 1) - (steps - (1 << k) + 1) * stakes[PART]
    return idle + staked / BETS
