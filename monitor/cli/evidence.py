"""`cfmon verify`, `cfmon explain`, `cfmon evidence export`: an alarm derived again, and taken elsewhere."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.cli.output import ExitCode, finish, print_json, printable, progress, say
from monitor.cli.verified import as_document, show
from monitor.errors import ConfigError, EvidenceError, to_install

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.sidecar.evidence.bundle import Bundle
    from monitor.sidecar.evidence.proof import Proof
    from monitor.sidecar.evidence.signing import Verifier
    from monitor.sidecar.evidence.verification import Expected

__all__ = ["app", "explain", "verify"]

app = typer.Typer(help="Evidence: take it elsewhere.", no_args_is_help=True, rich_markup_mode=None)

LARGE: Final = "derive it even if that may take minutes and gigabytes"

PIPE: Final = Path("-")
"""Standard input or output."""

File = Annotated[
    Path, typer.Argument(help="the evidence of one alarm: the file, or a .zip with all it needs; - for standard input")
]
Objects = Annotated[
    Path | None, typer.Option(help="where models and policies lie by sha256; default: objects/ beside evidence/")
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="the id the alert gave as its evidence; default: the one in the file's name"),
]


def verify(
    evidence: File,
    *,
    expected: Id = None,
    key: Annotated[
        Path | None, typer.Option(help="PEM file of the monitor's public key; then a signature is required")
    ] = None,
    signature: Annotated[
        Path | None, typer.Option(help="the detached signature; default: the evidence's name, or its id, with .sig")
    ] = None,
    objects: Objects = None,
    large: Annotated[bool, typer.Option("--large", help=LARGE)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document on stdout")] = False,
) -> None:
    """Derive every number of an alarm again, from its path and the model and policies it names.

    Also compares the evidence's id with the file's name (or --id) and, with --key, checks who signed it.

    Exit code: 0 all of it agrees, numbers within 1e-9; 1 something does not; 2 a file that is needed cannot be read, or
    it is too large to be derived without --large.
    """
    from monitor.sidecar.evidence.verification import examine  # noqa: PLC0415 - keep `cfmon --help` light

    bundle = _bundle(evidence)
    known = _expected(evidence, expected, key, signature, bundle)
    content, read = _content(evidence, bundle), _reader(evidence, objects, bundle)
    with progress("deriving the alarm again"):
        report = examine(content, read, known, most=_most(large=large))
    if as_json:
        print_json(as_document(report, known))
    else:
        show(evidence, report, known)
    finish(ExitCode.NO if report.problems else ExitCode.FINE)


def explain(
    evidence: File,
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
    large: Annotated[bool, typer.Option("--large", help=LARGE)] = False,
) -> None:
    """Draw an alarm: what happened, what would have happened instead, and how it came to that.

    Evidence that does not follow from its path, model and policies is not drawn. Exit code: 0 drawn; 2 not verified, or
    a file cannot be read or written.
    """
    target = out if out is not None else Path(f"{evidence.name}.svg")
    if target != PIPE and target.suffix not in (".svg", ".png"):
        raise ConfigError(f"cannot draw {target}: give it a name that ends in .svg or .png")
    with progress("deriving the alarm again") as bar:
        proof = _proof(evidence, expected, objects, large=large)
        from monitor.picture import draw, explain  # noqa: PLC0415 - keep `cfmon --help` light

        bar.at(0, "drawing it")
        story = explain(proof.evidence, proof.model, proof.tables, proof.models)
        picture = draw(story, proof.model)
        content = _png(picture) if target.suffix == ".png" else picture.encode()
    if target == PIPE:
        sys.stdout.buffer.write(content)
        return
    try:
        target.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    say(printable(story.summary))
    say(printable(f"drawn in {target}"))


@app.command()
def export(
    evidence: Annotated[Path, typer.Argument(help="the evidence file of one alarm, as the monitor keeps it")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the .zip to write; default: the alarm's id with .zip, here")
    ] = None,
    objects: Objects = None,
) -> None:
    """Pack evidence with its signature, the model and the policies: `verify` and `explain` take the file anywhere.

    The monitor serves the same at /evidence/ID.zip. Exit code: 0 written; 2 a file is missing, altered or unreadable.
    """
    from monitor.alarm.document import read_evidence  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.evidence.bundle import pack_bundle  # noqa: PLC0415 - likewise

    bundle = _bundle(evidence)
    content = _content(evidence, bundle)
    id_ = read_evidence(content).id
    beside = _beside(evidence, id_)
    signature = _signature(beside) if beside.is_file() else None
    if bundle is not None:
        signature = bundle.signature
    with progress("packing the evidence"):
        packed = pack_bundle(content, _reader(evidence, objects, bundle), signature)
    target = out if out is not None else Path(f"{id_}.zip")
    try:
        target.write_bytes(packed)
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    say(f"{target}: evidence, model and policies, {len(packed):,} bytes")
    say(f"  anywhere: cfmon verify {target}; cfmon explain {target}")


def _png(picture: str) -> bytes:
    """The picture as pixels, two for one, with a font that is the same everywhere."""
    from importlib.resources import files  # noqa: PLC0415 - only here

    try:
        import resvg_py  # noqa: PLC0415 - an extra

        fonts = files("font_roboto") / "files"
    except ImportError:
        raise ConfigError(f"PNG needs the extra `png`: {to_install('png')}; SVG needs nothing") from None
    drawn = resvg_py.svg_to_bytes(
        svg_string=picture, font_dirs=[str(fonts)], skip_system_fonts=True, sans_serif_family="Roboto", zoom=2
    )
    return bytes(drawn)


def _expected(
    file: Path, expected: str | None, key: Path | None, signature: Path | None, bundle: Bundle | None
) -> Expected:
    """What is known of the evidence from elsewhere: its name or `--id`, `--key`, and the signature beside it."""
    from monitor.sidecar.evidence.signing import read_verifier  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.evidence.verification import Expected, id_in_name  # noqa: PLC0415 - likewise

    if expected is not None and not re.fullmatch("[0-9a-f]{32}", expected := expected.strip().lower()):
        raise ConfigError("--id: give the 32 hexadecimal digits that the alert has as `evidence.id`")
    named = id_in_name(file.name) if expected is None and file != PIPE else expected
    says = "--id says" if expected is not None else "the file's name says"
    if bundle is not None and named is None:
        named, says = bundle.id, "the name in the zip file says"
    if key is None and signature is not None:
        raise ConfigError("--signature needs --key: the public key that the signature is checked with")
    verifier: Verifier | None = None if key is None else read_verifier(key)
    if signature is None and verifier is not None and file == PIPE:
        raise ConfigError("standard input has no signature beside it: name its file with --signature")
    if file == PIPE and signature is None:
        return Expected(named, says)
    if bundle is not None and signature is None:
        return Expected(named, says, verifier, bundle.signature, f"evidence/{bundle.id}.sig in {file}")
    place = signature if signature is not None else _beside(file, named)
    found = _signature(place) if signature is not None or place.is_file() else None
    return Expected(named, says, verifier, found, str(place))


def _beside(file: Path, named: str | None) -> Path:
    """Where the signature of a file is: under its name or, as for a copy or a download, under its id."""
    names = [f"{file.name}.sig", *([] if named is None else [f"{named}.sig"])]
    return next((place for name in names if (place := file.parent / name).is_file()), file.parent / names[-1])


def _signature(file: Path) -> bytes:
    from monitor.sidecar.evidence.signing import SIGNATURE_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    try:
        with file.open("rb") as opened:
            return opened.read(SIGNATURE_BYTES + 1)  # one more, so that a longer file is none
    except OSError as error:
        raise ConfigError(f"cannot read the signature {file}: {error.strerror}") from error


def _bundle(file: Path) -> Bundle | None:
    """What lies in a .zip; None where the file is the evidence itself."""
    from monitor.sidecar.evidence.bundle import read_bundle  # noqa: PLC0415 - keep `cfmon --help` light

    return read_bundle(file) if file.suffix.lower() == ".zip" else None


def _content(file: Path, bundle: Bundle | None) -> bytes:
    from monitor.alarm.document import MAX_EVIDENCE_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    if bundle is not None:
        return bundle.content
    return sys.stdin.buffer.read(MAX_EVIDENCE_BYTES + 1) if file == PIPE else _read(file)


def _reader(file: Path, objects: Path | None, bundle: Bundle | None) -> Callable[[str], bytes]:
    """Gives models and policies by sha256: from `--objects`, from the .zip, or from beside the evidence."""
    if objects is None and bundle is not None:
        return bundle.objects
    folder = objects if objects is not None else file.resolve().parent.parent / "objects"
    return lambda sha256: _object(folder, sha256)


def _most(*, large: bool) -> float:
    """How much work may be done for the evidence."""
    from monitor.alarm.effort import MAX_WORK  # noqa: PLC0415 - keep `cfmon --help` light

    return math.inf if large else MAX_WORK


def _proof(file: Path, expected: str | None, objects: Path | None, *, large: bool) -> Proof:
    """The evidence with what it names, to be drawn; EvidenceError if `verify` finds anything wrong with it."""
    from monitor.alarm.document import read_evidence  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.evidence.verification import examine  # noqa: PLC0415 - likewise

    bundle = _bundle(file)
    content = _content(file, bundle)
    read_evidence(content)
    known = _expected(file, expected, None, None, bundle)
    report = examine(content, _reader(file, objects, bundle), known, most=_most(large=large))
    for problem in report.problems:
        raise EvidenceError(f"not drawn, for it is not verified; `cfmon verify` lists all that differs: {problem}")
    assert report.proof is not None, "it was derived from something"
    return report.proof


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
