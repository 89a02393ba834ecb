"""`cfmon verify` and `cfmon explain`: an alarm derived again, from its evidence and the files that lie beside it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.cli.output import ExitCode, finish, print_json, progress, say
from monitor.cli.verified import as_document, show
from monitor.errors import ConfigError, EvidenceError

if TYPE_CHECKING:
    from monitor.sidecar.proof import Proof
    from monitor.sidecar.signing import Verifier
    from monitor.sidecar.verification import Expected

__all__ = ["explain", "verify"]

PIPE: Final = Path("-")
"""Standard input or output."""

Objects = Annotated[
    Path | None, typer.Option(help="where models and policies lie by sha256; default: objects/ beside evidence/")
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="the id the alert gave as its evidence; default: the one in the file's name"),
]


def verify(
    evidence: Annotated[Path, typer.Argument(help="the evidence file of one alarm; - for standard input")],
    *,
    expected: Id = None,
    key: Annotated[
        Path | None, typer.Option(help="PEM file of the monitor's public key; then a signature is required")
    ] = None,
    signature: Annotated[
        Path | None, typer.Option(help="the detached signature; default: the evidence's name, or its id, with .sig")
    ] = None,
    objects: Objects = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document on stdout")] = False,
) -> None:
    """Derive every number of an alarm again, from its path and the model and policies it names.

    Also compares the evidence's id with the file's name (or --id) and, with --key, checks who signed it.

    Exit code: 0 all of it agrees, numbers within 1e-9; 1 something does not; 2 a file that is needed cannot be read.
    """
    from monitor.sidecar.verification import examine  # noqa: PLC0415 - keep `cfmon --help` light

    known = _expected(evidence, expected, key, signature)
    content, folder = _content(evidence), _objects(evidence, objects)
    with progress("deriving the alarm again"):
        report = examine(content, lambda sha256: _object(folder, sha256), known)
    if as_json:
        print_json(as_document(report, known))
    else:
        show(evidence, report, known)
    finish(ExitCode.NO if report.problems else ExitCode.FINE)


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
    expected: Id = None,
    objects: Objects = None,
) -> None:
    """Draw an alarm: what happened, what would have happened instead, and how it came to that.

    Evidence that does not follow from its path, model and policies is not drawn. Exit code: 0 drawn; 2 not verified, or
    a file cannot be read or written.
    """
    target = out if out is not None else Path(f"{evidence.name}.svg")
    if target != PIPE and target.suffix not in (".svg", ".png"):
        raise ConfigError(f"cannot draw {target}: give it a name that ends in .svg or .png")
    with progress("reading the model and the policies") as bar:
        proof = _proof(evidence, expected, objects)
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


def _expected(file: Path, expected: str | None, key: Path | None, signature: Path | None) -> Expected:
    """What is known of the evidence from elsewhere: its name or `--id`, `--key`, and the signature beside it."""
    from monitor.sidecar.signing import read_verifier  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.verification import Expected, id_in_name  # noqa: PLC0415 - likewise

    if expected is not None and not re.fullmatch("[0-9a-f]{32}", expected := expected.strip().lower()):
        raise ConfigError("--id: give the 32 hexadecimal digits that the alert has as `evidence`")
    named = id_in_name(file.name) if expected is None and file != PIPE else expected
    says = "--id says" if expected is not None else "the file's name says"
    if key is None and signature is not None:
        raise ConfigError("--signature needs --key: the public key that the signature is checked with")
    verifier: Verifier | None = None if key is None else read_verifier(key)
    if signature is None and verifier is not None and file == PIPE:
        raise ConfigError("standard input has no signature beside it: name its file with --signature")
    if file == PIPE and signature is None:
        return Expected(named, says)
    place = signature if signature is not None else _beside(file, named)
    found = _signature(place) if signature is not None or place.is_file() else None
    return Expected(named, says, verifier, found, str(place))


def _beside(file: Path, named: str | None) -> Path:
    """Where the signature of a file is: under its name or, as for a copy or a download, under its id."""
    names = [f"{file.name}.sig", *([] if named is None else [f"{named}.sig"])]
    return next((place for name in names if (place := file.parent / name).is_file()), file.parent / names[-1])


def _signature(file: Path) -> bytes:
    from monitor.sidecar.signing import SIGNATURE_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    try:
        with file.open("rb") as opened:
            return opened.read(SIGNATURE_BYTES + 1)  # one more, so that a longer file is none
    except OSError as error:
        raise ConfigError(f"cannot read the signature {file}: {error.strerror}") from error


def _content(file: Path) -> bytes:
    from monitor.alarm.document import MAX_EVIDENCE_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    return sys.stdin.buffer.read(MAX_EVIDENCE_BYTES + 1) if file == PIPE else _read(file)


def _objects(file: Path, objects: Path | None) -> Path:
    return objects if objects is not None else file.resolve().parent.parent / "objects"


def _proof(file: Path, expected: str | None, objects: Path | None) -> Proof:
    """The evidence with what it names, to be drawn; EvidenceError if anything in it is not verified."""
    from monitor.alarm.evidence import read_evidence, rederive  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.proof import open_proof  # noqa: PLC0415 - likewise
    from monitor.sidecar.verification import check_id  # noqa: PLC0415 - likewise

    document = read_evidence(_content(file))
    for problem in check_id(document, _expected(file, expected, None, None)):
        raise EvidenceError(problem)
    folder = _objects(file, objects)
    proof = open_proof(document, lambda sha256: _object(folder, sha256))
    for problem in rederive(document, proof.model, proof.tables, proof.models):
        raise EvidenceError(f"not drawn, for it is not verified; `cfmon verify` lists all that differs: {problem}")
    return proof


def _object(folder: Path, sha256: str) -> bytes:
    return _read(folder / Path(sha256).name, "; --objects says where models and policies lie")


def _read(file: Path, hint: str = "") -> bytes:
    from monitor.model.npz import MAX_UNPACKED_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(0)
            if size <= MAX_UNPACKED_BYTES:
                return opened.read(size)  # an endless file, such as a device, tells no size
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}{hint}") from error
    raise ConfigError(f"cannot read {file}: larger than {MAX_UNPACKED_BYTES:,} bytes, so it is no evidence or model")
