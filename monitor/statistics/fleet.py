"""Test of the model itself, from the tests of several agents together.

Each agent has a test of its own, so that one in another environment is no evidence about the others. The tests of all
agents together test the model: with S_i the wealth of agent i, stopped and truncated at `cap` = alpha^-2/3, every
product over the agents of 1 - f + f S_i, 0 <= f <= 1, is a nonnegative supermartingale that begins with 1, for each
step changes one factor only; so is their mean over the `FRACTIONS` f. When it reaches 1/alpha, the model is rejected.
One agent multiplies it by at most `cap`: alone it gets to about a quarter of that, so at least two are needed.
A large f adds up weak evidence of all agents, a small one limits the effect of an agent that lost. Of a forgotten agent
only its losses remain: a name that appears again must not count twice.

Where a contradiction lies: `wrong_rows` (`monitor.statistics.row_tests`) and `wrong_agents`, both by e-BH
(`monitor.statistics.e_bh`). Agents come and go, and how many there will be is unknown. So the n-th agent to make
a transition has the weight `part_of(n)`, fixed before its first step; the weights of any number of agents sum to 1 at
most. Its evidence is the highest wealth of its own bets, adjusted: so the noises of agents may depend on each other, a
list may be looked at at any time, and who was rejected once stays so.

Compiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from monitor.statistics.betting_odds import MAX_TRANSITIONS, Departure, Odds
from monitor.statistics.e_bh import adjusted, discoveries
from monitor.statistics.interval_betting import IntervalModelTest
from monitor.statistics.interval_odds import NO_DATA, Bounds, IntervalOdds
from monitor.statistics.late_bets import part_of
from monitor.statistics.model_betting import OWN_TRANSITIONS, ModelTest, check_levels
from monitor.statistics.row_tests import RejectedRow, RowState, RowTests, joined_rows
from monitor.statistics.shared_tests import SharedTests

FRACTIONS: Final = (1.0, 0.1, 0.01, 0.001)
"""f: fraction of the wealth at stake on each agent."""


class FleetState(msgspec.Struct, frozen=True, array_like=True):
    """A `FleetTest` as plain data. `lost`: log of the losses of forgotten agents, for each fraction.

    `entered`, `observed`: as in `SharedTests`. `rows`: row -> state of its test.
    """

    counts: dict[int, int]
    lost: list[float]
    transitions: int
    rejected: bool
    log10_e: float
    entered: int = 0
    observed: int = 0
    rows: dict[int, RowState] = {}


class FleetTest:
    """Test of the model itself, from the tests of several agents together.

    Args, Raises: as for `ModelTest`. `bounds`: of a model whose rows are not all known exactly; the probabilities of
        such a row are what the data predict.

    Attributes:
        cap: wealth at which that of an agent is truncated.
        rejected: True once the model is rejected: their wealth has reached 1/alpha.
        log10_e: log10 of their wealth when they were combined last.
        reported: transitions observed when the tests were combined last, as the caller has noted.

    >>> coin = FleetTest([0, 2], [0, 1], [0.5, 0.5])
    >>> liar, other = coin.join(), coin.join()
    >>> for _ in range(100):
    ...     liar.step(0, 1)
    >>> coin.combine([liar, other])
    >>> liar.rejected, coin.rejected
    (True, False)
    """

    def __init__(
        self,
        starts: Sequence[int],
        successors: Sequence[int],
        probabilities: Sequence[float],
        *,
        alpha: float = 0.001,
        impossible: float = 0.0001,
        bounds: Bounds | None = None,
    ) -> None:
        check_levels(alpha, impossible)
        self._alpha, self._impossible = alpha, impossible
        rows = starts, successors, probabilities
        odds = Odds(*rows) if bounds is None else IntervalOdds(*rows, bounds)
        tested = len(starts) - 1 - (0 if bounds is None else list(bounds.unrecorded).count(NO_DATA))
        self._start(SharedTests(odds, rows=RowTests(odds, tested, impossible)))

    def _start(self, shared: SharedTests) -> None:
        """Begin without agents; `shared` has counted nothing."""
        self.cap = self._alpha ** (-2.0 / 3.0)
        self.rejected = False
        self.log10_e = 0.0
        self.reported = 0
        self._shared = shared
        self._lost = [0.0] * len(FRACTIONS)  # log of the losses of forgotten agents, for each fraction

    def alone(self) -> FleetTest:
        """Return the fleet of one agent, in which nothing was tested: it counts what its agent's own test counts.

        Single rows are not tested, which keeps its state small.
        """
        other = FleetTest.__new__(FleetTest)
        other._alpha, other._impossible = self._alpha, self._impossible  # noqa: SLF001 - of this class
        other._start(SharedTests(self._shared.odds, OWN_TRANSITIONS))  # noqa: SLF001 - likewise
        return other

    def join(self) -> ModelTest:
        """Return a test for a new agent."""
        odds, levels = self._shared.odds, {"alpha": self._alpha, "impossible": self._impossible}
        if isinstance(odds, IntervalOdds):
            return IntervalModelTest(odds, self._shared, **levels, cap=self.cap)
        return ModelTest(odds.starts, odds.successors, odds.probabilities, **levels, shared=self._shared, cap=self.cap)

    @property
    def transitions(self) -> int:
        """Number of transitions tested in all."""
        return self._shared.transitions

    @property
    def observed(self) -> int:
        """Number of transitions that were tested, or come from agents that are rejected."""
        return self._shared.observed

    @property
    def rows_tested(self) -> int:
        """Number of rows that can be rejected; 0 if single rows are not tested."""
        return 0 if self._shared.rows is None else self._shared.rows.tested

    def rejected_rows(self) -> list[int]:
        """Return the rows that are rejected now, those with the strongest evidence first."""
        return [] if self._shared.rows is None else [row for row, _ in self._shared.rows.rejected()]

    def wrong_rows(self, most: int | None = None) -> list[RejectedRow]:
        """Return the first so many of these rows, and how far off each is."""
        return [] if self._shared.rows is None else self._shared.rows.wrong(most)

    def departures(self, most: int = 3) -> list[Departure]:
        """Return the transitions with most evidence against the model, in the steps of all agents."""
        return self._shared.learner.departures(most)

    def combine(self, tests: Iterable[ModelTest]) -> None:
        """Combine the tests of all known agents."""
        if self.rejected:
            return
        profits = [test.capped_wealth - 1.0 for test in tests]
        logs = []
        for f, lost in zip(FRACTIONS, self._lost, strict=True):
            total = 0.0
            for profit in profits:  # one by one: `sum` may correct its rounding
                total += math.log1p(f * profit)
            logs.append(total + lost)
        most, total = max(logs), 0.0
        for each in logs:
            total += math.exp(each - most)
        log_e = most + math.log(total / len(logs))
        self.log10_e = log_e / math.log(10.0)
        self.rejected = log_e >= -math.log(self._alpha)

    def forget(self, test: ModelTest) -> None:
        """Drop an agent, but not its losses."""
        profit = test.capped_wealth - 1.0
        self._lost = [lost + min(0.0, math.log1p(f * profit)) for f, lost in zip(FRACTIONS, self._lost, strict=True)]

    def dump(self) -> FleetState:
        """Return the state as plain data."""
        shared = self._shared
        return FleetState(
            counts=shared.learner.counts,
            lost=list(self._lost),
            transitions=self.transitions,
            rejected=self.rejected,
            log10_e=self.log10_e,
            entered=shared.entered,
            observed=shared.observed,
            rows={} if shared.rows is None else shared.rows.dump(),
        )

    def load(self, state: FleetState) -> None:
        """Restore the state of a fleet with the same model and settings."""
        self._shared.learner.load(state.counts)
        self._shared.transitions, self._shared.entered = state.transitions, state.entered
        self._shared.observed = max(state.observed, state.transitions)
        if self._shared.rows is not None:
            self._shared.rows.load(state.rows)
        self._lost = list(state.lost)
        self.rejected, self.log10_e = state.rejected, state.log10_e


def wrong_agents(tests: Sequence[ModelTest]) -> list[tuple[int, float]]:
    """Return the places of the agents that are rejected, the strongest evidence first, and the e-value of each."""
    evidence = [adjusted(test.highest) if test.number else 0.0 for test in tests]
    found = discoveries([e * part_of(max(test.number, 1)) for e, test in zip(evidence, tests, strict=True)])
    return [(place, evidence[place]) for place in found]


def joined_number(number: int, fleet: int, fleets: int) -> int:
    """Return the number of an agent of one of several fleets after these are joined; no two get the same.

    >>> [[joined_number(number, fleet, 2) for number in (1, 2, 3)] for fleet in (0, 1)]
    [[1, 3, 5], [2, 4, 6]]
    """
    return (number - 1) * fleets + fleet + 1


def joined_fleets(states: Sequence[FleetState]) -> FleetState:
    """Return the fleet of the agents of several fleets, in which none of them was tested twice.

    The product over all agents is the product of the fleets' products, so it is still a supermartingale; losses of
    forgotten agents are factors of at most 1, so one that several fleets have counts against a rejection only. A
    rejection stays. Counts may be any that were made before the next step. Agents get numbers by `joined_number`.
    """
    counts: dict[int, int] = {}
    for state in states:
        for index, seen in state.counts.items():
            counts[index] = counts.get(index, 0) + seen
    return FleetState(
        counts=counts if len(counts) <= MAX_TRANSITIONS else {},
        lost=[sum(each) for each in zip(*(state.lost for state in states), strict=True)],
        transitions=sum(state.transitions for state in states),
        rejected=any(state.rejected for state in states),
        log10_e=max(state.log10_e for state in states),
        entered=max(state.entered for state in states) * len(states),
        observed=sum(state.observed for state in states),
        rows=joined_rows([state.rows for state in states]),
    )
