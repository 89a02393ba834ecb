"""Outcomes of held-out steps: when labels held. They are read from the rows and do not depend on the states."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from monitor.arrays import Bools, Ints
from monitor.authoring.learning.holdout import HELD, HELD_FRACTION, held_out
from monitor.authoring.learning.recorded_steps import Steps
from monitor.authoring.learning.state_codes import is_end, unknown_at


@dataclass
class Outcomes:
    """Labels after each held-out transition, independent of the states. `seed`, `fraction`, `begin`: as in `Holdout`.

    `unsafe` [L]: labels that count as holding where they are unknown, as in the models. `unmarked`: True if no column
    distinguishes cut episodes from others. In this case, if a label first holds in the last state of a path, it is
    assumed to have ended the episode.
    """

    seed: int
    unsafe: Bools
    fraction: float = HELD_FRACTION
    begin: float = 0.0
    unmarked: bool = False
    _parts: list[tuple[Bools, Bools, Bools, Bools, Ints, Ints]] = field(default_factory=list)
    _kept: int = 0

    @classmethod
    def of_label(cls, holds: Bools, ended: Bools, path: Ints, episode: Ints, *, unmarked: bool = False) -> Outcomes:
        """Return the outcomes of all transitions [n], for one label that is known after each of them."""
        found, never = (
            cls(0, np.ones(1, np.bool_), fraction=1.0, unmarked=unmarked),
            np.zeros((len(holds), 1), np.bool_),
        )
        found._take((holds[:, np.newaxis], never, never), ended, (path, episode))
        return found

    def add(self, steps: Steps) -> None:
        """Add the transitions of a batch."""
        lost = unknown_at(steps.code, len(self.unsafe))
        self._take((steps.arrived, steps.unmeasured, lost), is_end(steps.code), (steps.segment, steps.episode))

    def _take(self, labels: tuple[Bools, Bools, Bools], ended: Bools, of: tuple[Ints, Ints]) -> None:
        """Add transitions [n]: their labels, whether each ends an episode, and `of`: their paths and their episodes.

        `labels`: three arrays [n, L]: the labels that hold after the transition, where a value for a label is missing,
        and where the last state is missing.
        """
        path, episode = of
        out = held_out(episode, self.seed, self.fraction, self.begin)
        if self._kept < HELD:
            arrived, unmeasured, lost = (each[out] for each in labels)
            self._parts.append((arrived, unmeasured, lost, ended[out], path[out], episode[out]))
            self._kept += int(out.sum())

    def events(self, horizon: int, *, assumed: bool = True) -> tuple[Bools, Bools]:
        """Return which forecasts after each transition are judged, [n, L], and which of these came true, [n, L].

        A forecast is judged if the label does not hold yet, and the recording continues for `horizon` steps or until
        the end of the episode. The forecast is not judged if a value that the label needs is missing, now or before the
        label holds. Paths come one after another, as in `Holdout.held`. At an end whose state was not recorded, an
        unsafe label holds, as in tables. With `assumed` False, it counts as missing at such an end.
        """
        arrived, unmeasured, lost, ended, path, _ = self._joined()
        arrived, unmeasured = (arrived | (lost & self.unsafe), unmeasured) if assumed else (arrived, unmeasured | lost)
        number = np.arange(len(path))
        last = np.searchsorted(path, path, side="right") - 1
        following, blind = _following(arrived), _following(unmeasured)
        until = np.minimum(number + horizon, last)[:, None]
        whole = (ended[last] | (number + horizon <= last))[:, None] | (self.unmarked & (following == last[:, None]))
        known = ~unmeasured & (blind > np.minimum(following, until))
        return ~arrived & known & whole & ~ended[:, None], following <= until

    def ends(self, horizon: int) -> Bools:
        """Return whether the episode ends within `horizon` steps after each transition, [n]."""
        *_, ended, path, _ = self._joined()
        last = np.searchsorted(path, path, side="right") - 1
        return np.asarray(ended[last] & (np.arange(len(path)) + horizon >= last))

    def paths(self) -> Ints:
        """Return the path of each transition."""
        return self._joined()[-2]

    def episodes(self) -> Ints:
        """Return the episode of each transition. Gaps divide an episode into paths."""
        return self._joined()[-1]

    def _joined(self) -> tuple[Bools, Bools, Bools, Bools, Ints, Ints]:
        none, labels = np.zeros(0, np.bool_), np.zeros((0, len(self.unsafe)), np.bool_)
        whole = np.zeros(0, np.int64)
        parts = [(labels, labels, labels, none, whole, whole), *self._parts]
        arrived, unmeasured, lost, ended, path, episode = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(path, kind="stable")
        return arrived[order], unmeasured[order], lost[order], ended[order], path[order], episode[order]


@dataclass(frozen=True)
class HiddenOutcomes:
    """Outcomes of a condition on hidden states, as far as recordings show them.

    Attributes:
        holds, known: after each transition [n], whether the condition is known to hold, and whether it is known at all.
        shown: whether the observation alone shows that the condition holds.
        ended: whether the transition ends the episode.
        path, episode: as in `Outcomes`.
    """

    holds: Bools
    known: Bools
    shown: Bools
    ended: Bools
    path: Ints
    episode: Ints

    def events(self, horizon: int, *, assumed: bool = True) -> tuple[Bools, Bools]:
        """Return which forecasts after each transition are judged, [n, 1], and which of these came true, [n, 1].

        A forecast includes the present step, because the state is hidden. It is judged if the condition is known at
        each step from now until the horizon or the end of the episode, and if the observation does not show already
        that the condition holds. Therefore, whether a forecast is judged does not depend on a true state that was not
        observed.
        """
        del assumed
        number = np.arange(len(self.path))
        last = np.searchsorted(self.path, self.path, side="right") - 1
        until = np.minimum(number + horizon, last)
        whole = self.ended[last] | (number + horizon <= last)
        judged = whole & ~self.ended & ~self.shown & ~_any_within(~self.known, number, until)
        return judged[:, np.newaxis], _any_within(self.holds, number, until)[:, np.newaxis]

    def ends(self, horizon: int) -> Bools:
        """Return whether the episode ends within `horizon` steps after each transition, [n]."""
        last = np.searchsorted(self.path, self.path, side="right") - 1
        return np.asarray(self.ended[last] & (np.arange(len(self.path)) + horizon >= last))

    def paths(self) -> Ints:
        """Return the path of each transition."""
        return self.path

    def episodes(self) -> Ints:
        """Return the episode of each transition."""
        return self.episode


def _any_within(marks: Bools, first: Ints, last: Ints) -> Bools:
    """Return for each pair of `first` and `last` whether a row from one to the other is marked."""
    before = np.concatenate([[0], np.cumsum(marks)])
    return np.asarray(before[last + 1] > before[first])


def _following(marks: Bools) -> Ints:
    """Return for each row the next later row that is marked, [n, L]; n if there is none."""
    count = len(marks)
    later = np.vstack([np.where(marks, np.arange(count)[:, None], count)[1:], np.full((1, marks.shape[1]), count)])
    following: Ints = np.minimum.accumulate(later[::-1])[::-1]
    return following
