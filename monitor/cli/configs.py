"""`cfmon config`: check a configuration, and print the JSON Schema of configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from monitor.cli.output import print_json, progress, say
from monitor.errors import Mistakes

app = typer.Typer(help="Check a configuration; print its JSON Schema.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(
    config: Annotated[Path, typer.Argument(help="configuration file (YAML)")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Check a configuration as `run` would, without connecting.

    Also check the files that the configuration names, its port and its store. Exit code: 0 valid; 2 invalid, with file,
    line and reason of every error.
    """
    import os  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.alarm.phrases import bases_text  # noqa: PLC0415 - likewise
    from monitor.runtime.query import query_notes  # noqa: PLC0415 - likewise
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - likewise
    from monitor.sidecar.config.preflight import check_places, takeover_notes  # noqa: PLC0415 - likewise
    from monitor.sidecar.config.reading import check_secrets, load_config  # noqa: PLC0415 - likewise

    mistakes = Mistakes()
    notes: list[str] = []
    with progress("reading the configuration, the model and the policies"):
        read = load_config(config, os.environ)
        with mistakes.collect():
            loaded = assemble(read)
        with mistakes.collect():
            check_secrets(read)
        with mistakes.collect():
            notes = check_places(read)
        mistakes.raise_all()
    notes += query_notes(loaded.monitor.queries)
    notes += takeover_notes(loaded.monitor.queries, read.path.window)
    bases = loaded.monitor.rests_on()
    summary = {
        "config": str(config),
        "model": {"name": loaded.identity.model_name, "sha256": loaded.identity.model_sha256},
        "policies": dict(loaded.identity.policies),
        "formulas": {formula.name: formula.formula for formula in loaded.config.formulas},
        "rests_on": to_builtins(bases),
        "notes": notes,
    }
    if as_json:
        print_json(summary)
        return
    say(f"{config}: valid")
    say(f"  model     {loaded.identity.model_name}  sha256 {loaded.identity.model_sha256}")
    for name, sha256 in loaded.identity.policies.items():
        say(f"  policy    {name}  sha256 {sha256}")
    for formula in loaded.config.formulas:
        say(f"  formula   {formula.name}: {formula.formula}")
    for name, found in bases.items():
        for line in bases_text(found):
            say(f"  basis     {name}: from the start, {line}")
    for note in notes:
        say(f"  note      {note}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of a configuration."""
    from monitor.sidecar.config.reading import config_schema  # noqa: PLC0415 - keep `cfmon --help` light

    print_json(config_schema())
