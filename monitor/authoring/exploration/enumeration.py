"""Explore an environment: open it by its name, enumerate its states, and make the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from monitor.authoring.exploration.action_noise import SlipTo
from monitor.authoring.exploration.copies import CopySimulator, kept_random_state
from monitor.authoring.exploration.explorable import Environment
from monitor.authoring.exploration.explored_model import model_of
from monitor.authoring.exploration.hook import HookSimulator, hook_of
from monitor.authoring.exploration.identity import identity_of
from monitor.authoring.exploration.search import Progress, SearchResult, search
from monitor.authoring.exploration.source import close, open_environment
from monitor.authoring.exploration.walks import STEPS, compare_walks
from monitor.errors import ModelError
from monitor.model.mdp import MDP
from monitor.user_code import explained, load_object


@dataclass(frozen=True)
class ExplorationSettings:
    """Settings of an exploration.

    Attributes:
        key: what identifies a state: `module.py:function`, `observation`, or None for the default.
        seed, resets: episodes start in the states after `resets` resets, with the seeds `seed`, `seed` + 1, ...
        slip, slip_to: probability that another action replaces the chosen one, and which actions may replace it
            (`action_noise.py`).
        max_states: largest number of states.
        walk: number of steps of the environment that are compared with the model.
        conditions: labels as `NAME: CONDITION`.
        labels: `module.py:function` that returns the names of a state's labels.
    """

    key: str | None = None
    seed: int = 0
    resets: int = 1
    slip: float = 0.0
    slip_to: SlipTo = "others"
    max_states: int = 100_000
    walk: int = STEPS
    conditions: Sequence[str] = field(default=())
    labels: str | None = None


@dataclass(frozen=True)
class Explored:
    """A model, and how it was found.

    Attributes:
        model: the model.
        identified: what identifies a state.
        variables: names of the entries of a state's valuation, or empty.
        walked: number of steps of the environment that were compared with the model.
        notes: sentences that the user should read.
    """

    model: MDP
    identified: str
    variables: Sequence[str]
    walked: int
    notes: Sequence[str]


def explore(source: str, settings: ExplorationSettings, report: Progress = lambda _, __: None) -> Explored:
    """Return the model of `gymnasium:ID?argument=value` or `module.py:make_env`, with every reachable state.

    An environment with a method `successors` is enumerated by this method. Any other environment is enumerated by
    snapshots and must be deterministic. `report` is called with the numbers of states expanded and found.

    Raises ModelError if the environment cannot be made or enumerated; the message says why and what to do.
    """
    if settings.resets < 1 or settings.max_states < 1 or settings.walk < 0:
        raise ModelError("--resets and --max-states must be at least 1, --walk at least 0")
    environment = open_environment(source)
    try:
        with kept_random_state():
            return _explored(environment, source, settings, report)
    except ModelError as error:
        text = str(error)
        raise ModelError(text if source in text else f"environment {source}: {text}") from error
    finally:
        close(environment)


def _explored(environment: Environment, source: str, settings: ExplorationSettings, report: Progress) -> Explored:
    seeds = range(settings.seed, settings.seed + settings.resets)
    labeller = None if settings.labels is None else load_object(settings.labels, ModelError)
    if hook_of(environment) is not None:
        hooked = HookSimulator(environment, seeds, labeller)
        found = search(hooked, settings.max_states, report)
        walked, notes = 0, ["probabilities are those that its method successors returns; they were not tested"]
        model = _model(hooked, found, settings, source)
        return Explored(model, hooked.identified, hooked.variables, walked, notes)
    try:
        environment.reset(seed=settings.seed)
    except Exception as error:
        raise ModelError(f"the environment cannot be reset ({explained(error)})") from error
    simulator = CopySimulator(environment, identity_of(environment, settings.key), seeds, labeller)
    found = search(simulator, settings.max_states, report)
    walked = compare_walks(simulator, found, settings.walk, settings.seed)
    model = _model(simulator, found, settings, source)
    notes = _notes(simulator, model, found.initial, settings)
    return Explored(model, simulator.identified, simulator.variables, walked, notes)


def _model(
    simulator: CopySimulator | HookSimulator, found: SearchResult, settings: ExplorationSettings, source: str
) -> MDP:
    return model_of(
        simulator,
        found,
        slip=settings.slip,
        to=settings.slip_to,
        conditions=settings.conditions,
        source=source,
    )


def _notes(simulator: CopySimulator, model: MDP, initial: dict[int, float], settings: ExplorationSettings) -> list[str]:
    notes = []
    if settings.resets == 1:
        known = {simulator.reset(settings.seed).key}
        if any(simulator.reset(settings.seed + k).key not in known for k in range(1, 4)):
            notes.append(
                f"episodes start in different states, and only that of reset(seed={settings.seed}) was explored; "
                "--resets N explores those of N seeds"
            )
    else:
        notes.append(f"{len(initial)} initial states in {settings.resets} resets, weighted by how often each came")
    if simulator.masked:
        notes.append("actions that the environment's action_masks() rules out are unavailable in the model")
    if model.observations is None:
        notes.append(
            "the model has no observations, because they are not numbers of a fixed size; ONNX policies then see the "
            "number of the state. Wrap the environment in module.py:make_env to change that"
        )
    if model.reward_spread is not None:
        notes.append("some transitions earned different rewards; the model has their middle, and how far they differ")
    return notes
