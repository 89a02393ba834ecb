"""`cfmon run`, the monitor as a service, and `cfmon replay`, which runs the same code on a recording."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.cli.output import ended_by_sigterm, on_terminal, progress
from monitor.errors import printable

if TYPE_CHECKING:
    from monitor.cli.replay_counts import ReplayCounts
    from monitor.sidecar.config.load import Loaded
    from monitor.sidecar.effects import Publication
    from monitor.sidecar.parquet_recording import ParquetRecording
    from monitor.sidecar.recording import Recording
    from monitor.sidecar.web.http import Sources
    from monitor.sidecar.web.server import HttpServer

READING: Final = "reading the configuration, the model and the policies"

ConfigFile = Annotated[Path, typer.Argument(help="configuration file (YAML)")]


def run(
    config: ConfigFile,
    record: Annotated[
        Path | None, typer.Option(help="record all input to this file, for `cfmon replay`; NAME.parquet: a folder")
    ] = None,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="print log lines only, no table")] = False,
) -> None:
    """Run the monitor: read steps from MQTT and publish alarms.

    SIGTERM stops it, SIGHUP reloads CONFIG. On a terminal, show a table of agents and formulas below the log.
    """
    from monitor.sidecar.config.reading import load_config  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.web.http import answering_probes  # noqa: PLC0415 - likewise

    read = load_config(config, os.environ)
    with answering_probes(read.http, READING) as before:  # reading a large model takes minutes
        with progress(READING):
            from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - likewise

            loaded = assemble(read)
        _run(config, loaded, record=record, plain=plain, before=before)


def _run(config: Path, loaded: Loaded, *, record: Path | None, plain: bool, before: HttpServer) -> None:
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.service import serve  # noqa: PLC0415 - likewise

    again = partial(assemble, config)
    if plain or not on_terminal(sys.stdout):
        serve(loaded, record=record, again=again, before=before)
        return
    from monitor.cli.panel import Panel  # noqa: PLC0415 - likewise
    from monitor.sidecar.web.fleet_table import FleetTable  # noqa: PLC0415 - only a terminal needs it
    from monitor.sidecar.web.http import MAX_AGENTS  # noqa: PLC0415 - likewise

    panel, title = Panel(), f"cfmon run {config}"

    def started(sources: Sources, url: str) -> None:
        panel.follow(lambda ended: FleetTable(sources.overview("", MAX_AGENTS), title, url, ended=ended))

    with ended_by_sigterm(), panel.shown():
        serve(loaded, record=record, again=again, started=started, before=before)


def replay(
    config: ConfigFile,
    recording: Annotated[Path, typer.Argument(help="written by `cfmon run --record`")],
    speed: Annotated[float | None, typer.Option(min=0.001, help="1: real time; default: as fast as possible")] = None,
) -> None:
    """Replay a recording through the code of `run`.

    Print each publication as a line of JSON: topic and payload. The same recording and configuration give the same
    bytes as were published live. The last lines, on stderr, count the steps that were read, and those rejected by
    reason, with an example of each.
    """
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.recording_formats import open_recording  # noqa: PLC0415 - likewise

    with open_recording(recording) as events:
        with progress(READING):
            loaded = assemble(config)
        recorded = events.header.config_sha256
        if recorded and loaded.config.digest != recorded:  # a converted recording has no digest
            sys.stderr.write(f"cfmon: {recording} was recorded with a configuration other than {config}\n")
        if sys.stdout.isatty():  # the printed lines show the progress
            counts = _replay(events, loaded, speed, lambda _bytes: None)
        else:
            with progress(f"replaying {recording}", total=events.size) as bar:
                counts = _replay(events, loaded, speed, bar.at)
        sys.stdout.flush()
        sys.stderr.write(f"cfmon: {recording}: {counts.listing()}\n")
        for reason, detail in counts.examples.items():
            sys.stderr.write(f"cfmon: {recording}: the first rejected as {reason}: {printable(detail)}\n")


def _replay(
    events: Recording | ParquetRecording, loaded: Loaded, speed: float | None, report: Callable[[int], None]
) -> ReplayCounts:
    """Replay the events and return the counts of their results. `report` is called with the number of bytes done."""
    from monitor.cli.replay_counts import ReplayCounts  # noqa: PLC0415 - keep `cfmon --help` light

    pipeline, counts = loaded.pipeline(events.header.client_id), ReplayCounts()
    previous: float | None = None
    for event in events:
        if speed is not None and previous is not None:
            time.sleep(max(0.0, event.now.ticks - previous) / speed)
        previous = event.now.ticks
        effects = pipeline.step(event)
        for publication in effects.publications:
            sys.stdout.write(_line(publication))
        counts.add(event, effects.notices)
        report(events.position)
    return counts


def _line(publication: Publication) -> str:
    """Return a line with the published payload unchanged, since it is JSON.

    An empty payload, which clears a topic, is null.
    """
    payload = publication.payload.decode() or "null"
    return f'{{"topic":"{publication.topic}","payload":{payload}}}\n'
