"""The engines that evaluate formulas on a stream, one class for each kind of model.

`TableEngines`: exact and sampled, on a table. `WorldEngines`: sampled, on a world with numbers. `HiddenEngines`: exact,
on a model with hidden states or with policies that remember. `Engines` is any of the three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from monitor.errors import ConfigError, LimitError
from monitor.evaluation.bands import LearnedBands
from monitor.evaluation.basis import basis_at_start
from monitor.evaluation.credible import LearnedTable, check_band_settings
from monitor.evaluation.fit_bands import fit_bands
from monitor.evaluation.hidden_bands import LearnedHidden
from monitor.evaluation.models import read_policies, require_table
from monitor.evaluation.sampled_checker import SampledChecker, estimated
from monitor.evaluation.seeding import alone, check_sampling
from monitor.evaluation.uniform_rows import NoiseRows, ObservationRows
from monitor.evaluation.worlds import WorldChecker
from monitor.exact import Checker, tables
from monitor.exact.labelling import StateLabels
from monitor.exact.names import validate
from monitor.exact.value_table import is_large
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.logic import Formula, PathAutomaton
from monitor.logic.syntax import Goal, InterventionRef
from monitor.model import MDP
from monitor.policy.controller import is_hidden
from monitor.sampled import Enumerated
from monitor.types.specs import BandSettings, FormulaSpec, Sampling
from monitor.types.verdicts import NO_NETWORKS, NOT_FROM_START, Drawn, RestsOn, Verdict
from monitor.worlds import Moment, is_world
from monitor.worlds.trial import some_moment

BANDS = BandSettings()
NOT_EXACT = "sampled, because the exact engine refused: "
"""Beginning of a verdict's `reason` if `auto` could not evaluate exactly."""


def neither(exact: LimitError, sampled: LimitError) -> LimitError:
    """Return the error of a formula that both engines refuse. The reason of the exact engine comes first.

    The advice after the sampled engine's reason is left out, because this advice often recommends the exact engine,
    which has refused too.
    """
    return LimitError(f"{exact}; nor by sampling: {str(sampled).partition('; ')[0]}")


class Held(NamedTuple):
    """The path of a verdict, as a stream stores it. The names are those of `monitor.check`.

    `pairs`: (state, action), oldest first. `inputs`: inputs of each pair; empty if the model has none.
    """

    pairs: Sequence[tuple[Any, int | None]]
    inputs: Sequence[tuple[float, ...]] = ()
    terminated: bool = False
    start_observed: bool = True
    acted: Sequence[str] = ()


class LabelSets(Protocol):
    """State -> label set, a bit mask of an automaton's atoms."""

    def __getitem__(self, state: Any, /) -> int:  # noqa: ANN401 - as `State` is, of the model's kind
        """Return the label set of one state."""
        ...


class Names:
    """The names that formulas on a table may use: its labels and actions, policies, other models."""

    def __init__(self, model: MDP, policies: Mapping[str, object], models: Mapping[str, MDP]) -> None:
        self._given = model, policies, models
        self.learned = any(each.counts is not None for each in (model, *models.values()))

    def validate(self, formula: Formula, text: str) -> None:
        """Raise FormulaError at the first name that does not exist."""
        model, policies, models = self._given
        validate(formula, model, policies, text, models)


class TableEngines:
    """The exact engine and the sampled one, over the same model and policies.

    Args:
        checker: evaluates exactly.
        sampling: error rates and limits of a sampled answer; ConfigError if they are not allowed.
        bands: how the credible band of a learned model is computed; ConfigError for bad settings. None: no credible
            band.

    `learned`: computes the bands of a learned model; None for a given model. `names`: the names that formulas may use.
    `tested`: the rows against which observed steps are tested.
    """

    def __init__(self, checker: Checker, sampling: Sampling, bands: BandSettings | None = BANDS) -> None:
        self.checker, self.sampling = checker, check_sampling(sampling)
        settings = None if bands is None else check_band_settings(bands)
        table = LearnedTable(checker.evaluators)
        self.learned = LearnedBands(table, settings) if settings and checker.evaluators.learned else None
        self.names = Names(checker.model, checker.policies, checker.models)
        self.tested = checker.model

    @cached_property
    def sampled_checker(self) -> SampledChecker:
        """The sampled engine, made when it is first needed."""
        return SampledChecker(Enumerated(self.checker.evaluators), self.checker.model)

    def prepare(self, formula: Formula, spec: FormulaSpec, *, window: int | None = None) -> tuple[bool, str]:
        """Prepare the tables that a formula needs, so that the first message is not delayed.

        `window`: maximum number of pairs of a path.

        Returns:
            Whether `drawn_verdict` evaluates the formula, and why; the reason is empty if the user chose sampling.

        Raises:
            LimitError: the requested engine cannot evaluate the formula or, with `auto`, no engine can. This error is
                raised at the start, not on the stream.
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
        """Return a sampled verdict. `why`: the reason for sampling. Errors are those of `SampledChecker.verdict`."""
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
        """A name for the nominal policy as an intervention, for paths on which another policy acted."""
        return self.checker.evaluators.deployed

    def label_sets(self, automaton: PathAutomaton) -> LabelSets:
        """Return the label set of each state, for the atoms of an automaton."""
        return StateLabels(automaton, self.checker.model).masks.data  # a memoryview: its items are Python ints

    def forecast(self, goal: Goal, held: Held, drawn: Drawn) -> float:
        """Return the value of a goal, estimated from a fixed number of samples."""
        return estimated(self.sampled_checker.question(goal, held.pairs, drawn, acted=held.acted))[0]

    def prepare_takeover(self, goal: Goal) -> None:
        """Build the tables that judge takeovers by a goal. Raises LimitError."""
        self.checker.evaluators.prepare(goal, InterventionRef("policy", self.deployed))

    def takeover_verdict(self, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn) -> Verdict:
        """Return the exact verdict on the formula that judges a takeover, with bounds and bands as `spec` says."""
        once = self.checker.incremental_check(formula, spec.causal_model, spec.text, window=0)
        verdict = once.verdict(held.pairs, terminated=held.terminated, acted=held.acted)
        return verdict if spec.bands == "off" else self.with_bands(verdict, formula, held, drawn)

    def with_bands(self, verdict: Verdict, formula: Formula, held: Held, drawn: Drawn) -> Verdict:
        """Return an exact verdict, with its credible band and support if the model is learned."""
        del drawn
        if self.learned is None:
            return verdict
        return self.learned.added(verdict, formula, held.pairs, terminated=held.terminated, acted=held.acted)

    def with_recourse(self, verdict: Verdict, formula: Formula, held: Held) -> Verdict:
        """Return the verdict; for a missed goal, add whether the goal could have been met (`Checker.with_recourse`)."""
        return self.checker.with_recourse(verdict, formula, held.pairs, terminated=held.terminated, acted=held.acted)

    def rests_on(self, formula: Formula) -> dict[str, RestsOn]:
        """Return the recorded support of the values of a formula before anything is observed (`basis_at_start`)."""
        return basis_at_start(self.checker.evaluators, formula)

    def _warm_up(self, formula: Formula) -> None:
        self.sampled_checker.warm_up(formula, self.checker.some_path(), alone(self.sampling))

    def _try_to_warm_up(self, formula: Formula) -> None:
        """Warm up sampling, for states in which exact evaluation is too large.

        If sampling fails too, the stream reports the failure.
        """
        try:
            self._warm_up(formula)
        except LimitError:
            return


class WorldEngines:
    """The sampled engine on one world with numbers. It samples only if necessary.

    Args:
        checker: checker of the world and its policies.
        sampling: error rates and limits of a sampled answer; ConfigError if they are not allowed.
        bands: how the credible band of a learned world is computed; ConfigError for bad settings. None: no credible
            band.

    `learned`: computes the bands of a world with fits to resampled recordings; None for any other world.
    """

    def __init__(self, checker: WorldChecker, sampling: Sampling, bands: BandSettings | None = BANDS) -> None:
        self.checker, self.names, self.sampling = checker, checker, check_sampling(sampling)
        self.learned = None if bands is None else fit_bands(checker, check_band_settings(bands))
        self.tested = NoiseRows(checker.model)

    def prepare(self, formula: Formula, spec: FormulaSpec, *, window: int | None = None) -> tuple[bool, str]:
        """Evaluate the formula once, so that errors occur at the start. The errors are those of `TableEngines.prepare`.

        Returns True and no reason, because it depends on the observations whether a verdict is exact.
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
        """Return the verdict on a path whose steps are all possible. A sampled verdict says why it was sampled."""
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
        """As in `TableEngines`."""
        return self.checker.scene.deployed

    def label_sets(self, automaton: PathAutomaton) -> LabelSets:
        """As in `TableEngines`.

        A label set is computed on access, which raises ModelError if the world fails in the state.
        """
        return self.checker.scene.label_sets(automaton)

    def forecast(self, goal: Goal, held: Held, drawn: Drawn) -> float:
        """As in `TableEngines`."""
        return estimated(self.checker.sampled.question(goal, _moments(held), drawn, acted=held.acted))[0]

    def prepare_takeover(self, goal: Goal) -> None:
        """Do nothing, because worlds have no tables."""

    def takeover_verdict(self, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn) -> Verdict:
        """Return the verdict on the formula that judges a takeover, sampled if necessary, with bands as `spec` says."""
        verdict = self.drawn_verdict(formula, spec, held, drawn)
        return verdict if spec.bands == "off" else self.with_bands(verdict, formula, held, drawn)

    def with_bands(self, verdict: Verdict, formula: Formula, held: Held, drawn: Drawn) -> Verdict:
        """Return the verdict, with its credible band if the world is learned. `drawn`: the verdict's noise."""
        if self.learned is None:
            return verdict
        return self.learned.added(verdict, formula, _moments(held), drawn, terminated=held.terminated, acted=held.acted)

    def with_recourse(self, verdict: Verdict, formula: Formula, held: Held) -> Verdict:
        """Return the verdict; for a missed goal, add the one decision whose change would have met the goal."""
        return self.checker.with_recourse(
            verdict, formula, _moments(held), terminated=held.terminated, acted=held.acted
        )

    def rests_on(self, formula: Formula) -> dict[str, RestsOn]:
        """As in `TableEngines`."""
        return self.checker.rests_on(formula)


def _moments(held: Held) -> list[Moment]:
    inputs = held.inputs or ((),) * len(held.pairs)
    return [Moment(*pair, each) for pair, each in zip(held.pairs, inputs, strict=True)]


class HiddenEngines:
    """The exact engine for models with hidden states, and for policies that remember.

    Args:
        checker: checker of the model and the policies.
        sampling: only checked, because nothing is sampled. Raises ConfigError if it is not allowed.
        bands: as in `TableEngines`.

    The attributes are those of `TableEngines`.
    """

    def __init__(self, checker: HiddenChecker, sampling: Sampling, bands: BandSettings | None = BANDS) -> None:
        settings = None if bands is None else check_band_settings(bands)
        self.learned = LearnedBands(LearnedHidden(checker), settings) if settings and checker.learned else None
        self.checker, self.names, self.sampling = checker, checker, check_sampling(sampling)
        self.tested, self.deployed = ObservationRows(checker.filter), checker.deployed

    def prepare(self, formula: Formula, spec: FormulaSpec, *, window: int | None = None) -> tuple[bool, str]:
        """Evaluate the formula once, so that errors occur at the start; errors are those of `TableEngines.prepare`."""
        del window
        if refusal := self.checker.refusal(spec.engine, spec.causal_model):
            raise LimitError(refusal)
        held = self._somewhere()
        verdict = self.verdict(formula, spec, held)
        if spec.bands != "off":
            self._with_bands(verdict, formula, held)
        return False, ""

    def _somewhere(self) -> Held:
        """Return a path of one pair."""
        seen, beliefs = self.checker.model.emissions is None, self.checker.filter
        return Held([(0 if seen else None, None)], [beliefs.begun(0) if seen else beliefs.start(0)])

    def verdict(self, formula: Formula, spec: FormulaSpec, held: Held) -> Verdict:
        """Return the exact verdict on a path. `held.inputs` has the belief at each pair."""
        return self.checker.check(formula, spec.text, spec.causal_model).verdict(
            held.pairs,
            held.inputs,
            terminated=held.terminated,
            start_observed=held.start_observed,
            acted=held.acted,
        )

    def prepare_takeover(self, goal: Goal) -> None:
        """Do nothing, because takeovers need no tables here."""

    def takeover_verdict(self, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn) -> Verdict:
        """Return the exact verdict on the formula that judges a takeover."""
        verdict = self.verdict(formula, spec, held)
        return verdict if spec.bands == "off" else self.with_bands(verdict, formula, held, drawn)

    def with_bands(self, verdict: Verdict, formula: Formula, held: Held, drawn: Drawn) -> Verdict:
        """Return an exact verdict, with its credible band if the model is learned and the path has the whole episode.

        If states are seen, the path may begin anywhere in the episode, because the belief before its first pair is the
        same on each drawn model.
        """
        del drawn
        return self._with_bands(verdict, formula, held)

    def _with_bands(self, verdict: Verdict, formula: Formula, held: Held) -> Verdict:
        if self.learned is None or not held.inputs:
            return verdict
        if any(reader.width for reader in self.checker.policies.values()):  # networks
            return self.learned.described(verdict, [NO_NETWORKS])
        before = held.inputs[0]
        if self.checker.model.emissions is not None:
            if not (held.start_observed and self.checker.filter.begins(before)):
                return self.learned.described(verdict, [NOT_FROM_START])
            before = ()
        return self.learned.added(
            verdict, formula, held.pairs, terminated=held.terminated, acted=held.acted, before=before
        )

    def with_recourse(self, verdict: Verdict, formula: Formula, held: Held) -> Verdict:
        """Return the verdict unchanged. The verdict already says why other decisions were not examined."""
        del formula, held
        return verdict

    def rests_on(self, formula: Formula) -> dict[str, RestsOn]:
        """Return an empty dict, because uses of rows are not counted here."""
        del formula
        return {}


Engines = TableEngines | WorldEngines | HiddenEngines


def engines_of(
    model: object,
    policies: Mapping[str, object],
    models: Mapping[str, object],
    sampling: Sampling,
    bands: BandSettings | None,
    *,
    delta: float | None = None,
    needs: str = "a stream needs an MDP, or a world with numbers or the path of one",
) -> Engines:
    """Return the engines for a model of any kind. Raises ConfigError, ModelError or PolicyError.

    `bands`: None for verdicts without credible bands. `delta`: probability that a guaranteed band misses the value;
    replaces the probability in `bands`. `needs`: which kinds of models can be used, for the message about any other
    model.
    """
    if is_world(model):
        return WorldEngines(WorldChecker(model, policies, models), sampling, bands)
    table = require_table(model, needs)
    tabled: dict[str, MDP] = {}
    for name, other in models.items():
        if not isinstance(other, MDP):
            raise ConfigError(f"model {name!r} is no table, and the main model is one; give each as an MDP")
        tabled[name] = other
    policies = read_policies(policies, table)
    if is_hidden(table, policies):
        return HiddenEngines(HiddenChecker(table, policies, tabled), sampling, bands)
    return TableEngines(
        Checker(table, tables(policies, table), tabled, delta=(bands or BANDS).delta if delta is None else delta),
        sampling,
        bands,
    )
