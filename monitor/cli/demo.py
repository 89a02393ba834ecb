"""`cfmon demo`: monitor a live agent through an embedded broker; with `--takeover`, compare agents that act on alarms.

The agent (a separate process), the monitor and this command share only the broker. This command subscribes like any
other client. At the end it starts a new process that verifies the evidence of an alarm.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from monitor.cli.output import ExitCode, finish, say

FOREVER = 0


class Scenario(StrEnum):
    """Agent and environment. Each scenario is a configuration file in `config/`."""

    icu_sepsis = "icu-sepsis"
    frozen_lake = "frozen-lake"
    heating = "heating"
    ice_fog = "ice-fog"


def demo(
    *,
    scenario: Annotated[Scenario, typer.Option(help="agent and environment to run")] = Scenario.icu_sepsis,
    config: Annotated[Path | None, typer.Option(help="use this configuration instead of the scenario's")] = None,
    steps: Annotated[int, typer.Option(min=1, help="stop at the end of the episode that contains this step")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="random seed of the environment and the agent")] = 0,
    interval: Annotated[float, typer.Option(min=0.0, help="seconds between two steps")] = 0.1,
    forever: Annotated[bool, typer.Option("--forever", help="run until Ctrl-C")] = False,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="compare agents that act on alarms with agents that do not (ICU-Sepsis)")
    ] = False,
    episodes: Annotated[int, typer.Option(min=1, help="with --takeover: episodes of each kind of agents")] = 1000,
    output: Annotated[Path, typer.Option(help="folder for the store and the evidence")] = Path("var/demo"),
    record: Annotated[Path | None, typer.Option(help="record all input to this file, as `cfmon run` does")] = None,
) -> None:
    """Monitor a live agent on an embedded MQTT broker.

    Exit code: 0 an alarm fired, resolved within its episode, and its evidence was verified; 1 otherwise. With
    --forever, Ctrl-C exits with 0. With --takeover: 0 if agents that hand over survive more often, by more than two
    standard errors; 1 otherwise.
    """
    import asyncio  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.cli.input_files import data_file  # noqa: PLC0415 - likewise
    from monitor.demo.show import DemoRun  # noqa: PLC0415 - likewise

    if takeover:
        if config is not None or forever or record is not None or scenario is not Scenario.icu_sepsis:
            raise typer.BadParameter(
                "--takeover has a scenario of its own; leave out --scenario, --config, --forever and --record"
            )
        _compare(episodes, seed, interval, output)
    name = scenario.value if config is None else config.stem
    file = data_file(f"config/{name}.yaml") if config is None else config
    run = DemoRun(file, name, FOREVER if forever else steps, seed, interval, output, record)
    _finish(asyncio.run(run.run()))


def _compare(episodes: int, seed: int, interval: float, output: Path) -> NoReturn:
    """Run agents with and without takeovers, and exit."""
    import asyncio  # noqa: PLC0415 - as above

    from monitor.cli.input_files import data_file  # noqa: PLC0415 - likewise
    from monitor.demo.closed_loop import NAME, ClosedLoop  # noqa: PLC0415 - likewise

    _finish(asyncio.run(ClosedLoop(data_file(f"config/{NAME}.yaml"), episodes, seed, interval, output).run()))


def _finish(problems: list[str]) -> NoReturn:
    for problem in problems:
        say(f"demo: {problem}")
    finish(ExitCode.NO if problems else ExitCode.FINE)
