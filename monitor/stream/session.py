"""One agent's session: observations in, ordered events out (`Step`, `Break`, `End`).

Pure: time is an argument, nothing here waits. The order of events is that of the episode, whatever order the messages
came in; each event is final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal, assert_never

from monitor.errors import InputError
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.stream.decode import is_plain, validate
from monitor.stream.match import Matching
from monitor.stream.order import Closed, Discarded, Entry, Missing, Ordering
from monitor.stream.path import SlidingPath
from monitor.stream.snapshot import pack_event, seal, unpack_event, unseal
from monitor.types import (
    Break,
    End,
    Instant,
    Notice,
    Observation,
    OffPolicy,
    Received,
    Step,
    StreamSettings,
    Wait,
)

__all__ = ["BURST", "Session"]

BURST = 128
"""Events that may wait whatever the settings: a caller may bring many messages before it takes their events."""


class Session:
    """One agent's messages, ordered and matched with the model.

    `arrive`, `tick` and `lost` put events on `pending` and return notices; whoever answers formulas calls `advance`,
    which moves one event from `pending` to `path`. Nothing here raises on any observation.

    Args:
        agent: its name.
        model: what states, actions and transitions are matched with.
        settings: limits and waits.
        nominal: where deterministic, steps that take another action are told as `OffPolicy`.

    Attributes:
        pending: events not yet on the path, oldest first. Bounded: if nobody takes them, they are dropped together,
            and a `Break("dropped")` says so.
        path: the path up to the last event taken by `advance`.
        mismatch: at the newest step of the path, the last one to name a policy named another than the nominal. The path
            is true all the same (the world does not depend on it), nominal's future is not.
        last_heard: ticks of the last message that was new, None before the first.
        order, previous, foreign, dropped, ticks: the ordering; the newest pair, None after a break; whether the policy
            last named, by what is pending too, is not the nominal one; `lost` was told and no gap yet explained by it;
            the last clock reading.
    """

    def __init__(self, agent: str, model: MDP, settings: StreamSettings, *, nominal: PolicyTable | None = None) -> None:
        self.agent = agent
        self.model = model
        self.settings = settings
        self.nominal = nominal
        self.pending: deque[Step | Break | End] = deque()
        self.path = SlidingPath(settings.window)
        self.mismatch = False
        self.last_heard: float | None = None
        self.order = Ordering(settings.reorder_steps, settings.reorder_wait)
        self.previous: tuple[int, int] | None = None
        self.foreign = False
        self.dropped = False
        self.ticks = 0.0
        self._matching = Matching(model, settings, nominal)
        self._room = 4 * (settings.window + settings.reorder_steps) + BURST

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
        if not (self._is_known(observation) and is_plain(observation)):
            try:
                validate(observation)
            except InputError as error:
                return [Received(self.agent, "rejected", error.reason, error.detail)]
        lag = None if observation.time is None else now.wall - observation.time
        entry, refused = self._matching.entry(observation, now)
        if refused is None and self.order.follow(entry):
            self.last_heard = self.ticks = now.ticks
            return [Received(self.agent, "accepted", "", "", lag), *self._step(entry)]
        result = self.order.sort(entry)
        if result in ("accepted", "conflict"):
            self.last_heard = now.ticks
        return [self._received(result, observation, refused, lag), *self._settle(now.ticks)]

    def tick(self, now: Instant) -> list[Notice]:
        """Give up what has been awaited too long. Call it at `deadline`, or every now and then."""
        return self._settle(now.ticks)

    def lost(self, now: Instant) -> list[Notice]:
        """The transport dropped messages of this agent, nobody knows which: the path ends here.

        If their seqs turn out to be missing, that gap is told as `dropped` too.
        """
        self._break(Break("dropped", "messages of this agent were dropped before they were read"))
        self.dropped = True
        return self._settle(now.ticks)

    def advance(self) -> Step | Break | End | None:
        """Move the oldest pending event to the path and return it; None if there is none."""
        if not self.pending:
            return None
        event = self.pending.popleft()
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

    def snapshot(self) -> bytes:
        """All that the future depends on, the waiting events included."""
        return seal(
            {
                "agent": self.agent,
                "model": [self.model.states, self.model.actions],
                "pending": [pack_event(event) for event in self.pending],
                "path": self.path.dump(),
                "order": self.order.dump(),
                "previous": self.previous,
                "mismatch": self.mismatch,
                "foreign": self.foreign,
                "dropped": self.dropped,
                "last_heard": self.last_heard,
                "ticks": self.ticks,
            }
        )

    @classmethod
    def restore(
        cls,
        data: bytes,
        model: MDP,
        settings: StreamSettings,
        *,
        nominal: PolicyTable | None = None,
        now: Instant | None = None,
    ) -> Session:
        """The session of a snapshot, on the model it was taken with; the settings may have changed since.

        `now`: on another monotonic clock than the snapshot's, the time between the last call before the snapshot and
        `now` counts as no time. None: the same clock goes on.

        Raises:
            InputError: `bad_snapshot`.
        """
        body = unseal(data)
        if body["model"] != [model.states, model.actions]:
            raise InputError("bad_snapshot", "the snapshot is of a model of another size; start the session anew")
        shift = 0.0 if now is None else now.ticks - body["ticks"]
        session = cls(body["agent"], model, settings, nominal=nominal)
        session.pending.extend(unpack_event(event) for event in body["pending"])
        session.path = SlidingPath.load(settings.window, body["path"])
        session.order = Ordering.load(settings.reorder_steps, settings.reorder_wait, body["order"], shift)
        session.previous = None if body["previous"] is None else (body["previous"][0], body["previous"][1])
        session.mismatch, session.foreign, session.dropped = body["mismatch"], body["foreign"], body["dropped"]
        session.last_heard = None if body["last_heard"] is None else body["last_heard"] + shift
        session.ticks = body["ticks"] + shift
        return session

    # ---- what became of a message ----

    def _is_known(self, observation: Observation) -> bool:
        """Its agent and episode are those of the open episode, whose messages were valid."""
        episode = self.order.episode
        return (
            observation.agent == self.agent
            and observation.episode == episode
            and type(observation.episode) is type(episode)
        )

    def _received(
        self,
        result: Literal["accepted", "duplicate", "stale", "conflict"],
        observation: Observation,
        refused: InputError | None,
        lag: float | None,
    ) -> Received:
        if refused is not None and result in ("accepted", "conflict"):
            shown: Literal["rejected", "conflict"] = "rejected" if result == "accepted" else "conflict"
            return Received(self.agent, shown, refused.reason, refused.detail, lag)
        detail = ""
        if result in ("stale", "conflict"):
            ended = observation.episode in self.order.ended
            detail = (
                f"seq {observation.seq} of episode {observation.episode!r} "
                + {
                    "conflict": "came twice with different content; give each run a new episode value",
                    "stale": "came after its end; give each run a new episode value" if ended else "is long past",
                }[result]
            )
        return Received(self.agent, result, "", detail, lag)

    # ---- entries to events ----

    def _settle(self, ticks: float) -> list[Notice]:
        self.ticks = ticks
        if not self.order.held:
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
        if entry.foreign is not None:
            self.foreign = entry.foreign
        if entry.problem is not None:
            self._break(entry.problem)
        if entry.state is None:
            return ()
        if self.previous is not None and not self._matching.possible(self.previous, entry.state):
            s, a = self.previous
            self._break(Break("impossible_step", f"the model has no transition ({s}, {a}) -> {entry.state}"))
        self._emit(Step(entry.episode, entry.seq, entry.state, entry.action, entry.time, entry.late, self.foreign))
        self.previous = None if entry.action is None else (entry.state, entry.action)
        return (OffPolicy(self.agent),) if self._matching.off_policy(entry.state, entry.action) else ()

    def _missing(self, missing: Missing) -> Iterable[Notice]:
        where = f"seq {missing.first} to {missing.last} of episode {missing.episode!r}"
        if missing.joined:
            self._break(Break("warming_up", f"joined after {where}"))
            return ()
        self._break(Break("dropped" if self.dropped else "gap", f"{where} did not come"))
        self.dropped = False
        return (Received(self.agent, "gap", "", f"{where} did not come"),)

    def _break(self, event: Break) -> None:
        self._emit(event)
        self.previous = None

    def _emit(self, event: Step | Break | End) -> None:
        if len(self.pending) >= self._room:
            self._overflow()
        self.pending.append(event)

    def _overflow(self) -> None:
        """Nobody took the events: memory stays bounded, and the path says what it lost."""
        lost = Break("dropped", f"{len(self.pending)} events waited too long to be evaluated")
        last_end = next((event for event in reversed(self.pending) if isinstance(event, End)), None)
        self.pending.clear()
        self.pending.extend([lost] if last_end is None else [lost, last_end, lost])
