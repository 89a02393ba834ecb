"""Where the numbers of a lane are. Whole numbers and addresses of arrays are words; each formula has a block of words.

The arrays are those of the objects themselves where compiled code can share them (`DenseLearner`, `RowTests`,
`ModelTest.stakes`, `Deviation`), and otherwise the lane's own.
"""

from __future__ import annotations

from typing import Final

__all__: list[str] = []

(
    ACTIONS,
    TRANSITIONS,
    ROWS,
    WINDOW,  # most pairs held
    RING,  # places in PAIRS, more than WINDOW
    REWARDED,  # 1: rewards are compared with the model's
    NOMINAL_KIND,  # NONE, FIXED or RANDOM
    TESTED,  # 1: transitions test the model
    FORMULAS,
    MAY_WAIT,  # most steps that may wait
    # ---- what accepting a step changes
    NEXT,  # seq of the next step
    BEFORE,  # row of the newest accepted pair
    OLDEST,  # place in the queue of the oldest step that waits
    WAITING,  # steps that wait there
    # ---- what taking one changes
    HELD,  # pairs held by the path
    PUSHED,  # pairs pushed since the lane opened; pair n is at n % RING in PAIRS
    LAST,  # row of the path's newest pair
    LAST_SEQ,
    LAST_LATE,
    # ---- addresses: the model, its rewards, the nominal policy
    STARTS,
    SUCCESSORS,
    REWARDS,
    EXTRA_REWARDS,
    SPREAD,
    DECISIONS,  # FIXED: the action in each state
    LIKELY,  # RANDOM: the probability of each action
    REPEATS,  # RANDOM: two numbers for each state, as in `PolicyTable.repeats`
    # ---- the test of the model
    ODDS,
    OWN_SEEN,
    OWN_STEPS,
    OWN_DISTINCT,
    ALL_SEEN,
    ALL_STEPS,
    ALL_DISTINCT,
    STAKES,
    TOTALS,
    OWN_MOST,
    OWN_MEMORY,
    ALL_MOST,
    ALL_MEMORY,
    BY_ROW,  # 1: single rows are tested
    ROW_SEEN,
    ROW_STEPS,
    ROW_DISTINCT,
    ROW_MOST,
    ROW_MEMORY,
    PLACE_OF,
    ROW_COUNTS,
    ROW_STAKES,
    # ---- deviation from the nominal policy
    EXCESSES,
    SUMS,
    # ---- the lane's own
    QUEUE,  # of each step that waits: row, transition, late
    TIMES,  # of each: its time, and the ticks of its arrival
    DIGESTS,  # of the newest 512 seqs, as in `Deduplicator`
    PAIRS,
    REALS,
    # ---- how the agent writes: msgpack and JSON of its episode, and the digits of its policy's sha256
    EPISODE,
    EPISODE_BYTES,
    EPISODE_IN_TEXT,
    TEXT_BYTES,
    POLICY,  # 0: it names none
    POLICY_WORD,
    WORDS,  # number of the words above; blocks of formulas follow
) = range(63)

(
    PENDING,  # 1: the alarm is pending, 0: clear or firing
    FIRING,  # 1: it fires, so there is more to say of each verdict than compiled code does
    RUN,
    FIRST_SEQ,
    FOR,
    VERDICT,  # out: number of the verdict
    ANSWER,  # the same, of the last step that was taken
    MOVED,  # out: STAYED, TO_PENDING or TO_CLEAR
    FOLLOWED,  # 1: a forecast is followed
    OBLIGATION,
    READ,  # label sets read for it
    HORIZON,
    DUE,  # out: NOT_DUE, FAILED or CAME_TRUE
    WANTS,  # out: 1: a forecast may begin
    TARGET,  # 1: forecasts are followed at all
    LABEL_SETS,  # address: the label set of each state
    COLUMN_OF,  # address: its column in AFTER
    COLUMNS,
    AFTER,  # address: obligation x column -> the next obligation, -1: not computed yet
    CAME_TRUE,  # address: of each obligation 1, 0, or -1: undecided
    LETTERS,  # address: the label sets read
    LENGTH,  # pairs that a verdict depends on, 0: verdicts are not shared
    KEYS,  # address: LENGTH rows of each kept verdict, the newest pair first
    LENGTHS,  # address: how many of them there are
    SLOTS,  # address: hash table of verdict numbers, -1: free
    MASK,
    JUDGED,  # address: how each is judged: GOOD to BAD, plus EXAMINED
    ASKED,  # address: questions, and those that were asked before
    SINCE,  # place in the reals: since when the alarm is pending
    MISSING,  # out: column whose obligation AFTER lacks
    BLOCK,  # number of these
) = range(31)

LAST_HEARD, NEWEST, PROGRESS, LAST_TIME, MAX_LAG, STALE_AFTER, LARGEST, CALM_RARE, CALM_OFTEN, CALM_ROW, NEAR_ROW = (
    range(11)
)
SINCES: Final = 11

NONE, FIXED, RANDOM = range(3)
STAYED, TO_PENDING, TO_CLEAR = range(3)
NOT_DUE, FAILED, SATISFIED = range(3)
GOOD, NEUTRAL, BREACH, BAD = range(4)
EXAMINED: Final = 4
"""Added to a judgement: a missed goal that is examined while there is an alarm."""

QUEUED: Final = 64
"""Steps that may wait in a lane; fewer if the settings say so."""
ENDLESS: Final = 1 << 62
"""A seq from here on is left to Python's integers."""
REMEMBERED: Final = 512

EMPTY, ORDINARY, ASK, EVENTS, UNKNOWN, REFUSED = -1, -2, -3, -4, -5, -6
"""What `take` returns, if not the number of the first formula's verdict. EMPTY: no step waits. ORDINARY: nothing was
changed, the step needs the ordinary way. ASK: the step is on the path, its formulas have to be answered in the ordinary
way. EVENTS: the blocks say what to report. UNKNOWN: nothing was changed, an obligation is to be computed first.
REFUSED, of `step` only: the step was not accepted either.
"""
