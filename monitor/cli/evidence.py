"""`cfmon verify` and `cfmon explain`: an alarm derived again, from its evidence and the files that lie beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.cli.output import ExitCode, finish, print_json, printable, progress, say
from monitor.errors import ConfigError, EvidenceError

if TYPE_CHECKING:
    from monitor.alarm.document import Evidence
    from monitor.sidecar.proof import Proof

__all__ = ["explain", "verify"]

PIPE: Final = Path("-")
"""Standard input or output."""

Objects = Annotated[
    Path | None, typer.Option(help="where models and policies lie by sha256; default: objects/ beside evidence/")
]


def verify(
    evidence: Annotated[Path, typer.Argument(help="the evidence file of one alarm")],
    *,
    objects: Objects = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document on stdout")] = False,
) -> None:
    """Derive every number of an alarm again, from its path and the model and policies it names.

    Exit code: 0 all of them agree, within 1e-9; 1 something does not; 2 a file that is needed cannot be read.
    """
    document, disagreements = None, []
    try:
        document = _document(evidence)
        with progress("deriving the alarm again"):
            disagreements = _rederive(_proof(document, evidence, objects))
    except EvidenceError as error:
        document, disagreements = None, [str(error)]
    numbers = dict(_numbers("verdict", _verdict(document))) if document is not None else {}
    if as_json:
        print_json(_summary(document, numbers, disagreements))
    else:
        _tell(evidence, document, numbers, disagreements)
    finish(ExitCode.NO if disagreements else ExitCode.FINE)


def explain(
    evidence: Annotated[Path, typer.Argument(help="the evidence file of one alarm; - for standard input")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="FILE.svg, FILE.png, or - for SVG on standard output; default: the evidence's name with .svg",
        ),
    ] = None,
    objects: Objects = None,
) -> None:
    """Draw an alarm: what happened, what would have happened instead, and how it came to that.

    Everything drawn is derived again from the evidence. Exit code: 0 drawn; 2 a file cannot be read or written.
    """
    target = out if out is not None else Path(f"{evidence.name}.svg")
    if target != PIPE and target.suffix not in (".svg", ".png"):
        raise ConfigError(f"cannot draw {target}: give it a name that ends in .svg or .png")
    with progress("reading the model and the policies") as bar:
        proof = _proof(_document(evidence), evidence, objects)
        from monitor.picture import draw, tell  # noqa: PLC0415 - keep `cfmon --help` light

        bar.at(0, "deriving the alarm again, and drawing it")
        story = tell(proof.evidence, proof.model, proof.tables, proof.models)
        picture = draw(story, proof.model)
        content = _png(picture) if target.suffix == ".png" else picture.encode()
    if target == PIPE:
        sys.stdout.buffer.write(content)
        return
    try:
        target.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    say(story.summary)
    say(f"drawn in {target}")


def _png(picture: str) -> bytes:
    """The picture as pixels, two for one, with a font that is the same everywhere."""
    from importlib.resources import files  # noqa: PLC0415 - only here

    try:
        import resvg_py  # noqa: PLC0415 - an extra

        fonts = files("font_roboto") / "files"
    except ImportError:
        raise ConfigError(
            "PNG needs the extra `png`: pip install 'counterfactual-monitor[png]'; SVG needs nothing"
        ) from None
    drawn = resvg_py.svg_to_bytes(
        svg_string=picture, font_dirs=[str(fonts)], skip_system_fonts=True, sans_serif_family="Roboto", zoom=2
    )
    return bytes(drawn)


def _document(file: Path) -> Evidence:
    from monitor.alarm.document import MAX_EVIDENCE_BYTES, read_evidence  # noqa: PLC0415 - keep `cfmon --help` light

    return read_evidence(sys.stdin.buffer.read(MAX_EVIDENCE_BYTES + 1) if file == PIPE else _read(file))


def _proof(document: Evidence, file: Path, objects: Path | None) -> Proof:
    from monitor.sidecar.proof import open_proof  # noqa: PLC0415 - keep `cfmon --help` light

    folder = objects if objects is not None else file.resolve().parent.parent / "objects"
    return open_proof(document, lambda sha256: _read(folder / Path(sha256).name))


def _verdict(document: Evidence) -> object:
    from monitor.alarm.document import plain  # noqa: PLC0415 - keep `cfmon --help` light

    return plain(document.verdict)


def _rederive(proof: Proof) -> list[str]:
    from monitor.alarm.evidence import rederive  # noqa: PLC0415 - keep `cfmon --help` light

    return rederive(proof.evidence, proof.model, proof.tables, proof.models)


def _read(file: Path) -> bytes:
    from monitor.model.npz import MAX_UNPACKED_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(0)
            if size <= MAX_UNPACKED_BYTES:
                return opened.read(size)  # an endless file, such as a device, tells no size
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}; --objects says where models and policies lie"
        ) from error
    raise ConfigError(f"cannot read {file}: larger than {MAX_UNPACKED_BYTES:,} bytes, so it is no evidence or model")


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
        whose = f"agent {document.agent}, episode {document.episode}, step {document.seq}"
        say(printable(f"  alarm    {document.formula} of {whose}"))
        say(printable(f"  formula  {document.text}"))
        say(printable(f"  model    {document.model}  sha256 {document.model_sha256}"))
        for name, policy in document.policies.items():
            say(printable(f"  policy   {name}  sha256 {policy.sha256}"))
        if (drawn := document.verdict.drawn) is not None:
            say(f"  sampled  as test {drawn.test} of its stream, with seed {drawn.seed}; its numbers are drawn again")
        said = "\n".join(disagreements)
        for where, number in numbers.items():
            say(printable(f"  {'DIFFERS' if f'{where}:' in said else 'agrees '}  {where} = {number:.12g}"))
    for disagreement in disagreements:
        say(printable(f"NOT VERIFIED: {disagreement}"))
    if not disagreements:
        say(f"verified: {len(numbers)} numbers derived again from the path, the model and the policies; all agree")
