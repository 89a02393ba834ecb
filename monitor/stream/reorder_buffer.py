"""Reorder buffer: sorts the messages of one agent by episode and seq, and detects duplicates, gaps and conflicts.

A step that opens an episode, or is the next step of the open episode, is released at once. Every other step is held.
The missing steps are awaited until `wait` seconds have passed or more than `steps` messages are held. Then they are
reported as missing. Steps of a later episode are held until the open episode ends. So a step that the broker delivers
too early does not end the open episode and is not lost.

If a seq is received with two different contents, it is unknown which content is correct. So the path breaks at this seq
and continues with the next step. If the first content was released already, the agent may have restarted. Then the held
entries are released first, and the episode restarts at this seq.

An episode is accepted once. For the newest ended episodes, the buffer remembers each accepted step. For some thousands
of older episodes, it remembers only that they ended. A step that may belong to an even older episode is rejected,
because it may be a duplicate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from monitor.stream.deduplication import CONFLICTED, Deduplicator, DigestsState
from monitor.stream.past_episodes import PastEpisodes, PastState
from monitor.types.stream_events import Break, Episode, State

ENDED_REMEMBERED = 64
"""Number of ended episodes for which a repeated step can be distinguished from a late step. Older episodes are in
`past`."""
ENDED_BYTES = 4096
"""Total bytes of digests kept for these episodes: 512 steps."""


class BufferedMessage(msgspec.Struct, frozen=True):
    """A message in the reorder buffer, in the model's form.

    `arrived`: ticks of arrival. `problem`: the break that the message causes because it is no step (then `state` is
    None), or None. `ends`: True for the last message of the episode. `policy`: the SHA-256 that the agent sent, in
    lower case, or None. `reward`: reward of the transition into `state`, or None. `inputs`: as in `Step`.
    """

    episode: Episode
    seq: int
    digest: bytes
    arrived: float
    time: float
    state: State | None
    action: int | None
    late: bool
    ends: bool
    terminated: bool
    policy: str | None
    problem: Break | None
    reward: float | None = None
    inputs: tuple[float, ...] = ()


class Missing(msgspec.Struct, frozen=True):
    """Seqs `first` to `last` of the episode, which are not on the path.

    `why`: `gap`: they were not received. `joined`: they precede the first message received from this agent. `conflict`:
    either the buffer stopped waiting for them because a conflict arrived, or they were received before the conflict and
    were not sent again after it.
    """

    episode: Episode
    first: int
    last: int
    why: Literal["gap", "joined", "conflict"]


class Closed(msgspec.Struct, frozen=True):
    """End of an episode: its last message was received, or (`terminated` False) another episode has begun."""

    episode: Episode
    terminated: bool


class Discarded(msgspec.Struct, frozen=True):
    """A held message whose seq is after the end of its episode."""

    entry: BufferedMessage


Released = BufferedMessage | Missing | Closed | Discarded


class ReorderBufferState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `ReorderBuffer` as plain data, without the full pages of `past`; the fields are its attributes."""

    episode: Episode | None
    next_seq: int
    held: list[BufferedMessage]
    ended: list[tuple[Episode, DigestsState | None]]
    digests: DigestsState
    heard: bool
    progress: float
    again: int
    past: PastState
    newest: float


class ReorderBuffer:
    """Reorder buffer of one agent's messages. Holds at most `steps` + 1 messages.

    Attributes:
        episode: the open episode, None between episodes.
        next_seq: seq of the next step of the open episode.
        held: (episode, seq) -> entry, in order of arrival.
        ended: the last `ENDED_REMEMBERED` ended episodes, oldest first. The newest of these episodes have digests; the
            others have None. A digest shows that a message redelivered after the end of its episode is a duplicate.
        past: the episodes that ended before the episodes in `ended`.
        newest: latest time of a step, in seconds since the epoch, never later than the monitor's clock; set by the
            caller.
        heard: True after an episode was opened. From then on a missing start is reported as a gap, not as late joining.
        progress: ticks at which the newest released entry arrived.
        again: seqs below this may have been received before the episode restarted; 0 without a restart.
        restart: the message at which the open episode restarts; set by `sort`, cleared by `release`.
    """

    def __init__(self, steps: int, wait: float) -> None:
        self.steps = steps
        self.wait = wait
        self.episode: Episode | None = None
        self.next_seq = 0
        self.held: dict[tuple[Episode, int], BufferedMessage] = {}
        self.ended: dict[Episode, Deduplicator | None] = {}
        self.past = PastEpisodes()
        self.newest = -math.inf
        self.digests = Deduplicator()
        self.heard = False
        self.progress = -math.inf
        self.again = 0
        self.restart: BufferedMessage | None = None

    def follow(self, seq: int, digest: bytes, arrived: float) -> None:
        """Accept the next step of the open episode. The step must not end the episode, and no message may be held.

        Fast path for most messages, with the same effect as `sort` and `release`.
        """
        self.digests.put(seq, digest)
        self.next_seq = seq + 1
        self.progress = max(self.progress, arrived)

    def sort(self, entry: BufferedMessage) -> Literal["accepted", "duplicate", "stale", "conflict"]:
        """Classify a message, and hold it if it is accepted. Call `release` afterwards."""
        if entry.episode in self.ended:
            digests = self.ended[entry.episode]
            return "duplicate" if digests is None else _old(digests, entry)
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
        if known == CONFLICTED:  # the broker may have redelivered one of both messages, so there is no restart
            return "conflict"
        if key in self.held:
            self.held[key] = _either(self.held[key], entry)
        else:
            self.restart = entry
        return "conflict"

    def possibly_seen(self, entry: BufferedMessage) -> bool:
        """Return whether the step may belong to a forgotten episode, because its time is at most `past.horizon`."""
        return entry.time <= self.past.horizon

    def release(self, ticks: float) -> Iterator[Released]:
        """Yield the entries that are in order now, and the missing seqs. The caller must exhaust the iterator."""
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
        """Ticks until which the next missing step is awaited; None if nothing is held."""
        if not self.held:
            return None
        own, other = self._oldest()
        ends = [own.arrived + self.wait] if own else []
        if other:  # each released step of the open episode prolongs this wait
            ends.append(max(other.arrived, self.progress) + self.wait)
        return min(ends, default=None)

    def dump(self) -> ReorderBufferState:
        """Return the state as plain data."""
        ended = [(episode, None if digests is None else digests.dump()) for episode, digests in self.ended.items()]
        return ReorderBufferState(
            episode=self.episode,
            next_seq=self.next_seq,
            held=list(self.held.values()),
            ended=ended,
            digests=self.digests.dump(),
            heard=self.heard,
            progress=self.progress,
            again=self.again,
            past=self.past.dump(),
            newest=self.newest,
        )

    @classmethod
    def load(cls, steps: int, wait: float, state: ReorderBufferState, pages: Mapping[int, bytes]) -> ReorderBuffer:
        """Return the buffer of a dumped state. `pages`: the pages of `past`. Raises InputError if a page is missing."""
        buffer = cls(steps, wait)
        buffer.episode, buffer.next_seq, buffer.heard = state.episode, state.next_seq, state.heard
        buffer.held = {(entry.episode, entry.seq): entry for entry in state.held}
        buffer.ended = {
            episode: None if digests is None else Deduplicator.load(*digests) for episode, digests in state.ended
        }
        buffer.digests = Deduplicator.load(*state.digests)
        buffer.progress, buffer.again = state.progress, state.again
        buffer.past, buffer.newest = PastEpisodes.load(state.past, pages), state.newest
        return buffer

    def _due(self, ticks: float) -> bool:
        deadline = self.deadline
        return deadline is not None and ticks >= deadline

    def _oldest(self) -> tuple[BufferedMessage | None, BufferedMessage | None]:
        """Return the first entry held for the open episode, and the first entry held for any other episode."""
        entries = self.held.values()
        if self.episode is None:
            return None, next(iter(entries), None)
        own = next((entry for entry in entries if entry.episode == self.episode), None)
        return own, next((entry for entry in entries if entry.episode != self.episode), None)

    def _next(self) -> BufferedMessage | None:
        """Return the held entry that is next in order; between episodes, the first received entry with seq 0."""
        if self.episode is not None:
            return self.held.get((self.episode, self.next_seq))
        return next((entry for entry in self.held.values() if entry.seq == 0), None)

    def _take(self, entry: BufferedMessage) -> Iterator[Released]:
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
        """Stop waiting for the open episode (its oldest missing seqs or its end) or for the start of the next one."""
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
        """Continue with the lowest held seq of the open episode. Seqs below `again` are reported as `conflict`."""
        first, self.next_seq = self.next_seq, self._lowest(episode)
        known = min(max(first, self.again), self.next_seq)
        if first < known:
            yield Missing(episode, first, known - 1, "conflict")
        if known < self.next_seq:
            yield Missing(episode, known, self.next_seq - 1, "gap")

    def _begin_again(self, entry: BufferedMessage) -> Iterator[Released]:
        """Restart the open episode at a seq that was released with other content.

        Held entries were received before this message, so they are released first; otherwise they would count as steps
        after the restart. If a held entry ends the episode, there is no restart.
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
        """Keep the digests of the ended episode, within `ENDED_BYTES`.

        For older episodes keep only the fact that they ended.
        """
        self.ended[episode], self.digests = self.digests, Deduplicator()
        if len(self.ended) > ENDED_REMEMBERED:
            oldest = next(iter(self.ended))
            del self.ended[oldest]
            self.past.add(oldest, self.newest)
        left = ENDED_BYTES
        for past, digests in reversed(self.ended.items()):
            left -= 0 if digests is None else digests.size
            if left < 0:
                self.ended[past] = None

    def _lowest(self, episode: Episode) -> int:
        return min(seq for held, seq in self.held if held == episode)


def _old(digests: Deduplicator, entry: BufferedMessage) -> Literal["duplicate", "stale"]:
    """Return `duplicate` for an old step that was accepted with this content, or may have been; else `stale`."""
    known = digests.get(entry.seq)
    return "duplicate" if known == entry.digest or (known is None and digests.forgot(entry.seq)) else "stale"


def _either(held: BufferedMessage, other: BufferedMessage) -> BufferedMessage:
    """Return the entry for a seq received with two contents: a break, in which fields that differ are unset."""
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


def _conflict(entry: BufferedMessage) -> Break:
    return Break("conflict", f"seq {entry.seq} of episode {entry.episode!r} arrived twice with different content")
