"""Sliding path of one agent: its newest (state, action) pairs, and the reason if a formula needs more pairs.

A path of n pairs has n - 1 observed transitions (docs/semantics/worlds.md, section 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from monitor.types.stream_events import BlindReason, State, Step

NOMINAL: Final = "nominal"
"""Name of the deployed policy."""


class PathState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `SlidingPath` as plain data; the fields are its attributes."""

    held: list[tuple[State, int | None]]
    last: Step | None
    oldest_dropped: bool
    ended: bool
    terminated: bool
    broken: BlindReason | None
    detail: str
    acted: list[str] = []
    inputs: list[tuple[float, ...]] = []


class SlidingPath:
    """The newest `window` (>= 1) pairs of the current episode, oldest first. A path never spans a break.

    Attributes:
        held: (state, action) pairs, oldest first; the newest action is None if the episode's last message had none. The
            list is updated in place; `pairs` is a copy.
        acted: names of the policies that acted at the held pairs (or UNKNOWN_POLICY), oldest first; empty if nominal
            acted at all pairs.
        inputs: recorded inputs at the held pairs, oldest first; for hidden states, the beliefs before the pairs; empty
            if there are no inputs and no beliefs.
        last: the newest step; None if the path is empty.
        oldest_dropped: True if older pairs of the path have left the window.
        ended: True if the episode has ended. The pairs are kept for the last verdicts, until the next step or break.
        terminated: True if the episode terminated, so that the last state is absorbing for the rest of every horizon.
        broken: reason why the path does not begin with the observed start of the episode; None if it does.
        detail: a sentence about `broken`.
        begun: number of restarts of the path, each of which drops the held pairs.
        pushed: number of pairs since the last restart, including pairs that have left the window. If `begun` has not
            changed since a reader last looked, the increase of `pushed` is the number of new pairs.

    >>> path = SlidingPath(2)
    >>> for seq, state in enumerate([4, 5, 6]):
    ...     path.push(Step(episode="e", seq=seq, state=state, action=1, time=0.0))
    >>> path.pairs, path.first_seq, path.start_observed, path.oldest_dropped
    (((5, 1), (6, 1)), 1, False, True)
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.last: Step | None = None
        self.oldest_dropped = False
        self.ended = False
        self.terminated = False
        self.broken: BlindReason | None = "warming_up"
        self.detail = "no step seen yet"
        self.begun = 0
        self.pushed = 0
        self.held: list[tuple[State, int | None]] = []
        self.acted: list[str] = []
        self.inputs: list[tuple[float, ...]] = []

    def __len__(self) -> int:
        return len(self.held)

    @property
    def pairs(self) -> tuple[tuple[State, int | None], ...]:
        """The held pairs, as a new tuple."""
        return tuple(self.held)

    def moments(self) -> Iterator[tuple[State, int | None, tuple[float, ...]]]:
        """Yield the held pairs with their inputs, oldest first."""
        for n, (state, action) in enumerate(self.held):
            yield state, action, self.inputs[n] if self.inputs else ()

    @property
    def first_seq(self) -> int | None:
        """Seq of the oldest held pair; None if there is none."""
        return self.last.seq - len(self.held) + 1 if self.last else None

    @property
    def start_observed(self) -> bool:
        """True if the oldest held pair has seq 0 of its episode, without a conflict."""
        return self.last is not None and self.broken is None and not self.oldest_dropped

    def blind(self, offset: int) -> BlindReason | None:
        """Return the reason why a formula with largest |offset| `offset` cannot be evaluated now; None if it can.

        On a path from an observed start, offsets are clipped instead.
        """
        if len(self.held) > offset or self.start_observed:
            return None
        return self.broken or "warming_up"

    def push(self, step: Step) -> None:
        """Append a step. If the step does not continue the held pairs, the path restarts."""
        last = self.last
        if last is None or self.ended or step.seq != last.seq + 1 or step.episode != last.episode:
            self._start(step)
        if self.acted or step.policy != NOMINAL:
            self._note_policy(step.policy)
        self.held.append((step.state, step.action))
        if step.inputs:
            self.inputs.append(step.inputs)
        else:  # this pair has no inputs, so the inputs of earlier pairs are useless
            self.inputs.clear()
        if len(self.held) > self.window:
            del self.held[0]
            del self.inputs[: -self.window]
            self.oldest_dropped = True
        self.pushed += 1
        self.last = step

    def restart(self, reason: BlindReason, detail: str = "") -> None:
        """Drop the held pairs, because the path breaks for this reason."""
        self._clear(reason, detail)

    def end(self, *, terminated: bool) -> None:
        """End the episode."""
        self.ended = True
        self.terminated = terminated

    def rename(self, name: Callable[[str], str]) -> None:
        """Rename the policies that acted. `name`: function from the old name to the new name."""
        self.acted = [name(policy) for policy in self.acted or [NOMINAL] * len(self.held)]
        self._forget_if_nominal()

    def dump(self) -> PathState:
        """Return the state as plain data. Serialize it before the next event, because it shares the list of pairs."""
        return PathState(
            self.held,
            self.last,
            self.oldest_dropped,
            self.ended,
            self.terminated,
            self.broken,
            self.detail,
            self.acted,
            self.inputs,
        )

    @classmethod
    def load(cls, window: int, state: PathState) -> SlidingPath:
        """Return the path of a dumped state. A smaller window keeps the newest pairs."""
        path = cls(window)
        path.held, path.acted = state.held[-window:], state.acted[-window:]
        path.inputs = state.inputs[-window:]
        path.last = state.last
        path.oldest_dropped = state.oldest_dropped or len(state.held) > window
        path.ended, path.terminated = state.ended, state.terminated
        path.broken, path.detail = state.broken, state.detail
        return path

    def _note_policy(self, policy: str) -> None:
        """Record the policy that acts at the pair about to be appended; drop the policy of the pair that leaves."""
        if not self.acted:
            self.acted += [NOMINAL] * len(self.held)
        self.acted.append(policy)
        del self.acted[: -self.window]
        self._forget_if_nominal()

    def _forget_if_nominal(self) -> None:
        if self.acted.count(NOMINAL) == len(self.acted):
            self.acted.clear()

    def _start(self, step: Step) -> None:
        """Begin a path with a step that does not continue the held pairs."""
        last = self.last
        if self.ended or (last is not None and step.episode != last.episode):
            self._clear(None, "")
        elif last is not None:
            self._clear("gap", f"seq {last.seq} is followed by {step.seq}")
        # after a conflict it is unknown which message with seq 0 is correct, so there is no observed start
        if step.seq == 0 and self.broken != "conflict":
            self.broken, self.detail = None, ""
        elif self.broken is None:
            self.broken, self.detail = "warming_up", f"joined episode {step.episode!r} at seq {step.seq}"

    def _clear(self, broken: BlindReason | None, detail: str) -> None:
        self.held.clear()
        self.acted.clear()
        self.inputs.clear()
        self.begun += 1
        self.pushed = 0
        self.last = None
        self.oldest_dropped = self.ended = self.terminated = False
        self.broken, self.detail = broken, detail
