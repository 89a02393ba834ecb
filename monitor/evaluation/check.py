"""`monitor.check`: check all inputs, then evaluate one query on one recorded path with the suitable engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Final, cast, get_args

from msgspec.structs import replace

from monitor.errors import ConfigError, LimitError
from monitor.evaluation.credible import check_band_settings
from monitor.evaluation.engines import (
    NOT_EXACT,
    Engines,
    Held,
    HiddenEngines,
    TableEngines,
    WorldEngines,
    engines_of,
    neither,
)
from monitor.evaluation.sampled_checker import SampledChecker
from monitor.evaluation.seeding import SEEDS, alone, check_sampling
from monitor.evaluation.simulated import check_simulated_labels, check_simulated_path, simulated_scene
from monitor.exact.avoidable import SAMPLED, unexamined
from monitor.exact.inputs import as_pairs, check_acted, check_path, read_all
from monitor.logic import Formula
from monitor.model import MDP
from monitor.sampled import Simulator, VectorSimulator
from monitor.types.specs import BandSettings, CausalModel, Engine, FormulaSpec, RequestedModel, Sampling
from monitor.types.verdicts import Drawn, Verdict
from monitor.worlds import CheckedWorld, World, is_world

__all__ = ["NO_BOUNDS", "check", "check_many"]

Model = MDP | Simulator | VectorSimulator | World | type[World] | CheckedWorld | str | FilePath
BANDS = BandSettings()
PATH_NEEDS: Final = "a path needs an MDP, a world with numbers or the path of one, or a simulator"
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
        model: an `MDP`; or a simulator (`monitor.sampled`), if the states cannot be enumerated; or a `World`, if states
            are vectors of numbers; or a source that `load_world` accepts, such as the path of a manifest.
        path: pairs (state, action), oldest first; the last action may be None (not yet taken). In a `World` with
            inputs, each pair has its recorded inputs as a third element. If the `MDP` has emissions, pairs are
            (observation, action). Both may be None, which means not known. The first pair may have the belief before
            this pair as a third element, in the same form as in evidence.
        policies: name -> S actions, an S x A matrix, or the path of a manifest; `nominal` is the deployed one. For a
            simulator, policies are functions of states [n]. For a `World`, they are functions of states [n, f]. They
            return actions [n] or distributions [n, A].
        engine: `exact`, `sampled`, or `auto`. With `auto`, evaluation is exact if possible. If not, the verdict's
            `reason` says why. In a `World`, an answer is exact if no noise needs to be drawn.
        causal_model: `any` or `stable` adds bounds of the answer over this class of causal models. Only exact
            evaluation can add them.
        terminated: whether the episode has ended in the last state, which is absorbing from then on. If the model has a
            copy of that state for the end of an episode, the path ends in the copy, `model.ended(state)`.
        start_observed: whether the first pair is the episode's first step. If not, `@-k` verdicts report this.
        models: name -> another model, for `model:name`.
        sampling: error rates and limits of sampling.
        drawn: `drawn` of an earlier verdict, to repeat its sampling; replaces `sampling`.
        bands: settings of the bands of a model learned from data. With None, or `draws` 0, neither the credible band
            nor the support is computed.
        acted: names of the policies that acted, one for each pair; empty if nominal acted at all pairs.
        recourse: whether to examine which other decisions could have met a missed goal of `regret`.

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
    """Evaluate several formulas on one path, sharing common work. All formulas are read before the first is evaluated.

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
    if is_world(model) and causal_model != "gumbel":
        raise ConfigError(f"causal model {causal_model!r}: a world's own step is its causal model; leave it out")
    how: dict[str, Any] = {"terminated": terminated, "start_observed": start_observed, "acted": acted}
    answers: Iterator[Verdict]
    if not isinstance(model, MDP) and not is_world(model) and hasattr(model, "holds") and not isinstance(model, type):
        pairs = as_pairs(path)
        check_acted(acted, pairs, policies)
        simulator = cast("Simulator | VectorSimulator", model)
        _check_simulable(engine, causal_model)
        scene = simulated_scene(simulator, policies, models or {})
        read = read_all(queries)
        for formula, text in read:
            scene.validate(formula, text)
            check_simulated_labels(simulator.labels, formula, text)
        check_simulated_path(simulator, pairs)
        sampler = SampledChecker(scene)
        why = "sampled, for a simulated model cannot be enumerated" if engine == "auto" else ""
        answers = (sampler.verdict(formula, pairs, drawn, text=text, why=why, **how) for formula, text in read)
        if recourse:
            answers = (unexamined(verdict, SAMPLED) for verdict in answers)
    else:
        delta = (bands or BANDS).delta
        engines = engines_of(model, policies, models or {}, drawn.sampling, credible, delta=delta, needs=PATH_NEEDS)
        if isinstance(engines, HiddenEngines) and (refusal := engines.checker.refusal(engine, causal_model)):
            raise ConfigError(refusal)
        held = _held(engines, path, policies, acted)._replace(terminated=terminated, start_observed=start_observed)
        read = read_all(queries)
        for formula, text in read:
            engines.names.validate(formula, text)
        if isinstance(engines, TableEngines):
            check_path(engines.checker.model, held.pairs)
        spec = FormulaSpec("", "", engine=engine, causal_model=causal_model)
        answers = (
            _answered(engines, formula, replace(spec, text=text), held, drawn, recourse=recourse)
            for formula, text in read
        )
    verdicts: list[Verdict] = []
    for verdict in answers:
        verdicts.append(verdict)
        each(len(verdicts))
    return verdicts


def _held(
    engines: Engines, path: Sequence[Sequence[Any]], policies: Mapping[str, object], acted: Sequence[str]
) -> Held:
    """Check the path, and return it in the form that the engines take."""
    if isinstance(engines, WorldEngines):
        moments = engines.checker.path(path)
        check_acted(acted, moments, policies)
        return Held([(each.state, each.action) for each in moments], [each.inputs for each in moments], acted=acted)
    if isinstance(engines, HiddenEngines):
        check_acted(acted, path, policies)
        pairs, before = engines.checker.check_path(path)
        return Held(pairs, engines.checker.beliefs(pairs, acted, before), acted=acted)
    known = as_pairs(path)
    check_acted(acted, known, policies)
    return Held(known, acted=acted)


def _answered(
    engines: Engines, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn, *, recourse: bool
) -> Verdict:
    verdict = engines.with_bands(_verdict(engines, formula, spec, held, drawn), formula, held, drawn)
    return engines.with_recourse(verdict, formula, held) if recourse else verdict


def _verdict(engines: Engines, formula: Formula, spec: FormulaSpec, held: Held, drawn: Drawn) -> Verdict:
    if isinstance(engines, HiddenEngines):
        return engines.verdict(formula, spec, held)
    if isinstance(engines, WorldEngines) or spec.engine == "sampled":
        return engines.drawn_verdict(formula, spec, held, drawn)
    try:
        return engines.checker.check(
            formula,
            held.pairs,
            causal_model=spec.causal_model,
            terminated=held.terminated,
            start_observed=held.start_observed,
            text=spec.text,
            acted=held.acted,
        )
    except LimitError as error:
        if spec.engine == "exact":
            raise
        if spec.causal_model != "gumbel":
            raise LimitError(f"{error}; and {NO_BOUNDS}") from error
        try:
            return engines.drawn_verdict(formula, spec, held, drawn, NOT_EXACT + str(error))
        except LimitError as other:
            raise neither(error, other) from error


def _check_simulable(engine: Engine, causal_model: CausalModel) -> None:
    if engine == "exact":
        raise ConfigError("a simulator cannot be answered exactly; enumerate the model, or use engine 'sampled'")
    if causal_model != "gumbel":
        raise ConfigError(f"causal model {causal_model!r}: {NO_BOUNDS}; enumerate the model, or use 'gumbel'")


def _check_engine(engine: str, causal_model: str) -> None:
    if engine not in get_args(Engine):
        raise ConfigError(f"engine {engine!r} does not exist; use {', '.join(get_args(Engine))}")
    if causal_model not in get_args(RequestedModel):
        raise ConfigError(f"causal model {causal_model!r} does not exist; use {', '.join(get_args(RequestedModel))}")
    if engine == "sampled" and causal_model != "gumbel":
        raise ConfigError(f"causal model {causal_model!r}: {NO_BOUNDS}; use engine 'exact', or 'gumbel'")
