"""A scene makes worlds from which particles are sampled, from an enumerated or simulated model and its policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

import numpy as np

from monitor.arrays import AnyArray, Bools, Ints
from monitor.errors import FormulaError, LimitError
from monitor.exact.evaluators import Evaluators, deployed_name
from monitor.logic import Automaton, automaton_of, print_formula
from monitor.logic.parser import error_at
from monitor.logic.policy_names import check_policy_names
from monitor.logic.syntax import Formula, Goal, InterventionRef, Label, Measure, Probability, Regret
from monitor.logic.traversal import asks_back, goals, handover_goal, nested_goals
from monitor.model import MDP, encode_action_text
from monitor.model.action_names import ActionNames
from monitor.sampled.decisions import ConstantDecisions, Decisions, as_decisions
from monitor.sampled.dynamics import ParticleDynamics, State, dynamics_of
from monitor.sampled.ensemble import LabelFunction, SampledWorld
from monitor.sampled.particle_rows import different_pairs
from monitor.sampled.simulator import Simulator, VectorSimulator
from monitor.worlds import CheckedWorld


@dataclass(frozen=True)
class Ending:
    """End of an episode: it has terminated in `state`, `until` offsets after the intervention state."""

    state: State
    until: int


EXACT_ONLY = "use engine: exact, or name a policy"
ONLY_P = "handover is drawn for the goal P only; ask for a P, or make a table of the model"


class Scene(Protocol):
    """Worlds from which particles are sampled, with automata and label functions of measures."""

    @property
    def draws_nested(self) -> bool:
        """True if the quantity in `handover` is sampled; False if `labels` decides where it holds."""
        ...

    def world(self, change: InterventionRef, acted: Sequence[str] = ()) -> SampledWorld:
        """Return the world of an intervention."""
        ...

    def automaton(self, measure: Measure) -> Automaton:
        """Return the automaton of a measure."""
        ...

    def labels(self, measure: Measure, change: InterventionRef, ending: Ending | None) -> LabelFunction:
        """Return the function that computes label sets for a measure's automaton, in the world of an intervention."""
        ...

    def holds(self, label: str, states: AnyArray) -> Bools:
        """Return whether states have a label, [n]."""
        ...

    def depends_on_policies(self, change: InterventionRef, measure: Measure) -> bool:
        """Return whether an outcome may depend on the policies that acted, not only on their actions."""
        ...


class Enumerated:
    """An enumerated model. Nested quantities are evaluated exactly, at each visited state.

    Raises LimitError if a nested quantity looks back (`@t`, t not 0). Such a quantity depends on each particle's own
    past, which only the exact engine supports.
    """

    draws_nested = False

    def __init__(self, evaluators: Evaluators) -> None:
        self._evaluators, model = evaluators, evaluators.model
        self._worlds = _Worlds(
            model, evaluators.policies, evaluators.models, lambda name: encode_action_text(model, name)
        )

    def world(self, change: InterventionRef, acted: Sequence[str] = ()) -> SampledWorld:
        """Return the world of an intervention; `acted`: names of the policies that acted from there on."""
        return self._worlds.world(change, acted)

    def automaton(self, measure: Measure) -> Automaton:
        """Return the automaton of the exact engine, so that label sets have the same meaning in both engines."""
        return self._evaluators.value_table(self._evaluators.nominal(None, 0), measure).automaton

    def labels(self, measure: Measure, change: InterventionRef, ending: Ending | None) -> LabelFunction:
        """Return the function that computes label sets. The exact engine decides where nested quantities hold."""
        automaton = self.automaton(measure)
        if not has_nested(measure):
            return LabelAtoms(automaton, self._worlds.main)
        if asks_back(measure):
            raise LimitError(
                "a nested quantity looks back (@t, t not 0) along each sampled path, and sampled answers are not made "
                "for that; use the exact engine, or @0 in it"
            )
        end, until = (None, 0) if ending is None else (int(ending.state), ending.until)
        law = self._evaluators.nominal(end, until).under(self._evaluators.intervention(change, end))
        many = self._evaluators.value_table(law, measure).labelling.many

        def labels(offset: int, states: Ints, actions: Ints) -> Ints:
            pairs, back = different_pairs(states, actions)
            return many(offset, pairs[:, 0], pairs[:, 1])[back]

        return labels

    def holds(self, label: str, states: AnyArray) -> Bools:
        """Return whether states have a label, [n]."""
        return self._worlds.main.holds(label, states)

    def depends_on_policies(self, change: InterventionRef, measure: Measure) -> bool:
        """Return whether an outcome depends on the policies that acted, not only on their actions."""
        return self._evaluators.depends_on_policies(change, measure)


class Simulated:
    """A model that cannot be enumerated, with policies that decide for many states at once.

    Args:
        model: a `Simulator`, a `VectorSimulator` for many states at once, or a world with numbers.
        policies: name -> policy in a form that `as_decisions` accepts; `nominal` is the deployed policy.
        models: name -> other dynamics over the same states and actions, for `model:name`.
        actions: names of the actions 0, 1, .. for `do(name)`; empty if actions have no names.

    `deployed`: a second name of the nominal policy, so that the nominal policy can be an intervention on a path on
    which another policy acted.
    """

    draws_nested = True

    def __init__(
        self,
        model: Simulator | VectorSimulator | CheckedWorld,
        policies: Mapping[str, object],
        models: Mapping[str, Simulator | VectorSimulator | CheckedWorld] | None = None,
        actions: Iterable[str] = (),
    ) -> None:
        check_policy_names(policies)
        self._actions = ActionNames(tuple(actions), model.actions)
        self._policies, self.deployed = frozenset(policies), deployed_name(policies)
        self._worlds = _Worlds(model, {**policies, self.deployed: policies["nominal"]}, models or {}, self._action)
        self._automata: dict[Measure, Automaton] = {}
        self._labels: dict[Measure, LabelFunction] = {}

    def validate(self, formula: Formula, text: str) -> None:
        """Raise FormulaError at the first unknown name, or at a nested quantity other than `handover`."""
        for goal, changes, _ in goals(formula):
            late = None if isinstance(formula, Regret) else handover_goal(goal)
            if late is not None and not isinstance(late.measure, Probability):
                raise error_at(ONLY_P, text, 0)
            self._check(goal if late is None else late, changes if late is None else (late.world.change,), text)

    def _check(self, goal: Goal, changes: Sequence[InterventionRef], text: str) -> None:
        for change in changes:
            self._check_change(change, text)
        if isinstance(goal.measure, Probability):
            for nested in nested_goals(goal.measure.path):
                raise _refused(nested, text)
            for atom in self.automaton(goal.measure).atoms:
                if isinstance(atom, Label) and atom.name not in self._worlds.main.labels:
                    raise error_at(_unknown("label", atom.name, self._worlds.main.labels), text, atom.at)

    def world(self, change: InterventionRef, acted: Sequence[str] = ()) -> SampledWorld:
        """Return the world of an intervention; `acted`: names of the policies that acted from there on."""
        return self._worlds.world(change, acted)

    def automaton(self, measure: Measure) -> Automaton:
        """Return the automaton of a measure. It is cached."""
        if measure not in self._automata:
            self._automata[measure] = automaton_of(measure)
        return self._automata[measure]

    def labels(self, measure: Measure, change: InterventionRef, ending: Ending | None) -> LabelFunction:
        """Return the function that computes label sets.

        Raises FormulaError for a nested quantity, which would need nested samples in each sample.
        """
        del change, ending
        if measure not in self._labels:
            if isinstance(measure, Probability):
                for nested in nested_goals(measure.path):
                    raise _refused(nested, print_formula(measure.path))
            self._labels[measure] = self.label_sets(self.automaton(measure))
        return self._labels[measure]

    def label_sets(self, automaton: Automaton) -> LabelAtoms:
        """Return the function that computes label sets, for an automaton whose atoms are all labels."""
        return LabelAtoms(automaton, self._worlds.main)

    def holds(self, label: str, states: AnyArray) -> Bools:
        """Return whether states have a label, [n]."""
        return self._worlds.main.holds(label, states)

    def depends_on_policies(self, change: InterventionRef, measure: Measure) -> bool:
        """Return True for every intervention, because a simulated policy may be stochastic."""
        del measure
        return change.kind != "nominal"

    def _check_change(self, change: InterventionRef, text: str) -> None:
        if change.decides:
            raise error_at(f"{change.name} decides by exact values, which a simulator does not have", text, change.at)
        known: Iterable[str] = self._policies if change.kind == "policy" else self._worlds.models
        if change.kind in ("policy", "model") and change.name not in known:
            raise error_at(_unknown(change.kind, change.name, known), text, change.at)
        if change.kind == "action" and self._actions.named(change.name) is None:
            names = self._actions.names or [str(action) for action in range(self._actions.count)]
            raise error_at(_unknown("action", change.name, names), text, change.at)

    def _action(self, name: str) -> int:
        """Return the number of an action. `_check_change` has already checked the name."""
        number = self._actions.named(name)
        assert number is not None
        return number


class _Worlds:
    """Makes the world of each intervention, with its policies and dynamics."""

    def __init__(
        self,
        model: MDP | Simulator | VectorSimulator | CheckedWorld,
        policies: Mapping[str, object],
        models: Mapping[str, MDP | Simulator | VectorSimulator | CheckedWorld],
        action: Callable[[str], int],
    ) -> None:
        self.main = dynamics_of(model)
        self.policies = {name: as_decisions(policy, model.actions, name) for name, policy in policies.items()}
        self.models = {name: dynamics_of(other, self.main) for name, other in models.items()}
        self._action = action

    def world(self, change: InterventionRef, acted: Sequence[str] = ()) -> SampledWorld:
        """Return the world of an intervention, as `monitor.causal.Law.under` defines it for the policies that acted."""
        # `SampledChecker` has checked that an unknown policy cannot influence the outcome, so nominal replaces it.
        who = tuple(self.policies.get(name, self.policies["nominal"]) for name in acted)
        return replace(self._world(change), acted=who)

    def _world(self, change: InterventionRef) -> SampledWorld:
        nominal = self.policies["nominal"]
        match change.kind:
            case "nominal":
                return self._make(((None, nominal),), 0, self.main)
            case "model":
                return self._make(((None, nominal),), 0, self.models[change.name])
            case "policy":
                return self._under(self.policies[change.name], change.steps)
            case "action":
                return self._under(ConstantDecisions(self._action(change.name)), change.steps)
            case "best" | "optimal":
                raise LimitError(f"{change.name} decides by exact values, which samples do not have; {EXACT_ONLY}")
            case _:
                assert_never(change.kind)

    def _under(self, policy: Decisions, steps: int | None) -> SampledWorld:
        nominal = self.policies["nominal"]
        if steps is None:
            return self._make(((None, policy),), None, self.main)
        return self._make(((steps, policy), (None, nominal)), steps, self.main)

    def _make(
        self, phases: tuple[tuple[int | None, Decisions], ...], nominal_from: int | None, dynamics: ParticleDynamics
    ) -> SampledWorld:
        return SampledWorld(phases, nominal_from, self.policies["nominal"], dynamics, self.main.rewards)


class LabelAtoms:
    """Function that computes the label sets of states, for an automaton whose atoms are all labels."""

    def __init__(self, automaton: Automaton, dynamics: ParticleDynamics) -> None:
        self._names = [(bit, atom.name) for bit, atom in enumerate(automaton.atoms) if isinstance(atom, Label)]
        self._dynamics = dynamics

    def __call__(self, offset: int, states: AnyArray, actions: Ints) -> Ints:
        """Return the label sets [n] of states [n]. They depend on neither offset nor actions."""
        del offset, actions
        masks = np.zeros(len(states), dtype=np.int64)
        for bit, name in self._names:
            masks |= self._dynamics.holds(name, states).astype(np.int64) << bit
        return masks

    def __getitem__(self, state: State) -> int:
        """Return the label set of one state."""
        return int(self(0, np.array([state]), np.zeros(1, dtype=np.int64))[0])


def has_nested(measure: Measure) -> bool:
    """Return whether a quantity is nested in a measure's path formula."""
    return isinstance(measure, Probability) and any(True for _ in nested_goals(measure.path))


def _refused(nested: Goal, text: str) -> FormulaError:
    shown = print_formula(nested)
    at = max(text.find(shown), 0)
    problem = (
        f"{shown} is nested in a path, which a simulated model cannot answer: each draw would need draws of its own; "
        "only handover is drawn so: ask for that, enumerate the model, or ask it alone"
    )
    return error_at(problem, text, at)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {what} {name!r}; there is {', '.join(sorted(known)[:10]) or 'none'}"
