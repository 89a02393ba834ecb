"""Policies over the numbers of a world: functions or ONNX networks that decide for many states at once.

A policy sees the state, or the state followed by the inputs of the step. The width of a network's input, or the number
of a function's arguments, decides what the policy sees.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import MonitorError, PolicyError
from monitor.policy.manifest import AnyManifest, Manifest
from monitor.policy.network import Network, open_network
from monitor.user_code import explained
from monitor.worlds.checked import CheckedWorld
from monitor.worlds.protocol import with_inputs


class WorldPolicy:
    """A policy over a world.

    Args:
        name: name of the policy in messages.
        decide: states [n, f], or with `sees_inputs` states and inputs [n, f + i] -> actions [n] or distributions
            [n, A].
        actions: number of actions.
        sees_inputs: whether the policy decides on inputs too.
    """

    def __init__(self, name: str, decide: Callable[[Floats], Any], actions: int, *, sees_inputs: bool = False) -> None:
        self.name, self._decide, self._actions, self.sees_inputs = name, decide, actions, sees_inputs

    def observed(self, states: Floats, inputs: tuple[float, ...] | Floats) -> Floats:
        """Return the observations of the policy: states [n, f], followed by inputs [i] or [n, i] if it sees them."""
        return with_inputs(states, inputs) if self.sees_inputs else states

    def decide(self, states: Floats) -> Any:  # noqa: ANN401 - checked by the sampled engine
        """Return the choices of the policy for the observations `states`. Raises PolicyError if it fails."""
        try:
            return self._decide(states)
        except MonitorError:
            raise
        except Exception as error:
            raise PolicyError(f"policy {self.name!r} fails ({explained(error)})") from error

    def seen(self, state: tuple[float, ...], inputs: tuple[float, ...]) -> tuple[float, ...]:
        """Return the observation of the policy at one step."""
        return (*state, *inputs) if self.sees_inputs else state

    def likely(self, seen: tuple[float, ...]) -> Floats:
        """Return the probabilities [A] of the actions for one observation."""
        chosen = np.asarray(self.decide(np.array([seen])))
        if chosen.shape == (1, self._actions) and chosen.dtype.kind == "f":
            return np.asarray(chosen[0], dtype=np.float64)
        if chosen.shape != (1,) or not 0 <= int(chosen[0]) < self._actions:
            raise PolicyError(
                f"policy {self.name!r} gives {chosen!r:.80} for one state; it needs an action below {self._actions}, "
                "or a distribution over them"
            )
        likely = np.zeros(self._actions)
        likely[int(chosen[0])] = 1.0
        return likely

    def choices(self, seen: tuple[float, ...]) -> list[tuple[int, float]]:
        """Return the actions with positive probability for one observation, with their probabilities."""
        likely = self.likely(seen)
        return [(int(a), float(likely[a])) for a in np.flatnonzero(likely)]


class WorldSight:
    """The observation of a policy network on a world: the state, or state and inputs. Every action is available."""

    def __init__(self, world: CheckedWorld, *, inputs: bool) -> None:
        self.actions, self.width = world.actions, len(world.features) + (len(world.inputs) if inputs else 0)

    def observations(self, states: Floats) -> Floats:
        """Return the numbers unchanged."""
        return states

    def available(self, states: Floats) -> Bools:
        """Return True [n, A], because every action is available."""
        return np.ones((len(states), self.actions), dtype=np.bool_)


def as_world_policy(name: str, policy: object, world: CheckedWorld) -> WorldPolicy:
    """Return the policy given by a function or by the path of a manifest. Raises PolicyError if it does not fit.

    A function with two arguments without defaults gets states [n, f] and inputs [n, i]. A function with one argument
    gets states.
    """
    if isinstance(policy, WorldPolicy):
        return policy
    if isinstance(policy, str | Path):
        from monitor.policy.onnx_policy import of_network, opened  # noqa: PLC0415 - onnxruntime only where one is named

        where = str(policy)

        def chosen(manifest: AnyManifest, content: bytes, _: str) -> WorldPolicy:
            return network_policy(content, of_network(manifest, where), world, where, name)

        return opened(policy, chosen).table
    if not callable(policy):
        raise PolicyError(
            f"policy {name!r} is a {type(policy).__name__}; in a world with numbers a policy is a function of states "
            "[n, f], or of states and inputs [n, i], that gives actions [n] or distributions [n, A], or the path of a "
            "manifest"
        )
    if not _takes_inputs(policy):
        return WorldPolicy(name, policy, world.actions)
    if not world.inputs:
        raise PolicyError(f"policy {name!r} takes two arguments, states and inputs, and {world} has no inputs")
    features, decide = len(world.features), policy
    return WorldPolicy(
        name, lambda seen: decide(seen[:, :features], seen[:, features:]), world.actions, sees_inputs=True
    )


def network_policy(content: bytes, manifest: Manifest, world: CheckedWorld, where: str, name: str = "") -> WorldPolicy:
    """Return the policy of a network in the bytes of an ONNX file; `where`: its name in the text of a PolicyError."""
    if manifest.input.kind != "observation":
        kind = manifest.input.kind
        raise PolicyError(f"policy {name or where!r}: its input is {kind}; in a world with numbers it is observation")
    sees = sees_inputs(content, world, where)
    network = Network(content, manifest, WorldSight(world, inputs=sees), where, world.named_actions)
    return WorldPolicy(name or where, _batched(network), world.actions, sees_inputs=sees)


def sees_inputs(content: bytes, world: CheckedWorld, where: str) -> bool:
    """Return whether a network sees state and inputs, that is, its input has f + i numbers.

    Raises PolicyError if the file declares another number of inputs.
    """
    ((name, element, shape),) = open_network(content, where)[0][:1] or ((("", "", [])),)
    states, inputs = [each.name for each in world.features], [each.name for each in world.inputs]
    if "int" in element:
        raise PolicyError(
            f"policy {where}: it takes the number of a state, and those of {world} are numbers ({', '.join(states)}), "
            "which cannot be listed. Write it as a torch module from numbers [n, f] to scores [n, A], and export "
            "that (docs/worlds/reference.md#policies). `cfmon init --nominal` and `--fallback` take a function or a "
            "classifier. In Python, monitor.check and monitor.Monitor take a function as it is"
        )
    width = shape[1] if len(shape) == 2 else None
    if len(shape) == 2 and (not isinstance(width, int) or width == len(states)):
        return False
    if inputs and width == len(states) + len(inputs):
        return True
    more = f", or [n, {len(states) + len(inputs)}]: these and {', '.join(inputs)}" if inputs else ""
    raise PolicyError(
        f"policy {where}: its input {name!r} is {element} of shape {shape}; in {world} it is floats "
        f"[n, {len(states)}]: {', '.join(states)}{more}"
    )


def _takes_inputs(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in placed and each.default is each.empty for each in parameters) > 1


def _batched(network: Network) -> Callable[[Floats], Ints | Floats]:
    """Return a function that evaluates a network in batches of the size that the network takes."""
    size, choose = network.batch, network.choose

    def decide(states: Floats) -> Ints | Floats:
        if len(states) <= size:
            return choose(states)
        return np.concatenate([choose(states[n : n + size]) for n in range(0, len(states), size)])

    return decide
