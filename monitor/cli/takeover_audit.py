"""`cfmon takeovers`: audit the takeovers whose evidence is in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.cli.output import ExitCode, finish, print_json, say
from monitor.errors import ConfigError, EvidenceError, FormulaError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.evidence.audit import Audited
    from monitor.evidence.document import Evidence

UNDECIDED: Final = "undecided takeovers leave no evidence; cfmon_takeovers_total counts them"


def takeovers(
    folder: Annotated[Path, typer.Argument(help="folder with evidence: evidence/ beside the monitor's store")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Audit takeovers: how many the goals needed, and what would have happened without them.

    Read the evidence in a folder; recompute nothing (`cfmon verify` does). Exit code: 0 all read; 1 a file is damaged;
    2 the folder cannot be read.
    """
    from monitor.evidence.audit import audit  # noqa: PLC0415 - keep `cfmon --help` light

    problems: list[str] = []
    rows = audit(_documents(folder, problems))
    if as_json:
        from msgspec import to_builtins  # noqa: PLC0415 - likewise

        print_json({"folder": str(folder), "takeovers": to_builtins(rows), "damaged": problems})
    else:
        _show(folder, rows, problems)
    finish(ExitCode.NO if problems else ExitCode.FINE)


def _documents(folder: Path, problems: list[str]) -> Iterator[Evidence]:
    """Yield the evidence in a folder in order of file names. Add a sentence to `problems` for each unusable file."""
    from monitor.cli.evidence import read_bounded  # noqa: PLC0415 - likewise
    from monitor.evidence.contradictions import contradictions  # noqa: PLC0415 - likewise
    from monitor.evidence.document import MAX_EVIDENCE_BYTES, read_evidence  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.evidence.verification import id_in_name  # noqa: PLC0415 - likewise

    try:
        files = sorted(path for path in folder.iterdir() if not path.suffix and id_in_name(path.name) is not None)
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}; give the folder with the evidence") from error
    for path in files:
        try:
            document = read_evidence(read_bounded(path, MAX_EVIDENCE_BYTES))
            found = [] if document.takeover is None else contradictions(document)
        except (ConfigError, EvidenceError, FormulaError) as error:
            problems.append(f"{path.name}: {str(error).splitlines()[0]}")
            continue
        if found:
            problems.append(f"{path.name}: {found[0]}")
        else:
            yield document


def _show(folder: Path, rows: list[Audited], problems: list[str]) -> None:
    say(printable(f"judgements of takeovers with evidence in {folder}: {sum(row.takeovers for row in rows)}"))
    for row in rows:
        among = "" if row.causal_model == "gumbel" else f" (causal_model: {row.causal_model})"
        say(printable(f"  {row.formula}, by {row.policy!r}, for {row.goal}{among}: {row.takeovers}"))
        counts = ", ".join(f"{outcome} {count}" for outcome, count in row.outcomes.items())
        robust = "" if row.robust is None else f"; robust {row.robust}"
        say(f"    {counts}{robust}")
        spread = "" if row.deviation is None else f" (standard deviation {row.deviation:.2f})"
        what = "reward in all" if row.deviation is None else "the goal's path formula held after"
        say(f"    {what}: {row.happened:g}; if the deployed policy had gone on, expected {row.deployed:.2f}{spread}")
    if rows:
        say(f"  {UNDECIDED}")
    for problem in problems:
        say(printable(f"DAMAGED: {problem}"))
