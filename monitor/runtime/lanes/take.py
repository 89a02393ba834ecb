"""Taking the oldest step that waits: what `AgentMonitor.evaluate` does, where nothing but verdicts is to be said.

Each function looks before it changes anything, since a step is taken as a whole or left to the ordinary way.
"""

from __future__ import annotations

from monitor.arrays import Floats, Ints
from monitor.jit import compiled, helper, ints_at, reals_at
from monitor.runtime.lanes.accept import accept_step
from monitor.runtime.lanes.bets import bet, can_bet
from monitor.runtime.lanes.layout import (
    ACTIONS,
    AFTER,
    ANSWER,
    ASK,
    ASKED,
    BAD,
    BLOCK,
    CAME_TRUE,
    COLUMN_OF,
    COLUMNS,
    DUE,
    EMPTY,
    EVENTS,
    EXAMINED,
    FAILED,
    FIRING,
    FIRST_SEQ,
    FOLLOWED,
    FOR,
    FORMULAS,
    GOOD,
    HELD,
    HORIZON,
    JUDGED,
    LABEL_SETS,
    LAST,
    LAST_HEARD,
    LAST_LATE,
    LAST_SEQ,
    LAST_TIME,
    LETTERS,
    MISSING,
    MOVED,
    NEXT,
    NOT_DUE,
    OBLIGATION,
    OLDEST,
    ORDINARY,
    PAIRS,
    PENDING,
    PUSHED,
    QUEUE,
    QUEUED,
    READ,
    REALS,
    REFUSED,
    RING,
    RUN,
    SATISFIED,
    SINCES,
    STALE_AFTER,
    STAYED,
    TARGET,
    TESTED,
    TIMES,
    TO_CLEAR,
    TO_PENDING,
    UNKNOWN,
    VERDICT,
    WAITING,
    WANTS,
    WINDOW,
    WORDS,
)
from monitor.runtime.lanes.verdicts import find_verdict

__all__ = ["step", "take", "take_step"]


@compiled
def take(lane: int, now: float) -> int:
    """Take the oldest step that waits; return the number of the first formula's verdict, or `EMPTY` to `UNKNOWN`.

    `lane`: address of its words. `now`: ticks.
    """
    return take_step(lane, ints_at(lane, WORDS), now, False)


@compiled
def step(
    lane: int, seq: int, state: int, action: int, time: float, reward: float, policy: int, wall: float, ticks: float
) -> int:
    """Accept a step as `accept` does, and take it if none waits before it; return what `take` does, or `REFUSED`.

    What ends in `ASK` or concerns a forecast is accepted and left to wait (`ORDINARY`).
    """
    words = ints_at(lane, WORDS)
    if words[WAITING] > 0 or not accept_step(words, seq, state, action, time, reward, policy, wall, ticks):
        return REFUSED
    return take_step(lane, words, ticks, True)


@helper
def take_step(lane: int, words: Ints, now: float, silent: bool) -> int:
    """Do what `take` does; `silent`: leave what ends in `ASK`, or concerns a forecast, to the ordinary way too."""
    if words[WAITING] == 0:
        return EMPTY
    count = words[FORMULAS]
    blocks = ints_at(lane + 8 * WORDS, BLOCK * count)
    reals = reals_at(words[REALS], SINCES + count)
    oldest = words[OLDEST]
    queue, times = ints_at(words[QUEUE], 3 * QUEUED), reals_at(words[TIMES], 2 * QUEUED)
    row, index, late = queue[3 * oldest], queue[3 * oldest + 1], queue[3 * oldest + 2]
    behind = (oldest + 1) % QUEUED
    if words[WAITING] > 1 and now - times[2 * behind + 1] > reals[STALE_AFTER]:
        return ORDINARY
    if now - reals[LAST_HEARD] > reals[STALE_AFTER] or (words[TESTED] and not can_bet(words, reals, index)):
        return ORDINARY
    state = row // words[ACTIONS]
    if not _follows(blocks, count, state):
        return UNKNOWN
    # the new pair is written before it is pushed: where it goes, no held pair is
    ints_at(words[PAIRS], words[RING])[words[PUSHED] % words[RING]] = row
    held = min(words[HELD] + 1, words[WINDOW])
    answered = _finds(words, blocks, count, held)
    if silent and (not answered or _is_due(blocks, count)):
        return ORDINARY
    # ---- from here on the step is taken
    words[OLDEST] = behind
    words[WAITING] -= 1
    words[PUSHED] += 1
    words[HELD] = held
    words[LAST_SEQ] = words[NEXT] - 1 - words[WAITING]
    words[LAST_LATE] = late
    reals[LAST_TIME] = times[2 * oldest]
    if words[TESTED]:
        bet(words, reals, index)
    words[LAST] = row
    happened = _advance_forecasts(blocks, count, state)
    if not answered:
        return ASK
    if _judge(words, reals, blocks, count) or happened:
        return EVENTS
    return blocks[VERDICT]


# ---- forecasts (`Forecasts.read`) ----


@helper
def _follows(blocks: Ints, count: int, state: int) -> bool:
    """Return whether all followed obligations are known after this state; else MISSING says which is not."""
    known = True
    for n in range(count):
        block = blocks[n * BLOCK : (n + 1) * BLOCK]
        block[MISSING] = -1
        if block[FOLLOWED] and _next_obligation(block, state) < 0:
            block[MISSING] = ints_at(block[COLUMN_OF], state + 1)[state]
            known = False
    return known


@helper
def _is_due(blocks: Ints, count: int) -> bool:
    """Return whether a forecast will be due with the next state, or may begin."""
    for n in range(count):
        block = blocks[n * BLOCK : (n + 1) * BLOCK]
        if block[TARGET] and (not block[FOLLOWED] or block[READ] + 1 == block[HORIZON]):
            return True
    return False


@helper
def _next_obligation(block: Ints, state: int) -> int:
    column = ints_at(block[COLUMN_OF], state + 1)[state]
    place = block[OBLIGATION] * block[COLUMNS] + column
    return ints_at(block[AFTER], place + 1)[place]


@helper
def _advance_forecasts(blocks: Ints, count: int, state: int) -> bool:
    """Read the state for each followed forecast; return whether one is due, or may begin."""
    happened = False
    for n in range(count):
        block = blocks[n * BLOCK : (n + 1) * BLOCK]
        block[DUE] = NOT_DUE
        if block[FOLLOWED]:
            obligation = _next_obligation(block, state)
            block[OBLIGATION] = obligation
            read = block[READ]
            ints_at(block[LETTERS], read + 1)[read] = ints_at(block[LABEL_SETS], state + 1)[state]
            block[READ] = read + 1
            if read + 1 == block[HORIZON]:
                came_true = ints_at(block[CAME_TRUE], obligation + 1)[obligation]
                block[DUE] = SATISFIED if came_true == 1 else FAILED
                block[FOLLOWED] = 0
        block[WANTS] = 1 if block[TARGET] and not block[FOLLOWED] else 0
        happened = happened or block[WANTS] == 1
    return happened


# ---- verdicts and alarms (`SharedVerdicts.find`, `FormulaMonitor.answer`) ----


@helper
def _finds(words: Ints, blocks: Ints, count: int, held: int) -> bool:
    """Find the verdict of each formula; return whether all were kept, and none needs more than `_judge` does."""
    for n in range(count):
        block = blocks[n * BLOCK : (n + 1) * BLOCK]
        if block[FIRING]:
            return False
        verdict = find_verdict(words, block, held)
        if verdict < 0:
            return False
        judged = ints_at(block[JUDGED], verdict + 1)[verdict]
        judgement, pending = judged % EXAMINED, block[PENDING]
        if judgement == BAD and block[RUN] + 1 >= block[FOR]:
            return False  # it fires
        if judged >= EXAMINED and (pending == 1 or judgement == BAD):
            return False
        block[VERDICT] = verdict
    return True


@helper
def _judge(words: Ints, reals: Floats, blocks: Ints, count: int) -> bool:
    """Advance the alarms, which stay clear or pending, by the verdicts found; return whether one has moved."""
    moved = False
    for n in range(count):
        block = blocks[n * BLOCK : (n + 1) * BLOCK]
        asked = ints_at(block[ASKED], 2)
        asked[0] += 1
        asked[1] += 1
        judgement = ints_at(block[JUDGED], block[VERDICT] + 1)[block[VERDICT]] % EXAMINED
        block[MOVED], block[ANSWER] = STAYED, block[VERDICT]
        if judgement == BAD:
            if block[PENDING] == 0:
                block[PENDING], block[MOVED], block[FIRST_SEQ] = 1, TO_PENDING, words[LAST_SEQ]
                reals[SINCES + n] = reals[LAST_TIME]
            block[RUN] += 1
        elif judgement == GOOD and block[PENDING] == 1:
            block[PENDING], block[MOVED], block[RUN] = 0, TO_CLEAR, 0
        moved = moved or block[MOVED] != STAYED
    return moved
