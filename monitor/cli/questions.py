"""`cfmon check`: evaluate formulas on a recorded path, without a stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from monitor.cli.output import finish, print_json, progress
from monitor.errors import ConfigError
from monitor.model.formats import WORLDS, supported_forms
from monitor.types.specs import BandSettings, Sampling

if TYPE_CHECKING:
    from monitor.evaluation.models import AnyModel
    from monitor.evaluation.visits import Needed
    from monitor.exact.recourse import RecourseReport
    from monitor.model import MDP
    from monitor.types.verdicts import Verdict

DEFAULT = Sampling()
BANDS = BandSettings()


class EngineOption(StrEnum):
    """Evaluator: one of `monitor.types.Engine`, or the second, slower evaluator `referee`."""

    auto = "auto"
    exact = "exact"
    sampled = "sampled"
    referee = "referee"


class SequentialTest(StrEnum):
    """Sequential test that compares sampled values with bounds."""

    betting = "betting"
    paper = "paper"


class UnchangedName(StrEnum):
    """Which decision counts as unchanged in a state that was not visited: see `monitor.exact.recourse.Unchanged`."""

    nominal = "nominal"
    observed = "observed"


class CausalModelName(StrEnum):
    """Class of causal models for the bounds of a verdict."""

    gumbel = "gumbel"
    any = "any"
    stable = "stable"


def check(
    *,
    model: Annotated[str, typer.Option(help=f"{supported_forms()}; a world with numbers: {WORLDS}")],
    path: Annotated[
        Path, typer.Option(help="file of pairs [state, action], in a world messages: JSON, JSON lines or CSV")
    ],
    policy: Annotated[
        list[str], typer.Option(metavar="NAME=FILE", help="policy manifest, or JSON table; may be repeated")
    ],
    other_model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=MODEL", help="model that formulas call model:NAME; may be repeated"),
    ] = None,
    nominal: Annotated[str, typer.Option(metavar="NAME", help="policy that the agent runs")] = "nominal",
    formula: Annotated[str | None, typer.Option(help="formula to evaluate")] = None,
    formulas: Annotated[
        Path | None, typer.Option(help="file of formulas: one a line, indented lines continue, // comments")
    ] = None,
    engine: Annotated[
        EngineOption, typer.Option(help="how to evaluate; `referee`: exactly, with a second, slower program")
    ] = EngineOption.auto,
    causal_model: Annotated[
        CausalModelName, typer.Option(help="report bounds over this class of causal models")
    ] = CausalModelName.gumbel,
    seed: Annotated[int, typer.Option(help="random seed, of samples and of posterior models")] = DEFAULT.seed,
    alpha: Annotated[float, typer.Option(help="sampled: probability of a wrong `fails` or `regret`")] = DEFAULT.alpha,
    beta: Annotated[float, typer.Option(help="sampled: probability of the opposite error")] = DEFAULT.beta,
    delta: Annotated[
        float,
        typer.Option(
            help="sampled: half-width of the indifference region around a bound, as a fraction of the value's range"
        ),
    ] = DEFAULT.delta,
    error: Annotated[
        float, typer.Option(help="sampled: half-width of the interval for =?, as a fraction of the value's range")
    ] = DEFAULT.error,
    samples: Annotated[int, typer.Option(help="sampled: maximum number of samples per quantity")] = DEFAULT.limit,
    test: Annotated[
        SequentialTest,
        typer.Option(help="sampled: `betting` guarantees its error rates; `paper` does not for R and delta"),
    ] = SequentialTest.betting,
    draws: Annotated[
        int, typer.Option(help="learned model: number of posterior models for the credible band; 0: no such band")
    ] = BANDS.draws,
    level: Annotated[float, typer.Option(help="learned model: level of the credible band")] = BANDS.level,
    band_delta: Annotated[
        float, typer.Option(help="learned model: probability that the guaranteed band misses")
    ] = BANDS.delta,
    visits: Annotated[
        float | None,
        typer.Option(
            metavar="WIDTH",
            help="learned model: estimate how many visits of which pairs make guaranteed bands narrower than WIDTH",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="explain the decisions: which one mattered, and what few changes would have given"
        ),
    ] = False,
    most: Annotated[int, typer.Option(help="--explain: number of changes of the largest plan")] = 3,
    within: Annotated[
        int, typer.Option(help="--explain: size of the largest sets of decisions examined for responsibility")
    ] = 3,
    unchanged: Annotated[
        UnchangedName,
        typer.Option(help="--explain: unchanged decision in a state not visited: nominal's, or the observed action"),
    ] = UnchangedName.nominal,
    terminated: Annotated[bool, typer.Option("--terminated", help="the episode ended in the last state")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Evaluate formulas on a recorded path.

    Exit code: 0 holds, safe, or a number; 1 fails, regret or unavoidable; 3 undecided. The worst formula decides the
    code.
    """
    from monitor.cli.explained import explanation_data  # noqa: PLC0415 - likewise
    from monitor.cli.input_files import read_formulas  # noqa: PLC0415 - likewise
    from monitor.cli.verdict_tables import exit_code, verdict_data  # noqa: PLC0415 - likewise
    from monitor.evaluation import check_many, recourse  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.evaluation.models import load_any_model  # noqa: PLC0415 - likewise
    from monitor.logic import parse  # noqa: PLC0415 - likewise
    from monitor.logic.direction import FormulaUse, reversed_goals  # noqa: PLC0415 - likewise
    from monitor.model import MDP  # noqa: PLC0415 - likewise

    texts = _formulas(formula, formulas, read_formulas)
    if explain and engine in (EngineOption.sampled, EngineOption.referee):
        raise ConfigError(f"cfmon check: only the exact engine explains decisions; leave out --engine {engine.value}")
    with progress("reading the model and the policies"):
        loaded: Any = load_any_model(model)  # `explain` and `visits` need a table
        if not isinstance(loaded, MDP) and (explain or visits is not None or engine is EngineOption.referee):
            raise ConfigError(f"cfmon check: {loaded} is no table; leave out --explain, --visits and --engine referee")
        models = {
            name: load_any_model(source) for name, source in (_named("--other-model", o) for o in other_model or ())
        }
        named = dict(_named("--policy", each) for each in policy)
        tables, pairs, shown = _read(loaded, named, nominal, path, terminated=terminated)
    with progress("evaluating", total=len(texts) if len(texts) > 1 else None) as bar:
        arguments: dict[str, Any] = {
            "model": loaded,
            "path": pairs,
            "policies": tables,
            "causal_model": causal_model.value,
            "terminated": terminated,
            "models": models,
        }
        if engine is EngineOption.referee:
            verdicts = _judged(texts, arguments | {"delta": band_delta}, bar.at)
        else:
            sampling = replace(
                DEFAULT,
                seed=seed,
                alpha=alpha,
                beta=beta,
                delta=delta,
                error=error,
                limit=samples,
                test=test.value,
            )
            bands = BandSettings(draws, seed, level, band_delta)
            arguments |= {"engine": engine.value, "sampling": sampling, "bands": bands}
            verdicts = check_many(texts, **arguments, each=bar.at)
    reports: list[RecourseReport | None] = [None] * len(texts)
    if explain:
        with progress("explaining"):
            about = {name: arguments[name] for name in ("model", "path", "policies", "terminated", "models")}
            reports = [recourse(text, most=most, within=within, unchanged=unchanged.value, **about) for text in texts]
    needed = [None if visits is None else _needed(text, visits, arguments, band_delta) for text in texts]
    if as_json:
        answers = [
            verdict_data(verdict)
            | ({} if report is None else {"explanation": explanation_data(report, loaded)})
            | ({} if found is None else {"visits": asdict(found)})
            for verdict, report, found in zip(verdicts, reports, needed, strict=True)
        ]
        print_json(
            {"model": getattr(loaded, "source", model), "path": pairs, "engine": engine.value, "verdicts": answers}
        )
    else:
        _show(verdicts, shown, reports, needed, loaded)
    for _, note in reversed_goals([FormulaUse(text, parse(text), None) for text in texts]):
        sys.stderr.write(f"cfmon: note: {note}\n")
    finish(exit_code(verdicts))


def _needed(text: str, width: float, arguments: Mapping[str, Any], delta: float) -> Needed:
    """Return the estimate of `--visits` for one formula."""
    from monitor.evaluation.visits import visits_needed  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.exact import Checker, tables  # noqa: PLC0415 - likewise
    from monitor.logic import parse  # noqa: PLC0415 - likewise

    model, models = arguments["model"], arguments["models"]
    checker = Checker(model, tables(arguments["policies"], model), models, delta=delta)
    with progress("estimating visits"):
        return visits_needed(checker, parse(text), arguments["path"], width, terminated=arguments["terminated"])


def _judged(texts: list[str], arguments: dict[str, Any], each: Callable[[int], None]) -> list[Verdict]:
    """Return the referee's verdict on each formula. `arguments`: the other arguments of `derive`."""
    from monitor.referee import derive  # noqa: PLC0415 - only `--engine referee` needs it

    verdicts: list[Verdict] = []
    for text in texts:
        verdicts.append(derive(text, **arguments))
        each(len(verdicts))
    return verdicts


def _formulas(formula: str | None, formulas: Path | None, read: Callable[[Path], list[str]]) -> list[str]:
    match formula, formulas:
        case str(text), None:
            return [text]
        case None, Path() as file:
            return read(file)
        case _:
            raise ConfigError("cfmon check: give either --formula TEXT or --formulas FILE")


def _named(option: str, argument: str) -> tuple[str, str]:
    name, equals, file = argument.partition("=")
    if not (name and equals and file):
        raise ConfigError(f"{option} {argument}: expected NAME=FILE, such as --policy fallback=policies/fallback.yaml")
    return name, file


def _read(
    model: AnyModel, policies: Mapping[str, str], nominal: str, path: Path, *, terminated: bool
) -> tuple[dict[str, Any], Sequence[Any], Sequence[tuple[object, int | None]]]:
    """Return the policies by name (`nominal` is one), the path for the evaluators, and the path for printing."""
    from monitor.cli.input_files import read_path, read_policy, read_world_path  # noqa: PLC0415 - likewise
    from monitor.evaluation.models import load_any_policy  # noqa: PLC0415 - likewise
    from monitor.model import MDP  # noqa: PLC0415 - likewise

    def read(file: str) -> Any:  # noqa: ANN401 - a table, or what decides in a world
        return read_policy(Path(file), model) if isinstance(model, MDP) else load_any_policy(file, model).table

    tables = {name: read(file) for name, file in policies.items()}
    if nominal not in tables:
        raise ConfigError(
            f"no --policy {nominal}=FILE was given, and the nominal policy is required; "
            f"add it, or name the policy that the agent runs with --nominal: {', '.join(tables)}"
        )
    tables["nominal"] = tables[nominal]
    if isinstance(model, MDP):
        pairs = read_path(path, model, terminated=terminated)
        return tables, pairs, _named_path(pairs, model)
    steps = read_world_path(path, model, tables["nominal"])
    return tables, steps, [(model.shown(state), action) for state, action, _ in steps]


def _named_path(pairs: Sequence[tuple[int | None, int | None]], model: MDP) -> list[tuple[object, int | None]]:
    """Return a path with names of observations, if states are hidden and the model has such names."""
    shown = model.emissions
    if shown is None:
        return [*pairs]
    return [(f"(observation {'unknown' if o is None else shown.called(o)})", action) for o, action in pairs]


def _show(
    verdicts: Sequence[Verdict],
    path: Sequence[tuple[object, int | None]],
    reports: Sequence[RecourseReport | None],
    needed: Sequence[Needed | None],
    model: Any,  # noqa: ANN401 - a table where there is a report
) -> None:
    from rich.console import Console  # noqa: PLC0415 - only the table needs it

    from monitor.cli.explained import explanation  # noqa: PLC0415 - likewise
    from monitor.cli.verdict_tables import verdict_table, visits_text  # noqa: PLC0415 - likewise

    console = Console(highlight=False)
    for verdict, report, found in zip(verdicts, reports, needed, strict=True):
        console.print(verdict_table(verdict, path, model.named_actions))
        if found is not None:
            console.print(visits_text(found, model.named_actions))
        if report is not None:
            console.print(explanation(report, model))
