"""Values of the best decisions without observations, by backward induction, and the policy of these decisions.

The best decision depends on the state and on the obligation that remains. If several actions are best up to 1e-12, the
action with the largest probability under the nominal policy is chosen. Among equally probable actions the action with
the lowest number is chosen. Compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import LimitError
from monitor.exact.best.layouts import FIRST_SLOT, ObligationLayouts
from monitor.exact.best.options import TIE, Options
from monitor.logic import FALSE, TRUE

MAX_NUMBERS = 20_000_000
"""Largest number of values (obligations x states) in the tables of one measure: 160 MB."""
NO_STATE = -1
"""Used in place of the state in which the episode has ended, if the episode continues."""
INFINITY = float("inf")

Nominal = Callable[[int], Floats]
"""Obligation -> values [S] under the nominal policy."""


class Prior:
    """Tables of one measure, filled on demand.

    Args:
        options: the rows to choose from.
        layouts: the obligations.
        nominal: the values of the obligations under the nominal policy.
        end: the state in which the episode has ended, absorbing under every action, or NO_STATE.
        largest: whether decisions maximise the value; else they minimise it.
    """

    def __init__(
        self, options: Options, layouts: ObligationLayouts, nominal: Nominal, end: int, *, largest: bool
    ) -> None:
        self._options, self._layouts, self._end = options, layouts, end
        self.largest = largest
        self._nominal = nominal
        self._best: dict[int, Floats] = {}
        self._choices: dict[int, Ints] = {}
        self._followed: dict[int, Floats] = {}
        self._takeovers: dict[tuple[int, int], Floats] = {}

    def best(self, obligation: int) -> Floats:
        """Return the values [S] of an obligation if every decision is best."""
        self._fill(obligation)
        return self._best[obligation]

    def choices(self, obligation: int) -> Ints:
        """Return the best action [S] in each state; -1 if no action is available."""
        self._fill(obligation)
        return self._choices[obligation]

    def followed(self, obligation: int) -> Floats:
        """Return the values [S] of an obligation under the policy that takes the actions of `choices`."""
        for each in self._layouts.below(obligation):
            if each not in self._followed:
                self._followed[each], _ = self._backup(each, self._followed.__getitem__, self._end, self.choices(each))
        return self._followed[obligation]

    def takeover(self, steps: int, obligation: int) -> Floats:
        """Return the values [S] if the next `steps` decisions are best and the later decisions nominal."""
        if steps <= 0:
            return self._nominal(obligation)
        if steps >= self._layouts.automaton.horizon(obligation):
            return self.best(obligation)
        if (steps, obligation) not in self._takeovers:
            for left, each in reversed(self._missing(steps, obligation)):  # fewest steps first
                self._check_size()
                self._takeovers[left, each], _ = self._backup(each, partial(self.takeover, left - 1), self._end)
        return self._takeovers[steps, obligation]

    def _missing(self, steps: int, obligation: int) -> list[tuple[int, int]]:
        """Return the takeovers (steps, obligation) still to be computed for one takeover, which comes first.

        Each takeover comes before the takeovers that it needs. Filling them in reverse order avoids recursion, which
        would exceed Python's stack for many steps.
        """
        missing, found = [(steps, obligation)], {(steps, obligation)}
        for left, each in missing:
            for rest in set(self._layouts.rests(each)) - {FALSE, TRUE}:
                key = left - 1, rest
                filled = left <= 1 or left > self._layouts.automaton.horizon(rest) or key in self._takeovers
                if not filled and key not in found:
                    found.add(key)
                    missing.append(key)
        return missing

    def _fill(self, obligation: int) -> None:
        if obligation in self._best:
            return
        for each in self._layouts.below(obligation):
            if each not in self._best:
                self._check_size()
                self._best[each], self._choices[each] = self._backup(each, self._best.__getitem__, self._end)

    def before_end(self, obligation: int, ahead: Callable[[int], Floats]) -> tuple[Floats, Ints]:
        """Return the values [S] and choices [S] of best decisions at a step at which the episode has not ended yet.

        `ahead`: obligation -> values [S] one step later.
        """
        return self._backup(obligation, ahead, NO_STATE)

    def _backup(
        self, obligation: int, ahead: Callable[[int], Floats], end: int, fixed: Ints | None = None
    ) -> tuple[Floats, Ints]:
        """Return values [S] and choices [S]. `fixed` [S]: the actions to take; None for the best actions."""
        rests = self._layouts.rests(obligation)
        different = sorted(set(rests) - {FALSE, TRUE})
        slot = {FALSE: FALSE, TRUE: TRUE} | {rest: FIRST_SLOT + n for n, rest in enumerate(different)}
        states = len(self._layouts.label_of)
        later = np.zeros((len(different), states))
        for n, rest in enumerate(different):
            later[n] = ahead(rest)
        values, choices = np.zeros(states), np.full(states, -1)
        backup(
            self._options,
            self._layouts.label_of,
            np.array([slot[rest] for rest in rests]),
            self._layouts.automaton.rewards(obligation),
            later,
            end,
            self.largest,
            NO_CHOICES if fixed is None else fixed,
            np.zeros(self._options.rewards.shape[1]),
            values,
            choices,
        )
        return values, choices

    def _check_size(self) -> None:
        tables = 2 * len(self._best) + len(self._followed) + len(self._takeovers)
        states = len(self._layouts.label_of)
        if tables * states > MAX_NUMBERS:
            raise LimitError(
                f"the best decisions need a table of more than {MAX_NUMBERS} numbers (limit MAX_NUMBERS): at least "
                f"{tables} vectors for {states} states; shorten the formula's intervals"
            )


NO_CHOICES: Ints = np.zeros(0, dtype=np.int64)
"""Used if no actions are fixed, so that the best action is chosen."""


# ---- compiled ----


def backup(
    options: Options,
    label_of: Ints,
    targets: Ints,
    rewarded: bool,
    ahead: Floats,
    end: int,
    largest: bool,
    fixed: Ints,
    means: Floats,
    values: Floats,
    choices: Ints,
) -> None:
    """Write the values [S] and the choices [S] of one obligation.

    `targets` [labels]: as in `Layout`. `ahead` [n, S]: the values of n next obligations. `means` [A]: working memory.
    """
    states, actions = options.rewards.shape[0], options.rewards.shape[1]
    sign = 1.0 if largest else -1.0
    for state in range(states):
        target, best = targets[label_of[state]], -INFINITY
        for action in range(actions):
            alike = options.alike[state * actions + action]
            if alike < 0 or (len(fixed) > 0 and fixed[state] != action):
                continue
            if alike == action or len(fixed) > 0:
                means[action] = mean_of(options, state, action, target, rewarded, ahead, end)
            else:
                means[action] = means[alike]
            if sign * means[action] > best:
                best = sign * means[action]
                choices[state] = action
        if choices[state] < 0:
            continue
        values[state] = sign * best
        if len(fixed) > 0:
            continue
        liked = 0.0
        for action in range(actions - 1, -1, -1):
            if options.alike[state * actions + action] < 0:
                continue
            if best - sign * means[action] > TIE * max(1.0, abs(best)):
                continue
            weight = nominal_weight(options, state, action)
            if weight >= liked:
                choices[state], liked = action, weight


def nominal_weight(options: Options, state: int, action: int) -> float:
    """Return the probability of an action under the nominal policy."""
    if len(options.actions) > 0:
        return 1.0 if options.actions[state] == action else 0.0
    return options.choices[state, action]


def mean_of(options: Options, state: int, action: int, target: int, rewarded: bool, ahead: Floats, end: int) -> float:
    """Return the reward of a pair plus the mean of the values ahead over the model's row."""
    if state == end:
        return ahead[target - FIRST_SLOT, state] if target >= FIRST_SLOT else float(target)
    pair = state * options.rewards.shape[1] + action
    total = options.rewards[state, action] if rewarded else 0.0
    if target < FIRST_SLOT:
        total += target
    for k in range(options.indptr[pair], options.indptr[pair + 1]):
        if target >= FIRST_SLOT:
            total += options.probabilities[k] * ahead[target - FIRST_SLOT, options.successors[k]]
        if rewarded and len(options.extra) > 0:
            total += options.probabilities[k] * options.extra[k]
    return total
