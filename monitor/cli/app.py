"""The commands of `cfmon`.

Each module defines its own commands. A command imports its dependencies only when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from monitor._version import __version__
from monitor.cli import (
    audits,
    configs,
    demo,
    evidence,
    exploring,
    exporting,
    init,
    model_commands,
    questions,
    recording_convert,
    reporting,
    stores,
    streaming,
    takeover_audit,
)

app = typer.Typer(
    help="Monitor a deployed agent: would the fallback policy have kept it safe?",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.command()(init.init)
app.command()(streaming.run)
app.command()(questions.check)
app.command()(streaming.replay)
app.command()(audits.audit)
app.command()(reporting.report)
app.command()(evidence.verify)
app.command()(evidence.explain)
app.command()(takeover_audit.takeovers)
model_commands.model_app.command("explore")(exploring.model_explore)
model_commands.policy_app.command("export")(exporting.policy_export)
app.add_typer(model_commands.model_app, name="model")
app.add_typer(model_commands.policy_app, name="policy")
app.add_typer(configs.app, name="config")
app.add_typer(evidence.app, name="evidence")
app.add_typer(recording_convert.app, name="recording")
app.add_typer(stores.app, name="store")


@app.callback(invoke_without_command=True)
def top(*, version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False) -> None:
    """Monitor a deployed agent: would the fallback policy have kept it safe?"""
    if version:
        typer.echo(f"cfmon {__version__}")
        raise typer.Exit
