"""`cfmon verify`: derive an alarm again, from its evidence and the files that lie beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monitor.cli.output import ExitCode, finish, print_json, progress, say
from monitor.errors import ConfigError, EvidenceError, ModelError, PolicyError

if TYPE_CHECKING:
    from monitor.alarm.document import Evidence
    from monitor.model.mdp import MDP
    from monitor.policy.table import PolicyTable

__all__ = ["verify"]


def verify(
    evidence: Annotated[Path, typer.Argument(help="the evidence file of one alarm")],
    *,
    objects: Annotated[
        Path | None, typer.Option(help="where models and policies lie by sha256; default: objects/ beside evidence/")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document on stdout")] = False,
) -> None:
    """Derive every number of an alarm again, from its path and the model and policies it names.

    Exit code: 0 all of them agree, within 1e-9; 1 something does not; 2 a file that is needed cannot be read.
    """
    content = _read(evidence)
    folder = objects if objects is not None else evidence.resolve().parent.parent / "objects"
    try:
        document = _document(content)
        with progress("deriving the alarm again"):
            disagreements = list(_rederive(document, folder))
    except EvidenceError as error:
        document, disagreements = None, [str(error)]
    numbers = dict(_numbers("verdict", _verdict(document))) if document is not None else {}
    if as_json:
        print_json(_summary(document, numbers, disagreements))
    else:
        _tell(evidence, document, numbers, disagreements)
    finish(ExitCode.NO if disagreements else ExitCode.FINE)


def _document(content: bytes) -> Evidence:
    from monitor.alarm.document import read_evidence  # noqa: PLC0415 - keep `cfmon --help` light

    return read_evidence(content)


def _verdict(document: Evidence) -> object:
    from monitor.alarm.document import plain  # noqa: PLC0415 - keep `cfmon --help` light

    return plain(document.verdict)


def _rederive(document: Evidence, folder: Path) -> Iterator[str]:
    from monitor.alarm.evidence import rederive  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.model.io import read_model  # noqa: PLC0415 - likewise

    try:
        model = read_model(_object(folder, document.model_sha256, "the model"), document.model)
        models = {
            name: read_model(_object(folder, sha256, f"model {name}"), name) for name, sha256 in document.models.items()
        }
        tables = {name: _table(document, name, folder, model) for name in document.policies}
    except (
        ModelError,
        PolicyError,
        ValueError,
    ) as error:  # what lies there has the right digest and still is no model or policy
        raise EvidenceError(f"what the evidence names does not load: {error}") from error
    yield from rederive(document, model, tables, models)


def _table(document: Evidence, name: str, folder: Path, model: MDP) -> PolicyTable:
    from monitor.policy.session import Manifest, table_from_onnx  # noqa: PLC0415 - keep `cfmon --help` light

    policy = document.policies[name]
    content = _object(folder, policy.sha256, f"policy {name}")
    manifest = Manifest.model_validate(policy.manifest)
    return table_from_onnx(content, manifest, model, f"policy {name}")


def _object(folder: Path, sha256: str, what: str) -> bytes:
    content = _read(folder / Path(sha256).name)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise EvidenceError(f"{what}: {sha256} is recorded, {folder / sha256} has {found}: altered")
    return content


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}; --objects says where models and policies lie"
        ) from error


def _numbers(where: str, value: object) -> Iterator[tuple[str, float]]:
    """Every number of the verdict under the name a disagreement would give it."""
    match value:
        case dict():
            for key, item in value.items():
                yield from _numbers(f"{where}.{key}", item)
        case list():
            for index, item in enumerate(value):
                yield from _numbers(f"{where}[{index}]", item)
        case bool():
            pass
        case int() | float():
            yield where, value


def _summary(document: Evidence | None, numbers: dict[str, float], disagreements: list[str]) -> dict[str, object]:
    alarm = {} if document is None else {"evidence": document.id, "alert": document.alert, "formula": document.text}
    return {"verified": not disagreements, **alarm, "numbers": numbers, "disagreements": disagreements}


def _tell(file: Path, document: Evidence | None, numbers: dict[str, float], disagreements: list[str]) -> None:
    say(f"evidence {file}")
    if document is not None:
        say(f"  alarm    {document.formula} of agent {document.agent}, episode {document.episode}, step {document.seq}")
        say(f"  formula  {document.text}")
        say(f"  model    {document.model}  sha256 {document.model_sha256}")
        for name, policy in document.policies.items():
            say(f"  policy   {name}  sha256 {policy.sha256}")
        if (drawn := document.verdict.drawn) is not None:
            say(f"  sampled  as test {drawn.test} of its stream, with seed {drawn.seed}; its numbers are drawn again")
        said = "\n".join(disagreements)
        for where, number in numbers.items():
            say(f"  {'DIFFERS' if f'{where}:' in said else 'agrees '}  {where} = {number:.12g}")
    for disagreement in disagreements:
        say(f"NOT VERIFIED: {disagreement}")
    if not disagreements:
        say(f"verified: {len(numbers)} numbers derived again from the path, the model and the policies; all agree")
