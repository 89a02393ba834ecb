"""Values of measures in counterfactual worlds, and the cache shared by all queries on one model.

Queries share laws, automata, value tables, counterfactual rows and compiled evaluators. The paper estimates values from
samples; this module computes them exactly (docs/semantics/formulas.md, section 6.1). Source: Kazemi & Paoletti, Section
3.2 (semantics of PCFTL).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, assert_never

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.causal import CounterfactualWorld, Intervention, Law, RowCache
from monitor.errors import ConfigError, LimitError, PathError
from monitor.exact.best.catalogue import BestCatalogue
from monitor.exact.best.values import Observed
from monitor.exact.forward.buffers import (
    MAX_LEVELS,
    ForwardBuffers,
    Workspace,
    too_long,
)
from monitor.exact.forward.counterfactual_rows import Dynamics
from monitor.exact.forward.evaluator import (
    Evaluator,
    LabelledAutomaton,
    closing_values,
    dynamics,
    labelled_automaton,
)
from monitor.exact.forward.row_table import (
    ANY,
    STABLE,
    RowBudget,
    RowTables,
)
from monitor.exact.guaranteed_values import GuaranteedValues
from monitor.exact.history import History, HistoryChain, PastAtom
from monitor.exact.sides import both_sides
from monitor.exact.value_table import (
    Labelling,
    NestedGoal,
    StateLabels,
    ValueTable,
    is_large,
)
from monitor.logic import FALSE, TRUE, Automaton, automaton_of
from monitor.logic.comparison import probability
from monitor.logic.polarity import split_measure
from monitor.logic.policy_names import check_policy_names
from monitor.logic.syntax import Goal, InterventionRef, Measure, Probability, Reward
from monitor.logic.traversal import looks_back
from monitor.model import MDP, encode_action_text
from monitor.model.confidence import IntervalRows, confidence_rows
from monitor.model.rewards import aligned_rewards
from monitor.model.unknown import leads_there, unknown_labels, unknown_states
from monitor.policy import PolicyTable
from monitor.types.specs import BandSettings
from monitor.types.stream_events import UNKNOWN_POLICY

DELTA = BandSettings().delta
"""Default probability that the confidence set of learned rows misses a row at any time."""
MAX_VALUE_TABLES = 256
"""Largest number of cached value tables. Each table is needed as long as its formula is monitored."""

MAX_ENDED = 16
"""Largest number of cached models with an ended episode. A model is used again when an episode ends in the same
state."""


class Evaluators:
    """Computes the value of a measure in a world. Caches the data that queries on one model share.

    Args:
        model: the MDP.
        policies: name -> table; `nominal` is the deployed policy.
        models: name -> other dynamics over the same states and actions, for `model:name`.
        budget: memory for cached rows; may be shared by several models.
        automata: cache of the automata of measures; may be shared by several models, because automata do not depend on
            a model.
        delta: probability that the confidence set of the rows of learned models misses any row, at any time.

    `deployed`: a second name of the nominal policy, so that the nominal policy can be an intervention on a path on
    which another policy acted.

    Raises ConfigError if no policy is called nominal, another model has other states, or `delta` is not in (0, 1).
    """

    def __init__(
        self,
        model: MDP,
        policies: Mapping[str, PolicyTable],
        models: Mapping[str, MDP] | None = None,
        budget: RowBudget | None = None,
        *,
        automata: dict[Measure, Automaton] | None = None,
        delta: float = DELTA,
    ) -> None:
        if not 0.0 < delta < 1.0:
            raise ConfigError(f"bands.delta must lie strictly between 0 and 1, not {delta:g}")
        check_policy_names(policies)
        self.model = model
        self.policies = dict(policies)
        self.deployed = deployed_name(policies)
        self.policies[self.deployed] = policies["nominal"]
        self.delta = delta
        self.models = {name: _same_space(model, other, name) for name, other in (models or {}).items()}
        self.rows: RowCache = {}
        self._evaluators: OrderedDict[tuple[Law, Law, Measure, Law, Law], Evaluator] = OrderedDict()
        self._dynamics: OrderedDict[tuple[Law, Law, bool], tuple[Dynamics, RowTables]] = OrderedDict()
        self._budget = budget or RowBudget()
        self._labelled_automata: dict[Measure, LabelledAutomaton] = {}
        self._shared_workspace: Workspace | None = None
        self._automata = {} if automata is None else automata
        self._state_labels: dict[Measure, StateLabels] = {}
        self._value_tables: OrderedDict[tuple[Law, Measure], ValueTable] = OrderedDict()
        self._ended: OrderedDict[tuple[str, int], MDP] = OrderedDict()
        self._confidence: dict[MDP, IntervalRows] = {}
        self._guaranteed: OrderedDict[tuple[Law, Law, Measure], GuaranteedValues] = OrderedDict()
        self.best = BestCatalogue(model, self.policies["nominal"], _BestSource(self))

    def value(self, world: CounterfactualWorld, measure: Measure) -> float:
        """Return the Gumbel-Max value of a measure in a world: a probability or an expected reward."""
        constant = self.constant(measure)
        return within(measure, self._value(world, measure)) if constant is None else constant

    def _value(self, world: CounterfactualWorld, measure: Measure) -> float:
        value_table = self.value_table(world.law, measure)
        past = self._past(measure, world.law, None)
        if past or _ends_elsewhere(world):
            return HistoryChain(world, value_table.automaton, value_table.labelling, past).value()
        states, actions = pair_arrays(world.path)
        if world.observed == 0:
            last = int(states[0]), int(actions[0])
            return float(closing_values(world.nominal, value_table, 0, value_table.automaton.start, states, last)[0])
        evaluator = self.evaluator(world.nominal, world.law, measure)
        buffers = ForwardBuffers(0, 0, 1)
        evaluator.push_all(buffers, (states[:-1], actions[:-1]))
        evaluator.push(buffers, int(states[-1]), int(actions[-1]), answered=True)
        return float(buffers.values[0])

    def interval(
        self, world: CounterfactualWorld, measure: Measure, causal_model: Literal["any", "stable"]
    ) -> tuple[float, float]:
        """Return the bounds of a measure's value in a world, over a class of causal models."""
        constant = self.constant(measure)
        if constant is not None:
            return constant, constant
        low, high = self._interval(world, measure, causal_model)
        return within(measure, low), within(measure, high)

    def _interval(
        self, world: CounterfactualWorld, measure: Measure, causal_model: Literal["any", "stable"]
    ) -> tuple[float, float]:
        value_table = self.value_table(world.law, measure)
        past = self._past(measure, world.law, causal_model)
        if past or _ends_elsewhere(world):
            return HistoryChain(world, value_table.automaton, value_table.labelling, past, causal_model).interval()
        evaluator = self.evaluator(world.nominal, world.law, measure)
        return evaluator.interval(pair_arrays(world.path), STABLE if causal_model == "stable" else ANY)

    def decided(self, change: InterventionRef, measure: Measure, path: Observed) -> float:
        """Return the Gumbel-Max value of a measure on a path, with decisions made for the measure."""
        constant = self.constant(measure)
        if constant is not None:
            return constant
        return within(measure, self.best.value(change, measure, path))

    def decided_profile(self, change: InterventionRef, measure: Measure, path: Observed) -> list[float]:
        """Return the Gumbel-Max values from each pair on (last pair first), with decisions made for the measure."""
        constant = self.constant(measure)
        if constant is not None:
            return [constant] * len(path.states)
        found = self.best.profile(change, measure, path)
        return [within(measure, value) for value in reversed(found.tolist())]

    def decided_products(self, change: InterventionRef, measure: Measure, pairs: int, *, each: bool) -> int:
        """Return the number of multiplications on a path of `pairs` pairs for `decided`, or for `decided_profile`.

        `each`: whether the values from each pair on are needed (`decided_profile`), not only from the first.

        Raises LimitError if there are too many multiplications, or if they need too much memory.
        """
        return 0 if self.constant(measure) is not None else self.best.products(change, measure, pairs, each=each)

    def decided_interval(
        self,
        change: InterventionRef,
        measure: Measure,
        path: Observed,
        causal_model: Literal["any", "stable"],
    ) -> tuple[float, float]:
        """Return the bounds of the value with decisions made for the measure, over a class of causal models."""
        constant = self.constant(measure)
        if constant is not None:
            return constant, constant
        low, high = self.best.interval(change, measure, path, causal_model)
        return within(measure, low), within(measure, high)

    def decided_everywhere(self, change: InterventionRef, measure: Measure) -> Floats:
        """Return the value [S] with decisions made for the measure, on a path that consists of one state."""
        constant = self.constant(measure)
        if constant is not None:
            return np.full(self.model.states, constant)
        found = self.best.everywhere(change, measure)
        return np.clip(found, 0.0, 1.0) if isinstance(measure, Probability) else found

    def observed(self, path: Sequence[tuple[int, int | None]], end: int | None, acted: Sequence[str]) -> Observed:
        """Convert a path to the form used for decisions. `end`: the state in which the episode has terminated.

        `acted`: names of the policies that acted at the pairs; empty if the nominal policy acted. Raises PathError if a
        policy that acted is unknown.
        """
        check_known(acted)
        last = None if end is None or self.stays(end) else end
        return Observed(*pair_arrays(path), last, [self.policies[name] for name in acted])

    def guaranteed(self, nominal: Law, law: Law, measure: Measure) -> GuaranteedValues | None:
        """Return bounds over every causal model and every row of the confidence set, for any path under a law.

        Return None if there are no such bounds, that is, in these cases: no model here was learned from data; the
        measure has nested quantities; the episode has ended in a state that is not absorbing; rewards vary between
        equal transitions.

        Raises LimitError if the model or the horizon is too large.
        """
        models = law.dynamics, nominal.dynamics
        varies = isinstance(measure, Reward) and any(model.reward_spread is not None for model in models)
        nested = any(isinstance(atom, Goal) for atom in self.automaton(measure).atoms)
        if all(model.counts is None for model in models) or law.end is not None or varies or nested:
            return None
        key = (nominal, law, measure)
        if key not in self._guaranteed:
            automaton = self._labelled_automaton(self.value_table(law, measure), measure)
            rows = self._confidence_rows(law.dynamics), self._confidence_rows(nominal.dynamics)
            self._guaranteed[key] = GuaranteedValues(nominal, law, automaton, rows)
            if len(self._guaranteed) > MAX_VALUE_TABLES:
                self._guaranteed.popitem(last=False)
        self._guaranteed.move_to_end(key)
        return self._guaranteed[key]

    def _confidence_rows(self, model: MDP) -> IntervalRows:
        if model not in self._confidence:
            self._confidence[model] = confidence_rows(model, self.delta)
        return self._confidence[model]

    @property
    def learned(self) -> bool:
        """True if the model, or another model that formulas can name, was learned from data."""
        return any(model.counts is not None for model in (self.model, *self.models.values()))

    @cached_property
    def sides(self) -> tuple[Evaluators, Evaluators] | None:
        """Evaluators of the two variants of the model (`both_sides`) with the lowest and the highest possible values.

        None if no row leads to a state about which something is unknown.
        """
        models = self.model, *self.models.values()
        there, unknown = unknown_states(*models), unknown_labels(*models)
        if not leads_there(np.logical_or.reduce([there, *unknown.values()]), *models):
            return None
        low, high = (
            Evaluators(
                side,
                self.policies,
                self.models,
                self._budget,
                automata=self._automata,
                delta=self.delta,
            )
            for side in both_sides(self.model, there, unknown)
        )
        return low, high

    @cached_property
    def knows_labels(self) -> bool:
        """True if only the state `elsewhere` has unknown labels. Guaranteed bounds already take these into account."""
        models = self.model, *self.models.values()
        there = unknown_states(*models)
        return not any((states & ~there).any() for states in unknown_labels(*models).values())

    def learned_under(self, change: InterventionRef) -> bool:
        """Return whether the world under an intervention has rows that were learned from data."""
        other = self.models[change.name] if change.kind == "model" else self.model
        return self.model.counts is not None or other.counts is not None

    def constant(self, measure: Measure) -> float | None:
        """Return the value of a measure if it is the same on every path, else None."""
        start = self.automaton(measure).start
        return float(start == TRUE) if start in (FALSE, TRUE) else None

    def stays(self, state: int) -> bool:
        """Return whether a state is absorbing in every model, so that an episode's end there changes nothing."""
        return all(model.is_absorbing(state) for model in (self.model, *self.models.values()))

    def evaluator(self, nominal: Law, law: Law, measure: Measure, past: tuple[Law, Law] | None = None) -> Evaluator:
        """Return the evaluator of a law and a measure; its counterfactual rows are shared with other measures.

        `past`: the nominal law and the law up to the last observed pair, if they differ because the episode has ended.
        """
        observed, counterfactual = past or (nominal, law)
        before = _before_end(observed), _before_end(counterfactual)
        key = (nominal, law, measure, *before)
        if key not in self._evaluators:
            value_table = self.value_table(law, measure)
            # This comes before `self._dynamics` is read, because evaluators of nested goals may evict entries from it.
            automaton = self._labelled_automaton(value_table, measure)
            chain_key = *before, not value_table.labelling.by_action
            if chain_key not in self._dynamics:
                made = dynamics(before[0], before[1], merge_actions=chain_key[2])
                self._dynamics[chain_key] = made, RowTables(self.model.states, self.model.actions, self._budget)
                if len(self._dynamics) > MAX_VALUE_TABLES:
                    self._dynamics.popitem(last=False)[1][1].close()
            chain = self._dynamics[chain_key]
            self._evaluators[key] = Evaluator(nominal, value_table, automaton, chain, self._workspace())
            if len(self._evaluators) > MAX_VALUE_TABLES:
                self._evaluators.popitem(last=False)
        self._evaluators.move_to_end(key)
        return self._evaluators[key]

    def _labelled_automaton(self, value_table: ValueTable, measure: Measure) -> LabelledAutomaton:
        """Return the automaton of a measure with its labels.

        If nothing is nested, laws share the automaton, so a forward pass that began under one law can end under another
        law.
        """
        if value_table.labelling.by_action:
            return labelled_automaton(value_table)
        if measure not in self._labelled_automata:
            self._labelled_automata[measure] = labelled_automaton(value_table)
        return self._labelled_automata[measure]

    def _workspace(self) -> Workspace:
        if self._shared_workspace is None:
            self._shared_workspace = Workspace(self.model.states, share_prior_rows=is_large(self.model))
        return self._shared_workspace

    def value_table(self, law: Law, measure: Measure) -> ValueTable:
        """Return the value table of a law and a measure. The table's labelling has no atoms that look back."""
        key = (law, measure)
        if key not in self._value_tables:
            automaton = self.automaton(measure)
            nested = {
                bit: NestedGoal(atom, _NestedWorld(self, law, atom))
                for bit, atom in enumerate(automaton.atoms)
                if isinstance(atom, Goal) and not looks_back(atom)
            }
            state_labels = self._state_labels.setdefault(measure, StateLabels(automaton, self.model))
            self._value_tables[key] = ValueTable(law, automaton, Labelling(state_labels, nested, law.stationary_from()))
            if len(self._value_tables) > MAX_VALUE_TABLES:
                self._value_tables.popitem(last=False)
        self._value_tables.move_to_end(key)
        return self._value_tables[key]

    def prepare(self, goal: Goal, change: InterventionRef) -> None:
        """Compute the value tables of a goal under an intervention, and of its extremes, unless they are too large.

        Raises LimitError if the table of a small model, or the table of the best decisions, would be too large.
        """
        if change.decides:
            self.decided(change, goal.measure, Observed(*pair_arrays([(0, None)])))
            return
        self._prepare_table(goal.measure, change)
        for side in self.sides or ():
            with suppress(LimitError):  # the goal has no extremes, or their table is too large
                side._prepare_table(split_measure(goal.measure), change)  # noqa: SLF001 - of this class

    def _prepare_table(self, measure: Measure, change: InterventionRef) -> None:
        nominal = self.nominal()
        value_table = self.value_table(nominal.under(self.intervention(change, None)), measure)
        if not self._past(measure, nominal, None):
            value_table.prepare()

    def prepare_bounds(self, goal: Goal, change: InterventionRef, offset: int) -> None:
        """Raise LimitError if bounds could exceed `MAX_LEVELS` on some path of `offset` observed steps.

        For a large model this is not known in advance. Then the error is raised for the path that exceeds the limit.
        """
        nominal = self.nominal()
        if (
            change.kind == "nominal"
            or change.decides
            or is_large(self.model)
            or self._past(goal.measure, nominal, None)
        ):
            return
        if self.constant(goal.measure) is not None:
            return
        law = nominal.under(self.intervention(change, None))
        unrolled = self.evaluator(nominal, law, goal.measure).unrolled
        unrolled.extend(offset + 1)
        levels = [self.model.states * sum(o in column for column in unrolled.obligations) for o in range(offset + 1)]
        actions = 1 if all(table.actions is not None for _, table in law.phases) else self.model.actions
        most = max(sum(levels), actions * sum(levels[:-1]))  # no action is chosen at the last level
        if most > MAX_LEVELS:
            raise LimitError(too_long(f"as many as {most:,}"))

    @property
    def table_bytes(self) -> int:
        """Bytes of all value tables."""
        return sum(value_table.table.nbytes for value_table in self._value_tables.values())

    def _past(self, measure: Measure, law: Law, causal_model: Literal["any", "stable"] | None) -> dict[int, PastAtom]:
        """Return bit -> atom for the atoms of a measure that look back, in the world of a law."""
        return {
            bit: PastAtom(atom.world.offset, _PastGoal(self, law, atom, causal_model))
            for bit, atom in enumerate(self.automaton(measure).atoms)
            if isinstance(atom, Goal) and looks_back(atom)
        }

    def nominal(self, end: int | None = None, until: int = 0, acted: Sequence[str] = ()) -> Law:
        """Return the law without an intervention: first the policies that acted, then the deployed policy.

        `end`: the state in which the episode has terminated, which is absorbing from offset `until` on. `acted`: names
        of the policies that acted at offsets 0, 1, ...; the deployed policy acts after these (docs/semantics/worlds.md,
        section 2.5). The deployed policy also replaces UNKNOWN_POLICY, for values that do not depend on the unknown
        policy.
        """
        table = self.policies["nominal"]
        if end is None or self.stays(end):
            law = Law.stationary(table, self.model)
        else:
            law = Law.ending(table, self.model, self._ending("", self.model, end), until, end)
        return law.after_phases([self.policies[name or "nominal"] for name in acted])

    def depends_on_policies(self, change: InterventionRef, measure: Measure) -> bool:
        """Return whether a value depends on the policies that acted at the observed pairs, not only on their actions.

        The value does not depend on these policies if `nominal` replays the path and no goal is nested, or if a
        deterministic policy takes over for good. If decisions are made for the goal, the value always depends on the
        policies that acted, because these policies make the unchanged decisions.
        """
        if change.decides:
            return True
        if change.kind == "nominal":
            return any(isinstance(atom, Goal) for atom in self.automaton(measure).atoms)
        table = self.intervention(change, None).table
        return table is None or table.actions is None or change.steps is not None

    def intervention(self, change: InterventionRef, end: int | None) -> Intervention:
        """Return the intervention that `change`, a part of a formula, describes."""
        match change.kind:
            case "nominal":
                return Intervention()
            case "policy":
                return Intervention(self.policies[change.name], change.steps)
            case "action":
                action = encode_action_text(self.model, change.name)
                return Intervention(self._constant_policy(action), change.steps)
            case "model":
                other = self.models[change.name]
                return Intervention(dynamics=other, future=self._ending(change.name, other, end))
            case "best" | "optimal":
                raise AssertionError("decisions made for a goal are no law; see `best`")
            case _:
                assert_never(change.kind)

    def _constant_policy(self, action: int) -> PolicyTable:
        key = f"do({action})"  # cannot be the name of another policy, because names have no parentheses
        if key not in self.policies:
            self.policies[key] = PolicyTable(actions=np.full(self.model.states, action, dtype=np.int64))
        return self.policies[key]

    def _ending(self, name: str, model: MDP, end: int | None) -> MDP:
        """Return the model after the episode has ended in `end`, which is then absorbing (None: it has not ended).

        A large model is not copied. Its law has the end state (`Law.end`) instead.
        """
        if end is None or model.is_absorbing(end):
            return model
        key = (name, end)
        if key not in self._ended:
            self._ended[key] = model if is_large(model) else model.with_absorbing(end)
            if len(self._ended) > MAX_ENDED:
                self._evict(self._ended.popitem(last=False)[0][1])
        self._ended.move_to_end(key)
        return self._ended[key]

    def _evict(self, end: int) -> None:
        """Drop the models whose episode ended in a state, and all cached values of their worlds."""
        for key in [key for key in self._value_tables if key[0].end == end]:
            del self._value_tables[key]
        for pair in [key for key in self._evaluators if end in (key[0].end, key[1].end)]:
            del self._evaluators[pair]
        for chain_key in [key for key in self._dynamics if end in (key[0].end, key[1].end)]:
            self._dynamics.pop(chain_key)[1].close()

    def automaton(self, measure: Measure) -> Automaton:
        """Return the automaton of a measure."""
        if measure not in self._automata:
            self._automata[measure] = automaton_of(measure)
        return self._automata[measure]


@dataclass(frozen=True)
class _NestedWorld:
    """Function that returns the world of a nested goal, see `NestedGoal`. `outer`: the law around the nested goal."""

    evaluators: Evaluators
    outer: Law
    goal: Goal

    def __call__(self, offset: int, change: InterventionRef) -> tuple[Law, Law, ValueTable]:
        before = self.outer.after(min(offset, self.outer.stationary_from()))
        law = before.under(self.evaluators.intervention(change, self.outer.end))
        return before, law, self.evaluators.value_table(law, self.goal.measure)


@dataclass(frozen=True)
class _BestSource:
    """Source of the automata, label sets and nominal values that `BestCatalogue` needs."""

    evaluators: Evaluators

    def automaton(self, measure: Measure) -> Automaton:
        return self.evaluators.automaton(measure)

    def label_sets(self, measure: Measure) -> AnyArray:
        return StateLabels(self.automaton(measure), self.evaluators.model).masks

    def nominal_values(self, measure: Measure, end: int | None, obligation: int) -> Floats:
        return self.evaluators.value_table(self.evaluators.nominal(end), measure).all_values(0, obligation)


class _PastGoal:
    """Truth of a nested goal that looks back, on a counterfactual path under the outer law."""

    def __init__(
        self, evaluators: Evaluators, outer: Law, goal: Goal, causal_model: Literal["any", "stable"] | None
    ) -> None:
        self._evaluators, self._outer, self._goal, self._class = evaluators, outer, goal, causal_model
        self._truths: dict[tuple[Law, History], frozenset[bool]] = {}

    def __call__(self, position: int, pairs: History) -> frozenset[bool]:
        law = self._outer.after(min(position, self._outer.stationary_from()))
        if (law, pairs) not in self._truths:
            test = self._goal.test
            assert test is not None
            self._truths[law, pairs] = frozenset(test.holds(value) for value in self._values(law, pairs))
        return self._truths[law, pairs]

    def _values(self, law: Law, pairs: History) -> tuple[float, ...]:
        """Return the Gumbel-Max value, or the bounds over the class of causal models."""
        one = self._in_world(law, pairs, self._goal.world.change)
        if self._goal.world.baseline is None:
            return one
        other = self._in_world(law, pairs, self._goal.world.baseline)
        return tuple(x - y for x, y in zip(one, reversed(other), strict=True))

    def _in_world(self, law: Law, pairs: History, change: InterventionRef) -> tuple[float, ...]:
        intervention = self._evaluators.intervention(change, law.end)
        world = CounterfactualWorld.at(pairs, 0, law, intervention, self._evaluators.rows)
        if self._class is None:
            return (self._evaluators.value(world, self._goal.measure),)
        return self._evaluators.interval(world, self._goal.measure, self._class)


def deployed_name(policies: Collection[str]) -> str:
    """Return a name that no policy has, for the deployed policy as an intervention."""
    name = "deployed"
    while name in policies:
        name += "_"
    return name


def _before_end(law: Law) -> Law:
    """Return the law up to the last observed pair."""
    here = law.model_at(0)
    return replace(law, dynamics=here, future=here, until=0)


def _ends_elsewhere(world: CounterfactualWorld) -> bool:
    """Return whether the end of the episode changes rows from another pair on than the last observed pair.

    The compiled loops do not support worlds in which this is true. It is true only if a nested quantity looks back,
    because then a path may end before or after its episode.
    """
    return any(
        law.until != world.observed and (not law.explicit or (law.until > 0 and law.future is not law.dynamics))
        for law in (world.nominal, world.law)
    )


def check_known(acted: Sequence[str]) -> None:
    """Raise PathError if any of the policies that acted from the intervention state on is unknown."""
    unknown = acted.count(UNKNOWN_POLICY)
    if unknown:
        raise PathError(
            f"a policy that is not configured acted at {unknown} of the steps from the intervention state on, and "
            "the answer depends on what it would have done; configure it under policies"
        )


def within(measure: Measure, value: float) -> float:
    """Return a computed value, clipped to [0, 1] if the measure is a probability."""
    return probability(value) if isinstance(measure, Probability) else value


def pair_arrays(path: Sequence[tuple[int, int | None]]) -> tuple[Ints, Ints]:
    """Return the states and actions [n] of a path; -1 for an action not yet taken."""
    states, actions = zip(*path, strict=True) if path else ((), ())
    if None in actions:
        actions = tuple(-1 if action is None else action for action in actions)
    return np.array(states, np.int64), np.array(actions, np.int64)


def _same_space(model: MDP, other: MDP, name: str) -> MDP:
    """Return other dynamics with the labels and rewards of the main model (docs/semantics/worlds.md, section 2.2)."""
    if (other.states, other.actions) != (model.states, model.actions):
        problem = f"model {name!r} has {other.states} states and {other.actions} actions"
        raise ConfigError(f"{problem}; it must have the {model.states} and {model.actions} of the main model")
    missing = np.argwhere(model.availability & ~other.availability)
    if len(missing):
        problem = f"model {name!r} lacks action {missing[0, 1]} in state {missing[0, 0]}, where the main model has it"
        raise ConfigError(f"{problem}; give the action a row there")
    rows, others = ((m.indptr, m.successors, m.probabilities) for m in (model, other))
    extra = aligned_rewards(rows, model.transition_rewards, others)
    return replace(other, rewards=model.rewards, transition_rewards=extra, reward_spread=None, labels=model.labels)
