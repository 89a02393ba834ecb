"""What answers formulas on a stream: both engines over a table, or the sampled one over a world with numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from monitor.errors import ConfigError, LimitError
from monitor.evaluation.bands import LearnedBands
from monitor.evaluation.basis import basis_at_start
from monitor.evaluation.credible import check_band_settings
from monitor.evaluation.fit_bands import fit_bands
from monitor.evaluation.models import read_policies, require_table
from monitor.evaluation.noise_rows import NoiseRows
from monitor.evaluation.observation_rows import ObservationRows
from monitor.evaluation.sampled_checker import SampledChecker, estimated
from monitor.evaluation.seeding import alone, check_sampling
from monitor.evaluation.worlds import WorldChecker
from monitor.exact import Checker, tables
from monitor.exact.labelling import StateLabels
from monitor.exact.names import validate
from monitor.exact.value_table import is_large
from monitor.hidden.hidden_checker import ONLY_EXACT, HiddenChecker
from monitor.logic import Formula, PathAutomaton
from monitor.logic.syntax import Goal, InterventionRef
from monitor.model import MDP
from monitor.policy.controller import is_hidden
from monitor.sampled import Enumerated
from monitor.types import BandSettings, Drawn, FormulaSpec, RestsOn, Sampling, Verdict
from monitor.worlds import Moment, is_world
from monitor.worlds.trial import some_moment

BANDS = BandSettings()
NOT_EXACT = "sampled, because the exact engine refused: "
"""How a verdict's `reason` begins where `auto` could not answer exactly."""


def neither(exact: LimitError, sampled: LimitError) -> LimitError:
    """Return the error of a formula that both engines refuse: the reason of the exact one comes first.

    What the sampled engine advises after its reason is left out: often the exact engine, which has refused.
    """
    return LimitError(f"{exact}; nor by sampling: {str(sampled).partition('; ')[0]}")


class Held(NamedTuple):
    """The path of an answer, as a stream holds it; the names are those of `monitor.check`.

    `pairs`: (state, action), oldest first. `inputs`: of each pair; empty: the model has none.
    """

    pairs: Sequence[tuple[Any, int | None]]
    inputs: Sequence[tuple[float, ...]] = ()
    terminated: bool = False
    start_observed: bool = True
    acted: Sequence[str] = ()


class LabelSets(Protocol):
    """The label set of a state: a bit mask of an automaton's atoms."""

    def __getitem__(self, state: Any, /) -> int:  # noqa: ANN401 - as `State` is, of the model's kind
        """Return that of one state."""
        ...


class Names:
    """The names that formulas on a table may use: its labels and actions, policies, other models."""

    def __init__(self, model: MDP, policies: Mapping[str, object], models: Mapping[str, MDP]) -> None:
        self._given = model, policies, models
        self.learned = any(each.counts is not None for each in (model, *models.values()))

    def validate(self, formula: Formula, text: str) -> None:
        """Raise FormulaError at the first name that there is not."""
        model, policies, models = self._given
        validate(formula, model, policies, text, models)


class Engines:
    """The exact engine and the sampled one, over the same model and policies.

    Args:
        checker: answers exactly.
        sampling: error rates and limits of a sampled answer; ConfigError if they are not allowed.
        bands: how the credible band of a learned model is computed; likewise.

    `learned`: computes the bands of a learned model; None for a given one. `names`: those that formulas may use.
    `tested`: the rows that observed steps are tested against.
    """

    def __init__(self, checker: Checker, sampling: Sampling, bands: BandSettings = BANDS) -> None:
        self.checker, self.sampling = checker, check_sampling(sampling)
        check_band_settings(bands)
        self.learned = LearnedBands(checker, bands) if checker.evaluators.learned else None
        self.names = Names(checker.model, checker.policies, checker.models)
        self.tested = checker.model

    @cached_property
    def sampled_checker(self) -> SampledChecker:
        """The sampled engine, made when it is first needed."""
        return SampledChecker(Enumerated(self.checker.evaluators), self.checker.model)

    def prepare(self, formula: Formula, spec: FormulaSpec, *, window: int | None = None) -> tuple[bool, str]:
        """Prepare what a formula needs, so that the first message is not delayed.

        `window`: pairs a path holds at most.

        Returns:
            True if it will always be sampled, and why; no reason if the user chose sampling.

        Raises:
            LimitError: the requested engine cannot answer it, or `auto` by neither: at start, not on the stream.
        """
        if spec.engine == "sampled":
            self._warm_up(formula)
            return True, ""
        try:
            self.checker.prepare(formula, spec.causal_model, window=window)
        except LimitError as error:
            if spec.engine == "exact" or spec.causal_model != "gumbel":
                raise
            try:
                self._warm_up(formula)
            except LimitError as other:
                raise neither(error, other) from error
            return True, NOT_EXACT + str(error)
        if spec.engine == "auto" and spec.causal_model == "gumbel" and is_large(self.checker.model):
            self._try_to_warm_up(formula)
        if spec.recourse != "off":
            self.checker.prepare_recourse(formula, spec.causal_model)
        if self.learned is not None and spec.bands != "off":
            self.learned.prepare(formula, self.checker.some_path())
        return False, ""

    def drawn_verdict(self, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn, why: str = "") -> Verdict:
        """Return a sampled verdict; errors as for `SampledChecker.verdict`. `why`: the reason for sampling."""
        return self.sampled_checker.verdict(
            formula,
            held.pairs,
            drawn,
            text=spec.text,
            terminated=held.terminated,
            start_observed=held.start_observed,
            why=why,
            acted=held.acted,
        )

    @property
    def deployed(self) -> str:
        """Another name of the nominal policy, by which it can be an intervention where another one acted."""
        return self.checker.evaluators.deployed

    def label_sets(self, automaton: PathAutomaton) -> LabelSets:
        """Return the label set of each state, for the atoms of an automaton."""
        return StateLabels(automaton, self.checker.model).masks.data  # a memoryview: its items are Python ints

    def forecast(self, goal: Goal, held: Held, drawn: Drawn) -> float:
        """Return the value of a goal, from a number of draws that nothing drawn decides."""
        return estimated(self.sampled_checker.question(goal, held.pairs, drawn, acted=held.acted))[0]

    def prepare_takeover(self, goal: Goal) -> None:
        """Build the tables that judge takeovers by a goal. Raises LimitError."""
        self.checker.evaluators.prepare(goal, InterventionRef("policy", self.deployed))

    def takeover_verdict(self, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn) -> Verdict:
        """Return the exact verdict on the formula behind a takeover, with bounds and bands as `spec` says."""
        once = self.checker.incremental_check(formula, spec.causal_model, spec.text, window=0)
        verdict = once.verdict(held.pairs, terminated=held.terminated, acted=held.acted)
        return verdict if spec.bands == "off" else self.with_bands(verdict, formula, held, drawn)

    def with_bands(self, verdict: Verdict, formula: Formula, held: Held, drawn: Drawn) -> Verdict:
        """Return an exact verdict with its credible band and support, on a learned model."""
        del drawn
        if self.learned is None:
            return verdict
        return self.learned.added(verdict, formula, held.pairs, terminated=held.terminated, acted=held.acted)

    def with_recourse(self, verdict: Verdict, formula: Formula, held: Held) -> Verdict:
        """Return a verdict, on a missed goal with whether that could have been met: `Checker.with_recourse`."""
        return self.checker.with_recourse(verdict, formula, held.pairs, terminated=held.terminated, acted=held.acted)

    def rests_on(self, formula: Formula) -> dict[str, RestsOn]:
        """Return what values of a formula rest on before anything is observed: `basis_at_start`."""
        return basis_at_start(self.checker.evaluators, formula)

    def _warm_up(self, formula: Formula) -> None:
        self.sampled_checker.warm_up(formula, self.checker.some_path(), alone(self.sampling))

    def _try_to_warm_up(self, formula: Formula) -> None:
        """Warm up for states from which exact answers need too much; where samples fail too, the stream reports it."""
        try:
            self._warm_up(formula)
        except LimitError:
            return


class WorldEngines:
    """The sampled engine over one world with numbers, which draws only where it must.

    Args:
        checker: of the world and its policies.
        sampling: error rates and limits of a sampled answer; ConfigError if they are not allowed.
        bands: how the credible band of a learned world is computed; likewise.

    `learned`: computes the bands of a world that was fitted to resampled recordings too; None for any other.
    """

    def __init__(self, checker: WorldChecker, sampling: Sampling, bands: BandSettings = BANDS) -> None:
        self.checker, self.names, self.sampling = checker, checker, check_sampling(sampling)
        check_band_settings(bands)
        self.learned = fit_bands(checker, bands)
        self.tested = NoiseRows(checker.model)

    def prepare(self, formula: Formula, spec: FormulaSpec, *, window: int | None = None) -> tuple[bool, str]:
        """Answer once, so that what does not work is found at start; errors as for `Engines.prepare`.

        Returns True and no reason: whether an answer is exact depends on what was observed.
        """
        del window
        once = replace(alone(self.sampling), sampling=replace(self.sampling, limit=1))
        self.drawn_verdict(formula, replace(spec, engine="auto"), self._somewhere(), once)
        return True, ""

    def _somewhere(self) -> Held:
        """Return a path of one pair, in the ranges of the features."""
        state, inputs = some_moment(self.checker.model)
        return Held([(state, 0)], [inputs])

    def drawn_verdict(self, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn, why: str = "") -> Verdict:
        """Return the verdict on a path, each step of which was found to be possible; it says why it is sampled."""
        del why
        return self.checker.verdict(
            formula,
            spec.text,
            _moments(held),
            drawn,
            engine=spec.engine,
            terminated=held.terminated,
            start_observed=held.start_observed,
            acted=held.acted,
        )

    @property
    def deployed(self) -> str:
        """As in `Engines`."""
        return self.checker.scene.deployed

    def label_sets(self, automaton: PathAutomaton) -> LabelSets:
        """As in `Engines`; each is found when it is asked for, and raises ModelError if the world fails there."""
        return self.checker.scene.label_sets(automaton)

    def forecast(self, goal: Goal, held: Held, drawn: Drawn) -> float:
        """As in `Engines`."""
        return estimated(self.checker.sampled.question(goal, _moments(held), drawn, acted=held.acted))[0]

    def prepare_takeover(self, goal: Goal) -> None:
        """Prepare nothing: worlds have no tables."""

    def takeover_verdict(self, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn) -> Verdict:
        """Return the verdict on the formula behind a takeover, drawn where it must be, with bands as `spec` says."""
        verdict = self.drawn_verdict(formula, spec, held, drawn)
        return verdict if spec.bands == "off" else self.with_bands(verdict, formula, held, drawn)

    def with_bands(self, verdict: Verdict, formula: Formula, held: Held, drawn: Drawn) -> Verdict:
        """Return the verdict with its credible band, on a learned world; `drawn`: its noise."""
        if self.learned is None:
            return verdict
        return self.learned.added(verdict, formula, _moments(held), drawn, terminated=held.terminated, acted=held.acted)

    def with_recourse(self, verdict: Verdict, formula: Formula, held: Held) -> Verdict:
        """Return a verdict, on a missed goal with the one decision whose change would have met it."""
        return self.checker.with_recourse(
            verdict, formula, _moments(held), terminated=held.terminated, acted=held.acted
        )

    def rests_on(self, formula: Formula) -> dict[str, RestsOn]:
        """As in `Engines`."""
        return self.checker.rests_on(formula)


def _moments(held: Held) -> list[Moment]:
    inputs = held.inputs or ((),) * len(held.pairs)
    return [Moment(*pair, each) for pair, each in zip(held.pairs, inputs, strict=True)]


class HiddenEngines:
    """The exact engine of models with hidden states, and of policies that remember.

    Args:
        checker: of the model and its policies.
        sampling: only checked, as nothing is sampled; ConfigError if it is not allowed.

    `learned`: None: such models have no bands yet. The other attributes are those of `Engines`.
    """

    learned = None

    def __init__(self, checker: HiddenChecker, sampling: Sampling) -> None:
        self.checker, self.names, self.sampling = checker, checker, check_sampling(sampling)
        self.tested, self.deployed = ObservationRows(checker.filter), checker.deployed

    def prepare(self, formula: Formula, spec: FormulaSpec, *, window: int | None = None) -> tuple[bool, str]:
        """Answer once, so that what does not work is found at start; errors as for `Engines.prepare`."""
        del window
        if spec.engine == "sampled" or spec.causal_model != "gumbel":
            raise LimitError(ONLY_EXACT)
        self._verdict(formula, spec, self._somewhere())
        return False, ""

    def _somewhere(self) -> Held:
        """Return a path of one pair."""
        seen, beliefs = self.checker.model.emissions is None, self.checker.filter
        return Held([(0 if seen else None, None)], [beliefs.begun(0) if seen else beliefs.start(0)])

    def _verdict(self, formula: Formula, spec: FormulaSpec, held: Held) -> Verdict:
        return self.checker.check(formula, spec.text).verdict(
            held.pairs,
            held.inputs,
            terminated=held.terminated,
            start_observed=held.start_observed,
            acted=held.acted,
        )

    def prepare_takeover(self, goal: Goal) -> None:
        """Prepare nothing."""

    def takeover_verdict(self, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn) -> Verdict:
        """Return the exact verdict on the formula behind a takeover."""
        del drawn
        return self._verdict(formula, spec, held)

    def with_bands(self, verdict: Verdict, formula: Formula, held: Held, drawn: Drawn) -> Verdict:
        """Return the verdict: it has no bands."""
        del formula, held, drawn
        return verdict

    def with_recourse(self, verdict: Verdict, formula: Formula, held: Held) -> Verdict:
        """Return the verdict, which says why other decisions were not examined."""
        del formula, held
        return verdict

    def rests_on(self, formula: Formula) -> dict[str, RestsOn]:
        """Return nothing: the model is not learned."""
        del formula
        return {}


AnyEngines = Engines | WorldEngines | HiddenEngines


def engines_of(
    model: object,
    policies: Mapping[str, object],
    models: Mapping[str, object],
    sampling: Sampling,
    bands: BandSettings,
) -> AnyEngines:
    """Return what answers formulas on a model, whichever kind it is. Raises ConfigError, ModelError or PolicyError."""
    if is_world(model):
        return WorldEngines(WorldChecker(model, policies, models), sampling, bands)
    table = require_table(model, "a stream needs an MDP, or a world with numbers or the path of one")
    tabled: dict[str, MDP] = {}
    for name, other in models.items():
        if not isinstance(other, MDP):
            raise ConfigError(f"model {name!r} is no table, and the main model is one; give each as an MDP")
        tabled[name] = other
    policies = read_policies(policies, table)
    if is_hidden(table, policies):
        return HiddenEngines(HiddenChecker(table, policies, tabled), sampling)
    return Engines(Checker(table, tables(policies, table), tabled, delta=bands.delta), sampling, bands)
