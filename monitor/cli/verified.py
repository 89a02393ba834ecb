"""Report of `cfmon verify`, as text and as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from monitor.cli.output import say
from monitor.errors import printable

if TYPE_CHECKING:
    from monitor.evidence.document import Evidence
    from monitor.evidence.verification import Expected, VerificationReport

PROGRAMS = {
    "referee": "a second program, independent of the engine that raised the alarm",
    "engine": "the program that raised the alarm",
}
"""Description of each program that can recompute the numbers."""


def as_document(report: VerificationReport, known: Expected) -> dict[str, object]:
    """Return the report as `--json` prints it. Keys may be added but not renamed."""
    document = report.document
    alarm = {} if document is None else {"evidence": document.id, "alert": document.alert, "formula": document.text}
    takeover = {} if document is None or document.takeover is None else {"takeover": asdict(document.takeover)}
    return {
        "verified": not report.problems,
        **alarm,
        **takeover,
        "numbers": _recorded(document),
        "disagreements": list(report.problems),
        "derived_by": report.derived_by,
        "not_derived_by": list(report.notes),
        "id_compared": report.id_compared,
        "signature": {"state": report.signed, "key": None if known.key is None else known.key.fingerprint},
    }


def show(file: Path, report: VerificationReport, known: Expected) -> None:
    """Print the report as text, without control characters from the evidence."""
    document = report.document
    numbers = _recorded(document)
    say(printable(f"evidence {file}"))
    if document is not None:
        say(f"  id       {document.id}  {_compared(report, known)}")
    say(f"  {_signed(report, known)}")
    if document is not None:
        _print_alarm(document)
    if report.derived_by is not None:
        say(f"  recomputed by: {report.derived_by} ({PROGRAMS[report.derived_by]})")
        for reason in report.notes:
            say(printable(f"    {reason}"))
        places = [problem.partition(":")[0] for problem in report.problems]
        for where, number in numbers.items():
            say(printable(f"  {'DIFFERS' if _within(where, places) else 'agrees '}  {where} = {number:.12g}"))
    for problem in report.problems:
        say(printable(f"NOT VERIFIED: {problem}"))
    if not report.problems:
        say(f"verified: {len(numbers)} numbers recomputed from the path, the model and the policies; all agree")


def _print_alarm(document: Evidence) -> None:
    whose = f"agent {document.agent}, episode {document.episode}, step {document.seq}"
    takeover = document.takeover
    if takeover is None:
        say(printable(f"  alarm    {document.formula} of {whose}"))
    else:
        judged = f"by {takeover.policy!r} from step {document.first_seq}: {takeover.outcome} for {document.formula}"
        say(printable(f"  takeover {judged}, of {whose}"))
    say(printable(f"  formula  {document.text}"))
    say(printable(f"  model    {document.model}  sha256 {document.model_sha256}"))
    for name, policy in document.policies.items():
        say(printable(f"  policy   {name}  sha256 {policy.sha256}"))
    if (drawn := document.verdict.drawn) is not None:
        say(f"  sampled  as test {drawn.test} of its stream, with seed {drawn.seed}; sampled again with it")


def _compared(report: VerificationReport, known: Expected) -> str:
    if not report.id_compared:
        return "NOT COMPARED: the file's name has no id; compare it with the alert's evidence.id, or give that as --id"
    assert report.document is not None
    return f"{'as' if known.id == report.document.id else 'NOT as'} {known.says}"


def _signed(report: VerificationReport, known: Expected) -> str:
    match report.signed:
        case "valid" if known.key is not None:
            return f"signed by {known.key.fingerprint}"
        case "unchecked" if known.signature is not None:
            return "signature not checked: give --key; this proves the numbers, not the origin"
        case "unchecked":
            return "not signed: this proves the numbers, not the origin"
        case _:
            return "signature NOT VALID: the origin is not proved"


def _within(where: str, places: list[str]) -> bool:
    """Return whether the place `where` is one of the places that differ, or lies inside such a place."""
    return any(where == place or where.startswith((f"{place}.", f"{place}[")) for place in places)


def _recorded(document: Evidence | None) -> dict[str, float]:
    from monitor.evidence.canonical import plain  # noqa: PLC0415 - keep `cfmon --help` light

    return {} if document is None else dict(_numbers("verdict", plain(document.verdict)))


def _numbers(where: str, value: object) -> Iterator[tuple[str, float]]:
    """Yield every number of the verdict, with the name that a disagreement uses for it."""
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
