"""`cfmon verify`, `cfmon explain`, `cfmon evidence export`: recompute an alarm, draw it, pack its evidence."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.atomic import write_file
from monitor.cli.output import ExitCode, finish, print_json, progress, say
from monitor.cli.verified import as_document, show
from monitor.errors import ConfigError, EvidenceError, printable, to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from monitor.evidence.budget import Budget
    from monitor.evidence.bundle import Bundle
    from monitor.evidence.proof import Proof
    from monitor.evidence.signing import Verifier
    from monitor.evidence.verification import Expected
    from monitor.worlds import CheckedWorld

app = typer.Typer(help="Pack the evidence of an alarm.", no_args_is_help=True, rich_markup_mode=None)

LARGE: Final = "recompute even if that may take minutes, and up to 4 GiB of memory for each model"

PIPE: Final = Path("-")
"""Standard input or output."""

EvidencePath = Annotated[
    Path,
    typer.Argument(help="evidence of one alarm: a file, or a .zip from `cfmon evidence export`; - for standard input"),
]
Objects = Annotated[
    Path | None, typer.Option(help="folder with models and policies by sha256; default: objects/ beside evidence/")
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="evidence id from the alert; default: the id in the file's name"),
]


WorldFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--world",
        metavar="FILE.py:NAME",
        help="your copy of a world written in Python; its code is run; once for each world",
    ),
]


def verify(
    evidence: EvidencePath,
    *,
    expected: Id = None,
    key: Annotated[
        Path | None, typer.Option(help="PEM file of the monitor's public key; requires a valid signature")
    ] = None,
    signature: Annotated[
        Path | None, typer.Option(help="detached signature; default: the evidence's name, or its id, with .sig")
    ] = None,
    objects: Objects = None,
    world: WorldFiles = None,
    large: Annotated[bool, typer.Option("--large", help=LARGE)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Verify the evidence of an alarm: recompute every number in it.

    Use its path, model and policies. Also compare the evidence's id with the file's name (or --id) and, with --key,
    check the signature. Exit code: 0 everything agrees, numbers within 1e-9; 1 something differs; 2 a required file
    cannot be read, or the recomputation is too large without --large.
    """
    from monitor.evidence.verification import examine  # noqa: PLC0415 - keep `cfmon --help` light

    budget = _budget(large=large)
    bundle = _bundle(evidence, budget)
    known = _expected(evidence, expected, key, signature, bundle)
    content, read = _content(evidence, bundle), _reader(evidence, objects, bundle, budget)
    with progress("recomputing the alarm"):
        report = examine(
            content, read, known, most=_most(large=large), memory=budget.model_bytes, worlds=_worlds(world)
        )
    if as_json:
        print_json(as_document(report, known))
    else:
        show(evidence, report, known)
    finish(ExitCode.NO if report.problems else ExitCode.FINE)


def explain(
    evidence: EvidencePath,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="write to FILE.svg, FILE.png, or - for SVG on stdout; default: the evidence's name with .svg",
        ),
    ] = None,
    expected: Id = None,
    objects: Objects = None,
    world: WorldFiles = None,
    large: Annotated[bool, typer.Option("--large", help=LARGE)] = False,
) -> None:
    """Draw an alarm: the observed path and the counterfactual path.

    Also draw the values along both paths; refuse evidence that cannot be verified. Exit code: 0 drawn; 2 not verified,
    or a file cannot be read or written.
    """
    target = out if out is not None else Path(f"{evidence.name}.svg")
    if target != PIPE and target.suffix not in (".svg", ".png"):
        raise ConfigError(f"cannot draw {target}: give it a name that ends in .svg or .png")
    with progress("recomputing the alarm") as bar:
        proof = _proof(evidence, expected, objects, _worlds(world), large=large)
        if proof.evidence.takeover is not None:
            raise EvidenceError(
                "this is the evidence of a takeover, and only alarms are drawn; `cfmon verify` shows it"
            )
        from monitor.picture import draw_alarm  # noqa: PLC0415 - keep `cfmon --help` light

        bar.at(0, "drawing the alarm")
        picture, told = draw_alarm(proof.evidence, proof.model, proof.tables, proof.models)
        content = _png(picture) if target.suffix == ".png" else picture.encode()
    if target == PIPE:
        sys.stdout.buffer.write(content)
        return
    try:
        write_file(target, content)
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    say(printable(told.text))
    say(printable(f"drawn in {target}"))


@app.command()
def export(
    evidence: Annotated[Path, typer.Argument(help="evidence file of one alarm, from the monitor's store")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help=".zip to write; default: the evidence's id with .zip, here")
    ] = None,
    objects: Objects = None,
) -> None:
    """Pack evidence, its signature, model and policies into one .zip.

    Any machine can verify or explain it. The monitor serves the same file at /evidence/ID.zip. Exit code: 0 written;
    2 a file is missing, altered or unreadable.
    """
    from monitor.evidence.bundle import pack_bundle  # noqa: PLC0415 - likewise
    from monitor.evidence.document import read_evidence  # noqa: PLC0415 - keep `cfmon --help` light

    budget = _budget(large=True)
    bundle = _bundle(evidence, budget)
    content = _content(evidence, bundle)
    id_ = read_evidence(content).id
    beside = _beside(evidence, id_)
    signature = _signature(beside) if beside.is_file() else None
    if bundle is not None:
        signature = bundle.signature
    with progress("packing the evidence"):
        packed = pack_bundle(content, _reader(evidence, objects, bundle, budget), signature)
    target = out if out is not None else Path(f"{id_}.zip")
    try:
        write_file(target, packed)
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    say(f"{target}: evidence, model and policies, {len(packed):,} bytes")
    say(f"  use it: cfmon verify {target}; cfmon explain {target}")


def _png(picture: str) -> bytes:
    """Return the picture as PNG at twice its size. With the bundled font, the PNG is the same on every machine."""
    from importlib.resources import files  # noqa: PLC0415 - only here

    try:
        import resvg_py  # noqa: PLC0415 - an extra

        fonts = files("font_roboto") / "files"
    except ImportError:
        raise ConfigError(f"PNG needs the extra `png`: {to_install('png')}; SVG needs no extra") from None
    drawn = resvg_py.svg_to_bytes(
        svg_string=picture, font_dirs=[str(fonts)], skip_system_fonts=True, sans_serif_family="Roboto", zoom=2
    )
    return bytes(drawn)


def _expected(
    file: Path, expected: str | None, key: Path | None, signature: Path | None, bundle: Bundle | None
) -> Expected:
    """Return the data that evidence must match: id (from its name or `--id`), key (`--key`) and signature file."""
    from monitor.evidence.signing import read_verifier  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.evidence.verification import Expected, id_in_name  # noqa: PLC0415 - likewise

    if expected is not None and not re.fullmatch("[0-9a-f]{32}", expected := expected.strip().lower()):
        raise ConfigError("--id: give the 32 hexadecimal digits of the alert's `evidence.id`")
    named = id_in_name(file.name) if expected is None and file != PIPE else expected
    says = "--id says" if expected is not None else "the file's name says"
    if bundle is not None and named is None:
        named, says = bundle.id, "the name in the zip file says"
    if key is None and signature is not None:
        raise ConfigError("--signature needs --key: the public key to check the signature with")
    verifier: Verifier | None = None if key is None else read_verifier(key)
    if signature is None and verifier is not None and file == PIPE:
        raise ConfigError("evidence on standard input has no signature file beside it: give one with --signature")
    if file == PIPE and signature is None:
        return Expected(named, says)
    if bundle is not None and signature is None:
        return Expected(named, says, verifier, bundle.signature, f"evidence/{bundle.id}.sig in {file}")
    place = signature if signature is not None else _beside(file, named)
    found = _signature(place) if signature is not None or place.is_file() else None
    return Expected(named, says, verifier, found, str(place))


def _beside(file: Path, named: str | None) -> Path:
    """Return the path of the signature: named after the file or, if the file is a copy or a download, after the id."""
    names = [f"{file.name}.sig", *([] if named is None else [f"{named}.sig"])]
    return next((place for name in names if (place := file.parent / name).is_file()), file.parent / names[-1])


def _signature(file: Path) -> bytes:
    from monitor.evidence.signing import SIGNATURE_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    try:
        with file.open("rb") as opened:
            return opened.read(SIGNATURE_BYTES + 1)  # one byte more than allowed, so that a longer file is refused
    except OSError as error:
        raise ConfigError(f"cannot read the signature {file}: {error.strerror}") from error


def _budget(*, large: bool) -> Budget:
    from monitor.evidence.budget import Budget  # noqa: PLC0415 - keep `cfmon --help` light

    return Budget(trusted=large)


def _bundle(file: Path, budget: Budget) -> Bundle | None:
    """Return the contents of a .zip; None if the file is the evidence itself."""
    from monitor.evidence.bundle import read_bundle  # noqa: PLC0415 - keep `cfmon --help` light

    return read_bundle(file, budget) if file.suffix.lower() == ".zip" else None


def _content(file: Path, bundle: Bundle | None) -> bytes:
    from monitor.evidence.document import MAX_EVIDENCE_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    if bundle is not None:
        return bundle.content
    return sys.stdin.buffer.read(MAX_EVIDENCE_BYTES + 1) if file == PIPE else read_bounded(file, MAX_EVIDENCE_BYTES)


def _reader(file: Path, objects: Path | None, bundle: Bundle | None, budget: Budget) -> Callable[[str], bytes]:
    """Return a reader of models and policies by sha256: from `--objects`, the .zip, or the evidence's store."""
    if objects is None and bundle is not None:
        return bundle.objects
    folder = objects if objects is not None else file.resolve().parent.parent / "objects"
    return lambda sha256: _object(folder, sha256, budget)


def _most(*, large: bool) -> float:
    """Return the largest amount of work that the recomputation may need."""
    from monitor.evidence.effort import MAX_WORK  # noqa: PLC0415 - keep `cfmon --help` light

    return math.inf if large else MAX_WORK


def _worlds(given: list[str] | None) -> list[CheckedWorld]:
    from monitor.worlds import load_world  # noqa: PLC0415 - keep `cfmon --help` light

    return [load_world(each) for each in given or ()]


def _proof(
    file: Path, expected: str | None, objects: Path | None, worlds: Sequence[CheckedWorld], *, large: bool
) -> Proof:
    """Return the evidence with its model and policies. Raise EvidenceError if the evidence cannot be verified."""
    from monitor.evidence.document import read_evidence  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.evidence.verification import examine  # noqa: PLC0415 - likewise

    budget = _budget(large=large)
    bundle = _bundle(file, budget)
    content = _content(file, bundle)
    read_evidence(content)
    known = _expected(file, expected, None, None, bundle)
    read = _reader(file, objects, bundle, budget)
    report = examine(content, read, known, most=_most(large=large), memory=budget.model_bytes, worlds=worlds)
    for problem in report.problems:
        raise EvidenceError(f"not drawn, because it is not verified (`cfmon verify` lists all differences): {problem}")
    assert report.proof is not None, "it was derived from something"
    return report.proof


def _object(folder: Path, sha256: str, budget: Budget) -> bytes:
    from monitor.model.npz import MAX_UNPACKED_BYTES  # noqa: PLC0415 - keep `cfmon --help` light

    hint = "; give the folder of models and policies with --objects"
    return read_bounded(folder / Path(sha256).name, MAX_UNPACKED_BYTES, hint, budget)


def read_bounded(file: Path, most: int, hint: str = "", budget: Budget | None = None) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Raises ConfigError if the file is unreadable or too large, and LimitError beyond the budget.
    """
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(0)
            if size <= most:
                if budget is not None:
                    budget.take(size)
                return opened.read(size)  # an endless file, such as a device, has size 0, so nothing is read
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}{hint}") from error
    raise ConfigError(f"cannot read {file}: larger than {most:,} bytes, so it is not evidence or a model")
