"""`cfmon model` and `cfmon policy`: inspect, convert and check models and policies."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monitor.atomic import write_file
from monitor.cli.learn import model_learn
from monitor.cli.output import AsJson, print_json, progress, say, warned
from monitor.errors import ConfigError
from monitor.model.formats import PROGRAMS, WORLDS, supported_forms, written_forms

if TYPE_CHECKING:
    from monitor.model.mdp import MDP
    from monitor.policy.draft import OutputKind
    from monitor.policy.onnx_policy import OnnxPolicy
    from monitor.policy.table import PolicyTable
    from monitor.worlds import CheckedWorld, Feature

model_app = typer.Typer(help="Inspect, convert or learn a model.", no_args_is_help=True, rich_markup_mode=None)
policy_app = typer.Typer(help="Inspect a policy, or write its manifest.", no_args_is_help=True, rich_markup_mode=None)

model_app.command("learn")(model_learn)

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help=f"{supported_forms()}; a world with numbers: {WORLDS}")
]


@model_app.command("info")
def model_info(model: ModelArgument, *, as_json: AsJson = False) -> None:
    """Show a model: sizes, rows, labels, optional data and sha256; for a world with numbers, its declarations."""
    from monitor.evaluation.models import load_any_model, sha256_of  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.model import MDP  # noqa: PLC0415 - likewise

    with progress(f"reading {model}"), warned() as problems:
        found = load_any_model(model)
        sha256 = sha256_of(found)
        facts = _model_facts(found, sha256) if isinstance(found, MDP) else _world_facts(found, sha256)
        facts["problems"] = problems
    _show(facts, as_json=as_json)


@model_app.command("convert")
def model_convert(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help=f"{supported_forms()}; also {', '.join(PROGRAMS)}, through Storm")
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help=f"file to write: {written_forms()}")],
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: CONDITION'", help="add a label, such as 'fell: state == 36'; may be repeated"),
    ] = None,
    *,
    rewards: Annotated[
        str | None, typer.Option(metavar="NAME", help="reward structure, if the file has several; none: leave them out")
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="constant that a PRISM or JANI file leaves open; may be repeated"),
    ] = None,
    storm_python: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="interpreter that has stormpy, for PRISM and JANI files")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="time for Storm, for PRISM and JANI files; default 600")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(metavar="GIB", help="memory for Storm, and then for its model; default 4")
    ] = None,
) -> None:
    """Convert a model from any supported source; the suffix of TARGET gives the new format.

    The condition of a --label compares state, name, value[n] and feature[n] with numbers, texts and lists; join
    comparisons with and, or, not.

    A Gymnasium environment is simulated and compared with its transition table; a mismatch is a warning, with exit 0.
    Data that TARGET cannot hold are also listed as warnings.
    """
    from monitor.cli.storm import Limits, built_by_storm, is_program  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.model.io import load_model, model_sha256, save_model  # noqa: PLC0415 - likewise
    from monitor.model.label_conditions import labelled  # noqa: PLC0415 - likewise

    program = is_program(model)
    if (constant or storm_python or timeout is not None or memory is not None) and not program:
        raise ConfigError(
            f"--constant, --storm-python, --timeout and --memory are for {', '.join(PROGRAMS)}; leave them out for "
            f"{model}"
        )
    limits = Limits(Limits.seconds if timeout is None else timeout, Limits.gib if memory is None else memory)
    with progress(f"converting {model}"), warned() as problems:
        if program:
            mdp = built_by_storm(model, constant or (), rewards, storm_python, limits)
        else:
            mdp = load_model(model, rewards)
        mdp = labelled(mdp, label or ())
        save_model(mdp, target)
    signals = "" if mdp.emissions is None else f" that show {mdp.emissions.signals} signals"
    say(f"{target}: {mdp.states} states{signals}, {mdp.actions} actions, sha256 {model_sha256(mdp)}")
    if program and mdp.action_names:
        say(f"{target}: actions {', '.join(f'{number} {name}' for number, name in enumerate(mdp.action_names))}")
    for name in sorted({text.partition(":")[0].strip() for text in label or ()}):
        say(f"{target}: {name} holds in {int(mdp.labels[name].sum())} states")
    for problem in problems:
        say(f"{target}: {problem}")


class NetworkOutput(StrEnum):
    """Kind of output of a network."""

    logits = "logits"
    probabilities = "probabilities"
    q_values = "q_values"
    action = "action"


@policy_app.command("init")
def policy_init(
    network: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="the network")],
    model: Annotated[str, typer.Option(help=f"model the policy acts in; a world with numbers: {WORLDS}")],
    *,
    output: Annotated[
        NetworkOutput | None, typer.Option(help="kind of output; default: from the output's name")
    ] = None,
    output_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="output that holds the policy; default: the one of that shape")
    ] = None,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="the agent samples its actions")] = False,
) -> None:
    """Write FILE.yaml, the manifest of a network; print the assumptions."""
    from monitor.evaluation.models import draft_any_manifest, load_any_model  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.policy.export import manifest_yaml  # noqa: PLC0415 - likewise
    from monitor.policy.onnx_policy import read_onnx  # noqa: PLC0415 - likewise

    target = network.with_suffix(".yaml")
    if target.exists():
        raise ConfigError(f"{target} already exists; remove it first, or edit it by hand")
    with progress(f"running {network} on every state of {model}"):
        content = read_onnx(network)
        kind: OutputKind | None = None if output is None else output.value
        manifest, assumed = draft_any_manifest(
            content, network, load_any_model(model), kind=kind, stochastic=stochastic, output=output_name
        )
    try:
        write_file(target, manifest_yaml(manifest).encode())
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    say(f"{target}: {manifest.input.kind} in, {manifest.output.kind} out, sha256 {manifest.sha256}")
    for sentence in assumed:
        say(f"  assumed: {sentence}")


@policy_app.command("info")
def policy_info(
    manifest: Annotated[Path, typer.Argument(help="manifest of the policy")],
    model: Annotated[str, typer.Option(help="model to check the policy against")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show a policy, and check it against a model."""
    from monitor.evaluation.models import load_any_model, load_any_policy, tried_states  # noqa: PLC0415 - likewise
    from monitor.model.mdp import MDP  # noqa: PLC0415 - likewise
    from monitor.policy.controller import Reader  # noqa: PLC0415 - likewise
    from monitor.policy.onnx_policy import load_policy  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.worlds.world_policies import WorldPolicy  # noqa: PLC0415 - likewise

    with progress(f"running {manifest} on every state of {model}"):
        found = load_any_model(model)
        loaded = load_any_policy(manifest, found)
        if isinstance(loaded.table, Reader) and isinstance(found, MDP):
            facts = _reader_facts(loaded, found)
        else:
            sees = isinstance(loaded.table, WorldPolicy) and loaded.table.sees_inputs
            states = found if isinstance(found, MDP) else tried_states(found, inputs=sees)
            facts = _policy_facts(load_policy(manifest, states), states)
    _show(facts, as_json=as_json)


def _model_facts(mdp: MDP, sha256: str) -> dict[str, object]:
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    sizes = np.diff(mdp.indptr)
    sizes = sizes[sizes > 0]
    return {
        "source": mdp.source,
        "sha256": sha256,
        "states": mdp.states,
        "actions": mdp.actions,
        "available (state, action) rows": len(sizes),
        "successors a row, mean": round(float(sizes.mean()), 1),
        "successors a row, most": int(sizes.max()),
        "labels": {name: int(states.sum()) for name, states in mdp.labels.items()},
        "rewards": bool(np.any(mdp.rewards)) or mdp.transition_rewards is not None,
        "rewards depend on the successor": mdp.transition_rewards is not None,
        "transitions whose reward varies": 0 if mdp.reward_spread is None else int(np.count_nonzero(mdp.reward_spread)),
        "states with a copy for the end": _copies(mdp),
        "initial states": 0 if mdp.initial is None else int(np.count_nonzero(mdp.initial)),
        "signals of hidden states": 0 if mdp.emissions is None else mdp.emissions.signals,
        "signals a state, most": 0 if mdp.emissions is None else int(np.diff(mdp.emissions.indptr).max()),
        "observation features": 0 if mdp.observations is None else int(mdp.observations.shape[1]),
        "state names": bool(mdp.state_names),
        "observation names": list(mdp.signal_names),
        "action names": bool(mdp.action_names),
        "state encoders": _encoders(mdp),
    }


def _world_facts(world: CheckedWorld, sha256: str) -> dict[str, object]:
    later = f"drawn from {world.recorded_steps:,} recorded steps" if world.recorded_steps else "the world's forecast"
    driven = world.noise_features
    return {
        "source": str(world),
        "sha256": sha256,
        "features": {each.name: _range(each) for each in world.features},
        "actions": list(world.action_names),
        "labels": list(world.labels),
        "inputs": {each.name: _range(each) for each in world.inputs} or [],
        "inputs beyond the recorded ones": later if world.inputs else [],
        "noise numbers a step": world.noise,
        "features that they drive": "not declared" if driven is None else [world.features[n].name for n in driven],
        "rewards": world.has_rewards,
        "learned from data": world.learned,
    }


def _range(feature: Feature) -> str:
    if feature.values:
        return " or ".join(feature.values)
    unit = f" {feature.unit}" if feature.unit else ""
    return f"{feature.low:g} to {feature.high:g}{unit}{', whole' if feature.whole else ''}"


def _copies(mdp: MDP) -> int:
    """Return the number of states that have an absorbing copy, for episodes that terminate in them."""
    return 0 if mdp.ended_as is None else sum(mdp.ended(state) != state for state in range(mdp.states))


def _encoders(mdp: MDP) -> list[str]:
    held = {"name": mdp.state_names, "valuation": mdp.valuations, "bins": mdp.bin_edges, "nearest": mdp.centres}
    return ["index", *(name for name, data in held.items() if data)]


def _reader_facts(policy: OnnxPolicy[Any], mdp: MDP) -> dict[str, object]:
    reader = policy.table
    kinds = f"one of {reader.memories}" if reader.remembers else "nothing"
    return {
        "name": policy.name,
        "sha256": policy.sha256,
        "manifest": policy.manifest.model_dump(mode="json"),
        "sees": "the state" if reader.sees_state else "the observation, or the state where that is seen",
        "remembers": f"{reader.width} numbers" if reader.width else kinds,
        "when it takes over": "it has read all along" if reader.shadows else "it remembers nothing",
        "fits": _fitting(mdp),
    }


def _policy_facts(policy: OnnxPolicy[PolicyTable], mdp: MDP) -> dict[str, object]:
    table = policy.table
    several = sum(len(table.choices(state)) > 1 for state in range(mdp.states))
    return {
        "name": policy.name,
        "sha256": policy.sha256,
        "manifest": policy.manifest.model_dump(mode="json"),
        "kind": "stochastic" if table.probabilities is not None else "deterministic",
        "states with several actions": several,
        "fits": _fitting(mdp),
    }


def _fitting(mdp: MDP) -> str:
    return f"{mdp.source}: {mdp.states} states, {mdp.actions} actions"


def _show(facts: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        shown = value
        match value:
            case dict():
                shown = ", ".join(f"{key}: {item}" for key, item in value.items())
            case list():
                shown = ", ".join(map(str, value)) or "none"
            case bool():
                shown = "yes" if value else "no"
        say(f"{name:<{width}}{shown}")
