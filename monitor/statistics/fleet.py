"""Test of the model itself, which combines the tests of several agents.

Each agent has a separate test, so that one agent in a different environment is no evidence against the others. The
tests of all agents together test the model. Let S_i be the wealth of agent i, stopped and truncated at
`cap` = alpha^-2/3. For every 0 <= f <= 1, the product of 1 - f + f S_i over the agents is a nonnegative supermartingale
that starts at 1, because each step changes only one factor. The mean of these products over the `FRACTIONS` f is also
a nonnegative supermartingale that starts at 1. When the mean reaches 1/alpha, the model is rejected. One agent
multiplies the mean by at most `cap`. With a single agent, the mean reaches only about a quarter of `cap`, so a
rejection needs at least two agents. With a large f, weak evidence of many agents adds up. With a small f, an agent with
losses has little effect. After an agent is forgotten, only its losses are kept, so an agent that returns under the same
name does not count twice.

To locate a contradiction, use `wrong_rows` (`monitor.statistics.row_tests`) and `wrong_agents`. Both use e-BH
(`monitor.statistics.e_bh`). The future number of agents is unknown. So the n-th agent to make a transition has the
weight `part_of(n)`, which is fixed before its first step. The weights of any number of agents sum to at most 1. The
evidence of an agent is the highest wealth of its own bets, adjusted by `e_bh.adjusted`. This has three consequences:
the noises of agents may depend on each other, the list of rejected agents may be read at any time, and a rejected agent
stays rejected.

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
"""Values of f, the fraction of the wealth that is bet on each agent."""


class FleetState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `FleetTest` as plain data.

    `lost`: log of the losses of forgotten agents, for each fraction. `entered`, `observed`: as in `SharedTests`.
    `rows`: row -> state of the row's test.
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
    """Test of the model itself, which combines the tests of several agents.

    Args, Raises: as for `ModelTest`. `bounds`: bounds of the rows, if some rows are not known exactly; the
        probabilities of a row that is not known exactly are those that the data predict.

    Attributes:
        cap: wealth at which the wealth of each agent is truncated.
        rejected: True after the model was rejected, because the combined wealth reached 1/alpha.
        log10_e: log10 of the combined wealth, at the last combination.
        reported: number of transitions observed at the last combination; set by the caller.

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
        """Begin without agents; `shared` must not have counted anything yet."""
        self.cap = self._alpha ** (-2.0 / 3.0)
        self.rejected = False
        self.log10_e = 0.0
        self.reported = 0
        self._shared = shared
        self._lost = [0.0] * len(FRACTIONS)  # log of the losses of forgotten agents, for each fraction

    def alone(self) -> FleetTest:
        """Return a new fleet for one agent, which has not tested anything yet.

        It counts as few transitions as the test of one agent, and does not test single rows, so its state is small.
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
        """Number of transitions tested, for all agents."""
        return self._shared.transitions

    @property
    def observed(self) -> int:
        """Number of transitions tested, plus the transitions of rejected agents."""
        return self._shared.observed

    @property
    def rows_tested(self) -> int:
        """Number of rows that can be rejected; 0 if single rows are not tested."""
        return 0 if self._shared.rows is None else self._shared.rows.tested

    def rejected_rows(self) -> list[int]:
        """Return the currently rejected rows, strongest evidence first."""
        return [] if self._shared.rows is None else [row for row, _ in self._shared.rows.rejected()]

    def wrong_rows(self, most: int | None = None) -> list[RejectedRow]:
        """Return the first `most` of the rejected rows, and how each deviates from the model."""
        return [] if self._shared.rows is None else self._shared.rows.wrong(most)

    def departures(self, most: int = 3) -> list[Departure]:
        """Return the transitions with the most evidence against the model, over the steps of all agents."""
        return self._shared.learner.departures(most)

    def combine(self, tests: Iterable[ModelTest]) -> None:
        """Combine the tests of all known agents."""
        if self.rejected:
            return
        profits = [test.capped_wealth - 1.0 for test in tests]
        logs = []
        for f, lost in zip(FRACTIONS, self._lost, strict=True):
            total = 0.0
            for profit in profits:  # added one by one, because `sum` may correct rounding errors
                total += math.log1p(f * profit)
            logs.append(total + lost)
        most, total = max(logs), 0.0
        for each in logs:
            total += math.exp(each - most)
        log_e = most + math.log(total / len(logs))
        self.log10_e = log_e / math.log(10.0)
        self.rejected = log_e >= -math.log(self._alpha)

    def forget(self, test: ModelTest) -> None:
        """Drop an agent, but keep its losses."""
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
    """Return (index, e-value) of each rejected agent in `tests`, strongest evidence first."""
    evidence = [adjusted(test.highest) if test.number else 0.0 for test in tests]
    found = discoveries([e * part_of(max(test.number, 1)) for e, test in zip(evidence, tests, strict=True)])
    return [(place, evidence[place]) for place in found]


def joined_number(number: int, fleet: int, fleets: int) -> int:
    """Return the new number of an agent after several fleets are joined. The new numbers of all agents are distinct.

    >>> [[joined_number(number, fleet, 2) for number in (1, 2, 3)] for fleet in (0, 1)]
    [[1, 3, 5], [2, 4, 6]]
    """
    return (number - 1) * fleets + fleet + 1


def joined_fleets(states: Sequence[FleetState]) -> FleetState:
    """Join several fleets to one fleet with all their agents. No agent may be tested in more than one fleet.

    The product over all agents is the product of the fleets' products, so it is still a supermartingale. Losses of
    forgotten agents are factors of at most 1. So a loss that several fleets contain can only make a rejection harder.
    If one fleet has rejected the model, the joined fleet has rejected it too. Counts may be combined in any way,
    because all of them are known before the next step. Agents get new numbers by `joined_number`.
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
