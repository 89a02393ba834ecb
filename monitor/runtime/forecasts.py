"""Forecasts that come true or do not: the probability a formula gives the agent's own future, held against that future.

A verdict on `P>=0.9 [ G<=20 !"unsafe" ]` says with which probability the agent, carrying on, satisfies the path
formula. Twenty steps later everybody can see whether it did. For each formula and agent one such forecast at a time is
*followed*: its path formula reads the states that come, and once it is due the next verdict is followed.

It is due when its whole horizon has passed, though it may be decided before. Else a forecast that fails early would be
counted and one that goes well dropped where the data end in between: whether one counts must not depend on its outcome.

Forecasts that are followed one after the other do not overlap, so outcome minus forecast is a martingale difference if
the model is true and the agent does what the nominal policy does: A. Dawid, "The well-calibrated Bayesian" (1982). All
verdicts of one path share most of their future, and as evidence would count one piece of luck many times.

Only the future counts. The nominal path begins at the offset of the quantity, so its first states are observed ones
(docs/semantics.md, section 2.3): they are read first, and where they decide already nothing was forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from monitor.errors import LimitError
from monitor.exact.labelling import StateLabels
from monitor.logic import FALSE, TRUE, Formula, PathAutomaton, print_formula
from monitor.logic.syntax import NOMINAL, Goal, Probability, Regret
from monitor.logic.traversal import goals, nested_goals, regret_goals
from monitor.model import MDP
from monitor.statistics.calibration import Tally
from monitor.types import Calibrated, Calibration, Engine, Forecast, Verdict

__all__ = ["SAMPLED", "Forecasts", "ForecastsState", "Target", "asked", "given_up", "target_of"]

NOTHING_OWN: Final = "it asks for no probability under the agent's own policy"
REWARD: Final = "it asks for a reward, and a mean does not come true or false"
EFFECT: Final = "it asks for an effect, a difference between two worlds of which only one happens"
NESTED: Final = "it asks for a probability within a probability, which no observed state decides"
SEVERAL: Final = "it asks for several probabilities under the agent's own policy"
SETTLED: Final = "the state it is asked in decides it, so nothing is forecast"
SAMPLED: Final = "its answers are sampled, and only exact ones are followed"


class Asked(msgspec.Struct, frozen=True):
    """Which forecast of a formula is followed. `index`: of its quantity in a verdict; `path`: the path formula."""

    index: int
    path: Formula


@lru_cache(maxsize=1024)
def asked(formula: Formula, engine: Engine = "auto") -> Asked | str:
    """Return which forecast of a formula can be followed, or the reason why none can."""
    if engine == "sampled":
        return SAMPLED
    quantities = list(enumerate(_quantities(formula)))
    own = [(n, goal) for n, goal in quantities if goal.world.change == NOMINAL and goal.world.baseline is None]
    found = [(n, goal.world.offset, goal.measure.path) for n, goal in own if isinstance(goal.measure, Probability)]
    if not found:
        effect = any(goal.world.baseline is not None for _, goal in quantities)
        return REWARD if own else EFFECT if effect else NOTHING_OWN
    if len({(offset, path) for _, offset, path in found}) > 1:
        return SEVERAL
    index, _, path = found[0]
    if next(nested_goals(path), None) is not None:
        return NESTED
    try:
        automaton = PathAutomaton(path)
    except LimitError as error:
        return str(error)
    return Asked(index, path) if automaton.horizon(automaton.start) > 1 else SETTLED


def _quantities(formula: Formula) -> list[Goal]:
    """The quantities of a formula in the order in which a verdict has them."""
    if isinstance(formula, Regret):
        return list(regret_goals(formula))
    return list({print_formula(goal): goal for goal, _, _ in goals(formula)}.values())


class Owed:
    """What a path still owes. `after`: letter -> what is owed after it; `came_true`: None while that is undecided."""

    __slots__ = ("after", "came_true", "obligation")

    def __init__(self, obligation: int) -> None:
        self.obligation = obligation
        self.after: dict[int, Owed] = {}
        self.came_true = {TRUE: True, FALSE: False}.get(obligation)


class Target:
    """What is followed of one formula, shared by all agents.

    `index`: of the quantity in a verdict. `start`: what is owed before the first letter; `horizon`: letters that decide
    it at the latest. `letters`: [S], the letter that each state shows.
    """

    __slots__ = ("_automaton", "_known", "horizon", "index", "letters", "start")

    def __init__(self, asked_for: Asked, model: MDP) -> None:
        self.index = asked_for.index
        self._automaton = PathAutomaton(asked_for.path)
        self._known: dict[int, Owed] = {}
        self.start = self._owed(self._automaton.start)
        self.horizon = self._automaton.horizon(self._automaton.start)
        self.letters = StateLabels(self._automaton, model).masks.data  # of Python ints, where an array gives its own

    def after(self, owed: Owed, letter: int) -> Owed:
        """Find what is owed after a letter that was not read here before. LimitError if it unfolds too far."""
        found = owed.after[letter] = self._owed(self._automaton.step(owed.obligation, letter))
        return found

    def _owed(self, obligation: int) -> Owed:
        return self._known.setdefault(obligation, Owed(obligation))


def target_of(formula: Formula, engine: Engine, model: MDP) -> Target | None:
    """Return what to follow of a validated formula; None where `asked` has a reason against it."""
    found = asked(formula, engine)
    return None if isinstance(found, str) else Target(found, model)


class ForecastsState(msgspec.Struct, frozen=True, array_like=True):
    """`Forecasts` as plain data. `value`: the forecast that is followed now; `letters`: what was read for it so far."""

    tally: Calibration
    value: float | None = None
    letters: tuple[int, ...] = ()


class Forecasts:
    """The forecasts of one formula for one agent: the one that is followed, and what the former ones came to.

    Attributes:
        value: the forecast that is followed now, None if there is none. While it is None, nothing need be read.
        tally: what became of those before.
    """

    __slots__ = ("_agent", "_formula", "_letters", "_owed", "_read", "_target", "tally", "value")

    def __init__(self, target: Target, agent: str, formula: str) -> None:
        self._target, self._agent, self._formula = target, agent, formula
        self._owed, self._letters = target.start, target.letters
        self._read: list[int] = []
        self.value: float | None = None
        self.tally = Tally()

    def begin(self, verdict: Verdict, held: Sequence[tuple[int, int | None]]) -> None:
        """Follow the forecast of a verdict on the path `held`, if the future has to decide it; none is followed yet."""
        if verdict.method != "exact" or not verdict.quantities:
            return
        target = self._target
        quantity = verdict.quantities[target.index]
        # The states of its path that are known: @t begins t steps back, @-k at the k-th of those held.
        known = quantity.offset + 1 if quantity.offset >= 0 else len(held) + quantity.offset + 1
        if known >= target.horizon:
            return  # they decide it, whatever they are
        read = [self._letters[state] for state, _ in held[-known:]]
        owed = self._follow(read)
        if owed is not None and owed.came_true is None:
            self.value, self._owed, self._read = quantity.value, owed, read

    def read(self, state: int) -> Forecast | None:
        """Read the next state of the path, while `value` is there; return the forecast if it is due then."""
        letter = self._letters[state]
        owed = self._owed.after.get(letter) or self._follow([letter], self._owed)
        if owed is None:
            return self.drop()
        self._owed = owed
        self._read.append(letter)
        if len(self._read) < self._target.horizon:
            return None
        came_true = owed.came_true
        assert came_true is not None, "so many letters decide it"
        self.tally.add(self._said(), came_true=came_true)
        return self._over(came_true=came_true)

    def stay(self, state: int) -> Forecast | None:
        """Read a state in which the path stays for good; return the forecast, if one is followed."""
        over = None
        while self.value is not None:
            over = self.read(state)
        return over

    def drop(self) -> Forecast | None:
        """Give up what is followed, if anything is: not all that it is about will be known."""
        if self.value is None:
            return None
        self.tally.drop()
        return self._over(came_true=None)

    def again(self) -> Calibrated:
        """How the forecasts stand."""
        return Calibrated(self._formula, self.tally.dump(), self._agent)

    def dump(self) -> ForecastsState:
        """All that the future depends on."""
        return ForecastsState(self.tally.dump(), self.value, () if self.value is None else tuple(self._read))

    def load(self, state: ForecastsState) -> None:
        """The inverse of `dump`, where nothing was followed yet."""
        self.tally.merge(state.tally)
        if state.value is not None and (owed := self._follow(state.letters)) is not None:
            self.value, self._owed, self._read = state.value, owed, list(state.letters)

    def _follow(self, letters: Sequence[int], owed: Owed | None = None) -> Owed | None:
        """Find what is owed after these letters.

        None where that unfolds too far. The engine has unfolded as much for its answer, so it should not happen.
        """
        owed = owed or self._target.start
        try:
            for letter in letters:
                owed = owed.after.get(letter) or self._target.after(owed, letter)
        except LimitError:
            return None
        return owed

    def _over(self, *, came_true: bool | None) -> Forecast:
        said = self._said()
        self.value = None
        return Forecast(self._agent, self._formula, said, came_true)

    def _said(self) -> float:
        assert self.value is not None, "only what is followed can be decided"
        return self.value


def given_up(agent: str, formula: str, state: ForecastsState | None) -> list[Forecast]:
    """Return the forecast that a state still followed, as dropped: its formula is not asked as it was any more."""
    return [] if state is None or state.value is None else [Forecast(agent, formula, state.value, None)]
