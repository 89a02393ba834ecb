"""Messages back into the order they were sent in: duplicates, reordering, gaps, one episode after the other.

One rule: whatever is not the next step of the open episode is held. A step that opens or continues an episode is
released at once; for the others the missing ones are awaited until `wait` seconds have passed or more than `steps`
are held, and then given up. Steps of a later episode wait likewise for the open one to end, so a step that a broker
delivers far too early neither cuts off the running episode nor loses its own.

A seq that comes with two contents is unknown: nobody can say which of them happened. Its place is a break, and the
path goes on with the step after it. Where its first content was taken already, the agent may have started over: the
episode begins again at that seq, after what was held until then.

An episode is taken once. Of the newest that are over it is known what was taken, step by step; of some thousands
before them, that they are over. A step that may be older still was possibly seen: it is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from monitor.stream.deduplication import CONFLICTED, Deduplicator, DigestsState
from monitor.stream.past_episodes import PastEpisodes, PastState
from monitor.types import Break, Episode, Wait

__all__ = [
    "ENDED_REMEMBERED",
    "Closed",
    "Discarded",
    "Entry",
    "Missing",
    "Released",
    "ReorderBuffer",
    "ReorderBufferState",
]

ENDED_REMEMBERED = 64
"""Ended episodes of which a step that comes again is told from one that never came; of older ones see `past`."""
ENDED_BYTES = 4096
"""Deduplicator kept of them: 512 steps in all."""


class Entry(msgspec.Struct, frozen=True):
    """A message on its way through the ordering, already in the model's indices.

    `arrived`: ticks. `problem`: the break to put before it; with `state` None it is no step at all. `ends`: it is the
    last of its episode. `policy`: sha256 of the one it names, in lower case; None if it names none. `reward`: of the
    transition into `state`; None if it says none.
    """

    episode: Episode
    seq: int
    digest: bytes
    arrived: float
    time: float
    state: int | None
    action: int | None
    late: bool
    ends: bool
    terminated: bool
    policy: str | None
    problem: Break | None
    reward: float | None = None


class Missing(msgspec.Struct, frozen=True):
    """Seqs `first` up to `last` of the episode are not on the path.

    `why`: `gap`, they did not come; `joined`, the agent was never heard before them; `conflict`, they are on the other
    side of one: not awaited any longer before it, or come before it and not again after it.
    """

    episode: Episode
    first: int
    last: int
    why: Literal["gap", "joined", "conflict"]


class Closed(msgspec.Struct, frozen=True):
    """The episode is over: by its last message, or without one (`terminated` False) because another began."""

    episode: Episode
    terminated: bool


class Discarded(msgspec.Struct, frozen=True):
    """A held message whose seq lies after the end of its episode."""

    entry: Entry


Released = Entry | Missing | Closed | Discarded


class ReorderBufferState(msgspec.Struct, frozen=True, array_like=True):
    """An `ReorderBuffer` as plain data, but for the full pages of `past`; the fields are its attributes."""

    episode: Episode | None
    next_seq: int
    held: list[Entry]
    ended: list[tuple[Episode, DigestsState | None]]
    digests: DigestsState
    heard: bool
    progress: float
    again: int
    past: PastState
    newest: float


class ReorderBuffer:
    """The order of one agent's messages. Holds at most `steps` + 1 of them.

    Attributes:
        episode: the open episode, None between episodes.
        next_seq: the seq it continues with.
        held: (episode, seq) -> entry, in order of arrival.
        ended: the last `ENDED_REMEMBERED` ended episodes, oldest first, with what was taken of the newest of them:
            what a broker delivers again after a restart is a duplicate, also when its episode is over.
        past: the episodes that ended before those.
        newest: the latest time of a step, seconds since the epoch, as far as it was not in our future; set by others.
        heard: an episode was opened before (so a missing start is a gap and not the monitor joining late).
        progress: ticks at which the newest of the released entries arrived.
        again: seqs of the open episode below it may have come before it began again; 0 if it never did.
        restart: the message at which the open episode begins again, between `sort` and `release`.
    """

    def __init__(self, steps: int, wait: float) -> None:
        self.steps = steps
        self.wait = wait
        self.episode: Episode | None = None
        self.next_seq = 0
        self.held: dict[tuple[Episode, int], Entry] = {}
        self.ended: dict[Episode, Deduplicator | None] = {}
        self.past = PastEpisodes()
        self.newest = -math.inf
        self.digests = Deduplicator()
        self.heard = False
        self.progress = -math.inf
        self.again = 0
        self.restart: Entry | None = None

    def follow(self, entry: Entry) -> bool:
        """Take the entry if it is the very next step of the open episode and nothing is held: most are.

        The same as `sort` and `release`, which then would find it new and give it back alone.
        """
        if self.held or entry.seq != self.next_seq or entry.ends or entry.episode != self.episode:
            return False
        self.digests.put(entry.seq, entry.digest)
        self.next_seq = entry.seq + 1
        self.progress = max(self.progress, entry.arrived)
        return True

    def sort(self, entry: Entry) -> Literal["accepted", "duplicate", "stale", "conflict"]:
        """Say what a message is, and hold it unless it is old. Call `release` afterwards."""
        if entry.episode in self.ended:
            taken = self.ended[entry.episode]
            return "duplicate" if taken is None else _of_taken(taken, entry)
        key = (entry.episode, entry.seq)
        is_open = self.episode is not None and entry.episode == self.episode
        known = self.held[key].digest if key in self.held else self.digests.get(entry.seq) if is_open else None
        if known is None and is_open and entry.seq < self.next_seq:
            return _of_taken(self.digests, entry)
        if known is None and not is_open and entry.episode in self.past:
            return "duplicate"
        if known is None and not is_open and self.possibly_seen(entry):
            return "stale"
        if known is None:
            self.held[key] = entry
            return "accepted"
        if known == entry.digest:
            return "duplicate"
        if known == CONFLICTED:  # one of its contents again, as a broker sends it after a crash: nothing begins anew
            return "conflict"
        if key in self.held:
            self.held[key] = _either(self.held[key], entry)
        else:
            self.restart = entry
        return "conflict"

    def possibly_seen(self, entry: Entry) -> bool:
        """Whether the step is as old as episodes that are forgotten: it may be one of theirs, delivered again."""
        return entry.time <= self.past.horizon

    def release(self, ticks: float) -> Iterator[Released]:
        """What is in order now, and what is given up. Exhaust it: the state advances with it."""
        if self.restart is not None:
            yield from self._begin_again(self.restart)
        while self.held:
            entry = self._next()
            if entry is not None:
                yield from self._take(entry)
            elif len(self.held) > self.steps or self._due(ticks):
                yield from self._give_up()
            else:
                return

    @property
    def deadline(self) -> float | None:
        """Ticks at which waiting will be over, None if nothing is held."""
        if not self.held:
            return None
        own, other = self._oldest()
        ends = [own.arrived + self.wait] if own else []
        if other:  # as long as the open episode goes on, it is not the other one's turn
            ends.append(max(other.arrived, self.progress) + self.wait)
        return min(ends, default=None)

    @property
    def waiting(self) -> Wait | None:
        """The step that is missed and how many wait for it; None if nothing is held."""
        return (
            Wait(missing=self.next_seq if self.episode is not None else 0, held=len(self.held)) if self.held else None
        )

    def dump(self) -> ReorderBufferState:
        """Plain data."""
        ended = [(episode, None if taken is None else taken.dump()) for episode, taken in self.ended.items()]
        held, digests = list(self.held.values()), self.digests.dump()
        return ReorderBufferState(
            episode=self.episode,
            next_seq=self.next_seq,
            held=held,
            ended=ended,
            digests=digests,
            heard=self.heard,
            progress=self.progress,
            again=self.again,
            past=self.past.dump(),
            newest=self.newest,
        )

    @classmethod
    def load(cls, steps: int, wait: float, state: ReorderBufferState, pages: Mapping[int, bytes]) -> ReorderBuffer:
        """The inverse of `dump`; `pages`: those of `past`. InputError (`bad_snapshot`) if one of them is missing."""
        ordering = cls(steps, wait)
        ordering.episode, ordering.next_seq, ordering.heard = state.episode, state.next_seq, state.heard
        ordering.held = {(entry.episode, entry.seq): entry for entry in state.held}
        ordering.ended = {
            episode: None if taken is None else Deduplicator.load(*taken) for episode, taken in state.ended
        }
        ordering.digests = Deduplicator.load(*state.digests)
        ordering.progress, ordering.again = state.progress, state.again
        ordering.past, ordering.newest = PastEpisodes.load(state.past, pages), state.newest
        return ordering

    def _due(self, ticks: float) -> bool:
        deadline = self.deadline
        return deadline is not None and ticks >= deadline

    def _oldest(self) -> tuple[Entry | None, Entry | None]:
        """The longest held entry of the open episode, and of any other."""
        entries = self.held.values()
        if self.episode is None:
            return None, next(iter(entries), None)
        own = next((entry for entry in entries if entry.episode == self.episode), None)
        return own, next((entry for entry in entries if entry.episode != self.episode), None)

    def _next(self) -> Entry | None:
        """The held entry that is in order now; between episodes the first to arrive of those with seq 0."""
        if self.episode is not None:
            return self.held.get((self.episode, self.next_seq))
        return next((entry for entry in self.held.values() if entry.seq == 0), None)

    def _take(self, entry: Entry) -> Iterator[Released]:
        if self.episode is None:
            self._open(entry.episode, entry.seq)
        del self.held[entry.episode, entry.seq]
        self.digests.put(entry.seq, entry.digest)
        self.next_seq = entry.seq + 1
        self.progress = max(self.progress, entry.arrived)
        yield entry
        if entry.ends:
            yield from self._close(terminated=entry.terminated)

    def _give_up(self) -> Iterator[Released]:
        """Stop waiting for one thing: seqs of the open episode, its end, or the start of the next one."""
        own, other = self._oldest()
        if own is not None:
            yield from self._pass_over(own.episode)
        elif self.episode is not None:
            yield from self._close(terminated=False)
        else:
            assert other is not None, "there is nothing to give up where nothing is held"
            why: Literal["gap", "joined"] = "gap" if self.heard else "joined"
            self._open(other.episode, self._lowest(other.episode))
            yield Missing(other.episode, 0, self.next_seq - 1, why)

    def _pass_over(self, episode: Episode) -> Iterator[Missing]:
        """Go on with the lowest held seq of the open episode. What came before a conflict is no gap after it."""
        first, self.next_seq = self.next_seq, self._lowest(episode)
        known = min(max(first, self.again), self.next_seq)
        if first < known:
            yield Missing(episode, first, known - 1, "conflict")
        if known < self.next_seq:
            yield Missing(episode, known, self.next_seq - 1, "gap")

    def _begin_again(self, entry: Entry) -> Iterator[Released]:
        """Begin the open episode again at a seq that was taken with other content.

        What was held until then came before: it is released first, or it would be taken for steps of the new run. If
        that ends the episode, the message is one of an ended episode, and nothing begins.
        """
        self.restart = None
        while any(episode == self.episode for episode, _ in self.held):
            if (held := self._next()) is not None:
                yield from self._take(held)
            else:
                first, self.next_seq = self.next_seq, self._lowest(entry.episode)
                yield Missing(entry.episode, first, self.next_seq - 1, "conflict")
        if self.episode is None:
            return
        self.again = max(self.again, self.next_seq)
        self.next_seq = entry.seq
        self.digests.clear(entry.seq)
        self.held[entry.episode, entry.seq] = replace(
            entry, digest=CONFLICTED, state=None, action=None, problem=_conflict(entry)
        )

    def _open(self, episode: Episode, seq: int) -> None:
        self.episode = episode
        self.next_seq = seq
        self.heard = True
        self.again = 0
        self.digests.clear(seq)

    def _close(self, *, terminated: bool) -> Iterator[Released]:
        assert self.episode is not None
        episode = self.episode
        self.episode = None
        self.next_seq = 0
        self._remember(episode)
        for key in [key for key in self.held if key[0] == episode]:
            yield Discarded(self.held.pop(key))
        yield Closed(episode, terminated)

    def _remember(self, episode: Episode) -> None:
        """Keep what was taken of the episode that ends, as far as there is room; of the oldest only that it is over."""
        self.ended[episode], self.digests = self.digests, Deduplicator()
        if len(self.ended) > ENDED_REMEMBERED:
            oldest = next(iter(self.ended))
            del self.ended[oldest]
            self.past.add(oldest, self.newest)
        room = ENDED_BYTES
        for past, taken in reversed(self.ended.items()):
            room -= 0 if taken is None else taken.size
            if room < 0:
                self.ended[past] = None

    def _lowest(self, episode: Episode) -> int:
        return min(seq for held, seq in self.held if held == episode)


def _of_taken(taken: Deduplicator, entry: Entry) -> Literal["duplicate", "stale"]:
    """What a step is whose seq was passed: taken with this content, or so long ago that nobody knows; else too late."""
    known = taken.get(entry.seq)
    return "duplicate" if known == entry.digest or (known is None and taken.forgot(entry.seq)) else "stale"


def _either(held: Entry, other: Entry) -> Entry:
    """Return the entry of a seq that is held and came with other content: a break, and only what both say."""
    return replace(
        held,
        digest=CONFLICTED,
        state=None,
        action=None,
        ends=held.ends and other.ends,
        terminated=held.terminated and other.terminated,
        policy=held.policy if held.policy == other.policy else None,
        problem=_conflict(other),
    )


def _conflict(entry: Entry) -> Break:
    return Break("conflict", f"seq {entry.seq} of episode {entry.episode!r} came twice with different content")
