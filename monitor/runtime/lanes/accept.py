"""Accepting the next step of an agent: what `Session.arrive` does with it, where it is in order and possible."""

from __future__ import annotations

import math

from monitor.arrays import Ints
from monitor.jit import compiled, helper, ints_at, reals_at
from monitor.runtime.lanes.layout import (
    ACTIONS,
    BEFORE,
    DECISIONS,
    DIGESTS,
    ENDLESS,
    EXCESSES,
    EXTRA_REWARDS,
    FIXED,
    LARGEST,
    LAST_HEARD,
    LIKELY,
    MAX_LAG,
    MAY_WAIT,
    NEWEST,
    NEXT,
    NOMINAL_KIND,
    OLDEST,
    PROGRESS,
    QUEUE,
    QUEUED,
    RANDOM,
    REALS,
    REMEMBERED,
    REPEATS,
    REWARDED,
    REWARDS,
    ROWS,
    SPREAD,
    STARTS,
    SUCCESSORS,
    SUMS,
    TIMES,
    TRANSITIONS,
    WAITING,
    WORDS,
)
from monitor.statistics.deviation import CHANCE, EXCESS, FRACTION, HELD, LEAST, PUSHED, VARIANCE, WINDOW
from monitor.stream.digests import plain_digest
from monitor.stream.model_adapter import RELATIVE, ROUNDING

__all__ = ["accept", "accept_step"]


@compiled
def accept(
    lane: int, seq: int, state: int, action: int, time: float, reward: float, policy: int, wall: float, ticks: float
) -> bool:
    """Accept a step and return True; False: nothing was changed, the step needs the ordinary way.

    `lane`: address of its words. `time`, `reward`: NaN if the message has none. `policy`: the word of the one it names.
    """
    return accept_step(ints_at(lane, WORDS), seq, state, action, time, reward, policy, wall, ticks)


@helper
def accept_step(
    words: Ints, seq: int, state: int, action: int, time: float, reward: float, policy: int, wall: float, ticks: float
) -> bool:
    """Do what `accept` does."""
    if seq != words[NEXT] or seq >= ENDLESS or words[WAITING] >= words[MAY_WAIT]:
        return False
    rows, before = words[ROWS], words[BEFORE]
    starts = ints_at(words[STARTS], rows + 1)
    row = state * words[ACTIONS] + action
    index = _transition(words, starts, before, state)
    if starts[row] == starts[row + 1] or index < 0 or _contradicts(words, before, index, reward):
        return False
    if not _acts_as_nominal(words, state, row):
        return False
    reals = reals_at(words[REALS], LARGEST + 1)
    named = not math.isnan(time)
    own = time if named else wall
    place = (words[OLDEST] + words[WAITING]) % QUEUED
    queue, times = ints_at(words[QUEUE], 3 * QUEUED), reals_at(words[TIMES], 2 * QUEUED)
    queue[3 * place], queue[3 * place + 1] = row, index
    queue[3 * place + 2] = 1 if named and own < wall - reals[MAX_LAG] else 0
    times[2 * place], times[2 * place + 1] = own, ticks
    ints_at(words[DIGESTS], REMEMBERED)[seq % REMEMBERED] = plain_digest(state, action, time, reward, policy)
    words[WAITING] += 1
    words[NEXT] = seq + 1
    words[BEFORE] = row
    reals[LAST_HEARD] = ticks
    reals[NEWEST] = max(reals[NEWEST], min(own, wall))
    reals[PROGRESS] = max(reals[PROGRESS], ticks)
    return True


@helper
def _transition(words: Ints, starts: Ints, before: int, state: int) -> int:
    """Return the index of the transition from a row to a state, -1 if the model lacks it."""
    successors = ints_at(words[SUCCESSORS], words[TRANSITIONS])
    low, high = starts[before], starts[before + 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if successors[middle] < state:
            low = middle + 1
        else:
            high = middle
    return low if low < end and successors[low] == state else -1


@helper
def _contradicts(words: Ints, before: int, index: int, reward: float) -> bool:
    """Return whether a reward, if there is one, differs from the model's (`ModelAdapter.contradicts`)."""
    if words[REWARDED] == 0 or math.isnan(reward):
        return False
    transitions = words[TRANSITIONS]
    expected = reals_at(words[REWARDS], words[ROWS])[before] + reals_at(words[EXTRA_REWARDS], transitions)[index]
    width = reals_at(words[SPREAD], transitions)[index]
    largest = reals_at(words[REALS], LARGEST + 1)[LARGEST]
    tolerance = width + RELATIVE * max(abs(expected), abs(reward)) + ROUNDING * largest
    return not abs(reward - expected) <= tolerance


@helper
def _acts_as_nominal(words: Ints, state: int, row: int) -> bool:
    """Return whether there is nothing to report on how an action differs from nominal's; if so, count it."""
    sums, ring = reals_at(words[SUMS], PUSHED + 1), reals_at(words[EXCESSES], 2 * WINDOW)
    excess, variance = 0.0, 0.0
    if words[NOMINAL_KIND] == FIXED:
        if ints_at(words[DECISIONS], state + 1)[state] != row - state * words[ACTIONS]:
            return False
    elif words[NOMINAL_KIND] == RANDOM:
        likely = reals_at(words[LIKELY], row + 1)[row]
        repeats = reals_at(words[REPEATS], 2 * state + 2)
        excess, variance = repeats[2 * state] - likely, repeats[2 * state + 1]
        if likely == 0.0:
            return False
    place, held = int(sums[PUSHED]), sums[HELD]
    anew = place + 1 == WINDOW
    if sums[FRACTION] != 0.0 or (anew and (words[NOMINAL_KIND] == RANDOM or sums[EXCESS] != 0.0)):
        return False  # `Deviation` computes the sums anew
    total, varied = sums[EXCESS], sums[VARIANCE]
    if held == WINDOW:
        total -= ring[place]
        varied -= ring[WINDOW + place]
    else:
        held += 1.0
    total += excess
    varied += variance
    if held >= LEAST and total > 0.0 and total - CHANCE * math.sqrt(max(varied, 0.0)) > 0.0:
        return False
    ring[place], ring[WINDOW + place] = excess, variance
    sums[EXCESS], sums[VARIANCE], sums[HELD] = total, varied, held
    sums[PUSHED] = 0.0 if anew else place + 1.0
    return True
