"""Taking the oldest step that waits: what `AgentMonitor.evaluate` does, where nothing but verdicts is to be said.

Each function looks before it changes anything, since a step is taken as a whole or left to the ordinary way.
"""

from __future__ import annotations

from monitor.arrays import Floats, Ints
from monitor.jit import compiled, helper, ints_at, reals_at
from monitor.runtime.lanes.accept import accept_step
from monitor.runtime.lanes.layout import (
    ACTIONS,
    AFTER,
    ALL_DISTINCT,
    ALL_MEMORY,
    ALL_MOST,
    ALL_SEEN,
    ALL_STEPS,
    ANSWER,
    ASK,
    ASKED,
    BAD,
    BLOCK,
    BY_ROW,
    CALM_OFTEN,
    CALM_RARE,
    CALM_ROW,
    CAME_TRUE,
    COLUMN_OF,
    COLUMNS,
    DUE,
    EMPTY,
    EVENTS,
    EXAMINED,
    FAILED,
    FIRST_SEQ,
    FOLLOWED,
    FOR,
    FORMULAS,
    GOOD,
    HELD,
    HORIZON,
    JUDGED,
    KEYS,
    LABEL_SETS,
    LAST,
    LAST_HEARD,
    LAST_LATE,
    LAST_SEQ,
    LAST_TIME,
    LENGTH,
    LENGTHS,
    LETTERS,
    MASK,
    MISSING,
    MOVED,
    NEAR_ROW,
    NEXT,
    NOT_DUE,
    OBLIGATION,
    ODDS,
    OLDEST,
    ORDINARY,
    OWN_DISTINCT,
    OWN_MEMORY,
    OWN_MOST,
    OWN_SEEN,
    OWN_STEPS,
    PAIRS,
    PENDING,
    PLACE_OF,
    PUSHED,
    QUEUE,
    QUEUED,
    READ,
    REALS,
    REFUSED,
    RING,
    ROW_COUNTS,
    ROW_DISTINCT,
    ROW_MEMORY,
    ROW_MOST,
    ROW_SEEN,
    ROW_STAKES,
    ROW_STEPS,
    ROWS,
    RUN,
    SATISFIED,
    SINCES,
    SLOTS,
    STAKES,
    STALE_AFTER,
    STAYED,
    TARGET,
    TESTED,
    TIMES,
    TO_CLEAR,
    TO_PENDING,
    TOTALS,
    TRANSITIONS,
    UNKNOWN,
    VERDICT,
    WAITING,
    WANTS,
    WINDOW,
    WORDS,
)
from monitor.statistics import model_test
from monitor.statistics.betting_odds import PRIOR
from monitor.statistics.model_test import FLATTER, HIGHEST, LEARNED, NEAR, OFTEN, PART, RARE, SHARPER, TOGETHER

__all__ = ["step", "take", "take_step"]

MODEL_TESTED = model_test.TESTED


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
    if now - reals[LAST_HEARD] > reals[STALE_AFTER] or (words[TESTED] and not _is_tested(words, reals, index)):
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
        _test(words, reals, index)
    words[LAST] = row
    happened = _advance_forecasts(blocks, count, state)
    if not answered:
        return ASK
    if _judge(words, reals, blocks, count) or happened:
        return EVENTS
    return blocks[VERDICT]


# ---- the test of the model (`ModelTest.step`, `RowTests.step`) ----


@helper
def _is_tested(words: Ints, reals: Floats, index: int) -> bool:
    """Return whether the transition can be tested here: its odds are known, nothing is halved, decided or begun."""
    before, transitions, rows = words[LAST], words[TRANSITIONS], words[ROWS]
    odds = reals_at(words[ODDS], 3 * transitions)
    tested = reals_at(words[STAKES], NEAR + 1)[MODEL_TESTED]
    if odds[index] == 0.0 or _is_power_of_two(int(tested) + 1):
        return False
    own, of_own = ints_at(words[OWN_SEEN], transitions)[index], ints_at(words[OWN_STEPS], rows)[before]
    seen, of = ints_at(words[ALL_SEEN], transitions)[index], ints_at(words[ALL_STEPS], rows)[before]
    if of_own >= words[OWN_MEMORY] or of >= words[ALL_MEMORY]:
        return False
    if own == 0 and ints_at(words[OWN_DISTINCT], 1)[0] >= words[OWN_MOST]:
        return False
    if seen == 0 and ints_at(words[ALL_DISTINCT], 1)[0] >= words[ALL_MOST]:
        return False
    if words[BY_ROW] and not _is_row_tested(words, reals, index, odds[index]):
        return False
    stakes = reals_at(words[STAKES], NEAR + 1)
    part = stakes[PART]
    learned = (stakes[LEARNED] + part) * ((PRIOR + own * odds[index]) / (PRIOR + of_own))
    together = (stakes[TOGETHER] + part) * ((PRIOR + seen * odds[index]) / (PRIOR + of))
    flatter = (stakes[FLATTER] + part) * odds[transitions + index]
    sharper = (stakes[SHARPER] + part) * odds[2 * transitions + index]
    rare, often = (stakes[RARE] + part) * reals[CALM_RARE], (stakes[OFTEN] + part) * reals[CALM_OFTEN]
    return learned + flatter + sharper + rare + often + together < stakes[NEAR]


@helper
def _is_row_tested(words: Ints, reals: Floats, index: int, odds: float) -> bool:
    """Return whether the test of the row can go on here."""
    before = words[LAST]
    place = ints_at(words[PLACE_OF], words[ROWS])[before]
    if place < 0:
        return False
    seen, of = ints_at(words[ROW_SEEN], words[TRANSITIONS])[index], ints_at(words[ROW_STEPS], words[ROWS])[before]
    visits = ints_at(words[ROW_COUNTS], 2 * place + 1)[2 * place]
    if of >= words[ROW_MEMORY] or _is_power_of_two(visits + 1):
        return False
    if seen == 0 and ints_at(words[ROW_DISTINCT], 1)[0] >= words[ROW_MOST]:
        return False
    stakes = reals_at(words[ROW_STAKES], 3 * place + 3)
    part = stakes[3 * place + 2]
    learned = (stakes[3 * place] + part) * ((PRIOR + seen * odds) / (PRIOR + of))
    return learned + (stakes[3 * place + 1] + part) * reals[CALM_ROW] < reals[NEAR_ROW]


@helper
def _test(words: Ints, reals: Floats, index: int) -> None:
    """Bet on the transition, and settle the bets by it."""
    before, transitions = words[LAST], words[TRANSITIONS]
    odds = reals_at(words[ODDS], 3 * transitions)
    totals, stakes = ints_at(words[TOTALS], 2), reals_at(words[STAKES], NEAR + 1)
    totals[0] += 1
    totals[1] += 1
    if words[BY_ROW]:
        place = ints_at(words[PLACE_OF], words[ROWS])[before]
        ints_at(words[ROW_COUNTS], 2 * place + 1)[2 * place] += 1
        rows = reals_at(words[ROW_STAKES], 3 * place + 3)
        paid = _settled(words, ROW_SEEN, before, index, odds[index])
        rows[3 * place] = (rows[3 * place] + rows[3 * place + 2]) * paid
        rows[3 * place + 1] = (rows[3 * place + 1] + rows[3 * place + 2]) * reals[CALM_ROW]
    part = stakes[PART]
    stakes[MODEL_TESTED] += 1.0
    learned = (stakes[LEARNED] + part) * _settled(words, OWN_SEEN, before, index, odds[index])
    stakes[TOGETHER] = (stakes[TOGETHER] + part) * _settled(words, ALL_SEEN, before, index, odds[index])
    flatter = (stakes[FLATTER] + part) * odds[transitions + index]
    sharper = (stakes[SHARPER] + part) * odds[2 * transitions + index]
    rare, often = (stakes[RARE] + part) * reals[CALM_RARE], (stakes[OFTEN] + part) * reals[CALM_OFTEN]
    stakes[LEARNED], stakes[FLATTER], stakes[SHARPER] = learned, flatter, sharper
    stakes[RARE], stakes[OFTEN] = rare, often
    stakes[HIGHEST] = max(stakes[HIGHEST], learned + flatter + sharper + rare + often)


@helper
def _settled(words: Ints, seen_of: int, row: int, index: int, odds: float) -> float:
    """Return q / p of a transition and count it (`DenseLearner.settle`); its three addresses are in a row."""
    all_seen = ints_at(words[seen_of], words[TRANSITIONS])
    all_steps = ints_at(words[seen_of + 1], words[ROWS])
    seen, of = all_seen[index], all_steps[row]
    all_seen[index] = seen + 1
    all_steps[row] = of + 1
    if seen == 0:
        ints_at(words[seen_of + 2], 1)[0] += 1
    return (PRIOR + seen * odds) / (PRIOR + of)


@helper
def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


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
        verdict = _find(words, block, held)
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
def _find(words: Ints, block: Ints, held: int) -> int:
    """Return the number of the verdict on the path with the new pair, -1 if none was kept."""
    if block[LENGTH] == 0:
        return -1
    length, ring, newest = min(block[LENGTH], held), words[RING], words[PUSHED]
    pairs = ints_at(words[PAIRS], ring)
    mask = block[MASK]
    slots, place = ints_at(block[SLOTS], mask + 1), hash_of(pairs, newest, length) & mask
    while slots[place] >= 0:
        verdict = slots[place]
        keys = ints_at(block[KEYS] + 8 * verdict * block[LENGTH], length)
        if ints_at(block[LENGTHS], verdict + 1)[verdict] == length:
            same = 0
            while same < length and keys[same] == pairs[(newest - same) % ring]:
                same += 1
            if same == length:
                return verdict
        place = (place + 1) & mask
    return -1


@helper
def hash_of(pairs: Ints, newest: int, length: int) -> int:
    """Return a hash, at least 0, of the newest pairs in a ring, from `newest` backwards."""
    mixed = int(length)
    for back in range(length):
        mixed = (mixed * 1_000_003 + pairs[(newest - back) % len(pairs)]) & 0xFF_FFFF_FFFF
        mixed ^= mixed >> 17
    return mixed


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
