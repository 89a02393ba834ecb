"""One agent's session: observations in, ordered events out (`Step`, `Break`, `End`).

Pure: time is an argument, nothing here waits. The order of events is that of the episode, whatever order the messages
came in; each event is final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, Literal, assert_never

import msgspec
from msgspec.structs import replace

from monitor.errors import InputError
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.statistics.deviation import Deviation, DeviationState
from monitor.stream.decode import is_plain, validate
from monitor.stream.model_adapter import ModelAdapter
from monitor.stream.path import PathState, SlidingPath
from monitor.stream.reorder_buffer import (
    Closed,
    Discarded,
    Entry,
    Missing,
    ReorderBuffer,
    ReorderBufferState,
)
from monitor.types import (
    Break,
    Deviates,
    End,
    Instant,
    Notice,
    Observation,
    OffPolicy,
    Received,
    RewardMismatch,
    Step,
    StreamSettings,
    Wait,
)

__all__ = ["Session", "SessionState"]

NEW_NAMES: Final = "; give each run a new episode value"


class SessionState(msgspec.Struct, frozen=True, array_like=True):
    """A `Session` as plain data, all that its future depends on; the fields are its attributes."""

    agent: str
    pending: list[Step | Break | End]
    since: list[float]
    path: PathState
    order: ReorderBufferState
    previous: tuple[int, int] | None
    mismatch: bool
    policy: str | None
    dropped: bool
    last_heard: float | None
    last_message: float | None
    old: tuple[float, float] | None
    deviation: DeviationState = DeviationState()


class Session:
    """One agent's messages, ordered and matched with the model.

    `arrive`, `tick` and `lost` put events on `pending` and return notices; whoever answers formulas calls `advance`,
    which moves one event from `pending` to `path`. Nothing here raises on any observation.

    Args:
        agent: its name.
        model: what states, actions and transitions are matched with.
        settings: limits and waits.
        nominal: steps that it never takes are told as `OffPolicy`, how far they depart from it as `Deviates`.

    Attributes:
        pending: events not yet on the path, oldest first. Bounded (`settings.pending`): if nobody takes them, they are
            dropped together, and a `Break("dropped")` says so.
        since: ticks at which what is pending was put there, one for each.
        path: the path up to the last event taken by `advance`.
        mismatch: at the newest step of the path, the last one to name a policy named another than the nominal. The path
            is true all the same (the world does not depend on it), nominal's future is not.
        last_heard: ticks of the last message that was new, None before the first.
        last_message: the same of the last that could be read, new or not.
        old: ticks of the first and of the last of the messages since then that belong to other episodes than the open
            one and were not taken, since those are over; None if there are none.
        deviation: how far the last actions depart from nominal.
        order, previous, policy, dropped: the ordering; the newest pair, None after a break; the policy last named, by
            what is pending too; `lost` was told and no gap yet explained by it.
    """

    def __init__(self, agent: str, model: MDP, settings: StreamSettings, *, nominal: PolicyTable | None = None) -> None:
        self.agent = agent
        self.model = model
        self.settings = settings
        self.nominal = nominal
        self.pending: deque[Step | Break | End] = deque()
        self.since: deque[float] = deque()
        self.path = SlidingPath(settings.window)
        self.mismatch = False
        self.last_heard: float | None = None
        self.last_message: float | None = None
        self.old: tuple[float, float] | None = None
        self.order = ReorderBuffer(settings.reorder_steps, settings.reorder_wait)
        self.previous: tuple[int, int] | None = None
        self.policy: str | None = None
        self.deviation = Deviation()
        self.dropped = False
        self._matching = ModelAdapter(model, settings, nominal)
        self._ticks = 0.0

    @property
    def waiting(self) -> Wait | None:
        """The step that is awaited, None if nothing is held back."""
        return self.order.waiting

    @property
    def deadline(self) -> float | None:
        """Ticks at which `tick` will have something to do, None if nothing is held back."""
        return self.order.deadline

    def arrive(self, observation: Observation, now: Instant) -> list[Notice]:
        """Take one message. Returns what became of it first, then what it set free."""
        self._ticks = now.ticks
        if not (self._is_known(observation) and is_plain(observation)):
            try:
                validate(observation)
            except InputError as error:
                return [Received(self.agent, "rejected", error.reason, error.detail)]
        lag = None if observation.time is None else now.wall - observation.time
        entry, refused = self._matching.entry(observation, now)
        if refused is None and self.order.follow(entry):
            self._hear(entry, now)
            return [Received(self.agent, "accepted", "", "", lag), *self._step(entry)]
        result = self.order.sort(entry)
        received = self._received(result, entry, refused, lag)
        if result in ("accepted", "conflict"):
            self._hear(entry, now)
        else:
            self.last_message = now.ticks
            if entry.episode != self.order.episode:
                self.old = (now.ticks if self.old is None else self.old[0], now.ticks)
        return [received, *self._settle(now.ticks)]

    def tick(self, now: Instant) -> list[Notice]:
        """Give up what has been awaited too long. Call it at `deadline`, or every now and then."""
        self._ticks = now.ticks
        return self._settle(now.ticks)

    def lost(self, now: Instant, why: str = "") -> list[Notice]:
        """The transport dropped messages of this agent, nobody knows which: the path ends here.

        If their seqs turn out to be missing, that gap is told as `dropped` too. `why`: if it was not the transport.
        """
        self._ticks = now.ticks
        self._break(Break("dropped", why or "messages of this agent were dropped before they were read"))
        self.dropped = True
        return self._settle(now.ticks)

    def advance(self) -> Step | Break | End | None:
        """Move the oldest pending event to the path and return it; None if there is none."""
        if not self.pending:
            return None
        event = self.pending.popleft()
        self.since.popleft()
        if isinstance(event, Step):
            self.path.push(event)
            self.mismatch = event.foreign
        else:
            self.path.apply(event)
        return event

    def drain(self) -> Iterator[Step | Break | End]:
        """`advance` until nothing is pending; the path is that after the event just given."""
        while (event := self.advance()) is not None:
            yield event

    def dump(self) -> SessionState:
        """All that the future depends on, the waiting events included; write it before the session goes on."""
        return SessionState(
            self.agent,
            list(self.pending),
            list(self.since),
            self.path.dump(),
            self.order.dump(),
            self.previous,
            self.mismatch,
            self.policy,
            self.dropped,
            self.last_heard,
            self.last_message,
            self.old,
            self.deviation.dump(),
        )

    @classmethod
    def load(
        cls,
        state: SessionState,
        model: MDP,
        settings: StreamSettings,
        *,
        pages: Mapping[int, bytes],
        nominal: PolicyTable | None = None,
    ) -> Session:
        """The inverse of `dump`; settings may have changed since. If model or policies have, `revise` comes next.

        `pages`: all that `order.past` gave. InputError (`bad_snapshot`) if one is missing.
        """
        session = cls(state.agent, model, settings, nominal=nominal)
        session.pending.extend(state.pending)
        session.since.extend(state.since)
        session.path = SlidingPath.load(settings.window, state.path)
        session.order = ReorderBuffer.load(settings.reorder_steps, settings.reorder_wait, state.order, pages)
        session.previous, session.mismatch, session.policy = state.previous, state.mismatch, state.policy
        session.dropped, session.last_heard = state.dropped, state.last_heard
        session.last_message, session.old = state.last_message, state.old
        session.deviation = Deviation.load(state.deviation)
        return session

    def revise(self) -> None:
        """Another model or nominal policy than that of the steps taken so far: what does not fit it is let go."""
        self.deviation = Deviation()
        self.mismatch = foreign = self._matching.foreign(self.policy)
        pending = [replace(event, foreign=foreign) if isinstance(event, Step) else event for event in self.pending]
        self.pending = deque(pending)
        if self._fits():
            return
        anew = Break("warming_up", "the steps before do not fit the model, which was changed")
        self.path.restart(anew.reason, anew.detail)
        self.previous = None
        if self.pending:
            self._let_go(anew)
        for key, entry in self.order.held.items():
            self.order.held[key] = replace(entry, state=None, action=None, problem=entry.problem or anew)

    # ---- what became of a message ----

    def _is_known(self, observation: Observation) -> bool:
        """Its agent and episode are those of the open episode, whose messages were valid."""
        episode = self.order.episode
        return (
            observation.agent == self.agent
            and observation.episode == episode
            and type(observation.episode) is type(episode)
        )

    def _hear(self, entry: Entry, now: Instant) -> None:
        """Something new has come."""
        self.last_heard = self.last_message = now.ticks
        self.old = None
        self.order.newest = max(self.order.newest, min(entry.time, now.wall))

    def _received(
        self,
        result: Literal["accepted", "duplicate", "stale", "conflict"],
        entry: Entry,
        refused: InputError | None,
        lag: float | None,
    ) -> Received:
        if refused is not None and result in ("accepted", "conflict"):
            shown: Literal["rejected", "conflict"] = "rejected" if result == "accepted" else "conflict"
            return Received(self.agent, shown, refused.reason, refused.detail, lag)
        detail = ""
        if result in ("stale", "conflict"):
            problem = self._too_late(entry) if result == "stale" else "came twice with different content" + NEW_NAMES
            detail = f"seq {entry.seq} of episode {entry.episode!r} {problem}"
        return Received(self.agent, result, "", detail, lag)

    def _too_late(self, entry: Entry) -> str:
        if entry.episode in self.order.ended:
            return "came after its end" + NEW_NAMES
        if entry.episode == self.order.episode:
            return "is long past"
        return "is as old as episodes that are forgotten, so it may have been taken before" + NEW_NAMES

    # ---- entries to events ----

    def _settle(self, ticks: float) -> list[Notice]:
        if not self.order.held and self.order.restart is None:
            return []
        return [notice for released in self.order.release(ticks) for notice in self._tell(released)]

    def _tell(self, released: Entry | Missing | Closed | Discarded) -> Iterable[Notice]:
        match released:
            case Entry():
                return self._step(released)
            case Missing():
                return self._missing(released)
            case Closed():
                self._emit(End(released.episode, terminated=released.terminated))
                self.previous = None
                return ()
            case Discarded(entry=entry):
                detail = f"seq {entry.seq} of episode {entry.episode!r} lies after the end of the episode"
                return (Received(self.agent, "stale", "", detail),)
            case _:
                assert_never(released)

    def _step(self, entry: Entry) -> Iterable[Notice]:
        if entry.seq == 0:
            self.dropped = False
        if entry.policy is not None:
            self.policy = entry.policy
        if entry.problem is not None:
            self._break(entry.problem)
        if entry.state is None:
            return ()
        notices: list[Notice] = []
        if self.previous is not None and not self._matching.possible(self.previous, entry.state):
            s, a = self.previous
            self._break(Break("impossible_step", f"the model has no transition ({s}, {a}) -> {entry.state}"))
        if self.previous is not None and entry.reward is not None:
            notices += self._rewarded(self.previous, entry.state, entry)
        foreign = self._matching.foreign(self.policy)
        self._emit(Step(entry.episode, entry.seq, entry.state, entry.action, entry.time, entry.late, foreign))
        self.previous = None if entry.action is None else (entry.state, entry.action)
        if entry.action is not None:
            notices += self._acted(entry.state, entry.action)
        return notices

    def _acted(self, state: int, action: int) -> Iterator[Notice]:
        """Hold an action against the nominal policy."""
        matching, deviation = self._matching, self.deviation
        if matching.off_policy(state, action):
            yield OffPolicy(self.agent)
        before = deviation.fraction
        deviation.push(*matching.excess(state, action))
        after = deviation.fraction
        if (before or after) and round(after, 2) != round(before, 2):
            yield Deviates(self.agent, round(after, 2), deviation.steps)

    def _rewarded(self, pair: tuple[int, int], state: int, entry: Entry) -> Iterator[Notice]:
        """Hold the reward that the step into `state` says it earned against the model's."""
        assert entry.reward is not None, "there is one to compare"
        if wrong := self._matching.contradicts(pair, state, entry.reward):
            yield RewardMismatch(self.agent, f"seq {entry.seq} of episode {entry.episode!r}: {wrong}")

    def _missing(self, missing: Missing) -> Iterable[Notice]:
        where = f"seq {missing.first} to {missing.last} of episode {missing.episode!r}"
        if missing.why == "joined":
            self._break(Break("warming_up", f"joined after {where}"))
            return ()
        if missing.why == "conflict":
            self._break(Break("conflict", f"a conflict leaves {where} unknown"))
            return ()
        self._break(Break("dropped" if self.dropped else "gap", f"{where} did not come"))
        self.dropped = False
        return (Received(self.agent, "gap", "", f"{where} did not come"),)

    def _break(self, event: Break) -> None:
        self._emit(event)
        self.previous = None

    def _emit(self, event: Step | Break | End) -> None:
        if len(self.pending) >= self.settings.pending:
            self._overflow()
        self.pending.append(event)
        self.since.append(self._ticks)

    def _overflow(self) -> None:
        """Nobody took the events: memory stays bounded, and the path says what it lost."""
        self._let_go(Break("dropped", f"{len(self.pending)} events waited too long to be evaluated"))

    def _let_go(self, lost: Break) -> None:
        """Pending events go; but that an episode ended is told."""
        last_end = next((event for event in reversed(self.pending) if isinstance(event, End)), None)
        since = self.since[0]
        self.pending.clear()
        self.pending.extend([lost] if last_end is None else [lost, last_end, lost])
        self.since.clear()
        self.since.extend([since] * len(self.pending))

    def _fits(self) -> bool:
        """Whether the model holds all that was taken so far to be possible."""
        taken = ((event.state, event.action) if isinstance(event, Step) else None for event in self.pending)
        before: tuple[int, int | None] | None = None
        for pair in chain(self.path.held, [None] if self.path.ended else [], taken):
            if pair is not None and not self._matching.fits(before, pair):
                return False
            before = pair
        held = ((entry.state, entry.action) for entry in self.order.held.values() if entry.state is not None)
        return all(self._matching.fits(None, (state, action)) for state, action in held)
