"""`cfmon model explore`: enumerate the states of an environment and write them as a model."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monitor.cli.output import print_json, progress, say
from monitor.errors import ConfigError

if TYPE_CHECKING:
    from monitor.authoring.exploration.enumeration import Explored


class Replacement(StrEnum):
    """The set from which the replacement of the chosen action is drawn."""

    others = "others"
    all = "all"
    neighbours = "neighbours"


def model_explore(
    environment: Annotated[
        str, typer.Argument(metavar="ENV", help="gymnasium:ID?argument=value, or your own module.py:make_env")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT.npz", help="file to write; with --rollouts OUT.csv")],
    *,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="module.py:FUNCTION",
            help="function of the environment that returns what identifies its state; or 'observation'. Default: "
            "MiniGrid's variables in MiniGrid, else the observation",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of the first reset")] = 0,
    resets: Annotated[
        int, typer.Option(help="episodes start as after this many resets, seeded SEED, SEED + 1, ...")
    ] = 1,
    slip: Annotated[float, typer.Option(help="add noise: probability that the chosen action is replaced")] = 0.0,
    slip_to: Annotated[
        Replacement,
        typer.Option(
            help="by which, uniformly: one of the others; any, the chosen one included; or a neighbour, the number "
            "below or above"
        ),
    ] = Replacement.others,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME: CONDITION'",
            help="add a label, such as 'goal: terminated and reward > 0'; may be repeated",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="module.py:FUNCTION", help="function of the environment that returns its labels' names"),
    ] = None,
    max_states: Annotated[int, typer.Option(help="stop with an error beyond this many states")] = 100_000,
    walk: Annotated[int, typer.Option(help="steps of the environment, at random, to compare with the model")] = 10_000,
    rollouts: Annotated[
        int | None,
        typer.Option(help="do not enumerate: write this many steps to OUT.csv, for `cfmon model learn`"),
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="random|module.py:FUNCTION", help="policy of the roll-outs, a function of the state")
    ] = "random",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Enumerate every state of a simulator that can be reached, and write the model.

    An environment with a method successors(state, action) is enumerated by this method. Any other environment is copied
    before each step; it must be deterministic, which is tested. This runs the environment's code.

    The condition of a --label compares terminated, reward (of the steps into the state), the names of the state's
    variables, value[n] and feature[n] with numbers, texts and lists; join comparisons with and, or, not.
    """
    if rollouts is not None:
        _refuse(slip=bool(slip), label=bool(label), labels=labels is not None, resets=resets != 1)
        _roll_out(environment, target, rollouts, (policy, key, seed), as_json=as_json)
        return
    if target.suffix == ".csv" or policy != "random":
        raise ConfigError(f"{target}: a .csv file and --policy are for roll-outs; add --rollouts N")
    from monitor.authoring.exploration.enumeration import ExplorationSettings, explore  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.model.io import save_model  # noqa: PLC0415 - likewise

    settings = ExplorationSettings(
        key=key,
        seed=seed,
        resets=resets,
        slip=slip,
        slip_to=slip_to.value,
        max_states=max_states,
        walk=walk,
        conditions=label or (),
        labels=labels,
    )
    with progress(f"exploring {environment}") as bar:
        explored = explore(
            environment,
            settings,
            lambda done, found: (
                bar.at(done, f"exploring {environment}: {done:,} of {found:,} states") if done % 100 == 0 else None
            ),
        )
        save_model(explored.model, target)
    _show(explored, target, as_json=as_json)


def _refuse(**given: bool) -> None:
    wrong = [name for name, there in given.items() if there]
    if wrong:
        raise ConfigError(f"--{wrong[0]} cannot be given with --rollouts; labels are given to `cfmon model learn`")


def _roll_out(environment: str, target: Path, steps: int, said: tuple[str, str | None, int], *, as_json: bool) -> None:
    """Write the roll-outs, and print the command that learns from them. `said`: --policy, --key and --seed."""
    from monitor.authoring.exploration.rollouts import roll_out  # noqa: PLC0415 - keep `cfmon --help` light

    if target.suffix != ".csv":
        raise ConfigError(f"{target}: roll-outs are written as .csv; `cfmon model learn` makes the model")
    policy, key, seed = said
    with progress(f"running {environment}", total=steps) as bar:
        done = roll_out(environment, target, steps, policy=policy, key=key, seed=seed, report=bar.at)
    features = ["--observation", "feature"] if done.features else []
    command = ["cfmon", "model", "learn", str(target), "-o", str(target.with_suffix(".npz"))]
    command += ["--state", ",".join(done.columns), *features]
    if as_json:
        facts = {"file": str(target), "steps": done.steps, "episodes": done.episodes, "state": list(done.columns)}
        print_json(facts | {"next": shlex.join(command)})
        return
    say(f"{target}: {done.steps} steps of {done.episodes} episodes")
    say(f"  next: {shlex.join(command)}")


def _show(explored: Explored, target: Path, *, as_json: bool) -> None:
    from monitor.model.io import model_sha256  # noqa: PLC0415 - keep `cfmon --help` light

    model = explored.model
    facts = {
        "file": str(target),
        "sha256": model_sha256(model),
        "states": model.states,
        "actions": model.actions,
        "transitions": len(model.successors),
        "labels": {name: int(states.sum()) for name, states in model.labels.items()},
        "identified by": explored.identified,
        "variables": list(explored.variables),
        "steps compared": explored.walked,
        "notes": list(explored.notes),
    }
    if as_json:
        print_json(facts)
        return
    say(f"{target}: {model.states} states, {model.actions} actions, {len(model.successors)} transitions")
    say(f"  a state is identified by {explored.identified}")
    for name, states in model.labels.items():
        say(f"  {name} holds in {int(states.sum())} states")
    if explored.walked:
        say(f"  {explored.walked:,} random steps of the environment agree with it (before any --slip)")
    for note in explored.notes:
        say(f"  note: {note}")
