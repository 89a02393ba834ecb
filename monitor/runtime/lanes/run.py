"""Recorded events of many agents in one call: steps go through the lanes until an event needs the ordinary way.

Nobody reads notices here, so a step of which only a verdict is to be said, or that an alarm moves without firing, is
counted and not reported, nor kept as a formula's last answer; and the tests of the model are combined in silence as
long as they reject nothing. Everything else stops the run: its caller processes that event and goes on. Afterwards all
agents count as changed (`Monitor.changed`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.jit import compiled, helper, ints_at, reals_at
from monitor.runtime.lanes.combination import combine
from monitor.runtime.lanes.layout import EVENTS, FORMULAS, LAST_HEARD, WAITING, WORDS
from monitor.runtime.lanes.layout import REALS as LANE_REALS
from monitor.runtime.lanes.payload import accept_payload
from monitor.runtime.lanes.tables import address
from monitor.runtime.lanes.take import take_step

if TYPE_CHECKING:
    from monitor.runtime.monitor import Monitor

__all__ = ["EVALUATION", "FINISHED", "MESSAGE", "REPEAT", "TURN", "Evaluations", "Messages", "Run"]

FINISHED, MESSAGE, EVALUATION, TURN, REPEAT = range(5)
"""Why a run stops. MESSAGE, EVALUATION: the next needs the ordinary way. TURN: in the next evaluation the first agent
that is ready does (`Monitor.turn`). REPEAT: an evaluation has to be repeated, at which no step waits any more, because
there may be something to report: of the tests of the model, or of agents that are silent.
"""

MOST: Final = 16
"""`TURN` as in `monitor.runtime.monitor`: steps of one agent before the next has its turn."""

(
    AT_MESSAGE,
    AT_EVALUATION,
    MESSAGES,
    EVALUATIONS,
    AGENT_COUNT,
    LANES,  # address: of each agent the words of its lane, 0: it has none
    AGENTS,  # address: number of the agent of each message, -1: none
    PAYLOADS,  # address: all payloads
    OFFSETS,  # address: where each begins; the last ends at one more
    LONGEST,  # bytes of a payload that the ordinary way would read
    WALLS,  # addresses: when each message was received
    TICKS,
    BEFORE,  # address: evaluations before each message
    EVALUATED,  # address: ticks of each evaluation
    ORDINARY,  # address: 1: the evaluation needs the ordinary way
    STEPS,  # address: most steps of each, 0: all
    SPENT,  # address: steps taken at each
    READY,  # address: agents with steps that wait, in order
    READY_COUNT,
    PENDING,  # address: of each ready agent without a lane, how many of its events wait
    WATCHED,  # as `Monitor.watched`
    COMBINATION,  # address of the tests of the model, 0: nothing is tested
    ACCEPTED,
    VERDICTS,
    REALS,
    SIZE,
) = range(26)

TIMER, SWEEP, SWEPT, PAUSE, PATIENCE, REAL_COUNT = range(6)
"""Places in REALS: as in `Timing`."""


@compiled
def go(run: int) -> int:
    """Process events until one needs the ordinary way; return why. `run`: address of its words."""
    words = ints_at(run, SIZE)
    count = words[MESSAGES]
    before = ints_at(words[BEFORE], count + 1)
    while True:
        at = words[AT_MESSAGE]
        stop = before[at] if at < count else words[EVALUATIONS]
        while words[AT_EVALUATION] < stop:
            reason = _evaluate(words)
            if reason != FINISHED:
                return reason
        if at == count:
            return FINISHED
        if not _accept(words, at):
            return MESSAGE
        words[AT_MESSAGE] = at + 1


@helper
def _accept(words: Ints, at: int) -> bool:
    """Accept a message; False: it needs the ordinary way."""
    count = words[MESSAGES]
    agent = ints_at(words[AGENTS], count)[at]
    lane = ints_at(words[LANES], agent + 1)[agent] if agent >= 0 else 0
    offsets = ints_at(words[OFFSETS], count + 1)
    size = offsets[at + 1] - offsets[at]
    if lane == 0 or size > words[LONGEST]:
        return False
    own = ints_at(lane, WORDS)
    waited = own[WAITING]
    wall, ticks = reals_at(words[WALLS], count)[at], reals_at(words[TICKS], count)[at]
    if not accept_payload(own, words[PAYLOADS] + offsets[at], size, wall, ticks):
        return False
    if waited == 0:
        ready = words[READY_COUNT]
        ints_at(words[READY], ready + 1)[ready] = agent
        words[READY_COUNT] = ready + 1
    words[ACCEPTED] += 1
    return True


@helper
def _evaluate(words: Ints) -> int:
    """Process the next evaluation; return why not, or FINISHED."""
    at, count = words[AT_EVALUATION], words[EVALUATIONS]
    now, steps = reals_at(words[EVALUATED], count)[at], ints_at(words[STEPS], count)[at]
    reals = reals_at(words[REALS], REAL_COUNT)
    if ints_at(words[ORDINARY], count)[at] or now >= reals[TIMER]:
        return EVALUATION
    number, agents = words[READY_COUNT], words[AGENT_COUNT]
    ready, lanes = ints_at(words[READY], number + 1), ints_at(words[LANES], agents)
    if steps > 0 and not _fits(ready, lanes, ints_at(words[PENDING], agents), number, steps):
        return EVALUATION
    spent = ints_at(words[SPENT], count)
    for n in range(number):
        lane = lanes[ready[n]]
        if lane == 0:
            return _turn(words, ready, n)
        own = ints_at(lane, WORDS)
        while own[WAITING] > 0:
            result = take_step(lane, own, now, True)
            if result < 0 and result != EVENTS:
                return _turn(words, ready, n)
            spent[at] += 1
            words[VERDICTS] += own[FORMULAS]
    words[READY_COUNT] = 0
    words[AT_EVALUATION] = at + 1
    sweeps = now >= reals[SWEEP]
    if not combine(words[COMBINATION], sweeps) or (sweeps and not _all_current(words, lanes, now)):
        return REPEAT
    if sweeps:
        reals[SWEPT], reals[SWEEP] = now, now + reals[PAUSE]
    return FINISHED


@helper
def _turn(words: Ints, ready: Ints, first: int) -> int:
    """Leave the ready agents from this one on to the caller."""
    number = words[READY_COUNT]
    for left in range(first, number):
        ready[left - first] = ready[left]
    words[READY_COUNT] = number - first
    return TURN


@helper
def _all_current(words: Ints, lanes: Ints, now: float) -> bool:
    """Return whether every agent has a lane and was heard lately (`Lane.is_current`), after all steps were taken."""
    patience = reals_at(words[REALS], REAL_COUNT)[PATIENCE]
    found = 0
    for agent in range(words[AGENT_COUNT]):
        if lanes[agent] == 0:
            continue
        own = ints_at(lanes[agent], WORDS)
        if now - reals_at(own[LANE_REALS], LAST_HEARD + 1)[LAST_HEARD] > patience:
            return False
        found += 1
    return found == words[WATCHED]


@helper
def _fits(ready: Ints, lanes: Ints, pending: Ints, number: int, steps: int) -> bool:
    """Return whether each agent takes all its steps in its first turn."""
    total = 0
    for n in range(number):
        lane = lanes[ready[n]]
        waiting = pending[ready[n]] if lane == 0 else ints_at(lane, WORDS)[WAITING]
        total += waiting
        if waiting > MOST:
            return False
    return total <= steps


class Messages:
    """Messages in order, as columns.

    `agents`: names; `agent`: of each message the number of its agent, -1 if the ordinary way has to find out.
    `payloads`: all payloads; `offsets`: where each begins, and the end. `wall`, `ticks`: when each was received.
    """

    def __init__(
        self, agents: Sequence[str], agent: Ints, payloads: memoryview, offsets: Ints, wall: Floats, ticks: Floats
    ) -> None:
        self.agents, self.agent, self.payloads, self.offsets = list(agents), agent, payloads, offsets
        self.wall, self.ticks = wall, ticks


class Evaluations:
    """Evaluations in order, as columns.

    `before`: of each message, how many come before it. `ticks`: of each. `ordinary`: 1 for what is no evaluation of all
    steps. `steps`: most steps, 0: all.
    """

    def __init__(self, before: Ints, ticks: Floats, ordinary: Ints, steps: Ints) -> None:
        self.before, self.ticks, self.ordinary, self.steps = before, ticks, ordinary, steps


class Run:
    """Recorded events on their way through the lanes of a monitor.

    Attributes:
        spent: [evaluations], steps taken at each.
    """

    def __init__(self, monitor: Monitor, messages: Messages, evaluations: Evaluations, longest: int) -> None:
        self._monitor, self._messages, self._evaluations = monitor, messages, evaluations
        # steps of other agents may wait since before
        self._names = list(dict.fromkeys([*messages.agents, *monitor.agents()]))
        self._numbers = {name: number for number, name in enumerate(self._names)}
        count, agents = len(messages.agent), len(self._names)
        self.spent: Ints = np.zeros(len(evaluations.ticks), np.int64)
        self._lanes, self._ready, self._pending = (array("q", bytes(8 * agents + 8)) for _ in range(3))
        self._reals = array("d", (math.inf, 0.0, 0.0, monitor.pause, monitor.patience))
        self._before: Ints = np.append(evaluations.before, len(evaluations.ticks))
        self._payloads = np.frombuffer(messages.payloads, np.uint8)
        self._words = array("q", bytes(8 * SIZE))
        columns: dict[int, Ints | Floats] = {
            AGENTS: messages.agent,
            OFFSETS: messages.offsets,
            WALLS: messages.wall,
            TICKS: messages.ticks,
            BEFORE: self._before,
            EVALUATED: evaluations.ticks,
            ORDINARY: evaluations.ordinary,
            STEPS: evaluations.steps,
            SPENT: self.spent,
        }
        for place, column in columns.items():
            self._words[place] = column.ctypes.data
        self._words[LANES], self._words[REALS] = address(self._lanes), address(self._reals)
        self._words[READY], self._words[PENDING] = address(self._ready), address(self._pending)
        self._words[PAYLOADS], self._words[LONGEST] = self._payloads.ctypes.data, longest
        self._words[MESSAGES], self._words[EVALUATIONS] = count, len(evaluations.ticks)
        self._words[AGENT_COUNT] = agents
        self._at = self._words.buffer_info()[0]

    @property
    def message(self) -> int:
        """The next message."""
        return self._words[AT_MESSAGE]

    @property
    def evaluation(self) -> int:
        """The next evaluation."""
        return self._words[AT_EVALUATION]

    @property
    def accepted(self) -> int:
        """Steps accepted here."""
        return self._words[ACCEPTED]

    @property
    def verdicts(self) -> int:
        """Verdicts found here."""
        return self._words[VERDICTS]

    def __enter__(self) -> Self:
        for name, at in self._monitor.open_lanes(self._set_lane).items():
            self._set_lane(name, at)
        return self

    def __exit__(self, *_: object) -> None:
        self._monitor.open_lanes(None)

    def go(self) -> int:
        """Process events until one needs the ordinary way; return why: `FINISHED` to `REPEAT`."""
        words, reals, monitor = self._words, self._reals, self._monitor
        timer, sweep, swept = monitor.timing
        ready = monitor.take_ready()
        reals[TIMER], reals[SWEEP], reals[SWEPT] = -math.inf if ready is None else timer, sweep, swept
        words[READY_COUNT], words[WATCHED] = len(ready or ()), monitor.watched
        for place, (name, waiting) in enumerate((ready or {}).items()):
            number = self._ready[place] = self._numbers[name]
            self._pending[number] = waiting
        words[COMBINATION] = monitor.combination()
        reason = go(self._at)
        if reals[SWEPT] != swept:
            monitor.mark_swept(reals[SWEPT])
        monitor.put_ready(self._names[number] for number in self._ready[: words[READY_COUNT]])
        return reason

    def pass_message(self) -> None:
        """Go on after a message that went the ordinary way."""
        self._words[AT_MESSAGE] += 1

    def pass_turn(self, spent: int) -> None:
        """Go on with an evaluation after the turn of an agent, in which so many steps were taken."""
        self.spent[self._words[AT_EVALUATION]] += spent

    def pass_evaluation(self, spent: int) -> None:
        """Go on after an evaluation that went the ordinary way, in which so many steps were taken there."""
        at = self._words[AT_EVALUATION]
        self.spent[at] += spent
        self._words[AT_EVALUATION] = at + 1

    def _set_lane(self, name: str, at: int) -> None:
        """Note that an agent's lane has opened, or closed (0)."""
        if (number := self._numbers.get(name)) is not None:
            self._lanes[number] = at
