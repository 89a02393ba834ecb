"""`cfmon recording`: convert recordings to other forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.atomic import new_path
from monitor.cli.output import Bar, print_json, progress, say
from monitor.cli.recorded_inputs import (
    ActionColumn,
    EpisodeColumn,
    InputColumns,
    NextStateColumns,
    OrderColumn,
    RewardColumn,
    RewardTiming,
    StateColumns,
    TerminatedColumn,
    TruncatedColumn,
    recorded_files,
)
from monitor.errors import RecordingError

if TYPE_CHECKING:
    from monitor.sidecar.events import Event
    from monitor.sidecar.parquet_recording import ParquetRecording
    from monitor.sidecar.recording import Header, Recording

STEPS: Final = "agents/+/steps"

app = typer.Typer(help="Convert recordings.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def recording() -> None:
    """Convert recordings."""


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(help="recording, or table of steps: CSV, JSON lines, Parquet, Minari, MCAP")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="TARGET", help="new recording; NAME.parquet: a folder")],
    *,
    topic: Annotated[str, typer.Option(help="topic of the steps, + for the agent's name")] = STEPS,
    agent: Annotated[str, typer.Option(metavar="NAME", help="agent of a table without a column `agent`")] = "recorded",
    interval: Annotated[float, typer.Option(min=1e-6, help="seconds between rows of a table without times")] = 1.0,
    state: StateColumns = None,
    action: ActionColumn = None,
    inputs: InputColumns = None,
    episode: EpisodeColumn = None,
    order: OrderColumn = None,
    reward: RewardColumn = None,
    terminated: TerminatedColumn = None,
    truncated: TruncatedColumn = None,
    next_state: NextStateColumns = None,
    timing: RewardTiming = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Convert a recording to Parquet, or back; or a table of steps to a recording.

    A folder of Parquet files is divided by date and by agent, so that `cfmon audit` can read it. SOURCE is not changed.
    """
    given = {
        "state": state, "action": action, "inputs": inputs, "episode": episode, "order": order, "reward": reward,
        "next_state": next_state, "terminated": terminated, "truncated": truncated,
        "timing": None if timing is None else timing.value,
    }  # fmt: skip
    from monitor.authoring.learning.row_files import size_of  # noqa: PLC0415 - keep `cfmon --help` light

    paths = recorded_files([source])
    if len(paths) > 1:
        raise RecordingError(f"{source}: holds {len(paths)} files; convert them one by one")
    with progress(f"converting {source}", total=size_of(paths[0])) as bar:
        header, pattern, events = _opened(paths[0], topic=topic, given=given, agent=agent, interval=interval, bar=bar)
        count = _write(to, header, pattern, events)
    if as_json:
        print_json({"source": str(source), "target": str(to), "events": count})
    else:
        say(f"{to}: {count:,} events")


def _opened(
    path: Path, *, topic: str, given: dict[str, str | None], agent: str, interval: float, bar: Bar
) -> tuple[Header, str, Iterable[Event]]:
    """Return a header for the content of a file, the topic of its steps, and its events."""
    from monitor._version import __version__  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.columns import are_messages, guessed  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.table_events import TableEvents  # noqa: PLC0415 - likewise
    from monitor.cli.recorded_inputs import open_recording as open_table  # noqa: PLC0415 - likewise
    from monitor.sidecar.parquet_recording import ParquetRecording  # noqa: PLC0415 - likewise
    from monitor.sidecar.recording import Header  # noqa: PLC0415 - likewise
    from monitor.sidecar.recording_formats import is_recording, open_recording  # noqa: PLC0415 - likewise

    if is_recording(path):
        recorded = open_recording(path)
        pattern = recorded.steps if isinstance(recorded, ParquetRecording) else topic
        return recorded.header, pattern, _recorded(recorded, bar)
    table = open_table(path, topic)
    roles = guessed(table.names(), given, str(path), table.left_out)
    pattern = topic if "+" in topic else STEPS  # an MCAP file may have any topic
    events = TableEvents(table, roles, pattern, agent, interval, sent=are_messages(table.names()))
    return Header("converted", "", "", __version__), pattern, _reported(events, lambda: table.position, bar)


def _recorded(recording: Recording | ParquetRecording, bar: Bar) -> Iterator[Event]:
    with recording:
        yield from _reported(recording, lambda: recording.position, bar)


def _reported(events: Iterable[Event], position: Callable[[], int], bar: Bar) -> Iterator[Event]:
    for event in events:
        yield event
        bar.at(position())


def _write(target: Path, header: Header, pattern: str, events: Iterable[Event]) -> int:
    """Write a complete recording, or nothing after an error. Return the number of events."""
    from monitor.sidecar.recording_formats import new_recorder  # noqa: PLC0415 - keep `cfmon --help` light

    if target.exists():
        raise RecordingError(f"{target}: already exists; choose another name or move it away")
    count = 0
    try:
        with new_path(target) as unfinished:
            recorder = new_recorder(unfinished, header, pattern, live=False)
            try:
                for event in events:
                    recorder.write(event)
                    count += 1
                recorder.close()
            finally:
                recorder.abandon()
    except OSError as error:
        raise RecordingError(f"{target}: cannot be written: {error.strerror or error}") from error
    return count
