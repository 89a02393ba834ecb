"""Guaranteed values: bounds over every causal model and every row of a learned model's confidence set.

They are computed by backward induction over offsets (docs/semantics/learned-models.md, section 13.4). Beyond the
observed path the induction is the same for all paths, so it is done once. Then the induction continues backward along
the path, over the states that some causal model reaches with some rows of the set.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.causal import Law
from monitor.causal.row import row_memory
from monitor.errors import LimitError
from monitor.exact.forward.evaluator import LabelledAutomaton, dynamics
from monitor.exact.forward.guaranteed import IntervalProblem, RowBounds, interval, level
from monitor.logic import FALSE, TRUE, Automaton, RewardAutomaton
from monitor.model.confidence import IntervalRows

MAX_ATOMS = 8
"""If a formula has more labels than this, label sets are not enumerated; bounds in an unknown state are then [0, 1]."""
MAX_GUARANTEED_NUMBERS = 20_000_000
"""Largest count of numbers (2 x offsets x columns x states) in the bounds beyond the observed path: 160 MB."""


class GuaranteedValues:
    """Guaranteed bounds of one measure under one law, for any path.

    Args:
        nominal: the law in force without the intervention.
        law: the law with the intervention.
        automaton: the unrolled automaton of the measure, with the labels of states.
        rows: bounds of the rows of `law.dynamics`, and of `nominal.dynamics`.

    Raises:
        LimitError: horizon times states is too large.
    """

    def __init__(
        self, nominal: Law, law: Law, automaton: LabelledAutomaton, rows: tuple[IntervalRows, IntervalRows]
    ) -> None:
        unrolled, label_of = automaton
        unrolled.extend(unrolled.horizon)
        model = law.dynamics
        self._states, self._horizon = model.states, unrolled.horizon
        alive = np.array([[o in column for column in unrolled.obligations] for o in range(self._horizon + 1)])
        self._columns = alive.shape[1]
        if 2 * alive.size * model.states > MAX_GUARANTEED_NUMBERS:
            raise LimitError(_too_many(2 * alive.size * model.states))
        counts = model.counts or nominal.dynamics.counts
        least, most = model.reward_range
        extremes = np.array([min(least, 0.0), max(most, 0.0)])  # 0 is included because the episode may have ended
        target, observed = rows
        self._problem = IntervalProblem(
            dynamics(nominal, law, merge_actions=False),
            RowBounds(*target),
            RowBounds(*observed),
            extremes,
            unrolled.ranges,
            unrolled.transitions,
            label_of,
            alive.view(np.uint8),
            _unknown(unrolled.automaton, unrolled.obligations, alive, extremes),
            -1 if counts is None else counts.elsewhere,
            np.zeros(model.actions),
            np.zeros(model.states),
            np.zeros(model.states),
            row_memory(max(model.states, model.actions)),
        )
        self._beyond: dict[int, Floats] = {self._horizon: self._level()}

    def interval(self, path: tuple[Ints, Ints]) -> tuple[float, float]:
        """Return the least and the greatest value from the first pair of a path on.

        `path`: states [d + 1] and actions [d + 1].
        """
        states, actions = path
        count = min(len(states), self._horizon)
        reached = np.zeros((count + 1, self._columns, self._states), dtype=np.uint8)
        values = np.empty((2, self._columns, self._states, 2))
        values[count & 1] = self._values_beyond(count)
        return interval(self._problem, states, actions, reached, values)

    def _values_beyond(self, offset: int) -> Floats:
        """Return the bounds [columns, S, 2] in all states at an offset without observations. Cached for later paths."""
        if offset not in self._beyond:
            everywhere = np.ones((self._columns, self._states), dtype=np.uint8)
            for earlier in range(min(self._beyond) - 1, offset - 1, -1):
                here = self._level()
                level(self._problem, earlier, everywhere, self._beyond[earlier + 1], here)
                self._beyond[earlier] = here
        return self._beyond[offset]

    def _level(self) -> Floats:
        return np.zeros((self._columns, self._states, 2))


def _unknown(automaton: Automaton, obligations: list[dict[int, int]], alive: Bools, extremes: Floats) -> Floats:
    """Return bounds [offsets, columns, 2] of each obligation in a state about which nothing is known, not even labels.

    The bounds of a probability are [1, 1] only if every sequence of labels makes the obligation true, [0, 0] only if
    every sequence makes it false, and [0, 1] otherwise. Each remaining rewarded step may earn any reward of the model.
    """
    unknown = np.zeros((*alive.shape, 2))
    known: dict[int, tuple[bool, bool]] = {FALSE: (False, False), TRUE: (True, True)}
    for column, cells in enumerate(obligations):
        for offset, obligation in cells.items():
            if isinstance(automaton, RewardAutomaton):
                unknown[offset, column] = automaton.rewarded_steps(obligation) * extremes
            else:
                unknown[offset, column] = _decided(automaton, obligation, known)
    return unknown


def _decided(automaton: Automaton, obligation: int, known: dict[int, tuple[bool, bool]]) -> tuple[bool, bool]:
    """Return whether every sequence of labels makes an obligation true, and whether some sequence does.

    Adds to `known`.
    """
    if len(automaton.atoms) > MAX_ATOMS:
        return False, True
    open_obligations = [obligation]
    while open_obligations:
        one = open_obligations[-1]
        following = {automaton.step(one, labels) for labels in range(1 << len(automaton.atoms))}
        missing = following - known.keys()
        if missing:
            open_obligations += missing
        else:
            known[open_obligations.pop()] = (
                all(known[each][0] for each in following),
                any(known[each][1] for each in following),
            )
    return known[obligation]


def _too_many(numbers: int) -> str:
    return (
        f"guaranteed bounds need {numbers:,} numbers beyond the observed path (limit MAX_GUARANTEED_NUMBERS); shorten "
        "the formula's intervals, or use fewer states"
    )
