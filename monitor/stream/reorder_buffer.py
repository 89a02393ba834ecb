"""Reorder buffer: restores the order of messages, with duplicates, gaps and one episode after the other.

One rule: every step but the next one of the open episode is held. A step that opens or continues an episode is released
at once; for others the missing steps are awaited until `wait` seconds have passed or more than `steps` are held, and
then given up. Steps of a later episode likewise wait for the open one to end, so a step that a broker delivers far too
early neither cuts off the running episode nor loses its own.

A seq that arrives with two contents is unknown: either may be right. It breaks the path, which continues with the step
after it. If its first content was accepted already, the agent may have started over: the episode restarts at that seq,
after the entries held until then.

An episode is accepted once. For the newest ended episodes there is a digest of each accepted step; of some thousands
before them it is known that they ended. A step that may be older was possibly accepted: it is rejected.
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
"""Ended episodes with a digest of each step, so that duplicates are recognized; for older ones see `past`."""
ENDED_BYTES = 4096
"""Bytes of their digests: 512 steps in all."""


class Entry(msgspec.Struct, frozen=True):
    """A message in the reorder buffer, in the model's indices.

    `arrived`: ticks. `problem`: the break before it; with `state` None it is not a step. `ends`: True for the last of
    its episode. `policy`: sha256 that it names, in lower case, or None. `reward`: of the transition into `state`, or
    None.
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
    """Seqs `first` to `last` of the episode, which are not on the path.

    `why`: `gap`, they did not arrive; `joined`, they are the agent's first; `conflict`, they are on the other side of a
    conflict: no longer awaited before it, or arrived before it and not again after it.
    """

    episode: Episode
    first: int
    last: int
    why: Literal["gap", "joined", "conflict"]


class Closed(msgspec.Struct, frozen=True):
    """End of an episode: by its last message, or without one (`terminated` False) because another began."""

    episode: Episode
    terminated: bool


class Discarded(msgspec.Struct, frozen=True):
    """A held message with a seq after the end of its episode."""

    entry: Entry


Released = Entry | Missing | Closed | Discarded


class ReorderBufferState(msgspec.Struct, frozen=True, array_like=True):
    """A `ReorderBuffer` as plain data, without the full pages of `past`; the fields are its attributes."""

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
    """Reorder buffer of one agent's messages. Holds at most `steps` + 1 of them.

    Attributes:
        episode: the open episode, None between episodes.
        next_seq: the next seq of it.
        held: (episode, seq) -> entry, in order of arrival.
        ended: the last `ENDED_REMEMBERED` ended episodes, oldest first, with digests of the newest of them: messages
            that a broker redelivers after a restart are duplicates even if their episode has ended.
        past: the episodes that ended before those.
        newest: latest time of a step, seconds since the epoch, unless in our future; set by the caller.
        heard: True once an episode was opened (so a missing start is a gap, not the monitor joining late).
        progress: ticks at which the newest of the released entries arrived.
        again: seqs of the open episode below this may have arrived before it restarted; 0 if it never did.
        restart: the message at which the open episode restarts, between `sort` and `release`.
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
        """Accept the entry if it is the next step of the open episode and nothing is held, as for most messages.

        A fast path: `sort` and `release` would accept it and release it alone.
        """
        if self.held or entry.seq != self.next_seq or entry.ends or entry.episode != self.episode:
            return False
        self.digests.put(entry.seq, entry.digest)
        self.next_seq = entry.seq + 1
        self.progress = max(self.progress, entry.arrived)
        return True

    def sort(self, entry: Entry) -> Literal["accepted", "duplicate", "stale", "conflict"]:
        """Classify a message and hold it unless it is old. Call `release` afterwards."""
        if entry.episode in self.ended:
            taken = self.ended[entry.episode]
            return "duplicate" if taken is None else _old(taken, entry)
        key = (entry.episode, entry.seq)
        is_open = self.episode is not None and entry.episode == self.episode
        known = self.held[key].digest if key in self.held else self.digests.get(entry.seq) if is_open else None
        if known is None and is_open and entry.seq < self.next_seq:
            return _old(self.digests, entry)
        if known is None and not is_open and entry.episode in self.past:
            return "duplicate"
        if known is None and not is_open and self.possibly_seen(entry):
            return "stale"
        if known is None:
            self.held[key] = entry
            return "accepted"
        if known == entry.digest:
            return "duplicate"
        if known == CONFLICTED:  # redelivered by a broker after a crash: no restart
            return "conflict"
        if key in self.held:
            self.held[key] = _either(self.held[key], entry)
        else:
            self.restart = entry
        return "conflict"

    def possibly_seen(self, entry: Entry) -> bool:
        """Return whether the step is as old as forgotten episodes, so that it may be a redelivered one of theirs."""
        return entry.time <= self.past.horizon

    def release(self, ticks: float) -> Iterator[Released]:
        """Yield what is in order now, and what is given up. Exhaust the iterator: it advances the state."""
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
        """Ticks at which waiting ends, None if nothing is held."""
        if not self.held:
            return None
        own, other = self._oldest()
        ends = [own.arrived + self.wait] if own else []
        if other:  # the other one waits while the open episode goes on
            ends.append(max(other.arrived, self.progress) + self.wait)
        return min(ends, default=None)

    @property
    def waiting(self) -> Wait | None:
        """The awaited step and the number of entries held; None if nothing is held."""
        return (
            Wait(missing=self.next_seq if self.episode is not None else 0, held=len(self.held)) if self.held else None
        )

    def dump(self) -> ReorderBufferState:
        """Return the state as plain data."""
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
        """Return the buffer that was dumped; `pages`: those of `past`. Raises InputError if one is missing."""
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
        """Return the longest held entry of the open episode, and of any other."""
        entries = self.held.values()
        if self.episode is None:
            return None, next(iter(entries), None)
        own = next((entry for entry in entries if entry.episode == self.episode), None)
        return own, next((entry for entry in entries if entry.episode != self.episode), None)

    def _next(self) -> Entry | None:
        """Return the held entry that is in order now; between episodes the first to arrive with seq 0."""
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
            assert other is not None, "an entry is held"
            why: Literal["gap", "joined"] = "gap" if self.heard else "joined"
            self._open(other.episode, self._lowest(other.episode))
            yield Missing(other.episode, 0, self.next_seq - 1, why)

    def _pass_over(self, episode: Episode) -> Iterator[Missing]:
        """Continue with the lowest held seq of the open episode. Seqs from before a conflict are no gap after it."""
        first, self.next_seq = self.next_seq, self._lowest(episode)
        known = min(max(first, self.again), self.next_seq)
        if first < known:
            yield Missing(episode, first, known - 1, "conflict")
        if known < self.next_seq:
            yield Missing(episode, known, self.next_seq - 1, "gap")

    def _begin_again(self, entry: Entry) -> Iterator[Released]:
        """Restart the open episode at a seq that was accepted with other content.

        Held entries arrived before: they are released first, or they would count as steps of the new run. If that ends
        the episode, the message belongs to an ended episode, and nothing restarts.
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
        """Keep the digests of the ended episode, within `ENDED_BYTES`; of older episodes only that they ended."""
        self.ended[episode], self.digests = self.digests, Deduplicator()
        if len(self.ended) > ENDED_REMEMBERED:
            oldest = next(iter(self.ended))
            del self.ended[oldest]
            self.past.add(oldest, self.newest)
        left = ENDED_BYTES
        for past, taken in reversed(self.ended.items()):
            left -= 0 if taken is None else taken.size
            if left < 0:
                self.ended[past] = None

    def _lowest(self, episode: Episode) -> int:
        return min(seq for held, seq in self.held if held == episode)


def _old(taken: Deduplicator, entry: Entry) -> Literal["duplicate", "stale"]:
    """Classify an old step: `duplicate` if accepted with this content, or too old to know; else `stale`."""
    known = taken.get(entry.seq)
    return "duplicate" if known == entry.digest or (known is None and taken.forgot(entry.seq)) else "stale"


def _either(held: Entry, other: Entry) -> Entry:
    """Return the entry of a held seq that arrived with other content: a break, with what both agree on."""
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
    return Break("conflict", f"seq {entry.seq} of episode {entry.episode!r} arrived twice with different content")
