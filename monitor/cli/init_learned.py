"""`cfmon init` from recordings: learn a table or a world with numbers, or learn both and use the better forecaster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from monitor.cli.abstractions import function_of
from monitor.cli.comparing import choice_sentence
from monitor.cli.init_base import InitBase, InitRequest
from monitor.cli.init_table import CountedTable, constant_fallback, counted, is_constant, learned_table
from monitor.cli.init_world import WorldProposal, proposed_world, world_base
from monitor.cli.output import progress
from monitor.cli.recorded_inputs import with_function
from monitor.errors import ConfigError, MonitorError, RecordingError

if TYPE_CHECKING:
    from monitor.authoring.learning.abstraction_scores import Scored
    from monitor.authoring.learning.cross_fitting import ForecastJudge
    from monitor.authoring.policy_export.given_policy import GivenPolicy
    from monitor.model.action_names import ActionNames

Found = TypeVar("Found")


def learned_base(request: InitRequest, staging: Path) -> InitBase:
    """Learn the kinds of model that the options allow, compare their forecasts, write the better model, and say why."""
    from monitor.authoring.learning.conditions import parsed  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.separation import lacking  # noqa: PLC0415 - likewise

    assert request.unsafe is not None
    label = parsed(request.unsafe).name
    request = _with_kind(request)
    given = _given_policies(request)
    failed: list[MonitorError] = []
    instead = failed if request.dynamics is None and (request.inputs_guessed or not request.inputs) else None
    world = None if request.dynamics is False else _tried(lambda: proposed_world(request), instead)
    instead = failed if world is not None else None
    table = None if request.dynamics else _tried(lambda: counted(request, staging, given), instead)
    constant_fallback(request.fallback, _names(table, world))  # reports an unknown action before the slow comparison
    taken, judge, notes = _judged(request, table, world, label)
    if world is not None and taken.states is None:
        base: InitBase = world_base(request, world, label, staging)
        lacks = world.lacking(label)
    else:
        assert table is not None
        base = learned_table(request, table, label, staging)
        notes += [choice_sentence(table.compared)] if table.compared else []
        lacks = lacking(table.learner)
    base.given = given
    base.judge, base.problems = judge, (*lacks, *taken.problems)
    base.notes += notes
    other = "a table" if table is None else "a world with numbers"
    base.notes += [f"{other} was not tried: {error}" for error in failed]
    return base


def _names(table: CountedTable | None, world: WorldProposal | None) -> ActionNames:
    """Return the names of the actions that were recorded."""
    from monitor.model.action_names import ActionNames  # noqa: PLC0415 - keep `cfmon --help` light

    if table is not None:
        assert table.learner.actions is not None
        return ActionNames(table.learner.actions.action_names, table.learner.actions.size)
    assert world is not None
    return ActionNames(world.learned.draft.actions, len(world.learned.draft.actions))


def _with_kind(request: InitRequest) -> InitRequest:
    """Return the request with `dynamics` and an abstraction, chosen from its other options and the recordings."""
    given = {"--bins": request.said["bins"], "--abstraction": request.said["abstraction"],
             "--no-dynamics": request.dynamics is False or None}  # fmt: skip
    table = next((option for option, value in given.items() if value is not None), "")
    world = "--dynamics" if request.dynamics else "--inputs" if request.inputs else ""
    if table and world:
        raise ConfigError(f"{table} is for a table, and {world} for a world with numbers; give one of them")
    if request.dynamics or table not in ("", "--no-dynamics"):
        return replace(request, dynamics=bool(request.dynamics))
    if _is_continuous(request):
        return replace(request, said=request.said | {"abstraction": "auto"})
    return request if world else replace(request, dynamics=False)


def _given_policies(request: InitRequest) -> dict[str, GivenPolicy]:
    """Return the policies that the user gives, by name. Raises PolicyError before anything is learned."""
    from monitor.authoring.learning.columns import guessed  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.policy_export.given_policy import GivenPolicy  # noqa: PLC0415 - likewise
    from monitor.authoring.policy_export.policy_columns import TRIED, policy_rows  # noqa: PLC0415 - likewise

    sources = {"nominal": request.nominal, "fallback": request.fallback}
    named = {name: each for name, each in sources.items() if each is not None and not is_constant(each)}
    if not named:
        return {}
    source = with_function(request.sources()[0], function_of(request.said))
    state = {"state": source.names()[0]} if function_of(request.said) else {}
    roles = guessed(
        source.names(), {**request.roles, **state, "inputs": request.inputs}, str(source.path), source.left_out
    )
    given = {name: GivenPolicy.of(each, source.names(), roles) for name, each in named.items()}
    functions = [each.function for each in given.values() if each.function is not None]
    if functions:
        rows = policy_rows([source], roles, first=TRIED)
        for function in functions:
            function.tried(rows)
    return given


def _is_continuous(request: InitRequest) -> bool:
    """Return whether the columns of the state need bins, clusters or a world.

    They need one of these if they have numbers with decimals, or if tuples of their values almost never repeat.
    """
    from monitor.authoring.learning.abstraction import chosen_kind, hardly_revisited  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.columns import guessed  # noqa: PLC0415 - likewise

    source = request.sources()[0]
    roles = guessed(source.names(), request.roles, str(source.path), source.left_out)
    first = next((batch.whole() for batch in source.batches(roles.used) if len(batch)), None)
    if first is None:
        raise RecordingError(f"{source.path}: has no rows")
    try:
        kind = chosen_kind(first, roles.state, "state", "")
    except RecordingError:
        return True
    return kind == "values" and hardly_revisited(first, roles.state)


def _tried(make: Callable[[], Found], failed: list[MonitorError] | None) -> Found | None:
    """Return the result of `make`. If it fails and `failed` is a list, append the error to the list and return None."""
    try:
        return make()
    except MonitorError as error:
        if failed is None:
            raise
        failed.append(error)
        return None


def _judged(
    request: InitRequest, table: CountedTable | None, world: WorldProposal | None, label: str
) -> tuple[Scored, ForecastJudge, list[str]]:
    """Return the model to use, the judge of its forecasts, and notes on why this model is used."""
    from monitor.authoring.learning.abstraction_scores import Forecaster, chosen, judged  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.cross_fitting import FOLDS, CrossFitted, ForecastJudge, folds_of  # noqa: PLC0415 - likewise

    found: list[Forecaster] = []
    with progress("judging the model"):
        if table is not None:
            outcomes, names = table.kept.outcomes, [each.name for each in table.learner.labels]
            # a comparison of abstractions uses up all folds but the first, and a world has only one fold
            folds = range(FOLDS if not table.compared and world is None else 1)
            found.append(CrossFitted("a table", table.learner, table.kept, folds))
        else:
            assert world is not None
            outcomes, names = world.outcomes(label), [label]
        if world is not None:
            found.append(world.forecasting(outcomes.paths(), request.seed))
        scores, known = judged(found, outcomes, names, label)
    taken = chosen(scores)
    notes = [_comparison(scores, taken, label)] if known and len(scores) > 1 else []
    model = next(each for each in found if each.name == taken.name)
    fold, assumed = partial(folds_of, seed=request.seed), model.size is not None
    return taken, ForecastJudge(model.forecasts, outcomes, names, fold, assumed=assumed), notes


def _comparison(scores: Sequence[Scored], taken: Scored, label: str) -> str:
    """Return a sentence that says which model was chosen, and why."""
    other = next(each for each in scores if each is not taken)
    apart, error = max(abs(each.excess) for each in scores), max(each.error for each in scores)
    why = ""
    if apart <= error:
        good = other.problems and not taken.problems
        why = f": no clear difference, and {'only it is good enough' if good else 'values on a table are exact'}"
    return (
        f"taken: {taken.name}. Loss (negative log score) of forecasts of {label!r} on held-out recordings, over that "
        f"of always forecasting its frequency: {taken.name} {taken.score:.3f}, {other.name} {other.score:.3f} "
        f"(difference {apart:.3f} +- {error:.3f}){why}"
    )
