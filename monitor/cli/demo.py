"""`cfmon demo`: the main job, live and on real input, on a broker of its own.

Three parties that share nothing but the broker: the agent (a process of its own), the monitor sidecar, and this
command, which watches as any subscriber would, and at the end has the evidence verified in a fresh process.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from monitor.cli.output import ExitCode, finish, say

__all__ = ["demo"]

FOREVER = 0


class Scenario(StrEnum):
    """What the agent does for a living; each is a file in `config/`."""

    icu_sepsis = "icu-sepsis"
    frozen_lake = "frozen-lake"


def demo(
    *,
    scenario: Annotated[Scenario, typer.Option(help="which agent in which world")] = Scenario.icu_sepsis,
    config: Annotated[
        Path | None, typer.Option(help="another configuration than the scenario's, such as yours")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="stop at the end of the episode in which this step comes")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="of the world and of the agent's chance")] = 0,
    interval: Annotated[float, typer.Option(min=0.0, help="seconds between two steps")] = 0.1,
    forever: Annotated[bool, typer.Option("--forever", help="until interrupted")] = False,
    output: Annotated[Path, typer.Option(help="folder for the store and the evidence")] = Path("var/demo"),
) -> None:
    """Run the monitor beside a live agent on an embedded broker, and verify an alarm's evidence.

    Exit code: 0 an alarm fired, resolved within an episode, and its evidence re-derives; 1 any of these did not happen.
    With --forever 0 at Ctrl-C.
    """
    import asyncio  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.cli.files import data_file  # noqa: PLC0415 - likewise
    from monitor.cli.show import Show  # noqa: PLC0415 - likewise

    name = scenario.value if config is None else config.stem
    file = data_file(f"config/{name}.yaml") if config is None else config
    show = Show(file, name, FOREVER if forever else steps, seed, interval, output)
    problems = asyncio.run(show.play())
    for problem in problems:
        say(f"demo: {problem}")
    finish(ExitCode.NO if problems else ExitCode.FINE)
