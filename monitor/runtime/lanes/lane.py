"""One agent's lane: its memory, and how it takes over from the agent's objects and hands back to them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from monitor.runtime.lanes.layout import (
    ALL_MEMORY,
    ALL_MOST,
    ALL_SEEN,
    ANSWER,
    ASK,
    BEFORE,
    BLOCK,
    BY_ROW,
    CALM_OFTEN,
    CALM_RARE,
    CALM_ROW,
    DIGESTS,
    DUE,
    EMPTY,
    ENDLESS,
    EPISODE,
    EPISODE_BYTES,
    EPISODE_IN_TEXT,
    EVENTS,
    EXCESSES,
    FIRING,
    FIRST_SEQ,
    FOLLOWED,
    HELD,
    LAST,
    LAST_HEARD,
    LAST_LATE,
    LAST_SEQ,
    LAST_TIME,
    LETTERS,
    MISSING,
    MOVED,
    NEAR_ROW,
    NEWEST,
    NEXT,
    NOT_DUE,
    OBLIGATION,
    ODDS,
    OLDEST,
    OWN_MEMORY,
    OWN_MOST,
    OWN_SEEN,
    PAIRS,
    PENDING,
    PLACE_OF,
    POLICY,
    POLICY_WORD,
    PROGRESS,
    PUSHED,
    QUEUE,
    QUEUED,
    READ,
    REALS,
    REFUSED,
    REMEMBERED,
    ROW_COUNTS,
    ROW_MEMORY,
    ROW_MOST,
    ROW_SEEN,
    ROW_STAKES,
    RUN,
    SATISFIED,
    SINCE,
    SINCES,
    STAKES,
    STAYED,
    SUMS,
    TESTED,
    TEXT_BYTES,
    TIMES,
    TO_PENDING,
    TOTALS,
    UNKNOWN,
    VERDICT,
    WAITING,
    WANTS,
    WORDS,
)
from monitor.runtime.lanes.payload import LATEST, LEFT, UNTIMED
from monitor.runtime.lanes.tables import LaneTables, address
from monitor.statistics.betting_odds import DenseLearner
from monitor.statistics.model_test import ModelTest
from monitor.stream.digests import number_or_nan, policy_word
from monitor.types import AlarmMoved, Episode, Instant, Judged, Notice, Observation, Received, Step

if TYPE_CHECKING:
    from monitor.runtime.agent import AgentMonitor
    from monitor.runtime.shared import SharedVerdict

__all__ = ["Lane"]

USEFUL: Final = 2
"""Steps for which opening a lane was worth it; after fewer, twice as many chances to open it are left out as before."""
MOST_PATIENCE: Final = 63


class Lane:
    """Short way for the ordinary steps of one agent.

    Args:
        tables: what all lanes of the monitor share.
        agent: the agent's objects.

    Attributes:
        fires: an alarm of the agent fires: the ordinary way answers each step, and `AgentMonitor.revise` is due.
        patience: chances to open that are left out, because the lane was of no use before.
        refused: chances left out so far.
    """

    __slots__ = (
        "_agent",
        "_answered",
        "_at",
        "_blocks",
        "_digests",
        "_episode",
        "_first",
        "_formulas",
        "_handed_back",
        "_kind",
        "_letters",
        "_name",
        "_pairs",
        "_policy",
        "_queue",
        "_reals",
        "_received",
        "_session",
        "_spec",
        "_states",
        "_synced",
        "_tables",
        "_times",
        "_word",
        "_words",
        "_written",
        "fires",
        "patience",
        "refused",
    )

    def __init__(self, tables: LaneTables, agent: AgentMonitor) -> None:
        self._tables, self._agent, self._session = tables, agent, agent.session
        self._formulas, self._name = agent.formulas, agent.session.agent
        count = len(self._formulas)
        self._words = array("q", bytes(8 * (WORDS + BLOCK * count)))
        self._reals = array("d", bytes(8 * (SINCES + count)))
        self._queue, self._times = array("q", bytes(24 * QUEUED)), array("d", bytes(16 * QUEUED))
        self._digests = array("q", bytes(8 * REMEMBERED))
        self._pairs = array("q", bytes(8 * (agent.session.settings.window + 1)))
        self._letters = [
            array("q", bytes(8 * (f.query.target.horizon if f.query.target else 0))) for f in self._formulas
        ]
        self._at = address(self._words)
        self._received = Received(self._name, "accepted")
        self._blocks = [WORDS + BLOCK * place for place in range(count)]
        self._spec = [(formula.query.spec.name, formula.query.shared) for formula in self._formulas]
        self._states = tables.model.states
        self._episode: Episode = 0
        self._answered: float | None = None
        self._handed_back = True
        self.fires = False
        self.patience = self.refused = 0
        self._fill()

    @staticmethod
    def serves(agent: AgentMonitor) -> bool:
        """Return whether the agent's objects are of the kind that a lane can stand for."""
        test = agent.test
        return test is None or (
            type(test) is ModelTest and test.shared is not None and isinstance(test.own, DenseLearner)
        )

    @property
    def waiting(self) -> int:
        """Number of steps that were accepted and not taken."""
        return self._words[WAITING]

    @property
    def queued(self) -> tuple[int, float]:
        """The same number, and ticks at which the oldest of them arrived; inf if there are none."""
        words = self._words
        waiting = words[WAITING]
        return waiting, self._times[2 * words[OLDEST] + 1] if waiting else math.inf

    @property
    def at(self) -> int:
        """Where its words are."""
        return self._at

    def is_current(self, now: Instant, patience: float) -> bool:
        """Return whether the last message is no older than so many seconds, and no step has waited for longer."""
        return now.ticks - self._reals[LAST_HEARD] <= patience and now.ticks - self.queued[1] <= patience

    # ---- steps ----

    def accept(self, o: Observation, now: Instant) -> list[Notice] | None:
        """Accept a step, as `Session.arrive` does; None: nothing was changed, it needs the ordinary way."""
        if not self._is_ordinary(o) or not self._tables.accept(self._at, *self._numbers(o), now.wall, now.ticks):
            return None
        return [self._accepted(o, now)]

    def receive(self, payload: int, size: int, now: Instant) -> list[Notice] | None:
        """Accept the step in a message at an address, as `accept` its observation; None: nothing was changed."""
        time = self._tables.accept_message(self._at, payload, size, now.wall, now.ticks)
        if time == LEFT:
            return None
        return [self._received if time == UNTIMED else Received(self._name, "accepted", "", "", now.wall - time)]

    def step(self, o: Observation, now: Instant) -> list[Notice] | None:
        """Accept a step, and take it if it can be taken in silence (`waiting`); None: nothing was changed."""
        if not self._is_ordinary(o):
            return None
        result = self._tables.step(self._at, *self._numbers(o), now.wall, now.ticks)
        if result == REFUSED:
            return None
        notices: list[Notice] = [self._accepted(o, now)]
        if result >= 0 or result == EVENTS:
            self._answered = now.ticks
            stays = self._report(notices, plain=result >= 0)
            assert stays, "no forecast begins in silence"
        return notices

    def take(self, now: Instant, notices: list[Notice], most: int) -> bool:
        """Take steps that wait, at most so many; return False if the lane has to be closed before the next one."""
        run = self._tables.take
        while most > 0:
            result = run(self._at, now.ticks)
            if result >= 0 or result == EVENTS:
                self._answered = now.ticks
                if not self._report(notices, plain=result >= 0):
                    return False
            elif result == ASK:
                self._answered = now.ticks
                if not self._ask(now, notices):
                    return False
            elif result == EMPTY:
                return True
            elif result == UNKNOWN and self._compute():
                continue
            else:
                return False
            most -= 1
        return True

    def _numbers(self, o: Observation) -> tuple[object, object, object, float, float, int]:
        """Return seq, state, action, time, reward and policy as compiled code takes them."""
        word = self._word if o.policy is not None else 0
        return o.seq, o.state, o.action, number_or_nan(o.time), number_or_nan(o.reward), word

    def _accepted(self, o: Observation, now: Instant) -> Received:
        return self._received if o.time is None else Received(self._name, "accepted", "", "", now.wall - o.time)

    def _is_ordinary(self, o: Observation) -> bool:
        """Return whether a message is a valid step of the open episode, as far as numbers do not say."""
        state, action, time, reward = o.state, o.action, o.time, o.reward
        return (
            o.episode == self._episode
            and type(o.episode) is self._kind
            and type(o.seq) is int
            and o.seq == self._words[NEXT]
            and type(state) is int
            and 0 <= state < self._states
            and type(action) is int
            and 0 <= action < self._tables.model.actions
            and o.terminated is False
            and o.truncated is False
            and (time is None or (type(time) is float and 0.0 <= time < LATEST))
            and (reward is None or (type(reward) is float and math.isfinite(reward)))
            and (o.policy is None or (type(o.policy) is str and o.policy == self._policy))
        )

    # ---- what a taken step gave ----

    def _report(self, notices: list[Notice], *, plain: bool) -> bool:
        """Report the verdicts; unless `plain` also what happened to forecasts and alarms.

        Return False if the lane has to be closed then.
        """
        words, reals = self._words, self._reals
        seq, time, late = words[LAST_SEQ], reals[LAST_TIME], words[LAST_LATE] == 1
        if not plain:
            self._report_forecasts(notices)
        stays = True
        for place, (name, shared) in enumerate(self._spec):
            formula, block = self._formulas[place], self._blocks[place]
            verdict = shared.numbered[words[block + VERDICT]].verdict
            judged = formula.last = Judged(self._name, name, verdict, self._episode, seq, time, late)
            notices.append(judged)
            if plain:
                continue
            if words[block + MOVED] != STAYED:
                pending = words[block + MOVED] == TO_PENDING
                notices.append(AlarmMoved(self._name, name, "pending" if pending else "clear"))
            if words[block + WANTS]:
                stays = self._begin_forecast(place) and stays
        return stays

    def keep_answers(self, numbered: Sequence[Sequence[SharedVerdict]], ticks: float) -> None:
        """Keep the verdicts on the last step that was taken in silence, at these ticks, as the formulas' last answers.

        `numbered`: of each formula, `SharedVerdicts.numbered` as it was then.
        """
        words = self._words
        seq, time, late = words[LAST_SEQ], self._reals[LAST_TIME], words[LAST_LATE] == 1
        for formula, (name, _), block, verdicts in zip(self._formulas, self._spec, self._blocks, numbered, strict=True):
            verdict = verdicts[words[block + ANSWER]].verdict
            formula.last = Judged(self._name, name, verdict, self._episode, seq, time, late)
        self._answered = ticks

    def _report_forecasts(self, notices: list[Notice]) -> None:
        """Count and report each forecast that is due."""
        for block, formula in zip(self._blocks, self._formulas, strict=True):
            due = self._words[block + DUE]
            if due != NOT_DUE and formula.forecasts is not None:
                notices.append(formula.forecasts.settle(came_true=due == SATISFIED))
                self._words[block + DUE] = NOT_DUE

    def _begin_forecast(self, place: int) -> bool:
        """Follow the forecast of the newest verdict, if that is one; return whether it has a place here."""
        formula = self._formulas[place]
        assert formula.forecasts is not None
        assert formula.last is not None
        self._update_path()
        formula.forecasts.begin(formula.last.verdict, self._session.path.held)
        return self._load_forecast(place)

    def _ask(self, now: Instant, notices: list[Notice]) -> bool:
        """Answer the formulas at the newest step in the ordinary way; return False if the lane has to be closed."""
        self._report_forecasts(notices)
        self._update_path()
        self._update_alarms()
        self._session.last_heard = self._session.last_message = self._reals[LAST_HEARD]
        self._agent.answer_newest(now, notices)
        if not self._agent.is_quiet(now):
            return False
        self._load_alarms()
        for place, (block, formula) in enumerate(zip(self._blocks, self._formulas, strict=True)):
            begun = not self._words[block + FOLLOWED] and formula.forecasts is not None
            if begun and not self._load_forecast(place):
                return False
        return True

    def _compute(self) -> bool:
        """Compute the obligations that `take` missed; return whether all can be."""
        words = self._words
        for block, table in zip(self._blocks, self._tables.obligations, strict=True):
            column = words[block + MISSING]
            if table is not None and column >= 0 and not table.compute(words[block + OBLIGATION], column):
                return False
        return True

    # ---- opening and closing ----

    def open(self) -> bool:
        """Take over from the agent's objects, which are quiet (`AgentMonitor.is_quiet`); return whether that can be."""
        if self.refused < self.patience:
            self.refused += 1
            return False
        self.refused = 0
        session, words, reals = self._session, self._words, self._reals
        path, order, last = session.path, session.order, session.path.last
        assert last is not None
        assert session.previous is not None
        actions = self._tables.model.actions
        rows = [state * actions + action for state, action in path.held if action is not None]
        if len(rows) < len(path.held) or order.next_seq >= ENDLESS:
            return False
        self._pairs[: len(rows)] = array("q", rows)
        self._synced = words[PUSHED] = words[HELD] = len(rows)
        assert order.episode is not None
        self._episode, self._kind = order.episode, type(order.episode)
        self._policy, self._word = session.policy, policy_word(session.policy)
        packed, text = msgspec.msgpack.encode(order.episode), msgspec.json.encode(order.episode)
        self._written = array("B", packed), array("B", text), array("B", (session.policy or "").encode())
        words[EPISODE], words[EPISODE_BYTES] = self._written[0].buffer_info()
        words[EPISODE_IN_TEXT], words[TEXT_BYTES] = self._written[1].buffer_info()
        words[POLICY], words[POLICY_WORD] = address(self._written[2]) if session.policy else 0, self._word
        words[NEXT] = self._first = order.next_seq
        words[BEFORE] = session.previous[0] * actions + session.previous[1]
        words[OLDEST] = words[WAITING] = 0
        words[LAST], words[LAST_SEQ], words[LAST_LATE] = rows[-1], last.seq, int(last.late)
        reals[LAST_HEARD] = session.last_heard if session.last_heard is not None else -math.inf
        reals[NEWEST], reals[PROGRESS], reals[LAST_TIME] = order.newest, order.progress, last.time
        self._answered = None
        self._load_alarms()
        return all(map(self._load_forecast, range(len(self._formulas))))

    def close(self) -> None:
        """Hand back to the agent's objects."""
        session, words, reals = self._session, self._words, self._reals
        order, following = session.order, words[NEXT]
        self.patience = 0 if following - self._first >= USEFUL else min(2 * self.patience + 1, MOST_PATIENCE)
        self._update_path()
        self._update_alarms()
        self._update_forecasts()
        if following == self._first:
            return
        first = max(self._first, following - REMEMBERED)
        order.digests.put_all(first, _in_ring(self._digests, first, following).tobytes())
        order.next_seq, order.newest, order.progress = following, reals[NEWEST], reals[PROGRESS]
        session.last_heard = session.last_message = reals[LAST_HEARD]
        session.previous = self._pair(words[BEFORE])
        for back in range(words[WAITING], 0, -1):
            place = (words[OLDEST] + words[WAITING] - back) % QUEUED
            pair, late = self._pair(self._queue[3 * place]), self._queue[3 * place + 2] == 1
            step = Step(self._episode, following - back, *pair, self._times[2 * place], late)
            session.pending.append(step)
            session.since.append(self._times[2 * place + 1])
        words[WAITING] = 0

    def _pair(self, row: int) -> tuple[int, int]:
        return self._tables.pairs[row]

    def _update_path(self) -> None:
        """Append to the session's path what was taken since it was last up to date."""
        words, pair_of = self._words, self._tables.pairs
        new = words[PUSHED] - self._synced
        if not new:
            return
        if new == 1:
            rows = [pair_of[words[LAST]]]
        else:
            first = words[PUSHED] - min(new, words[HELD])
            rows = [pair_of[row] for row in _in_ring(self._pairs, first, words[PUSHED])]
        time, late = self._reals[LAST_TIME], words[LAST_LATE] == 1
        last = Step(self._episode, words[LAST_SEQ], *rows[-1], time, late)
        self._session.path.extend(rows, new, last)
        self._synced = words[PUSHED]

    def _update_alarms(self) -> None:
        """Bring the alarms up to date; from then on the formulas' own count."""
        if self._handed_back:
            return
        self._handed_back = True
        words = self._words
        for place, (formula, block) in enumerate(zip(self._formulas, self._blocks, strict=True)):
            if self._answered is not None:
                formula.steps, formula.answered_at = 0, self._answered
            pending = words[block + PENDING] == 1
            alarm = formula.alarm
            if pending or alarm.state == "pending":
                since = self._reals[SINCES + place]
                formula.alarm = replace(
                    alarm,
                    state="pending" if pending else "clear",
                    run=words[block + RUN],
                    first_seq=words[block + FIRST_SEQ] if pending else None,
                    since=since if pending else None,
                )

    def _update_forecasts(self) -> None:
        """Bring the forecasts that are followed up to date."""
        words = self._words
        for place, (formula, block) in enumerate(zip(self._formulas, self._blocks, strict=True)):
            table = self._tables.obligations[place]
            if words[block + FOLLOWED] and formula.forecasts is not None and table is not None:
                read = self._letters[place][: words[block + READ]].tolist()
                formula.forecasts.resume(table.obligations[words[block + OBLIGATION]], read)

    def _load_alarms(self) -> None:
        """Take over the alarms."""
        words, self.fires = self._words, False
        for place, (formula, block) in enumerate(zip(self._formulas, self._blocks, strict=True)):
            alarm = formula.alarm
            fires = alarm.state == "firing"
            self.fires = self.fires or fires
            words[block + PENDING], words[block + FIRING] = int(alarm.state == "pending"), int(fires)
            words[block + RUN] = alarm.run
            words[block + FIRST_SEQ] = alarm.first_seq if alarm.first_seq is not None else 0
            self._reals[SINCES + place] = alarm.since if alarm.since is not None else 0.0
        self._handed_back = False

    def _load_forecast(self, place: int) -> bool:
        """Take over the forecast of a formula; return whether that has a place."""
        words, block, table = self._words, self._blocks[place], self._tables.obligations[place]
        forecasts = self._formulas[place].forecasts
        words[block + FOLLOWED] = 0
        if table is None or forecasts is None or forecasts.value is None:
            return True
        obligation, read = forecasts.followed
        number = table.number(obligation)
        if number is None:
            return False
        words[block + FOLLOWED], words[block + OBLIGATION], words[block + READ] = 1, number, len(read)
        self._letters[place][: len(read)] = array("q", read)
        return True

    def _fill(self) -> None:
        """Write the words that never change."""
        words, tables = self._words, self._tables
        for place, value in {**tables.words, **self._test_words()}.items():
            words[place] = value
        for place, real in {**tables.reals, **self._test_reals()}.items():
            self._reals[place] = real
        deviation = self._session.deviation
        own: dict[int, array[int] | array[float]] = {
            EXCESSES: deviation.ring,
            SUMS: deviation.sums,
            QUEUE: self._queue,
            TIMES: self._times,
            DIGESTS: self._digests,
            PAIRS: self._pairs,
            REALS: self._reals,
        }
        for place, column in own.items():
            words[place] = address(column)
        for place, block in enumerate(self._blocks):
            for word, value in tables.words_of(place).items():
                words[block + word] = value
            words[block + LETTERS], words[block + SINCE] = address(self._letters[place]), SINCES + place

    def _test_words(self) -> dict[int, int]:
        test = self._agent.test
        if test is None or test.shared is None or test.shared.odds.columns is None:
            return {TESTED: 0}
        own, shared, rows = test.own, test.shared.learner, test.shared.rows
        assert isinstance(own, DenseLearner)
        assert isinstance(shared, DenseLearner)
        found = {TESTED: 1, ODDS: address(test.shared.odds.columns), STAKES: address(test.stakes)}
        found |= {
            TOTALS: address(test.shared.totals),
            **_learner_words(own, OWN_SEEN),
            **_learner_words(shared, ALL_SEEN),
        }
        found |= {OWN_MOST: own.most, OWN_MEMORY: own.memory, ALL_MOST: shared.most, ALL_MEMORY: shared.memory}
        if rows is None or rows.place_of is None:
            return found
        assert isinstance(rows.learner, DenseLearner)
        found |= {BY_ROW: 1, ROW_MOST: rows.learner.most, ROW_MEMORY: rows.learner.memory}
        found |= {PLACE_OF: address(rows.place_of), ROW_COUNTS: address(rows.counts), ROW_STAKES: address(rows.stakes)}
        return found | _learner_words(rows.learner, ROW_SEEN)

    def _test_reals(self) -> dict[int, float]:
        test = self._agent.test
        if test is None:
            return {}
        rows = None if test.shared is None else test.shared.rows
        found = {CALM_RARE: test.calm[0], CALM_OFTEN: test.calm[1]}
        return found if rows is None else {**found, CALM_ROW: rows.calm, NEAR_ROW: rows.near}


def _in_ring(ring: array[int], first: int, end: int) -> array[int]:
    """Return the numbers `first` to `end - 1`, each of which is at its remainder; no more than there are places."""
    place, count = first % len(ring), end - first
    found = ring[place : place + count]
    return found if len(found) == count else found + ring[: count - len(found)]


def _learner_words(learner: DenseLearner, first: int) -> dict[int, int]:
    columns = learner.seen_of, learner.steps_of, learner.distinct
    return {first + n: address(column) for n, column in enumerate(columns)}
