"""`cfmon run`, the sidecar, and `cfmon replay`, the same code fed from a recording."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from monitor.cli.compiling import logging_of_machine_code
from monitor.cli.output import ended_by_sigterm, on_terminal, progress

if TYPE_CHECKING:
    from monitor.sidecar.config.load import Loaded
    from monitor.sidecar.pipeline import Publication
    from monitor.sidecar.recording import Recording
    from monitor.sidecar.web.http import Sources
    from monitor.sidecar.web.server import HttpServer

__all__ = ["replay", "run"]

READING: Final = "reading the configuration, the model and the policies"

ConfigFile = Annotated[Path, typer.Argument(help="the YAML file")]


def run(
    config: ConfigFile,
    record: Annotated[Path | None, typer.Option(help="keep everything that happens, for `cfmon replay`")] = None,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="log lines only, on a terminal too")] = False,
) -> None:
    """Run the sidecar: steps in from MQTT, verdicts and alarms out, until SIGTERM; SIGHUP reads CONFIG again.

    On a terminal a table of agents and formulas stands below the log.
    """
    from monitor.sidecar.config.reading import load_config  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.web.http import answering_probes  # noqa: PLC0415 - likewise

    read = load_config(config, os.environ)
    with answering_probes(read.http, READING) as before:  # the first start on a machine compiles, and may take minutes
        with progress(READING):
            from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - likewise

            loaded = assemble(read)
        _run(config, loaded, record=record, plain=plain, before=before)


def _run(config: Path, loaded: Loaded, *, record: Path | None, plain: bool, before: HttpServer) -> None:
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.service import serve  # noqa: PLC0415 - likewise

    again = partial(assemble, config)
    if plain or not on_terminal(sys.stdout):
        with logging_of_machine_code():
            serve(loaded, record=record, again=again, before=before)
        return
    from monitor.cli.fleet import MOST_AGENTS, Fleet  # noqa: PLC0415 - only a terminal needs it
    from monitor.cli.panel import Panel  # noqa: PLC0415 - likewise

    panel, title = Panel(), f"cfmon run {config}"

    def started(sources: Sources, url: str) -> None:
        panel.follow(lambda ended: Fleet(sources.overview("", MOST_AGENTS), title, url, ended=ended))

    with ended_by_sigterm(), panel.shown(), logging_of_machine_code():
        serve(loaded, record=record, again=again, started=started, before=before)


def replay(
    config: ConfigFile,
    recording: Annotated[Path, typer.Argument(help="what `cfmon run --record` wrote")],
    speed: Annotated[float | None, typer.Option(min=0.001, help="1: as fast as it was live; default: at once")] = None,
) -> None:
    """Feed a recording through the code that `run` runs; each publication is a line of JSON: topic and payload.

    The same recording and configuration give the same bytes, and the same as were published live.
    """
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.recording import Recording  # noqa: PLC0415 - likewise

    with Recording(recording) as events:
        with progress(READING):
            loaded = assemble(config)
        if loaded.config.digest != events.header.config_sha256:
            sys.stderr.write(f"cfmon: {recording} was recorded with another configuration than {config}\n")
        if sys.stdout.isatty():  # what is printed shows how far it is
            _replay(events, loaded, speed, lambda _bytes: None)
        else:
            with progress(f"replaying {recording}", total=events.size) as bar:
                _replay(events, loaded, speed, bar.at)
        sys.stdout.flush()


def _replay(events: Recording, loaded: Loaded, speed: float | None, tell: Callable[[int], None]) -> None:
    """`tell`: how many bytes of the recording are done."""
    pipeline = loaded.pipeline(events.header.client_id)
    previous: float | None = None
    for event in events:
        if speed is not None and previous is not None:
            time.sleep(max(0.0, event.now.ticks - previous) / speed)
        previous = event.now.ticks
        for publication in pipeline.step(event).publications:
            sys.stdout.write(_line(publication))
        tell(events.position)


def _line(publication: Publication) -> str:
    """The payload stands in the line byte by byte as published: it is JSON. An empty one, which takes back, is null."""
    payload = publication.payload.decode() or "null"
    return f'{{"topic":"{publication.topic}","payload":{payload}}}\n'
