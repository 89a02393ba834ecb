"""What can be asked about: a model with its policies, enumerated or simulated, as worlds to be drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, assert_never

import numpy as np

from monitor.arrays import Ints
from monitor.errors import ConfigError, FormulaError, LimitError
from monitor.exact.evaluators import Evaluators
from monitor.logic import Automaton, PathAutomaton, RewardAutomaton, print_formula
from monitor.logic.parser import error_at
from monitor.logic.syntax import Change, Formula, Goal, Label, Probability, Reward
from monitor.logic.traversal import asks_back, goals, nested_goals
from monitor.model import MDP, encode_action
from monitor.sampled.decisions import Decisions, Held, as_decisions
from monitor.sampled.ensemble import Arm, Letters
from monitor.sampled.rows import Rows, as_rows, different_pairs
from monitor.sampled.simulator import Simulator, VectorSimulator

__all__ = ["Ending", "Enumerated", "Scene", "Simulated", "has_nested"]


@dataclass(frozen=True)
class Ending:
    """An episode has terminated in `state`, `until` offsets after the intervention state."""

    state: int
    until: int


class Scene(Protocol):
    """Evaluators to be drawn."""

    def arm(self, change: Change) -> Arm:
        """The world of a change."""
        ...

    def automaton(self, measure: Probability | Reward) -> Automaton:
        """What is asked of a path, as a machine over letters."""
        ...

    def letters(self, measure: Probability | Reward, change: Change, ending: Ending | None) -> Letters:
        """Which atoms of a measure's automaton hold in the world of a change."""
        ...


class Enumerated:
    """An enumerated model: quantities nested in a path are decided exactly, at each state that is visited.

    Raises LimitError where such a quantity looks back (`@t`, t not 0): it depends on each particle's own past, and the
    exact engine is the place for it.
    """

    def __init__(self, worlds: Evaluators) -> None:
        self._worlds = worlds
        self._cast = _Cast(
            worlds.model, worlds.policies, worlds.models, lambda name: encode_action(worlds.model, _plain(name))
        )

    def arm(self, change: Change) -> Arm:
        """The world of a change."""
        return self._cast.arm(change)

    def automaton(self, measure: Probability | Reward) -> Automaton:
        """Shared with the exact engine, so that letters mean the same."""
        return self._worlds.value_table(self._worlds.nominal(None, 0), measure).automaton

    def letters(self, measure: Probability | Reward, change: Change, ending: Ending | None) -> Letters:
        """Labels, and nested quantities by the exact engine."""
        automaton = self.automaton(measure)
        if not has_nested(measure):
            return _Labels(automaton, self._cast.main)
        if asks_back(measure):
            raise LimitError(
                "a nested quantity looks back (@t, t not 0) along each sampled path, and sampled answers are not made "
                "for that; use the exact engine, or @0 in it"
            )
        nominal = self._worlds.nominal(None, 0) if ending is None else self._worlds.nominal(ending.state, ending.until)
        law = nominal.under(self._worlds.intervention(change, None if ending is None else ending.state))
        many = self._worlds.value_table(law, measure).labelling.many

        def letters(offset: int, states: Ints, actions: Ints) -> Ints:
            pairs, back = different_pairs(states, actions)
            return many(offset, pairs[:, 0], pairs[:, 1])[back]

        return letters


class Simulated:
    """A model that cannot be enumerated, with policies that decide in batches.

    Args:
        model: a `Simulator`, or a `VectorSimulator` for many states at once.
        policies: name -> what `as_decisions` takes; `nominal` is the deployed one.
        models: name -> other dynamics over the same states and actions, for `model:name`.
        actions: names of the actions 0, 1, .. for `do(name)`, if they have any.
    """

    def __init__(
        self,
        model: Simulator | VectorSimulator,
        policies: Mapping[str, object],
        models: Mapping[str, Simulator | VectorSimulator] | None = None,
        actions: Iterable[str] = (),
    ) -> None:
        if "nominal" not in policies:
            raise ConfigError("no policy is called 'nominal'; it names the deployed one, so name it under policies")
        self._names = {name: number for number, name in enumerate(actions)}
        self._actions = model.actions
        self._cast = _Cast(model, policies, models or {}, self._action)
        self._automata: dict[Probability | Reward, Automaton] = {}

    def validate(self, formula: Formula, text: str) -> None:
        """Raise FormulaError at the first name there is not, and at a quantity nested in a path."""
        for goal, changes, _ in goals(formula):
            for change in changes:
                self._check_change(change, text)
            if isinstance(goal.measure, Probability):
                for nested in nested_goals(goal.measure.path):
                    raise _refused(nested, text)
                for atom in self.automaton(goal.measure).atoms:
                    if isinstance(atom, Label) and atom.name not in self._cast.main.labels:
                        raise error_at(_unknown("label", atom.name, self._cast.main.labels), text, atom.at)

    def arm(self, change: Change) -> Arm:
        """The world of a change."""
        return self._cast.arm(change)

    def automaton(self, measure: Probability | Reward) -> Automaton:
        """Made once for each measure."""
        if measure not in self._automata:
            match measure:
                case Probability(path):
                    self._automata[measure] = PathAutomaton(path)
                case Reward(low, high):
                    self._automata[measure] = RewardAutomaton(low, high)
                case _:
                    assert_never(measure)
        return self._automata[measure]

    def letters(self, measure: Probability | Reward, change: Change, ending: Ending | None) -> Letters:
        """Labels; a nested quantity is refused by a FormulaError, for its truth would need samples in each sample."""
        del change, ending
        if isinstance(measure, Probability):
            for nested in nested_goals(measure.path):
                raise _refused(nested, print_formula(measure.path))
        return _Labels(self.automaton(measure), self._cast.main)

    def _check_change(self, change: Change, text: str) -> None:
        known: Iterable[str] = self._cast.policies if change.kind == "policy" else self._cast.models
        if change.kind in ("policy", "model") and change.name not in known:
            raise error_at(_unknown(change.kind, change.name, known), text, change.at)
        if change.kind == "action" and not 0 <= self._action(change.name) < self._actions:
            names = self._names or [str(action) for action in range(self._actions)]
            raise error_at(_unknown("action", change.name, names), text, change.at)

    def _action(self, name: str) -> int:
        """The number of an action, -1 for one there is not."""
        return int(name) if name.isdigit() else self._names.get(name, -1)


class _Cast:
    """Who may act, and where."""

    def __init__(
        self,
        model: MDP | Simulator | VectorSimulator,
        policies: Mapping[str, object],
        models: Mapping[str, MDP | Simulator | VectorSimulator],
        action: Callable[[str], int],
    ) -> None:
        self.main: Rows = as_rows(model)
        self.policies = {name: as_decisions(policy, model.actions, name) for name, policy in policies.items()}
        self.models = {name: as_rows(other) for name, other in models.items()}
        self._action = action

    def arm(self, change: Change) -> Arm:
        """As `monitor.causal.Law.under` says it, for the law of the deployed policy."""
        nominal = self.policies["nominal"]
        match change.kind:
            case "nominal":
                return self._arm(((None, nominal),), 0, self.main)
            case "model":
                return self._arm(((None, nominal),), 0, self.models[change.name])
            case "policy":
                return self._taken(self.policies[change.name], change.steps)
            case "action":
                return self._taken(Held(self._action(change.name)), change.steps)
            case _:
                assert_never(change.kind)

    def _taken(self, policy: Decisions, steps: int | None) -> Arm:
        nominal = self.policies["nominal"]
        if steps is None:
            return self._arm(((None, policy),), None, self.main)
        return self._arm(((steps, policy), (None, nominal)), steps, self.main)

    def _arm(self, phases: tuple[tuple[int | None, Decisions], ...], default_from: int | None, rows: Rows) -> Arm:
        return Arm(phases, default_from, self.policies["nominal"], self.main, rows, self.main.rewards)


class _Labels:
    """The letters of an automaton whose atoms are labels."""

    def __init__(self, automaton: Automaton, rows: Rows) -> None:
        self._names = [(bit, atom.name) for bit, atom in enumerate(automaton.atoms) if isinstance(atom, Label)]
        self._rows = rows

    def __call__(self, offset: int, states: Ints, actions: Ints) -> Ints:
        del offset, actions
        letters = np.zeros(len(states), dtype=np.int64)
        for bit, name in self._names:
            letters |= self._rows.holds(name, states).astype(np.int64) << bit
        return letters


def has_nested(measure: Probability | Reward) -> bool:
    """Whether a quantity is nested in a path."""
    return isinstance(measure, Probability) and any(True for _ in nested_goals(measure.path))


def _refused(nested: Goal, text: str) -> FormulaError:
    shown = print_formula(nested)
    at = max(text.find(shown), 0)
    problem = (
        f"{shown} is nested in a path, which a simulated model cannot answer; enumerate the model, or ask it alone"
    )
    return error_at(problem, text, at)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {what} {name!r}; there is {', '.join(sorted(known)[:10]) or 'none'}"


def _plain(name: str) -> int | str:
    return int(name) if name.isdigit() else name
