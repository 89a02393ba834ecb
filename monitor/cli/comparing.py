"""`--abstraction auto`: compare several abstractions on a part of the recordings, and use the best one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from monitor.cli.abstractions import reading, sampled, with_sizes
from monitor.cli.output import progress, say
from monitor.errors import RecordingError

if TYPE_CHECKING:
    from monitor.authoring.learning.abstraction import Numbering
    from monitor.authoring.learning.abstraction_scores import Scored
    from monitor.authoring.learning.batch import RowBatch
    from monitor.authoring.learning.bins import Reservoir
    from monitor.authoring.learning.columns import Roles
    from monitor.authoring.learning.conditions import Condition
    from monitor.authoring.learning.policy_choices import PolicyChoices
    from monitor.authoring.learning.row_files import FileRows, RowFile

ROWS: Final = 300_000
"""Number of rows read for the comparison. These are the first rows of each file."""

HEAD: Final = ("abstraction", "states", "loss", "more than the best", "Markov", "judgement")


def best_abstraction(
    sources: Sequence[RowFile],
    roles: Roles,
    conditions: Sequence[tuple[Condition, bool]],
    prior: float,
    seed: int,
    *,
    choices: PolicyChoices | None = None,
) -> tuple[Numbering, list[Scored]]:
    """Return the numbering of the best abstraction and the scores of all.

    `choices`: the choices of given policies on recorded rows. If given, bins with edges where a policy changes its
    choice are also tried, and an abstraction counts as worse if its states mix different choices. Raises RecordingError
    if no abstraction fits the columns.
    """
    from monitor.authoring.learning.abstraction_scores import chosen, scored  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.candidates import CHANGES, Field, abstractions, fresh  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.conditions import edges_of_all  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.policy_choices import changes  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.row_files import FileRows  # noqa: PLC0415 - likewise

    first = next((batch.whole() for batch in sources[0].batches(roles.used) if len(batch)), None)
    if first is None:
        raise RecordingError(f"{sources[0].path}: has no rows")
    sample = sampled(sources, roles.state, seed, "computing bins")
    with progress("computing clusters"):
        also = edges_of_all(condition for condition, _ in conditions)
        where = () if choices is None else changes(choices, max(CHANGES))
        found = abstractions(first, roles.state, sample, seed, also=also, changes=where)
    if not found:
        raise RecordingError(
            f"{sources[0].path}: --abstraction auto: {_too_many(roles.state, sample)}; leave columns out (--state), or "
            "compute states with FILE.py:FUNCTION"
        )
    field = Field(found, roles, conditions, prior, seed)
    with reading("comparing abstractions", sources) as bar:
        files = [FileRows(source, roles.used) for source in sources]
        for (source, before), rows, after in zip(with_sizes(sources), files, [*files[1:], None], strict=True):
            for batch in _first_rows(rows, ROWS // len(sources)):
                field.read(batch)
                bar.at(before + source.position)
            field.end_file(None if after is None else after.first())
            source.position = 0
    field.refuse_too_few(str(sources[0].path))
    with progress("comparing abstractions"):
        table = scored(field.candidates, field.outcomes)
        if choices is not None:
            states = {each.name: each.learner.states for each in field.candidates}
            table = [_with_mixed(each, choices, states[each.name]) for each in table]
    return fresh(found[chosen(table).name]), table


def _with_mixed(score: Scored, choices: PolicyChoices, states: Numbering | None) -> Scored:
    """Return the score with one more problem for each given policy whose choices differ within states of many rows."""
    from monitor.authoring.learning.policy_choices import mixed_problem  # noqa: PLC0415 - keep `cfmon --help` light

    shares = choices.mixed(deepcopy(states)) if states is not None else {}
    problems = [problem for name, share in shares.items() if (problem := mixed_problem(name, share))]
    return replace(score, problems=(*score.problems, *problems))


def _too_many(columns: Sequence[str], sample: Reservoir) -> str:
    """Return a sentence that says that the columns have too many combinations for bins.

    It gives the number of different texts in each column.
    """
    texts = [(name, len(known)) for name, known in zip(columns, sample.texts, strict=False) if known]
    said = ", ".join(f"{name} {count:,}" for name, count in sorted(texts, key=lambda each: -each[1]))
    return f"even two bins of each number and one of each text are too many states (texts: {said or 'none'})"


def _first_rows(rows: FileRows, most: int) -> Iterator[RowBatch]:
    for batch in rows:
        if most <= 0:
            return
        yield batch if len(batch) <= most else batch.whole().picked(slice(most))
        most -= len(batch)


def table_of(table: Sequence[Scored]) -> list[tuple[str, ...]]:
    """Return a row of words for each abstraction, with the columns of `HEAD`."""
    return [
        (
            each.name,
            "-" if each.states is None else f"{each.states:,}",
            f"{each.score:.4f}",
            f"{each.excess:+.4f} +- {each.error:.4f}",
            f"{each.markov:+.3f}",
            _judgement(each),
        )
        for each in table
    ]


def _judgement(each: Scored) -> str:
    if not each.problems:
        return "good enough"
    more = f" (and {len(each.problems) - 1} more)" if len(each.problems) > 1 else ""
    return each.problems[0].brief + more


def choice_sentence(table: Sequence[Scored]) -> str:
    """Return a sentence that says which abstraction was chosen, and why."""
    from monitor.authoring.learning.abstraction_scores import chosen  # noqa: PLC0415 - keep `cfmon --help` light

    taken = chosen(table)
    if taken.problems:
        return (
            f"Taken: {taken.name}, the smallest of those within one standard error of the lowest loss. NONE of these "
            "is good enough; more columns may help more than other bins"
        )
    return f"Taken: {taken.name}, the smallest of those within one standard error of the lowest loss and good enough"


def show_comparison(table: Sequence[Scored]) -> None:
    """Print the table and the choice. Print nothing if the table is empty."""
    if not table:
        return
    rows = [HEAD, *table_of(table)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    say("--abstraction auto: losses (negative log scores) of forecasts on held-out episodes; 1: that of the frequency")
    for row in rows:
        say(("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip())
    say(choice_sentence(table))
