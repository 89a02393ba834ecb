"""`cfmon demo`: monitor a live agent, on an embedded broker.

Three parties share only the broker: the agent (a separate process), the monitor, and this command, which subscribes as
any client can. At the end it verifies the evidence of an alarm in a new process.
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
    """Agent and environment; each is a file in `config/`."""

    icu_sepsis = "icu-sepsis"
    frozen_lake = "frozen-lake"


def demo(
    *,
    scenario: Annotated[Scenario, typer.Option(help="agent and environment to run")] = Scenario.icu_sepsis,
    config: Annotated[Path | None, typer.Option(help="use this configuration instead of the scenario's")] = None,
    steps: Annotated[int, typer.Option(min=1, help="stop at the end of the episode that contains this step")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="random seed of the environment and the agent")] = 0,
    interval: Annotated[float, typer.Option(min=0.0, help="seconds between two steps")] = 0.1,
    forever: Annotated[bool, typer.Option("--forever", help="run until Ctrl-C")] = False,
    output: Annotated[Path, typer.Option(help="folder for the store and the evidence")] = Path("var/demo"),
) -> None:
    """Monitor a live agent on an embedded MQTT broker.

    Exit code: 0 an alarm fired, resolved within its episode, and its evidence was verified; 1 otherwise.
    With --forever, Ctrl-C exits with 0.
    """
    import asyncio  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.cli.files import data_file  # noqa: PLC0415 - likewise
    from monitor.cli.show import DemoRun  # noqa: PLC0415 - likewise

    name = scenario.value if config is None else config.stem
    file = data_file(f"config/{name}.yaml") if config is None else config
    run = DemoRun(file, name, FOREVER if forever else steps, seed, interval, output)
    problems = asyncio.run(run.run())
    for problem in problems:
        say(f"demo: {problem}")
    finish(ExitCode.NO if problems else ExitCode.FINE)
