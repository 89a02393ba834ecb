"""Session of one agent: turns its observations, in any order, into ordered events (`Step`, `Break`, `End`).

Pure: time is an argument and nothing blocks. An event is final: a later message never changes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final, Literal, assert_never

import msgspec
from msgspec.structs import replace

from monitor.errors import InputError
from monitor.statistics.deviation import Deviation, DeviationState
from monitor.stream.adapter import Adapter, Pair
from monitor.stream.decode import is_plain, validate
from monitor.stream.deduplication import digest
from monitor.stream.path import PathState, SlidingPath
from monitor.stream.reorder_buffer import (
    BufferedMessage,
    Closed,
    Discarded,
    Missing,
    ReorderBuffer,
    ReorderBufferState,
)
from monitor.types.notices import Deviates, Notice, OffPolicy, Received, RewardMismatch
from monitor.types.specs import StreamSettings
from monitor.types.stream_events import UNKNOWN_POLICY, Break, End, Episode, Instant, Observation, State, Step

NOT_TAKEN_OVER: Final = ("nominal", UNKNOWN_POLICY)
"""Names of the policies whose actions are compared with nominal's actions. Any other policy has taken over."""

NEW_NAMES: Final = "; give each run a new episode value"


class SessionState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `Session` as plain data. The fields are the session's attributes."""

    agent: str
    pending: list[Step | Break | End]
    since: list[float]
    path: PathState
    order: ReorderBufferState
    previous: tuple[State, int | None, tuple[float, ...]] | None
    mismatch: bool
    policy: str | None
    dropped: bool
    last_heard: float | None
    last_message: float | None
    old: tuple[float, float] | None
    deviation: DeviationState = DeviationState()


def is_late(lag: float | None, most: float) -> bool:
    """Return whether a message is late: received more than `most` seconds after the time in the message.

    `lag`: delay of the message in seconds; None if the agent sends no time, so that its messages are never late.
    """
    return lag is not None and lag > most


class Session:
    """Messages of one agent, ordered and mapped to the model.

    `arrive`, `tick` and `lost` append events to `pending` and return notices. `advance` moves one event from `pending`
    to `path`; the caller then evaluates the formulas. No observation makes a method raise.

    Args:
        agent: the agent's name.
        adapter: converts observations to the model's form.
        settings: limits and timeouts.

    Attributes:
        pending: events not yet on the path, oldest first, at most `settings.pending`. If there are more, all are
            dropped and replaced by a `Break("dropped")`.
        since: ticks at which each pending event was added.
        path: the path up to the last event moved by `advance`.
        mismatch: True if the policy that the agent reported last, up to the newest step, is unknown. Then the path is
            still valid, but forecasts under nominal are not valid.
        last_heard: ticks of the last new message; None before the first message.
        last_message: ticks of the last valid message, including duplicates.
        old: ticks of the first and the last message, after `last_heard`, about episodes that have ended or may have
            ended; None if there is no such message.
        deviation: deviation of the last actions from nominal.
        order: the reorder buffer.
        previous, policy: the newest pair with its inputs (None after a break), and the policy last reported, both
            including pending events. The end of an episode resets a known policy other than nominal.
        dropped: True after `lost`, until a gap is attributed to the loss.
    """

    def __init__(self, agent: str, adapter: Adapter, settings: StreamSettings) -> None:
        self.agent = agent
        self.settings = settings
        self.pending: deque[Step | Break | End] = deque()
        self.since: deque[float] = deque()
        self.path = SlidingPath(settings.window)
        self.mismatch = False
        self.last_heard: float | None = None
        self.last_message: float | None = None
        self.old: tuple[float, float] | None = None
        self.order = ReorderBuffer(settings.reorder_steps, settings.reorder_wait)
        self.previous: Pair | None = None
        self.policy: str | None = None
        self.deviation = Deviation()
        self.dropped = False
        self._adapter = adapter
        self._ticks = 0.0

    @property
    def deadline(self) -> float | None:
        """Ticks at which `tick` is due; None if nothing is held."""
        return self.order.deadline

    def holds(self) -> bool:
        """Return whether messages are held that `tick` may release."""
        return bool(self.order.held) or self.order.restart is not None

    def arrive(self, observation: Observation, now: Instant) -> list[Notice]:
        """Accept or reject one message.

        Return the notice about it, then the notices about messages that it released.
        """
        self._ticks = now.ticks
        plain = self._is_known(observation) and is_plain(observation)
        if not plain:
            try:
                observation = validate(observation)
            except InputError as error:
                return [Received(self.agent, "rejected", error.reason, error.detail)]
        lag = None if observation.time is None else now.wall - observation.time
        late = is_late(lag, self.settings.max_lag)
        if plain and self._goes_on(observation):
            return [Received(self.agent, "accepted", "", "", lag), *self._follow(observation, now, late)]
        entry, refused = self._adapter.entry(observation, now, late)
        result = self.order.sort(entry)
        received = self._received(result, entry, refused, lag)
        if result in ("accepted", "conflict"):
            self._hear(entry.time, now)
        else:
            self.last_message = now.ticks
            if entry.episode != self.order.episode:
                self.old = (now.ticks if self.old is None else self.old[0], now.ticks)
        return [received, *self._release(now.ticks)]

    def tick(self, now: Instant) -> list[Notice]:
        """Stop waiting for messages awaited too long. Call this at `deadline`, or regularly."""
        self._ticks = now.ticks
        return self._release(now.ticks)

    def lost(self, now: Instant, why: str = "") -> list[Notice]:
        """Break the path because the transport dropped messages of this agent. It is unknown which messages.

        If a gap follows, it is reported as `dropped` too. `why`: a sentence that replaces the usual sentence about the
        cause.
        """
        self._ticks = now.ticks
        self._break(Break("dropped", why or "messages of this agent were dropped before they were read"))
        self.dropped = True
        return self._release(now.ticks)

    def advance(self) -> Step | Break | End | None:
        """Move the oldest pending event to the path and return it; None if there is none."""
        if not self.pending:
            return None
        event = self.pending.popleft()
        self.since.popleft()
        match event:
            case Step():
                self.path.push(event)
                self.mismatch = event.foreign
            case Break():
                self.path.restart(event.reason, event.detail)
            case End():
                self.path.end(terminated=event.terminated)
            case _:
                assert_never(event)
        return event

    def dump(self) -> SessionState:
        """Return the state, including pending events. Serialize it before the next call, because it shares lists."""
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
        adapter: Adapter,
        settings: StreamSettings,
        *,
        pages: Mapping[int, bytes],
    ) -> Session:
        """Return the session of a dumped state. The settings may differ.

        If the model or policies differ, call `adapt` next.

        `pages`: all pages of `order.past`. Raises InputError (`bad_snapshot`) if a page is missing.
        """
        session = cls(state.agent, adapter, settings)
        session.pending.extend(state.pending)
        session.since.extend(state.since)
        session.path = SlidingPath.load(settings.window, state.path)
        session.order = ReorderBuffer.load(settings.reorder_steps, settings.reorder_wait, state.order, pages)
        session.previous, session.mismatch, session.policy = state.previous, state.mismatch, state.policy
        session.dropped, session.last_heard = state.dropped, state.last_heard
        session.last_message, session.old = state.last_message, state.old
        session.deviation = Deviation.load(state.deviation)
        return session

    def adapt(self, changed: AbstractSet[str] = frozenset(), *, renumbered: bool = False) -> None:
        """Adapt to a changed model or changed policies. If a step does not fit the model, drop all steps.

        `changed`: names of the policies whose file has changed. The policies that acted under these names, or under
        removed names, are unknown from now on. `renumbered`: whether numbers of states or actions have changed their
        meaning.
        """
        self.deviation = Deviation()
        acting = self._adapter.acting(self.policy)
        self.mismatch = acting is None
        self.path.rename(lambda policy: self._known(policy, changed))
        self.pending = deque(
            replace(event, foreign=acting is None, policy=self._known(event.policy, changed))
            if isinstance(event, Step)
            else event
            for event in self.pending
        )
        if not renumbered and self._fits():
            return
        restart = Break("warming_up", "the steps before do not fit the model, which was changed")
        self.path.restart(restart.reason, restart.detail)
        self.previous = None
        if self.pending:
            self._drop(restart)
        for key, entry in self.order.held.items():
            self.order.held[key] = replace(entry, state=None, action=None, problem=entry.problem or restart)

    # ---- results of messages ----

    def _is_known(self, observation: Observation) -> bool:
        """Return whether agent and episode are the same as in the open episode, and therefore valid."""
        episode = self.order.episode
        return (
            observation.agent == self.agent
            and observation.episode == episode
            and type(observation.episode) is type(episode)
        )

    def _hear(self, time: float, now: Instant) -> None:
        """Record the arrival of a new message with this time."""
        self.last_heard = self.last_message = now.ticks
        self.old = None
        time = min(time, now.wall)
        self.order.newest = max(self.order.newest, time)

    def _goes_on(self, observation: Observation) -> bool:
        """Return whether a valid message of the open episode is the next step, is possible, and has the same policy."""
        order, named = self.order, observation.policy
        return (
            observation.seq == order.next_seq
            and not (order.held or observation.terminated or observation.truncated)
            and (named is None or named == self.policy)
            and self.previous is not None
            and self._adapter.goes_on(self.previous, observation.state, observation.action)
        )

    def _follow(self, observation: Observation, now: Instant, late: bool) -> Sequence[Notice]:  # noqa: FBT001
        """Accept a step for which `_goes_on` is true. Most steps take this fast path.

        It has the same effect as `sort` and `release`.
        """
        o, previous = observation, self.previous
        time = now.wall if o.time is None else o.time
        self._hear(time, now)
        self.order.follow(o.seq, digest(o), now.ticks)
        pair = o.state, o.action, ()  # checked by `goes_on`
        acted = self._take(o.episode, o.seq, pair, time, late)
        if o.reward is None or previous is None:
            return acted
        return [*self._rewarded(previous, pair[0], o.episode, o.seq, o.reward), *acted]

    def _received(
        self,
        result: Literal["accepted", "duplicate", "stale", "conflict"],
        entry: BufferedMessage,
        refused: InputError | None,
        lag: float | None,
    ) -> Received:
        if refused is not None and result in ("accepted", "conflict"):
            shown: Literal["rejected", "conflict"] = "rejected" if result == "accepted" else "conflict"
            return Received(self.agent, shown, refused.reason, refused.detail, lag)
        detail = ""
        if result in ("stale", "conflict"):
            problem = self._too_late(entry) if result == "stale" else "arrived twice with different content" + NEW_NAMES
            detail = f"seq {entry.seq} of episode {entry.episode!r} {problem}"
        return Received(self.agent, result, "", detail, lag)

    def _too_late(self, entry: BufferedMessage) -> str:
        if entry.episode in self.order.ended:
            return "arrived after its end" + NEW_NAMES
        if entry.episode == self.order.episode:
            return "arrived too late"
        return "is as old as forgotten episodes, so it may be a duplicate" + NEW_NAMES

    # ---- entries to events ----

    def _release(self, ticks: float) -> list[Notice]:
        if not self.holds():
            return []
        return [notice for released in self.order.release(ticks) for notice in self._emit_released(released)]

    def _emit_released(self, released: BufferedMessage | Missing | Closed | Discarded) -> Iterable[Notice]:
        match released:
            case BufferedMessage():
                return self._step(released)
            case Missing():
                return self._missing(released)
            case Closed():
                self._emit(End(released.episode, terminated=released.terminated))
                self.previous = None
                if self._adapter.acting(self.policy) not in {None, "nominal"}:
                    self.policy = None  # a takeover ends with its episode; an unknown policy still blinds formulas
                return ()
            case Discarded(entry=entry):
                detail = f"seq {entry.seq} of episode {entry.episode!r} is after the end of the episode"
                return (Received(self.agent, "stale", "", detail),)
            case _:
                assert_never(released)

    def _step(self, entry: BufferedMessage) -> Iterable[Notice]:
        if entry.seq == 0:
            self.dropped = False
        if entry.policy is not None:
            self.policy = entry.policy
        if entry.problem is not None:  # the message is no step
            follows = entry.problem.unrecorded and self.previous is not None
            self._break(replace(entry.problem, unrecorded=follows))
            return ()
        notices: list[Notice] = []
        pair = entry.state, entry.action, entry.inputs
        if self.previous is not None and not self._adapter.possible(self.previous, pair):
            self._break(self._adapter.impossible(self.previous, pair))
        if self.previous is not None and entry.reward is not None:
            notices += self._rewarded(self.previous, entry.state, entry.episode, entry.seq, entry.reward)
        notices += self._take(entry.episode, entry.seq, pair, entry.time, entry.late)
        return notices

    def _take(
        self,
        episode: Episode,
        seq: int,
        pair: Pair,
        time: float,
        late: bool,  # noqa: FBT001
    ) -> Sequence[Notice]:
        """Queue a step; return notices about its action."""
        acting = "nominal" if self.policy is None else self._adapter.acting(self.policy)
        policy = UNKNOWN_POLICY if acting is None else acting
        pair, self.previous = self._adapter.joined(self.previous, pair, seq, policy)
        state, action, inputs = pair
        self._emit(Step(episode, seq, state, action, time, late, acting is None, policy, inputs))
        return self._acted(pair) if action is not None and policy in NOT_TAKEN_OVER else ()

    def _acted(self, pair: Pair) -> Sequence[Notice]:
        """Compare an action with the nominal policy; report a deviation."""
        deviation = self.deviation
        excess, variance = self._adapter.excess(pair)
        before = deviation.fraction
        deviation.push(excess, variance)
        after = deviation.fraction
        if not (excess or before or after):
            return ()
        notices: list[Notice] = []
        if excess > 0.0 and self._adapter.off_policy(pair):
            notices.append(OffPolicy(self.agent))
        if before != after and round(after, 2) != round(before, 2):
            notices.append(Deviates(self.agent, round(after, 2), deviation.steps))
        return notices

    def _rewarded(self, pair: Pair, state: State, episode: Episode, seq: int, reward: float) -> Iterator[Notice]:
        """Compare the reward of a transition into `state` with the model's reward; report a difference."""
        if wrong := self._adapter.contradicts(pair, state, reward):
            yield RewardMismatch(self.agent, f"seq {seq} of episode {episode!r}: {wrong}")

    def _missing(self, missing: Missing) -> Iterable[Notice]:
        where = f"seq {missing.first} to {missing.last} of episode {missing.episode!r}"
        if missing.why == "joined":
            self._break(Break("warming_up", f"joined after {where}"))
            return ()
        if missing.why == "conflict":
            self._break(Break("conflict", f"a conflict leaves {where} unknown"))
            return ()
        lost = missing.last - missing.first + 1
        if self._adapter.bridges() and self.previous is not None and lost < self.settings.window:
            for seq in range(missing.first, missing.last + 1):
                self._take(missing.episode, seq, (None, None, ()), self.order.newest, late=False)
        else:
            self._break(Break("dropped" if self.dropped else "gap", f"{where} did not arrive"))
        self.dropped = False
        return (Received(self.agent, "gap", "", f"{where} did not arrive"),)

    def _break(self, event: Break) -> None:
        self._emit(event)
        self.previous = None

    def _emit(self, event: Step | Break | End) -> None:
        if len(self.pending) >= self.settings.pending:
            self._overflow()
        self.pending.append(event)
        self.since.append(self._ticks)

    def _overflow(self) -> None:
        """Drop the pending events to bound memory."""
        self._drop(Break("dropped", f"{len(self.pending)} events waited too long to be evaluated"))

    def _drop(self, lost: Break) -> None:
        """Drop pending events, but keep the newest episode end."""
        last_end = next((event for event in reversed(self.pending) if isinstance(event, End)), None)
        since = self.since[0]
        self.pending.clear()
        self.pending.extend([lost] if last_end is None else [lost, last_end, lost])
        self.since.clear()
        self.since.extend([since] * len(self.pending))

    def _known(self, policy: str, changed: AbstractSet[str]) -> str:
        """Return the name of a policy that acted if the policy is unchanged, else UNKNOWN_POLICY."""
        return UNKNOWN_POLICY if policy in changed or not self._adapter.knows(policy) else policy

    def _fits(self) -> bool:
        """Return whether all accepted steps are possible in the model."""
        pending = (
            (event.state, event.action, event.inputs) if isinstance(event, Step) else None for event in self.pending
        )
        before: Pair | None = None
        for pair in chain(self.path.moments(), [None] if self.path.ended else [], pending):
            if pair is not None and not self._adapter.fits(before, pair):
                return False
            before = pair
        held = (
            (entry.state, entry.action, entry.inputs) for entry in self.order.held.values() if entry.problem is None
        )
        return all(self._adapter.fits(None, pair) for pair in held)
