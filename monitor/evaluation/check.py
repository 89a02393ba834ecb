"""`monitor.check`: check all inputs, then evaluate one query on one recorded path with the suitable engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, cast, get_args

from monitor.errors import ConfigError, LimitError
from monitor.evaluation.bands import LearnedBands
from monitor.evaluation.credible import check_band_settings
from monitor.evaluation.engines import NOT_EXACT, neither
from monitor.evaluation.fit_bands import FitBands, fit_bands
from monitor.evaluation.models import read_policies, require_table
from monitor.evaluation.sampled_checker import SampledChecker
from monitor.evaluation.seeding import SEEDS, alone, check_sampling
from monitor.evaluation.simulated import check_simulated_labels, check_simulated_path, simulated_scene
from monitor.evaluation.worlds import WorldChecker
from monitor.exact import Checker, tables
from monitor.exact.avoidable import SAMPLED, unexamined
from monitor.exact.inputs import as_pairs, check_acted, check_path, read_all
from monitor.exact.names import validate
from monitor.exact.verdict import Path
from monitor.hidden.hidden_checker import ONLY_EXACT, HiddenChecker
from monitor.logic import Formula
from monitor.model import MDP
from monitor.policy.controller import is_hidden
from monitor.sampled import Enumerated, Simulator, VectorSimulator
from monitor.types.specs import BandSettings, CausalModel, Engine, RequestedModel, Sampling
from monitor.types.verdicts import Drawn, Verdict
from monitor.worlds import CheckedWorld, Moment, World, is_world

__all__ = ["NO_BOUNDS", "check", "check_many"]

Model = MDP | Simulator | VectorSimulator | World | type[World] | CheckedWorld | str | FilePath
BANDS = BandSettings()
NO_BOUNDS = "sampling draws from the Gumbel-Max causal model alone and cannot bound over others"


def check(
    query: str | Formula,
    *,
    model: Model,
    path: Sequence[Sequence[Any]],
    policies: Mapping[str, object],
    engine: Engine = "auto",
    causal_model: CausalModel = "gumbel",
    terminated: bool = False,
    start_observed: bool = True,
    models: Mapping[str, Model] | None = None,
    sampling: Sampling | None = None,
    drawn: Drawn | None = None,
    bands: BandSettings | None = BANDS,
    acted: Sequence[str] = (),
    recourse: bool = True,
) -> Verdict:
    """Evaluate one formula on one observed path.

    Args:
        query: a formula, or its text.
        model: an `MDP`, or a simulator (`monitor.sampled`) where the states cannot be enumerated, or a
            `World` where they are vectors of numbers, or a source that `load_world` accepts, such as a manifest's path.
        path: pairs (state, action), oldest first; the last action may be None (not yet taken). In a `World` with inputs
            each pair has those recorded with it as a third element. Where the `MDP` has emissions: pairs (observation,
            action), of which each may be None, not known; the first may have a third element, the belief before it, as
            evidence has it.
        policies: name -> S actions, an S x A matrix, or the path of a manifest; `nominal` is the deployed one. For a
            simulator: functions of states [n], for a `World` of states [n, f], that give actions [n] or distributions
            [n, A].
        engine: `exact`, `sampled`, or `auto`: exact where that fits; where not, the verdict's `reason` says why. In a
            `World` an answer is exact where no noise needs to be drawn.
        causal_model: `any` or `stable` also bound the answer over that class of causal models; only in exact
            evaluation.
        terminated: whether the episode has ended in the last state, which is absorbing from then on. If the model has a
            copy of that state for the end of an episode, the path ends in the copy, `model.ended(state)`.
        start_observed: whether the first pair is the episode's first step (else `@-k` verdicts say so).
        models: name -> another model, for `model:name`.
        sampling: error rates and limits of sampling.
        drawn: `drawn` of an earlier verdict, to sample it again; replaces `sampling`.
        bands: settings of the bands of a model learned from data. With None, or `draws` 0, neither the credible band
            nor the support is computed.
        acted: names of the policies that acted, one for each pair; empty if nominal acted at all pairs.
        recourse: whether to examine if other decisions could have met a missed goal of `regret`.

    Raises:
        FormulaError, PathError, PolicyError, ConfigError, LimitError: the error says what is wrong, where, and how to
            fix it.

    >>> model = MDP.from_transitions(
    ...     states=2, actions=2, labels={"goal": [1]},
    ...     transitions=[(0, 0, 0, 1.0), (0, 1, 0, 0.5), (0, 1, 1, 0.5), (1, 0, 1, 1), (1, 1, 1, 1)])
    >>> about = dict(model=model, policies={"nominal": [0, 0], "bold": [1, 1]}, path=[(0, 0), (0, 0)])
    >>> check('bold@1.P=? [ F<=2 "goal" ]', **about).value
    0.75
    >>> verdict = check('bold@1.P>=0.7 [ F<=2 "goal" ]', **about, engine="sampled")
    >>> verdict.holds, verdict.method, verdict.quantities[0].samples > 100
    (True, 'sampled', True)
    """
    return check_many(
        [query],
        model=model,
        path=path,
        policies=policies,
        engine=engine,
        causal_model=causal_model,
        terminated=terminated,
        start_observed=start_observed,
        models=models,
        sampling=sampling,
        drawn=drawn,
        bands=bands,
        acted=acted,
        recourse=recourse,
    )[0]


def check_many(
    queries: Sequence[str | Formula],
    *,
    model: Model,
    path: Sequence[Sequence[Any]],
    policies: Mapping[str, object],
    engine: Engine = "auto",
    causal_model: CausalModel = "gumbel",
    terminated: bool = False,
    start_observed: bool = True,
    models: Mapping[str, Model] | None = None,
    sampling: Sampling | None = None,
    drawn: Drawn | None = None,
    bands: BandSettings | None = BANDS,
    acted: Sequence[str] = (),
    recourse: bool = True,
    each: Callable[[int], None] = lambda _answered: None,
) -> list[Verdict]:
    """Evaluate several formulas on one path, sharing common work. All formulas are read before one is evaluated.

    `each` is called after each verdict, with the number of verdicts so far. The other arguments and the errors are
    those of `check`.
    """
    _check_engine(engine, causal_model)
    credible = bands if bands is not None and bands.draws else None
    if credible is not None:
        check_band_settings(credible)
    drawn = drawn or alone(sampling or Sampling())
    check_sampling(drawn.sampling)
    if not (0 <= drawn.seed < SEEDS and drawn.first >= 0):
        raise ConfigError(f"drawn holds seed {drawn.seed} and first {drawn.first}, which no verdict was drawn with")
    worlds = WorldChecker(model, policies, models or {}) if is_world(model) else None
    if worlds is not None and causal_model != "gumbel":
        raise ConfigError(f"causal model {causal_model!r}: a world's own step is its causal model; leave it out")
    if isinstance(model, MDP):
        policies = read_policies(policies, model)
    hidden = isinstance(model, MDP) and is_hidden(model, policies)
    settings = _Settings(
        as_pairs(path) if worlds is None and not hidden else (),
        () if worlds is None else worlds.path(path),
        engine,
        causal_model,
        drawn,
        terminated=terminated,
        start_observed=start_observed,
        acted=acted,
        recourse=recourse,
    )
    check_acted(acted, path if hidden else settings.path or settings.moments, policies)
    read = read_all(queries)
    if worlds is not None:
        fitted = None if credible is None else fit_bands(worlds, credible)
        return _collect(_in_world(read, worlds, fitted, settings), each)
    if not isinstance(model, MDP) and hasattr(model, "holds") and not isinstance(model, type):
        simulator = cast("Simulator | VectorSimulator", model)
        return _collect(_simulated(read, simulator, policies, models or {}, settings), each)
    table = require_table(model, "a path needs an MDP, a world with numbers or the path of one, or a simulator")
    enumerated = {name: other for name, other in (models or {}).items() if isinstance(other, MDP)}
    if len(enumerated) < len(models or {}):
        raise ConfigError("the other models of an enumerated model are enumerated too; give each as an MDP")
    if hidden:
        return _collect(_hidden(read, HiddenChecker(table, policies, enumerated), path, settings), each)
    checker = Checker(table, tables(policies, table), enumerated, delta=(bands or BANDS).delta)
    for formula, text in read:
        validate(formula, table, policies, text, checker.models)
    check_path(table, settings.path)
    sampler = SampledChecker(Enumerated(checker.evaluators), table)
    learned = None if credible is None or not checker.evaluators.learned else LearnedBands(checker, credible)
    answers = ((formula, _examined(formula, text, settings, checker, sampler)) for formula, text in read)
    return _collect((_with_bands(learned, verdict, formula, settings) for formula, verdict in answers), each)


def _collect(answers: Iterator[Verdict], each: Callable[[int], None]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for verdict in answers:
        verdicts.append(verdict)
        each(len(verdicts))
    return verdicts


@dataclass(frozen=True)
class _Settings:
    """Arguments common to all formulas of one call."""

    path: Path
    moments: Sequence[Moment]
    engine: Engine
    causal_model: CausalModel
    drawn: Drawn
    terminated: bool
    start_observed: bool
    acted: Sequence[str]
    recourse: bool

    def exact(self, formula: Formula, text: str, checker: Checker) -> Verdict:
        return checker.check(
            formula,
            self.path,
            causal_model=self.causal_model,
            terminated=self.terminated,
            start_observed=self.start_observed,
            text=text,
            acted=self.acted,
        )

    def sampled(self, formula: Formula, text: str, sampler: SampledChecker, why: str = "") -> Verdict:
        return sampler.verdict(
            formula,
            self.path,
            self.drawn,
            text=text,
            terminated=self.terminated,
            start_observed=self.start_observed,
            why=why,
            acted=self.acted,
        )

    def in_world(self, formula: Formula, text: str, worlds: WorldChecker, fitted: FitBands | None) -> Verdict:
        verdict = worlds.verdict(
            formula,
            text,
            self.moments,
            self.drawn,
            engine=self.engine,
            terminated=self.terminated,
            start_observed=self.start_observed,
            acted=self.acted,
        )
        given = formula, self.moments
        how: dict[str, Any] = {"terminated": self.terminated, "acted": self.acted}
        if fitted is not None:
            verdict = fitted.added(verdict, *given, self.drawn, **how)
        return worlds.with_recourse(verdict, *given, **how) if self.recourse else verdict


def _examined(formula: Formula, text: str, settings: _Settings, checker: Checker, sampler: SampledChecker) -> Verdict:
    verdict = _chosen(formula, text, settings, checker, sampler)
    if not settings.recourse:
        return verdict
    return checker.with_recourse(verdict, formula, settings.path, terminated=settings.terminated, acted=settings.acted)


def _chosen(formula: Formula, text: str, settings: _Settings, checker: Checker, sampler: SampledChecker) -> Verdict:
    if settings.engine == "sampled":
        return settings.sampled(formula, text, sampler)
    try:
        return settings.exact(formula, text, checker)
    except LimitError as error:
        if settings.engine == "exact":
            raise
        if settings.causal_model != "gumbel":
            raise LimitError(f"{error}; and {NO_BOUNDS}") from error
        try:
            return settings.sampled(formula, text, sampler, NOT_EXACT + str(error))
        except LimitError as other:
            raise neither(error, other) from error


def _with_bands(learned: LearnedBands | None, verdict: Verdict, formula: Formula, settings: _Settings) -> Verdict:
    if learned is None:
        return verdict
    return learned.added(verdict, formula, settings.path, terminated=settings.terminated, acted=settings.acted)


def _simulated(
    read: Sequence[tuple[Formula, str]],
    model: Simulator | VectorSimulator,
    policies: Mapping[str, object],
    models: Mapping[str, Model],
    settings: _Settings,
) -> Iterator[Verdict]:
    if settings.engine == "exact":
        raise ConfigError("a simulator cannot be answered exactly; enumerate the model, or use engine 'sampled'")
    if settings.causal_model != "gumbel":
        raise ConfigError(f"causal model {settings.causal_model!r}: {NO_BOUNDS}; enumerate the model, or use 'gumbel'")
    scene = simulated_scene(model, policies, models)
    for formula, text in read:
        scene.validate(formula, text)
        check_simulated_labels(model.labels, formula, text)
    check_simulated_path(model, settings.path)
    sampler = SampledChecker(scene)
    why = "sampled, for a simulated model cannot be enumerated" if settings.engine == "auto" else ""
    answers = (settings.sampled(formula, text, sampler, why) for formula, text in read)
    return (unexamined(verdict, SAMPLED) for verdict in answers) if settings.recourse else answers


def _in_world(
    read: Sequence[tuple[Formula, str]], worlds: WorldChecker, fitted: FitBands | None, settings: _Settings
) -> Iterator[Verdict]:
    for formula, text in read:
        worlds.validate(formula, text)
    return (settings.in_world(formula, text, worlds, fitted) for formula, text in read)


def _hidden(
    read: Sequence[tuple[Formula, str]], checker: HiddenChecker, path: Sequence[Sequence[Any]], settings: _Settings
) -> Iterator[Verdict]:
    if settings.engine == "sampled" or settings.causal_model != "gumbel":
        raise ConfigError(ONLY_EXACT)
    pairs, before = checker.check_path(path)
    for formula, text in read:
        checker.validate(formula, text)
    beliefs = checker.beliefs(pairs, settings.acted, before)
    how: dict[str, Any] = {"terminated": settings.terminated, "acted": settings.acted}
    how["start_observed"] = settings.start_observed
    return (checker.check(formula, text).verdict(pairs, beliefs, **how) for formula, text in read)


def _check_engine(engine: str, causal_model: str) -> None:
    if engine not in get_args(Engine):
        raise ConfigError(f"engine {engine!r} does not exist; use {', '.join(get_args(Engine))}")
    if causal_model not in get_args(RequestedModel):
        raise ConfigError(f"causal model {causal_model!r} does not exist; use {', '.join(get_args(RequestedModel))}")
    if engine == "sampled" and causal_model != "gumbel":
        raise ConfigError(f"causal model {causal_model!r}: {NO_BOUNDS}; use engine 'exact', or 'gumbel'")
