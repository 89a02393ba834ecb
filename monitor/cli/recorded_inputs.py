"""Recordings named on a command line: the options of their columns, and reading them into a learner.

`cfmon model learn` and `cfmon init` share this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from monitor.cli.abstractions import abstraction_of, function_of, reading, with_sizes
from monitor.cli.comparing import best_abstraction, show_comparison
from monitor.cli.output import Bar, say
from monitor.errors import ModelError, RecordingError, printable

if TYPE_CHECKING:
    from monitor.arrays import Ints
    from monitor.authoring.learning.abstraction import Numbering
    from monitor.authoring.learning.abstraction_scores import Scored
    from monitor.authoring.learning.batch import RowBatch
    from monitor.authoring.learning.columns import Roles
    from monitor.authoring.learning.holdout import Holdout
    from monitor.authoring.learning.learner import Learner
    from monitor.authoring.learning.left_out import LeftOut
    from monitor.authoring.learning.policy_choices import PolicyChoices
    from monitor.authoring.learning.row_files import FilePosition, FileRows, RowFile
    from monitor.authoring.learning.sentinels import MissingValues
    from monitor.authoring.policy_export.policy_columns import PolicyRows

__all__ = [
    "ENCODERS",
    "AbstractionKind",
    "ActionColumn",
    "Bins",
    "EpisodeColumn",
    "InputColumns",
    "MissingCodes",
    "NextStateColumns",
    "ObservationColumns",
    "OrderColumn",
    "RewardColumn",
    "RewardTiming",
    "SignalColumn",
    "SkipBad",
    "StateColumns",
    "TerminatedColumn",
    "TimeLimit",
    "TimingName",
    "TruncatedColumn",
    "many",
    "new_learner",
    "notes_on_bins",
    "notes_on_reading",
    "notes_on_rows",
    "open_recording",
    "read_into",
    "reading",
    "recorded_files",
    "rows_of",
    "show_roles",
    "with_function",
    "with_sizes",
]

SHOWN: Final = 10
"""Number of left-out columns that are shown."""

SPARSE: Final = 10
"""A note is given if at most one in this number of a model's indices occurs in the rows."""

KEEP: Final = 1_000_000
KEEP_EACH: Final = 10
"""Counts within a file are saved after `KEEP` rows, plus `KEEP_EACH` rows for each transition to be written."""

SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather", ".mcap")

ENCODERS: Final = {"index": "index", "name": "name", "values": "valuation", "bins": "bins", "nearest": "nearest"}
"""Kind of the states of a learner -> `state_encoder` of a configuration."""


class TimingName(StrEnum):
    """What a row's reward and end markers belong to: see `monitor.authoring.learning.columns.Timing`."""

    step = "step"
    state = "state"


StateColumns = Annotated[str | None, typer.Option(metavar="NAME,NAME", help="columns of the state")]
ActionColumn = Annotated[str | None, typer.Option(metavar="NAME", help="column of the action")]
EpisodeColumn = Annotated[str | None, typer.Option(metavar="NAME", help="column of the episode; '': none")]
OrderColumn = Annotated[str | None, typer.Option(metavar="NAME", help="column that orders an episode; '': none")]
RewardColumn = Annotated[str | None, typer.Option(metavar="NAME", help="column of the reward; '': none")]
InputColumns = Annotated[
    str | None,
    typer.Option(metavar="NAME,NAME", help="columns that the agent does not influence: inputs of a world with numbers"),
]
TerminatedColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="column that ends an episode, or a condition; '': none")
]
TruncatedColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="column that cuts an episode off, or a condition; '': none")
]
NextStateColumns = Annotated[str | None, typer.Option(metavar="NAME,NAME", help="columns of the state afterwards")]
ObservationColumns = Annotated[
    str | None, typer.Option(metavar="NAME,NAME", help="columns of a policy's input; some are kept for each state")
]
SignalColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="column of what the sensor shows: live agents do not see the state")
]
AbstractionKind = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="auto, index, name, values, kmeans:K, or FILE.py:FUNCTION; default: by the columns"
    ),
]
RewardTiming = Annotated[
    TimingName | None,
    typer.Option(help="reward and end markers belong to the `step` from a row's state, or to that `state`"),
]
SkipBad = Annotated[
    str,
    typer.Option(
        metavar="LIMIT", help="bad rows that may be left out, as 1% or a number; after a comma, rows that lack a value"
    ),
]
MissingCodes = Annotated[
    list[str] | None,
    typer.Option(
        "--missing", metavar="'COLUMN: VALUE,..'", help="values that stand for missing ones, such as 'level: -999'"
    ),
]
TimeLimit = Annotated[
    int | None,
    typer.Option(min=0, metavar="STEPS", help="an end after so many steps cuts an episode off, and does not end it"),
]
Bins = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="bins of the state: 'x:8q,v:-1|0|1', or '8q' (q: quantiles, w: equal width); text: one each",
    ),
]


def recorded_files(given: Iterable[Path]) -> list[Path]:
    """Return each named file once, with the files inside folders.

    Raises RecordingError for a folder without such files. A Minari dataset and a recording as Parquet are folders that
    count as one file. In a LeRobot dataset, the files in `data` are used, and the files in `meta` are not.
    """
    from monitor.authoring.learning.minari_rows import METADATA, is_minari  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.row_files import row_suffix  # noqa: PLC0415 - likewise
    from monitor.sidecar.parquet_recording import ABOUT, is_parquet_recording  # noqa: PLC0415 - likewise

    found: list[Path] = []
    for path in given:
        if path.is_dir() and not (is_minari(path) or is_parquet_recording(path)):
            datasets = {each.parent.parent for each in path.rglob(str(METADATA))}
            datasets |= {each.parent for each in path.rglob(ABOUT)}
            about = {each.parent for each in path.rglob("meta/info.json")}
            inside = [each for each in path.rglob("*") if row_suffix(each) in SUFFIXES]
            inside = [*datasets, *(each for each in inside if not (datasets | about) & set(each.parents))]
            inside.sort(key=_numbered)
            if not inside:
                raise RecordingError(f"{path}: there is no file of {', '.join(SUFFIXES)} in it")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _numbered(path: Path) -> list[tuple[bool, int, str]]:
    """Return a key that sorts log_2.csv before log_10.csv."""
    parts = re.split(r"([0-9]+)", str(path))
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def open_recording(path: Path, topic: str, missing: MissingValues | None = None) -> RowFile:
    """Return the rows of a table, or of a recording's steps on `topic`. Raises RecordingError if there is no such file.

    `missing`: column -> values that stand for missing values.
    """
    from monitor.authoring.learning.mcap_rows import McapRows  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.recording_rows import RecordingRows  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.row_files import open_rows  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.recording_formats import is_recording  # noqa: PLC0415 - likewise

    if not path.exists():
        raise RecordingError(f"{path}: there is no such file")
    if path.suffix.lower() == ".mcap":
        rows: RowFile = McapRows(path, topic)
    else:
        rows = RecordingRows(path, topic) if is_recording(path) else open_rows(path)
    from monitor.authoring.learning.marker_conditions import WithMarkers  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.sentinels import WithoutSentinels  # noqa: PLC0415 - likewise

    return WithMarkers(WithoutSentinels(rows, missing) if missing else rows)


def missing_in(source: RowFile, missing: MissingValues) -> MissingValues:
    """Return `missing` with one entry for each column of a key `NAME,NAME`. Raises RecordingError."""
    from monitor.authoring.learning.columns import columns_named  # noqa: PLC0415 - keep `cfmon --help` light

    names = source.names() if missing else ()
    return {name: codes for text, codes in missing.items() for name in columns_named(names, text, str(source.path))}


def with_function(source: RowFile, function: str) -> RowFile:
    """Return the source with the state that `function`, FILE.py:NAME, computes. An empty `function` changes nothing."""
    from monitor.authoring.learning.state_functions import Computed, state_function  # noqa: PLC0415 - keep `cfmon --help` light

    return Computed(source, *state_function(function)) if function else source


def rows_of(learner: Learner, recordings: Iterable[Path], topic: str) -> PolicyRows:
    """Return recorded rows with their states in the model of a learner.

    Rows whose state the model lacks are left out.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.policy_export.policy_columns import policy_rows  # noqa: PLC0415 - likewise

    states, where = deepcopy(learner.states), learner.where()
    assert states is not None

    def state_of(batch: RowBatch) -> Ints:
        found = states.encode(batch, learner.roles.state)
        numbers = where.of_base(np.maximum(found, 0))
        return np.where((found < 0) | (numbers == where.elsewhere), -1, numbers)

    sources = [
        with_function(open_recording(path, topic, learner.missing), learner.function)
        for path in recorded_files(recordings)
    ]
    return policy_rows(sources, learner.roles, state_of)


def new_learner(
    sources: Sequence[RowFile],
    target: Path,
    given: dict[str, Any],
    said: dict[str, Any],
    seed: int,
    *,
    choices: Callable[[Roles], PolicyChoices | None] = lambda _: None,
) -> tuple[Learner, list[Scored]]:
    """Return a learner for new files. Columns are guessed from the first file, and bins are computed from all files.

    Also returns the scores of abstractions, if several were compared. `choices`: returns the choices of given policies
    on recorded rows with these roles; called only for a comparison.
    """
    from monitor.authoring.learning.columns import guessed  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.companion import companion_of, part_of  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.learner import Learner, labels_of  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.state_functions import state_function  # noqa: PLC0415 - likewise

    for counts in (companion_of(target), part_of(target)):
        if counts.exists():
            raise ModelError(f"{counts} already exists; add to it or continue it with --append {target}, or remove it")
    function = function_of(said)
    names = sources[0].names()
    if function:
        given = given | {"state": state_function(function)[0]}
        names = (str(given["state"]), *names)
    roles = guessed(names, given, str(sources[0].path), sources[0].left_out)
    conditions = labels_of(said["label"], said["unsafe"], roles, names)
    roles = _with_columns(roles, [column for condition, _ in conditions for column in condition.columns], names)
    prior = 1.0 if said["prior"] is None else said["prior"]
    states: Numbering | None = None
    table: list[Scored] = []
    if said["abstraction"] == "auto":
        states, table = best_abstraction(sources, roles, conditions, prior, seed, choices=choices(roles))
    elif not function:
        states = abstraction_of(sources, roles.state, said, seed, [condition for condition, _ in conditions])
    learner = Learner.new(roles, states, conditions, prior)
    learner.function = function
    return learner, table


def _with_columns(roles: Any, columns: Sequence[str], names: Sequence[str]) -> Any:  # noqa: ANN401 - Roles, imported late
    return replace(roles, others=tuple(dict.fromkeys(column for column in columns if column in names)))


def read_into(
    learner: Learner,
    rows: FileRows,
    bar: Bar,
    before: int,
    holdout: Holdout,
    *,
    after: FileRows | None,
    keep: Callable[[FilePosition], None] | None = None,
) -> bool:
    """Count a source. Return whether its episodes continue in the next source.

    Args:
        learner: counts the rows.
        rows: rows of the source.
        bar: shows the progress.
        before: total size of the previous sources, in bytes.
        holdout: also gets the steps.
        after: rows of the next source, which may continue the episodes of this one.
        keep: called now and then between two batches, with the position in the file.

    Raises RecordingError if a column is missing or there is no row.
    """
    from monitor.authoring.learning.row_files import FilePosition, goes_on  # noqa: PLC0415 - keep `cfmon --help` light

    source = rows.source
    names = source.names()
    missing = [name for name in learner.roles.lacking(names) if not _is_optional(name, learner)]
    if missing:
        raise RecordingError(f"{source.path}: there is no column {missing[0]!r}; it has {', '.join(names)}")
    done = kept = rows.begin.rows
    for batch in rows:
        steps = learner.read(batch)
        holdout.add(steps)
        done += batch.rows
        if keep is not None and done - kept >= KEEP + len(learner.tally.transitions) * KEEP_EACH:
            keep(FilePosition(done, source.kinds))
            kept = done
        bar.at(before + source.position, f"counting {source.path.name}: {done:,} rows")
    if not done:
        raise RecordingError(f"{source.path}: has no rows")
    part = after is not None and goes_on(source, after.source)
    joined = not part and after is not None and learner.goes_on(after.first())
    learner.joined += joined
    rest = None if part or joined else learner.end_file()
    if rest is not None:
        holdout.add(rest)
    return part or joined


def _is_optional(name: str, learner: Learner) -> bool:
    """Return whether a recording may lack the column.

    Rewards and actions are optional, because agents need not send them.
    """
    return learner.roles.timing == "state" and name in (learner.roles.reward, learner.roles.action)


def notes_on_rows(learner: Learner) -> list[str]:
    """Return sentences on missing or incomplete data in the rows that were read."""
    tally, order = learner.tally, learner.roles.order
    notes = [*_note_on_indices(learner)]
    notes += notes_on_reading(learner.left_out, tally.gaps, learner.step, learner.joined, order)
    late, on_time = int(tally.visited["late"].sum()), int(tally.visited["starts"].sum())
    if late and (on_time or not learner.runs_on):
        begin = f"{many(late, 'episode')} of {late + on_time:,} began later than at step 1"
        if learner.runs_on:
            notes.append(f"{begin}, so {order} is taken to run on over episodes, and they count as starts")
        else:
            notes.append(
                f"{begin}: the beginning is missing, so they do not count as starts; if nothing is missing: --order ''"
            )
    if tally.alone:
        notes.append(
            f"{many(tally.alone, 'episode')} without a transition from the first row, such as those of one row"
        )
    return notes


def _note_on_indices(learner: Learner) -> list[str]:
    """Return a sentence if most indices never occur as states, for example with codes such as 200 and 404."""
    from monitor.authoring.learning.state_codes import is_end  # noqa: PLC0415 - keep `cfmon --help` light

    states, codes = learner.states, learner.tally.visited.keys
    seen = int((~is_end(codes)).sum())
    if states is None or states.kind != "index" or states.size < SPARSE * seen:
        return []
    numbers = f"states are the numbers 0 to {states.size - 1:,}, as {states.columns[0]} holds them"
    return [
        f"{numbers}, and {seen:,} of these occur: --abstraction values makes states of those alone, which is faster"
    ]


def notes_on_reading(left_out: LeftOut, gaps: int, step: float | None, joined: int, order: str | None) -> list[str]:
    """Return sentences on rows that were left out or are missing, and on files whose episodes continue in the next.

    `step`: the usual time between two rows, if times order the rows. `order`: the column of the order.
    """
    notes = [left_out.listing()] if left_out.bad else []
    if gaps and step is None:
        notes.append(f"{many(gaps, 'gap')} in {order}: a step is missing there, and no transition is counted across it")
    elif gaps:
        notes.append(
            f"{many(gaps, 'gap')} in {order}: over 1.5 times the usual step of {step:,.6g}, so a step is missing "
            "there, and no transition is counted across it; if none is missing: --order ''"
        )
    if joined:
        notes.append(
            f"{many(joined, 'file')} joined with the next, whose first row has the same episode, one step later in "
            f"{order}"
        )
    return notes


def notes_on_bins(learner: Learner, bins: str | None) -> list[str]:
    """Return a sentence on the edges of bins that were added for the conditions of labels, if any were added.

    `bins`: the user's option. Columns whose edges the option gives are not named.
    """
    from monitor.authoring.learning.bins import parsed_bins  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.conditions import edges_of_all  # noqa: PLC0415 - keep `cfmon --help` light

    if learner.states is None or learner.states.kind != "bins":
        return []
    given = {} if bins is None else parsed_bins(bins)
    own = {name for name in learner.states.columns if (spec := given.get(name, given.get(""))) and spec.cuts}
    wanted = {name: edges for name, edges in edges_of_all(learner.conditions).items() if name not in own}
    cuts = {
        name: sorted(wanted.get(name, set()) & set(edges[1:-1].tolist()))
        for name, edges in zip(learner.states.columns, learner.states.edges, strict=True)
    }
    parts = [f"{name} {', '.join(dict.fromkeys(f'{cut:.6g}' for cut in each))}" for name, each in cuts.items() if each]
    return [f"bins have edges at the numbers of the conditions too: {'; '.join(parts)}"] if parts else []


def many(count: int, what: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def show_roles(lines: Iterable[str], sources: Sequence[RowFile], compared: Sequence[Scored] = ()) -> None:
    """Print `lines` on the columns in use, the columns that are left out, and the abstractions that were compared."""
    say(f"{sources[0].path}{'' if len(sources) == 1 else f' and {len(sources) - 1} more'}: columns")
    for line in lines:
        say(f"  {printable(line)}")
    for name, held in list(sources[0].left_out.items())[:SHOWN]:
        say(f"  left out    {printable(name)}: {printable(held)}")
    if len(sources[0].left_out) > SHOWN:
        say(f"  left out    {len(sources[0].left_out) - SHOWN:,} more columns that are neither numbers nor text")
    show_comparison(compared)
