"""`cfmon store`: move the agents of a fleet to another number of shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monitor.cli.output import AsJson, print_json, progress, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.sidecar.store.reshard import NewStore

app = typer.Typer(
    help="Move the agents of a fleet to another number of shards.", no_args_is_help=True, rich_markup_mode=None
)

Stores = Annotated[
    list[Path], typer.Argument(metavar="STORE...", help="databases of all shards, their monitors stopped")
]
NewFolder = Annotated[Path, typer.Option("--to", metavar="FOLDER", help="new folder for what is written")]


@app.command()
def split(
    stores: Stores,
    into: Annotated[int, typer.Option(metavar="N", help="number of shards")],
    to: NewFolder,
    *,
    as_json: AsJson = False,
) -> None:
    """Write a store for each of N shards, with the agents of the given stores: FOLDER/0-N/cfmon.sqlite and so on.

    The given stores stay as they are. Stop their monitors with SIGTERM first.
    """
    from monitor.sidecar.store.reshard import split_stores  # noqa: PLC0415 - keep `cfmon --help` light

    with progress(f"writing {to}"):
        made = split_stores(stores, into, to)
    _report(made, as_json=as_json)


@app.command()
def merge(stores: Stores, to: NewFolder, *, as_json: AsJson = False) -> None:
    """Write one store with the agents of all given stores: FOLDER/cfmon.sqlite.

    The given stores stay as they are. Stop their monitors with SIGTERM first.
    """
    from monitor.sidecar.store.reshard import merge_stores  # noqa: PLC0415 - keep `cfmon --help` light

    with progress(f"writing {to}"):
        made = [merge_stores(stores, to)]
    _report(made, as_json=as_json)


def _report(made: Sequence[NewStore], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "stores": [
                    {
                        "path": str(store.path),
                        "shard": None if store.shard is None else str(store.shard),
                        "agents": len(store.agents),
                    }
                    for store in made
                ]
            }
        )
        return
    for store in made:
        of = "all agents" if store.shard is None else f"shard {store.shard}"
        say(f"{store.path}: {of}, {len(store.agents)} agents")
