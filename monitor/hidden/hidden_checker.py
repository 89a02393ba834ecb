"""Verdicts of formulas on a model with hidden states, or with policies with memory (docs/semantics/hidden.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index

import numpy as np
from msgspec.structs import replace

from monitor.errors import ConfigError, FormulaError, PathError, PolicyError
from monitor.exact.avoidable import unexamined
from monitor.exact.extremes import Both, Extremes
from monitor.exact.names import validate
from monitor.exact.verdict import IncrementalCheck
from monitor.hidden.course import StateWeights, course_of
from monitor.hidden.filtering import Weights
from monitor.hidden.latent_steps import impossible
from monitor.hidden.observation_values import HiddenWorld, ObservedValues
from monitor.hidden.trace import Trace
from monitor.logic import Automaton, Formula
from monitor.logic.parser import error_at
from monitor.logic.policy_names import check_policy_names
from monitor.logic.syntax import Goal, InterventionRef, Label, Measure, Probability
from monitor.logic.traversal import goals, subformulas
from monitor.model import MDP
from monitor.policy.controller import Reader, as_reader
from monitor.types.specs import CausalModel, Engine
from monitor.types.stream_events import ObservedPair
from monitor.types.verdicts import BELIEF_DIGITS, MOST_BELIEVED, UNEXAMINED, Verdict

ONLY_EXACT = "where states are hidden, or policies remember, answers are exact: use engine: exact or auto"
NOT_STABLE = "where states are hidden, or policies remember, bounds are over every causal model: use causal_model: any"
NOT_LEARNED = (
    "where states are hidden, or policies remember, a model learned from recordings has no bounds over causal models: "
    "use causal_model: gumbel, with credible bands"
)
NO_DECISIONS = "decisions made for a goal, such as best, need a state that is seen"
NOT_KNOWN = (
    "what a policy remembers is not known: the path was joined in the middle of an episode, or a recurrent network may "
    "have read too many different things since; it is answered again in the next episode"
)


class HiddenChecker:
    """Evaluates formulas on one model with hidden states, or with policies with memory.

    Args:
        model: the MDP, with `emissions` and `initial`; without emissions, the state is observed.
        policies: name -> a table of the observations, a `Policy` or a `Controller`; `nominal` is the deployed one.
        models: name -> other rows over the same states and actions, for `model:name`.
        automata: measure -> automaton, to share with checkers of other models.

    Raises ConfigError or PolicyError if a policy or another model does not fit.
    """

    def __init__(
        self,
        model: MDP,
        policies: Mapping[str, object],
        models: Mapping[str, MDP],
        *,
        automata: dict[Measure, Automaton] | None = None,
    ) -> None:
        if model.emissions is not None and model.initial is None:
            raise ConfigError("a model with hidden states needs `initial`: where an episode may begin")
        check_policy_names(policies)
        readers: dict[str, Reader] = {}
        same: dict[bytes, Reader] = {}  # policies with equal content share one reader, so that memories are kept once
        for name, policy in policies.items():
            try:
                reader = as_reader(policy, model)
            except PolicyError as error:
                raise PolicyError(f"policy {name!r}: {error}") from None
            readers[name] = same.setdefault(reader.content(), reader)
        self.model, self.policies, self.models = model, readers, models
        self.learned = any(each.counts is not None for each in (model, *models.values())) or (
            model.emissions is not None and model.emissions.counts is not None
        )
        self._world = HiddenWorld(model, readers, models, automata)
        self.filter, self.deployed = self._world.filter, self._world.deployed

    def refusal(self, engine: Engine, causal_model: CausalModel) -> str:
        """Return why an engine or a class of causal models is not offered; empty if it is."""
        if engine == "sampled":
            return ONLY_EXACT
        if causal_model == "stable":
            return NOT_STABLE
        return NOT_LEARNED if causal_model == "any" and self.learned else ""

    def validate(self, formula: Formula, text: str) -> None:
        """Raise FormulaError at the first unknown name, or at a part that hidden states do not support."""
        world = self._world
        validate(formula, world.model, world.readers, text, world.models)
        for node in subformulas(formula, nested=False):
            if isinstance(node, Label):
                raise error_at(
                    f'"{node.name}" is about a state that nobody sees; ask how likely it is: P>=0.9 [ "{node.name}" ]',
                    text,
                    node.at,
                )
        for goal, changes, _ in goals(formula):
            measure = goal.measure
            if isinstance(measure, Probability) and any(isinstance(n, Goal) for n in subformulas(measure.path)):
                raise FormulaError(
                    "a nested quantity is a value of the hidden state, which nobody knows while the agent runs",
                    text,
                    1,
                    1,
                )
            for change in changes:
                if change.decides:
                    raise error_at(NO_DECISIONS, text, change.at)
                if change.steps is not None and any(
                    reader.remembers for reader in (world.nominal, world.change(change).reader or world.nominal)
                ):
                    raise error_at(
                        "a policy that remembers takes over for good: what the other one would remember when it is "
                        "handed back is not defined",
                        text,
                        change.at,
                    )

    def check_path(self, path: Sequence[Sequence[object]]) -> tuple[list[ObservedPair], Weights | None]:
        """Return a path as pairs (observation, action), both of which may be None, and the belief before it, if given.

        Raises PathError if the path is malformed.
        """
        pairs: list[ObservedPair] = []
        before: Weights | None = None
        for n, each in enumerate(path):
            try:
                seen, action, *known = each
                if isinstance(seen, str) and seen in self.model.signal_index:
                    seen = self.model.signal_index[seen]
                pairs.append((_index(seen), _index(action)))
                if n == 0 and known:
                    before = tuple(float(part) for part in known[0])  # type: ignore[attr-defined]
            except (TypeError, ValueError):
                what = "state" if self.model.emissions is None else "observation"
                raise PathError(f"pair {n}: a pair ({what}, action) of whole numbers or None is needed") from None
            self._check_pair(n, *pairs[-1])
        if not pairs:
            raise PathError("the path is empty; it needs at least one pair")
        if before is not None and (problem := self.filter.problem(before)):
            raise PathError(f"pair 0: the belief before it {problem}")
        return pairs, before

    def beliefs(self, path: Sequence[ObservedPair], acted: Sequence[str], before: Weights | None) -> list[Weights]:
        """Return the belief before each pair of a checked path. Raises PathError if a pair is impossible.

        `before`: the belief before the first pair; None if the episode begins there.
        """
        if before is None:
            first = path[0][0]
            seen = self.model.emissions is None and first is not None
            before = self.filter.begun(first) if seen else self.filter.start(0)  # type: ignore[arg-type]
        found = [before]
        for n, pair in enumerate(path[:-1]):
            acting = self.policies["nominal"] if not acted else self.policies.get(acted[n])
            after = self.filter.following(found[-1], pair, acting)
            if after is None:
                raise PathError(f"pair {n}: {impossible(self.model, *pair)}")
            found.append(after)
        return found

    def horizon(self, measure: Measure) -> int:
        """Return the largest number of steps after which a measure is decided."""
        automaton = self._world.evaluators.automaton(measure)
        return automaton.horizon(automaton.start)

    def courses(
        self,
        changes: Sequence[tuple[InterventionRef, int]],
        path: Sequence[ObservedPair],
        beliefs: Sequence[Weights],
        *,
        steps: int,
        acted: Sequence[str] = (),
        terminated: bool = False,
    ) -> list[list[StateWeights]]:
        """Return, for each change, the distribution of the state at each of `steps` steps from a pair on.

        `changes`: each change with the number of its pair. `path`: a checked path. `beliefs`: the belief before each
        pair. Raises LimitError, PathError.
        """
        world = self._world
        trace = Trace(world.filter, world.tables)
        acting = [world.readers[name] for name in acted] or [world.nominal] * len(path)
        trace.extend(path, acting, beliefs, len(path))
        return [
            course_of(world, trace, world.change(change), start=begins, steps=steps, terminated=terminated)
            for change, begins in changes
        ]

    def _check_pair(self, n: int, seen: int | None, action: int | None) -> None:
        model = self.model
        count = model.states if model.emissions is None else model.emissions.signals
        what = "state" if model.emissions is None else "observation"
        if seen is not None and not 0 <= seen < count:
            raise PathError(f"pair {n}: {what} {seen} is outside 0..{count - 1}")
        if action is not None and not 0 <= action < model.actions:
            raise PathError(f"pair {n}: action {action} is outside 0..{model.actions - 1}")
        if seen is None and model.emissions is None:
            raise PathError(f"pair {n}: the state is missing; a model with emissions may do without")

    def constant(self, measure: Measure) -> float | None:
        """Return the value of a measure if it is the same on every path, else None."""
        return self._world.evaluators.constant(measure)

    def table_bytes(self) -> int:
        """Return the size of the value tables so far."""
        return self._world.tails.table_bytes

    def values(self, offset: int) -> ObservedValues:
        """Return the values along a path, for interventions at most `offset` pairs before its end."""
        return ObservedValues(self._world, offset)

    def check(self, formula: Formula, text: str, causal_model: CausalModel = "gumbel") -> HiddenCheck:
        """Return the check of a validated formula along a path."""
        return HiddenCheck(self._world, formula, text, causal_model)


class HiddenCheck:
    """Check of one formula along one path.

    Args:
        world: model and policies.
        formula: a validated formula.
        text: the formula as its user wrote it.
        causal_model: `any` adds bounds over every causal model; `gumbel` means no bounds.
    """

    def __init__(self, world: HiddenWorld, formula: Formula, text: str, causal_model: CausalModel = "gumbel") -> None:
        self._world = world
        offsets = [offset for _, _, offset in goals(formula)]
        deepest = None if any(offset < 0 for offset in offsets) else max(offsets, default=0)
        self._values = ObservedValues(world, deepest)
        sides, every = world.sides, [self._values]

        def both(_: Formula) -> Both:
            every.extend(ObservedValues(side, deepest) for side in sides or ())
            return Both(*every[-2:])

        extremes = None if sides is None else Extremes(both, formula)
        self._every = every
        self._check = IncrementalCheck(world.evaluators, formula, causal_model, text, 0, self._values, extremes)

    def verdict(
        self,
        path: Sequence[ObservedPair],
        beliefs: Sequence[Weights],
        added: int | None = None,
        *,
        terminated: bool = False,
        start_observed: bool = True,
        acted: Sequence[str] = (),
    ) -> Verdict:
        """Return the verdict on a checked path.

        `beliefs`: the belief before each pair; empty if the memories of policies are unknown. `added`: number of pairs
        added to the end of the path since the last call; None if this is another path. For the other arguments see
        `monitor.check`. Raises PathError.
        """
        if not beliefs:
            raise PathError(NOT_KNOWN)
        values = self._values
        for each in self._every:
            each.beliefs, each.terminated = beliefs, terminated
        verdict = self._check.verdict(path, added, start_observed=start_observed, acted=acted)  # type: ignore[arg-type]
        (states, chances), model = values.trace.states(), self._world.model
        likeliest = np.argsort(-chances.round(BELIEF_DIGITS), kind="stable")[:MOST_BELIEVED]
        belief, names = (
            dict(zip(states[likeliest].tolist(), chances[likeliest].tolist(), strict=True)),
            model.state_names,
        )
        verdict = replace(
            verdict,
            belief=belief,
            evidence=values.trace.evidence,
        )
        if model.emissions is not None:  # otherwise the state is observed, and only memories are uncertain
            verdict = replace(
                verdict,
                believed={names[state]: chance for state, chance in belief.items()} if names else None,
                likely={name: float(chances[there[states]].sum()) for name, there in model.labels.items()},
                unseen=sum(seen is None for seen, _ in path),
            )
        return unexamined(verdict, UNEXAMINED)


def _index(part: object) -> int | None:
    """Return a whole number, or None. Raises TypeError for anything else."""
    return None if part is None else index(part)  # type: ignore[arg-type]
