"""Messages of many agents in one call, where each agent has a monitor of its own (`AgentStep`), as in jobs and shards.

Each message is accepted and its step taken at the time at which it was received, after the looks for a silent agent
(`Monitor.pause`) that are due before it. An alarm that would fire, a forecast that is due, an agent that was silent,
and all else that a lane leaves to the ordinary way, stops the call: its caller processes that message and goes on.
Nobody reads notices of the others.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from monitor.arrays import Bytes, Floats, Ints
from monitor.jit import compiled, helper, ints_at, reals_at
from monitor.runtime.lanes.combination import combine
from monitor.runtime.lanes.layout import EVENTS, LAST_HEARD, REALS, WORDS
from monitor.runtime.lanes.payload import LATEST, accept_payload
from monitor.runtime.lanes.tables import address
from monitor.runtime.lanes.take import take_step

if TYPE_CHECKING:
    from monitor.runtime.lanes.lane import Lane
    from monitor.runtime.monitor import Monitor
    from monitor.runtime.shared import SharedVerdict

__all__ = ["EVALUATION", "FINISHED", "LATEST_TICK", "MESSAGE", "Batch", "Passed", "next_tick"]

LATEST_TICK: Final = round(1000 * LATEST)

FINISHED, MESSAGE, EVALUATION = range(3)
"""Why `Batch.go` stops. MESSAGE: the next message needs the ordinary way. EVALUATION: the last one was accepted; its
agent has to be evaluated in the ordinary way.
"""

(
    AT,
    COUNT,
    AGENT,  # address: number of the agent of each message, -1: it has none
    PAYLOADS,  # address: all payloads
    OFFSETS,  # address: where each begins; the last ends at one more
    RECEIVED,  # address: seconds at which each was received
    LONGEST,  # bytes of a payload that the ordinary way would read
    AGENTS,  # places in what follows
    LANES,  # address: of each agent the words of its lane, 0: it has none
    UNTIL,  # address: seconds from which on it needs the ordinary way
    SWEEPS,  # address: seconds from which on a look for a silent agent is due
    TICKS,  # address: milliseconds at which it is done if no message comes
    SWEPT,  # address: seconds of the last one that was done here, NaN: none was
    LOOKS,  # address: PAUSE and PATIENCE
    NOW,  # address: seconds of its last message
    TAKEN,  # address: seconds of the last step that was taken here, NaN: none was
    PASSED,  # address: messages accepted here
    COMBINATIONS,  # address: of each agent the address of its tests of the model, 0: nothing is tested
    SIZE,
) = range(19)

PAUSE, PATIENCE, LOOKS_SIZE = range(3)
"""Places in LOOKS: seconds between two looks, and without a message after which an agent is silent (`Monitor`)."""


def next_tick(due: float, now: float) -> int:
    """Return milliseconds after those of `now`, in seconds, and not before `due`: a tick then finds something to do."""
    if due * 1000.0 >= LATEST_TICK:
        return LATEST_TICK
    found = max(math.ceil(max(due, now) * 1000.0), round(now * 1000.0) + 1)
    return found if found / 1000.0 >= due else found + 1  # the product may have been rounded down


_next_tick = helper(next_tick)


@compiled
def pass_messages(batch: int) -> int:
    """Pass messages on until one needs the ordinary way; return why. `batch`: address of its words."""
    words = ints_at(batch, SIZE)
    count, places = words[COUNT], words[AGENTS]
    agents, offsets, received = (
        ints_at(words[AGENT], count),
        ints_at(words[OFFSETS], count + 1),
        reals_at(words[RECEIVED], count),
    )
    lanes, passed = ints_at(words[LANES], places), ints_at(words[PASSED], places)
    combinations = ints_at(words[COMBINATIONS], places)
    until, now, taken = reals_at(words[UNTIL], places), reals_at(words[NOW], places), reals_at(words[TAKEN], places)
    while words[AT] < count:
        at = words[AT]
        agent, size = agents[at], offsets[at + 1] - offsets[at]
        if agent < 0 or lanes[agent] == 0 or size > words[LONGEST]:
            return MESSAGE
        time = max(received[at], now[agent])
        own = ints_at(lanes[agent], WORDS)
        if time >= until[agent] or not _looks(words, own, agent, time):
            return MESSAGE
        if not accept_payload(own, words[PAYLOADS] + offsets[at], size, time, time):
            return MESSAGE
        now[agent] = time
        passed[agent] += 1
        words[AT] = at + 1
        result = take_step(lanes[agent], own, time, True)  # noqa: FBT003 - compiled
        if result < 0 and result != EVENTS:
            return EVALUATION
        taken[agent] = time
        sweeps = time >= reals_at(words[SWEEPS], places)[agent]
        if not combine(combinations[agent], sweeps):
            return EVALUATION
        if sweeps:
            _sweep(words, agent, time)
    return FINISHED


@helper
def _looks(words: Ints, own: Ints, agent: int, time: float) -> bool:
    """Look for a silent agent as often as is due until `time`; False: the next look needs the ordinary way."""
    places = words[AGENTS]
    ticks, looks = ints_at(words[TICKS], places), reals_at(words[LOOKS], LOOKS_SIZE)
    now = reals_at(words[NOW], places)[agent]
    heard = reals_at(own[REALS], LAST_HEARD + 1)[LAST_HEARD]
    while ticks[agent] / 1000.0 <= time:
        at = ticks[agent] / 1000.0
        if at - heard > looks[PATIENCE] or _next_tick(at + looks[PAUSE], now) <= ticks[agent]:
            return False  # it is silent, or looks without end would be due
        if not combine(ints_at(words[COMBINATIONS], places)[agent], True):  # noqa: FBT003 - compiled
            return False
        _sweep(words, agent, at)
    return True


@helper
def _sweep(words: Ints, agent: int, at: float) -> None:
    """Note a look that found nothing."""
    places = words[AGENTS]
    due = at + reals_at(words[LOOKS], LOOKS_SIZE)[PAUSE]
    reals_at(words[SWEPT], places)[agent], reals_at(words[SWEEPS], places)[agent] = at, due
    ints_at(words[TICKS], places)[agent] = _next_tick(due, reals_at(words[NOW], places)[agent])


class Passed(msgspec.Struct, frozen=True):
    """What was done of an agent since `Batch.refresh`.

    `messages`: how many were passed on; it may be 0, if looks for a silent agent were done before a message that was
    not. `now`: seconds of the last message.
    """

    messages: int
    now: float


class Batch:
    """Messages of agents on their way through the lanes of their monitors.

    An agent takes part from `refresh` to `settle`; between them its monitor must not be used.

    Args:
        monitor: the prototype of the agents' monitors.
        longest: bytes of a payload that the ordinary way would read.

    Attributes:
        numbers: of the agents that ever took part and were not dropped, by name.
    """

    def __init__(self, monitor: Monitor, longest: int) -> None:
        self._shared = [query.shared for query in monitor.queries]
        self._numbered: list[Sequence[SharedVerdict]] = [each.numbered for each in self._shared]
        self._words = array("q", bytes(8 * SIZE))
        self._words[LONGEST] = longest
        self._at = self._words.buffer_info()[0]
        self._messages: dict[int, Ints | Floats | Bytes] = {}  # kept alive
        self.numbers: dict[str, int] = {}
        self._dropped: list[int] = []
        self._free: list[int] = []
        self._open: dict[int, tuple[Lane, Monitor]] = {}
        self._lanes, self._combinations, self._passed, self._ticks = (array("q") for _ in range(4))
        self._until, self._now, self._taken, self._swept, self._sweeps = (array("d") for _ in range(5))
        self._looks = array("d", (monitor.pause, monitor.patience))

    def set_messages(self, agents: Ints, payloads: bytes, offsets: Ints, received: Floats) -> None:
        """Begin with messages.

        `agents`: the number of each one's agent, -1 if it needs the ordinary way. `payloads`: all of them; `offsets`:
        where each begins, and the end. `received`: seconds.
        """
        words, content = self._words, np.frombuffer(payloads or b"\0", np.uint8)
        columns: dict[int, Ints | Floats | Bytes] = {
            AGENT: agents,
            PAYLOADS: content,
            OFFSETS: offsets,
            RECEIVED: received,
        }
        self._messages = columns
        words[AT], words[COUNT] = 0, len(agents)
        for place, column in columns.items():
            words[place] = column.ctypes.data
        self._free += self._dropped  # no message has these numbers any more
        self._dropped = []

    def go(self) -> tuple[int, int]:
        """Pass messages on; return why that stops, and how many were passed on or handed out so far.

        With MESSAGE and EVALUATION the last of them is handed out: go on after it was processed.
        """
        self._renew()
        words = self._words
        words[AGENTS] = len(self._lanes)
        words[LANES], words[UNTIL], words[NOW] = address(self._lanes), address(self._until), address(self._now)
        words[TAKEN], words[PASSED] = address(self._taken), address(self._passed)
        words[COMBINATIONS], words[TICKS] = address(self._combinations), address(self._ticks)
        words[SWEPT], words[SWEEPS], words[LOOKS] = address(self._swept), address(self._sweeps), address(self._looks)
        reason = pass_messages(self._at)
        if reason == MESSAGE:
            self._words[AT] += 1
        return reason, self._words[AT]

    def settle(self, agent: str) -> Passed | None:
        """Bring an agent's monitor up to date; return what was done of it, None if nothing was."""
        number = self.numbers.get(agent)
        if number is None or (not self._passed[number] and math.isnan(self._swept[number])):
            return None
        self._keep_answers(number, self._taken[number])
        if not math.isnan(self._swept[number]):
            _, monitor = self._open[number]
            monitor.mark_swept(self._swept[number])
            self._swept[number] = math.nan
        found = Passed(self._passed[number], self._now[number])
        self._passed[number] = 0
        return found

    def refresh(self, agent: str, monitor: Monitor, now: float, due: float) -> None:
        """Let an agent take part from now on, if it can.

        `now`: seconds of its last message. `due`: seconds at which it is due by time. If nothing but a look for a
        silent agent is, that is done here, at the times of `next_tick`; else a message then needs the ordinary way.
        """
        self._renew()
        lane, number = monitor.lane(agent), self.numbers.get(agent)
        if number is None:
            number = self.numbers[agent] = self._new_number()
        if lane is None:
            self._lanes[number] = 0
            return
        self._open[number] = lane, monitor
        self._combinations[number] = monitor.combination()
        timer, sweep, _ = monitor.timing
        self._ticks[number] = tick = next_tick(sweep, now)
        self._now[number], self._sweeps[number] = now, sweep
        self._until[number] = min(timer, due) if due < tick / 1000.0 else timer
        self._lanes[number] = lane.at

    def drop(self, agent: str) -> None:
        """Forget an agent, after `settle`."""
        if (number := self.numbers.pop(agent, None)) is not None:
            self._lanes[number] = 0
            self._open.pop(number, None)
            self._dropped.append(number)

    def _renew(self) -> None:
        """If shared verdicts were forgotten, look up the last answers in the former ones, and let go of these."""
        numbered: list[Sequence[SharedVerdict]] = [each.numbered for each in self._shared]
        if any(now is not before for now, before in zip(numbered, self._numbered, strict=True)):
            for number, ticks in enumerate(self._taken):
                self._keep_answers(number, ticks)
            self._numbered = numbered

    def _keep_answers(self, number: int, ticks: float) -> None:
        if not math.isnan(ticks):
            lane, _ = self._open[number]
            lane.keep_answers(self._numbered, ticks)
            self._taken[number] = math.nan

    def _new_number(self) -> int:
        if self._free:
            return self._free.pop()
        for ints in (self._lanes, self._combinations, self._passed, self._ticks):
            ints.append(0)
        for reals in (self._until, self._now, self._taken, self._swept, self._sweeps):
            reals.append(math.nan)
        return len(self._lanes) - 1
