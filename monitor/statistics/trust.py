"""Whether the transitions that happen still follow the model: a test that never ends and may be looked at always.

Against the model money is bet at every transition, at the model's own odds. From (s, a) it says p; a bet says q, a
distribution over the same successors; after s' the stake is multiplied by q(s') / p(s'). If the model is true, that is
1 on average whatever q is, so what a player owns is a nonnegative martingale: nobody gets rich against a true model.
By Ville's inequality P(the wealth ever reaches 1/alpha) <= alpha. So the model is doubted when it does, and alpha is
the probability that this ever happens to a true model, in a stream without end. The wealth is called an e-value.

Five bets, each with a fifth of the wealth, since the mean of martingales is one:

- `learned` says q(s') = (c p(s') + n(s, a, s')) / (c + n(s, a)), n counted before the step. It learns any deviation,
  but in each row for itself. Counts of a row are halved when they sum to `MEMORY`, so that it can learn anew.
- `flatter` says q ~ p^1/2: unlikely successors are likelier than the model says, in all rows alike; it needs to learn
  nothing. `sharper` says q ~ p^2: they are rarer.
- `glitches`, twice: a step that the model calls impossible would end every game at once, and a sensor's one wrong
  reading is no proof. So these two bet against "at most a part `impossible` of the steps is impossible", on 10 and on
  100 times that part (r): times r / impossible if it is, else times (1 - r) / (1 - impossible). That is a martingale
  at the rate `impossible` and falls below it. To the other bets such a step is no game: times 1. One wrong reading
  makes two such steps, there and back, and 100 times 100 is proof enough at the start of a stream: who hands the steps
  in passes over the one after an impossible one, wherever it leads (`monitor.watch`).

A bet may begin at any step: that of step t, 2^k <= t < 2^(k+1), gets the part `1 / (2^k (k+1) (k+2))` of the wealth,
which lies idle until then; all parts sum to 1. So what was lost while the model was true does not count when the world
changes at step t; what it takes to win is more by log(1/part) at worst: .7 nats at the first step, 19 at the millionth.

What is asked, and what is not. The proof looks at one step, given all that was seen before. So the policy may be
anything, may change and may follow our own alarms; agents share counts and may take turns; q may depend on all the
past, so counts may be forgotten at will; and one may stop, or look, at any time. Asked is, given what was seen before:

- Neither whether a transition is seen nor when depends on where it led. If just the bad outcomes are lost on the way,
  the transitions seen do not follow the model, and that is doubted rightly.
- Agents have chance of their own. Of two simulations with one seed the second only repeats the first, which no bet at
  the model's odds forgives: they are doubted, in a true model too.

Source: Ville 1939; G. Shafer, *Testing by betting* (JRSS A 2021); A. Ramdas et al., *Game-theoretic statistics and safe
anytime-valid inference* (Statistical Science 2023). The predictive of `learned` is Dirichlet's, centred on the model.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec

from monitor.errors import ConfigError

__all__ = ["MEMORY", "PLACES", "PRIOR", "ModelTest", "TrustState"]

PRIOR: Final = 32.0
"""c: how many steps the model's own word weighs against what was counted in a row."""
MEMORY: Final = 256
"""Steps of a row after which its counts are halved."""
PLACES: Final = 16_384
"""Different transitions counted at most, since all are written with a snapshot; with one more, all are forgotten."""
GLITCHES: Final = (10.0, 100.0)
"""How many times as many impossible steps as allowed are bet on."""
BETS: Final = 5


class TrustState(msgspec.Struct, frozen=True, array_like=True):
    """All that a test has come to, as plain data.

    `stakes`: what each bet owns of what has begun. `counts`: place of a transition in the model -> how often it was
    seen lately.
    """

    transitions: int
    stakes: tuple[float, float, float, float, float]
    counts: dict[int, int]


class ModelTest:
    """The test of one model, for all that happens in it.

    Args:
        starts, successors, probabilities: the model's rows; row r occupies `starts[r]:starts[r+1]`, successors
            ascending. Read one by one at each step: a memory view gives them ten times as fast as an array.
        alpha: the probability that a true model is ever doubted.
        impossible: which part of the steps may contradict the model without its being wrong.

    Attributes:
        doubted: the wealth has reached 1/alpha. For good: the test has ended, and further steps change nothing.
        transitions: how many were tested, impossible ones included.

    Raises:
        ConfigError: alpha outside (0, 1), or impossible outside (0, 0.005].

    >>> coin = ModelTest([0, 2], [0, 1], [0.5, 0.5])  # one row, two successors
    >>> for _ in range(40):
    ...     coin.step(0, 1)
    >>> coin.doubted, coin.transitions, round(coin.log10_e, 1)
    (True, 34, 3.1)
    """

    def __init__(
        self,
        starts: Sequence[int],
        successors: Sequence[int],
        probabilities: Sequence[float],
        *,
        alpha: float = 0.001,
        impossible: float = 0.0001,
    ) -> None:
        if not 0.0 < alpha < 1.0:
            raise ConfigError(f"trust.alpha is {alpha}; it must be a probability above 0 and below 1")
        if not 0.0 < impossible <= 0.005:
            raise ConfigError(f"trust.impossible is {impossible}; it must be above 0, and at most 0.005")
        self.doubted = False
        self.transitions = 0
        self._starts, self._successors, self._probabilities = starts, successors, probabilities
        self._enough = 1.0 / alpha
        self._near = BETS * (self._enough - 1.0)
        self._losses = tuple((1.0 - times * impossible) / (1.0 - impossible) for times in GLITCHES)
        self._learned = self._flatter = self._sharper = self._rare = self._often = 0.0
        self._part = 0.0
        self._rows: dict[int, _Row] = {}
        self._places: dict[int, _Place] = {}

    @property
    def log10_e(self) -> float:
        """Evidence against the model as log10 of an e-value, the wealth: 0 is none, 3 a thousand to one."""
        return math.log10(self._wealth())

    def step(self, row: int, successor: int) -> None:
        """Bet on one transition from the row, and see where it led."""
        if self.doubted:
            return
        place = self._places.get(row << 32 | successor) or self._place(row, successor)
        if place is None:
            self.contradict()
            return
        part = self._begin()
        seen = place.row.seen  # before this step: q knows nothing of where it leads
        self._learned = learned = (self._learned + part) * (PRIOR + place.seen * place.odds) / (PRIOR + seen)
        self._flatter = flatter = (self._flatter + part) * place.flatter
        self._sharper = sharper = (self._sharper + part) * place.sharper
        self._rare = rare = (self._rare + part) * self._losses[0]
        self._often = often = (self._often + part) * self._losses[1]
        place.seen += 1
        place.row.seen = seen + 1
        if seen >= MEMORY:
            self._halve(row)
        if len(self._places) > PLACES:  # only now: what is forgotten before a bet must not depend on where it leads
            self._places.clear()
            self._rows.clear()
        if learned + flatter + sharper + rare + often >= self._near:
            self._look()

    def contradict(self) -> None:
        """Take a step that the model calls impossible."""
        if self.doubted:
            return
        part = self._begin()
        self._learned += part
        self._flatter += part
        self._sharper += part
        self._rare = (self._rare + part) * GLITCHES[0]
        self._often = (self._often + part) * GLITCHES[1]
        self._look()

    def dump(self) -> TrustState:
        """Plain data, and its own."""
        stakes = (self._learned, self._flatter, self._sharper, self._rare, self._often)
        return TrustState(self.transitions, stakes, {place.index: place.seen for place in self._places.values()})

    def load(self, state: TrustState) -> None:
        """Go on where a test of the same model, with the same settings, stood."""
        self.transitions = state.transitions
        self._part = _part(max(state.transitions, 1))
        self._learned, self._flatter, self._sharper, self._rare, self._often = state.stakes
        self._rows, self._places = {}, {}
        for index, seen in state.counts.items():
            row = bisect_right(self._starts, index) - 1
            place = self._place(row, self._successors[index])
            assert place is not None, "a place of the model"
            place.seen = seen
            place.row.seen += seen
        self._look()

    def _begin(self) -> float:
        """What each bet gets to begin with at the next step."""
        self.transitions += 1
        if self.transitions & (self.transitions - 1) == 0:
            self._part = _part(self.transitions)
        return self._part

    def _wealth(self) -> float:
        staked = self._learned + self._flatter + self._sharper + self._rare + self._often
        return _idle(self.transitions) + staked / BETS

    def _look(self) -> None:
        self.doubted = self._wealth() >= self._enough

    def _place(self, number: int, successor: int) -> _Place | None:
        """A transition, counted from now on; None if the model has none such."""
        start, end = self._starts[number], self._starts[number + 1]
        index = bisect_left(self._successors, successor, start, end)
        if index == end or self._successors[index] != successor:
            return None
        row = self._rows.get(number)
        if row is None:
            row = self._rows[number] = _Row(self._probabilities[start:end])
        place = self._places[number << 32 | successor] = _Place(row, index, self._probabilities[index])
        return place

    def _halve(self, number: int) -> None:
        """Forget half of what was counted in a row."""
        row = self._rows[number]
        row.seen = 0
        for index in range(self._starts[number], self._starts[number + 1]):
            key = number << 32 | self._successors[index]
            if (place := self._places.get(key)) is not None:
                place.seen //= 2
                row.seen += place.seen


def _part(step: int) -> float:
    """What the bet of this step (>= 1) begins with: those of the k-th doubling sum to 1 / ((k + 1)(k + 2))."""
    k = step.bit_length() - 1
    return 1.0 / ((k + 1) * (k + 2) << k)


def _idle(steps: int) -> float:
    """What has not begun after so many steps: 1 less their parts.

    >>> math.isclose(_idle(1000), 1.0 - sum(map(_part, range(1, 1001))))
    True
    """
    if steps == 0:
        return 1.0
    k = steps.bit_length() - 1
    return 1.0 / (k + 1) - (steps - (1 << k) + 1) * _part(steps)


class _Row:
    """How many steps of a row are counted, and what p^1/2 and p^2 sum to in it."""

    __slots__ = ("roots", "seen", "squares")

    def __init__(self, chances: Sequence[float]) -> None:
        self.seen = 0
        self.roots = sum(map(math.sqrt, chances))
        self.squares = sum(p * p for p in chances)


class _Place:
    """How often a transition is counted, 1/p, and q/p of the bets that learn nothing."""

    __slots__ = ("flatter", "index", "odds", "row", "seen", "sharper")

    def __init__(self, row: _Row, index: int, p: float) -> None:
        self.seen = 0
        self.row = row
        self.index = index
        self.odds = min(1.0 / p, 1e300)  # never infinite, however small p is
        self.flatter = 1.0 / (math.sqrt(p) * row.roots)
        self.sharper = p / row.squares
