"""`cfmon run`, the sidecar, and `cfmon replay`, the same code fed from a recording."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monitor.cli.output import progress

if TYPE_CHECKING:
    from monitor.sidecar.pipeline import Publication

__all__ = ["replay", "run"]

ConfigFile = Annotated[Path, typer.Argument(help="the YAML file")]


def run(
    config: ConfigFile,
    record: Annotated[Path | None, typer.Option(help="keep everything that happens, for `cfmon replay`")] = None,
) -> None:
    """Run the sidecar: steps in from MQTT, verdicts and alarms out, until SIGTERM; SIGHUP reads CONFIG again."""
    from monitor.sidecar.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.service import serve  # noqa: PLC0415 - likewise

    serve(assemble(config), record=record, again=partial(assemble, config))


def replay(
    config: ConfigFile,
    recording: Annotated[Path, typer.Argument(help="what `cfmon run --record` wrote")],
    speed: Annotated[float | None, typer.Option(min=0.001, help="1: as fast as it was live; default: at once")] = None,
) -> None:
    """Feed a recording through the code that `run` runs; each publication is a line of JSON: topic and payload.

    The same recording and configuration give the same bytes, and the same as were published live.
    """
    from monitor.sidecar.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.recording import Recording  # noqa: PLC0415 - likewise

    with Recording(recording) as events:
        with progress("reading the configuration, the model and the policies"):
            loaded = assemble(config)
        if loaded.config.digest != events.header.config_sha256:
            sys.stderr.write(f"cfmon: {recording} was recorded with another configuration than {config}\n")
        pipeline = loaded.pipeline(events.header.client_id)
        previous: float | None = None
        for event in events:
            if speed is not None and previous is not None:
                time.sleep(max(0.0, event.now.ticks - previous) / speed)
            previous = event.now.ticks
            for publication in pipeline.step(event).publications:
                sys.stdout.write(_line(publication))
        sys.stdout.flush()


def _line(publication: Publication) -> str:
    """The payload stands in the line byte by byte as published: it is JSON. An empty one, which takes back, is null."""
    payload = publication.payload.decode() or "null"
    return f'{{"topic":"{publication.topic}","payload":{payload}}}\n'
