"""`cfmon policy export`: convert a policy of another tool to ONNX, with its manifest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monitor.atomic import write_files
from monitor.cli.model_commands import NetworkOutput
from monitor.cli.output import ExitCode, finish, print_json, progress, say
from monitor.errors import ConfigError, PolicyError, printable

if TYPE_CHECKING:
    from monitor.authoring.policy_export.agreement import Agreement
    from monitor.authoring.policy_export.original import ExportRequest, Original
    from monitor.evaluation.models import AnyModel
    from monitor.model.mdp import MDP
    from monitor.policy.manifest import Manifest, RecurrentManifest

TOPIC = "agents/+/steps"
"""Topic of the steps in recordings of the monitor."""
SHOWN = 5
"""Largest number of disagreements that are printed."""


class FunctionInput(StrEnum):
    """The argument with which a Python function is called."""

    observation = "observation"
    valuation = "valuation"
    name = "name"
    number = "index"


def policy_export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="stable-baselines3 .zip; table .json, .csv, .npy; scikit-learn .joblib, .pkl; or module.py:function",
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="file to write; the manifest is OUT.yaml")],
    model: Annotated[str, typer.Option(help="model the policy acts in")],
    *,
    weights: Annotated[str | None, typer.Option(metavar="FILE", help="parameters of a torch module")] = None,
    normalise: Annotated[
        str | None,
        typer.Option(
            "--normalise",
            "--normalize",
            metavar="FILE",
            help="statistics of the observations: VecNormalize .pkl, or .npz with mean and var; none: they are not "
            "normalised",
        ),
    ] = None,
    sees: Annotated[
        FunctionInput | None,
        typer.Option(help="what a function is called with; default: observation if the model has them"),
    ] = None,
    recordings: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="recorded steps that the model was learned from: the policy sees their columns; may be repeated",
        ),
    ] = None,
    output: Annotated[
        NetworkOutput | None, typer.Option(help="what the scores of a table or a torch module are")
    ] = None,
    stochastic: Annotated[
        bool | None, typer.Option("--stochastic/--greedy", help="the agent samples its actions, or takes the best")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite OUT.onnx and OUT.yaml")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Write a policy as ONNX with its manifest, and compare it with the original in every state of the model.

    Exit code 1 if they differ; then nothing is written. Python functions, .zip and pickle files execute code:
    export only those that you trust.
    """
    from monitor.authoring.policy_export.agreement import compare  # noqa: PLC0415 - likewise
    from monitor.authoring.policy_export.convert import convert, on_first  # noqa: PLC0415 - likewise
    from monitor.authoring.policy_export.original import ExportRequest  # noqa: PLC0415 - likewise
    from monitor.authoring.policy_export.recurrent_agents import export_recurrent, is_recurrent  # noqa: PLC0415 - likewise
    from monitor.evaluation.models import (  # noqa: PLC0415 - likewise
        draft_any_manifest,
        load_any_model,
        observations_of,
        require_table,
    )

    files = _targets(target, force=force)
    request = ExportRequest(
        source,
        weights,
        normalise,
        None if sees is None else sees.value,
        None if output is None else output.value,
        stochastic,
    )
    warn_of_pickles(request)
    with progress(f"running {source} on every state of {model}"):
        found = load_any_model(model)
        manifest: Manifest | RecurrentManifest
        if not recordings and is_recurrent(source):
            mdp = require_table(found, "a recurrent agent is exported for a table")
            exported = export_recurrent(mdp, request, target)
            content, manifest, agreement, said = exported
        else:
            if recordings:
                original, mdp = _on_rows(request, model, found, recordings)
            else:
                original, mdp = on_first(observations_of(found), lambda states: (convert(states, request), states))
            manifest, assumed = draft_any_manifest(
                original.content, target, found, kind=original.kind, stochastic=original.stochastic, mask=original.mask
            )
            content, said = original.content, [*original.assumed, *assumed]
            agreement = compare(original, manifest, mdp, source)
    if agreement.differences:
        _refuse(source, agreement, mdp, as_json=as_json)
    described = manifest.model_copy(update={"provenance": _provenance(source, agreement)})
    _write(files, content, described)
    _show(files, described, agreement, said, as_json=as_json)


def _on_rows(request: ExportRequest, model: str, found: AnyModel, recordings: Sequence[Path]) -> tuple[Original, MDP]:
    """Return the table of a policy that sees recorded columns, and the model with the states of this table."""
    from monitor.authoring.learning.companion import companion_of, load_learner  # noqa: PLC0415 - used here only
    from monitor.authoring.learning.left_out import DEFAULT, RowLimit  # noqa: PLC0415 - likewise
    from monitor.authoring.policy_export.given_policy import GivenPolicy  # noqa: PLC0415 - likewise
    from monitor.cli.init_choices import row_policy  # noqa: PLC0415 - likewise
    from monitor.cli.recorded_inputs import open_recording, recorded_files, rows_of, with_function  # noqa: PLC0415 - likewise
    from monitor.evaluation.models import require_table  # noqa: PLC0415 - likewise

    mdp = require_table(found, "--recordings is for a table that `cfmon model learn` wrote")
    apart = {
        "--sees": request.sees,
        "--weights": request.weights,
        "--normalise": request.normalise,
        "--output": request.output,
        "--stochastic/--greedy": request.stochastic,
    }
    for option, given in apart.items():
        if given is not None:
            raise ConfigError(
                f"{option} and --recordings do not go together: a policy sees columns of the recordings, and its table "
                "has the distribution of what it does on them"
            )
    learner = load_learner(companion_of(Path(model)))
    if learner.where().count != mdp.states:
        raise ConfigError(f"{model}: its companion {companion_of(Path(model))} is of another model; learn it again")
    source = with_function(open_recording(recorded_files(recordings)[0], TOPIC, learner.missing), learner.function)
    policy, notes = GivenPolicy.of(request.source, source.names(), learner.roles), list[str]()
    if not policy.sees_columns:
        raise PolicyError(f"policy {request.source}: it takes the number of a state; leave --recordings out")
    original, _ = row_policy(policy, rows_of(learner, recordings, TOPIC), mdp, notes, RowLimit.parsed(DEFAULT))
    return replace(original, assumed=[*original.assumed, *notes]), mdp


def warn_of_pickles(*requests: ExportRequest) -> None:
    """Warn of files that execute code when opened; name safer alternatives. Call this before any file is opened."""
    from monitor.authoring.policy_export.convert import pickled  # noqa: PLC0415 - keep `cfmon --help` light

    files = [file for request in requests for file in pickled(request)]
    if files:
        hold, them = ("holds", "it") if len(files) == 1 else ("hold", "them")
        sys.stderr.write(
            f"cfmon: warning: {printable(', '.join(files))} {hold} pickles: opening {them} runs the code inside, with "
            "your rights; go on only if you trust who made them. No code is run by ONNX (`cfmon policy init`), tables "
            "(.json, .csv, .npy) and statistics as .npz\n"
        )
        sys.stderr.flush()


def _targets(target: Path, *, force: bool) -> tuple[Path, Path]:
    if target.suffix.lower() != ".onnx":
        raise ConfigError(f"{target}: the name of the file to write must end in .onnx")
    files = target, target.with_suffix(".yaml")
    for file in files:
        if file.exists() and not force:
            raise ConfigError(f"{file} already exists; remove it first, or give --force")
    return files


def _provenance(source: str, agreement: Agreement) -> str:
    from monitor._version import __version__  # noqa: PLC0415 - used here only

    name = Path(source).name
    return (
        f"cfmon {__version__} policy export {name}; equal to the original in {agreement.states:,} {agreement.compared}"
    )


def _refuse(source: str, agreement: Agreement, model: MDP, *, as_json: bool) -> None:
    first = agreement.differences[:SHOWN]
    if as_json:
        print_json({"agrees": False, "states": agreement.states, "differences": [list(each) for each in first]})
        finish(ExitCode.NO)
    compared = f"{agreement.states} {agreement.compared}"
    say(f"{source}: the export differs from the original in {len(agreement.differences)} of {compared}")
    for state, sentence in first:
        name = f" ({model.state_names[state]})" if model.state_names else ""
        say(f"  {'state' if model.emissions is None else 'observation'} {state}{name}: {sentence}")
    say("nothing was written")
    finish(ExitCode.NO)


def _write(files: tuple[Path, Path], content: bytes, manifest: Manifest | RecurrentManifest) -> None:
    from monitor.policy.export import manifest_yaml  # noqa: PLC0415 - keep `cfmon --help` light

    network, described = files
    contents = {network.name: content, described.name: manifest_yaml(manifest).encode()}
    try:
        write_files(network.parent, contents)
    except OSError as error:
        raise PolicyError(f"cannot write {network} and {described.name}: {error.strerror}") from error


def _show(
    files: tuple[Path, Path],
    manifest: Manifest | RecurrentManifest,
    agreement: Agreement,
    assumed: list[str],
    *,
    as_json: bool,
) -> None:
    if as_json:
        facts = {
            "agrees": True,
            "states": agreement.states,
            "left out": agreement.left_out,
            "files": [str(file) for file in files],
            "sha256": manifest.sha256,
            "manifest": manifest.model_dump(mode="json"),
            "assumed": assumed,
        }
        print_json(facts)
        return
    say(f"{files[0]}: {manifest.input.kind} in, {manifest.output.kind} out, sha256 {manifest.sha256}")
    say(f"{files[1]}: its manifest")
    say(f"  equal to the original in {agreement.states} {agreement.compared}")
    if agreement.left_out:
        states = "1 state was" if agreement.left_out == 1 else f"{agreement.left_out} states were"
        say(f"  {states} left out: the original takes an unavailable action there")
    for sentence in assumed:
        say(f"  assumed: {sentence}")
