"""Models from Gymnasium environments that publish their dynamics as `env.unwrapped.P[s][a]`.

`monitor.authoring.formats.conformance` tests whether the environment follows this table.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt

from monitor.errors import ModelError, ModelWarning, to_install
from monitor.model.mdp import MDP
from monitor.model.rewards import common_rewards

_ID = re.compile(r"[A-Za-z0-9_./-]{1,128}\Z")  # no colon: Gymnasium imports the module before it
_ONE_HOT_LIMIT = 1 << 26


@dataclass(frozen=True, slots=True)
class _TableEntry:
    """One entry of P[s][a]."""

    state: int
    action: int
    successor: int
    probability: float
    reward: float
    terminated: bool


def load_gymnasium(source: str) -> MDP:
    """Return the model of `gymnasium:ID?arg=value&...`. Values are numbers, true, false, or text.

    The environment is run and compared with its table, always with the same seed. If it deviates from the table, values
    computed on the model are not those of the environment, and a `ModelWarning` reports it.

    Raises:
        ModelError: Gymnasium is not installed, does not know the environment, or the environment has no table P.
    """
    environment = make_environment(source)
    from monitor.authoring.formats.conformance import conformance  # noqa: PLC0415 - the only user of statistics in this package

    try:
        model = from_environment(environment, source)
        problem = conformance(environment).problem
    finally:
        environment.close()
    if problem:
        warnings.warn(f"model {source}: {problem}", ModelWarning, stacklevel=2)
    return model


def make_environment(source: str, **more: Any) -> Any:  # noqa: ANN401 - Gymnasium is optional, so is its type
    """Return the environment of `gymnasium:ID?arg=value&...`. `more`: further arguments of `gymnasium.make`.

    Raises ModelError if Gymnasium is not installed, does not know the environment, or cannot make it.
    """
    identifier, _, query = source.removeprefix("gymnasium:").partition("?")
    if not _ID.match(identifier):
        raise ModelError(f"model {source}: {identifier!r} is not an environment id; write gymnasium:ID?arg=value&...")
    try:
        import gymnasium  # noqa: PLC0415 - an optional extra, and slow to import
    except ImportError as error:
        raise ModelError(f"model {source}: needs Gymnasium: {to_install('models')}") from error
    try:
        arguments: dict[str, Any] = {key: _value(text) for key, text in parse_qsl(query, strict_parsing=bool(query))}
        return gymnasium.make(identifier, **arguments, **more)
    except Exception as error:  # an environment may raise any exception
        raise ModelError(f"model {source}: Gymnasium cannot make it ({type(error).__name__}: {error})") from error


def from_environment(environment: Any, source: str) -> MDP:  # noqa: ANN401 - Gymnasium is optional, so is its type
    """Return the model of an environment with a table `P[s][a] = [(probability, successor, reward, terminated), ...]`.

    State and action numbers stay those of the environment. A state entered with `terminated` ends the episode. If the
    rows of this state do not already stay there with reward 0, the model gets an absorbing copy of the state, with the
    same labels. Copies come after the last state, and the terminating transitions lead to them. The environment has the
    same number for the state and its copy, so `ended_as` maps a state at the end of an episode to its copy. Duplicate
    entries are summed. Rewards belong to transitions, R(s, a, s'). If a transition has several rewards, R is their
    mean, and `reward_spread` is their largest distance from this mean.

    States in which an episode ends have the label `terminal`. FrozenLake's states also have the label `hole`, `goal` or
    `start`, and are named `row 2 column 3`. With copies, `observations` is the one-hot encoding of the environment's
    state, unless it is too large. Without copies, `observations` is not needed, because a policy then gets the one-hot
    encoding of the state.
    """
    inner = environment.unwrapped
    try:
        count, actions = int(environment.observation_space.n), int(environment.action_space.n)
        entries = [
            _TableEntry(s, a, int(t), float(p), float(r), bool(end))
            for s in range(count)
            for a in range(actions)
            for p, t, r, end in inner.P[s][a]
        ]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"model {source}: the environment has no table P[s][a] of discrete dynamics") from error
    ends = sorted({e.successor for e in entries if e.terminated and e.probability > 0})
    copies = {s: count + i for i, s in enumerate(s for s in ends if not _stays(s, actions, entries))}
    initial = getattr(inner, "initial_state_distrib", None)
    initial = None if initial is None else np.append(initial, np.zeros(len(copies)))
    lake = type(inner).__name__ == "FrozenLakeEnv"
    tiles = inner.desc if lake else None
    try:
        return MDP.from_rows(
            states=count + len(copies),
            actions=actions,
            **_rows(entries, copies, (count, actions)),
            labels=_labels(tiles, ends, copies),
            initial=initial,
            observations=_one_hot(count, copies),
            action_names=("left", "down", "right", "up") if lake else (),
            state_names=() if tiles is None else _names(tiles, copies),
            ended_as=[copies.get(s, s) for s in range(count + len(copies))],
            source=source,
        )
    except ModelError as error:
        raise ModelError(f"model {source}: {error}") from error


def _rows(entries: list[_TableEntry], copies: dict[int, int], size: tuple[int, int]) -> dict[str, Any]:
    """Return the arrays of `MDP.from_rows`. `entries`: sorted by state and action. `size`: [S, A] without the copies.

    If all entries of a row have the same reward, it is r(s, a). Otherwise each transition has its own reward.
    """
    count, actions = size
    states = count + len(copies)
    starts = np.arange(count, states).repeat(actions) * actions + np.tile(np.arange(actions), len(copies))
    rows = np.concatenate([np.array([e.state * actions + e.action for e in entries], dtype=np.int64), starts])
    targets = [copies.get(e.successor, e.successor) if e.terminated else e.successor for e in entries]
    loops = np.arange(count, states).repeat(actions)
    paid = np.concatenate([np.array([e.reward for e in entries], dtype=np.float64), np.zeros(len(loops))])
    chances = np.concatenate([np.array([e.probability for e in entries], dtype=np.float64), np.ones(len(loops))])
    table = common_rewards(rows, paid, chances > 0, states * actions)
    return {
        "indptr": np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=states * actions))]),
        "successors": np.concatenate([np.array(targets, dtype=np.int64), loops]),
        "probabilities": chances,
        "rewards": table.reshape(states, actions),
        "transition_rewards": paid - table[rows],
    }


def _stays(state: int, actions: int, entries: list[_TableEntry]) -> bool:
    """Return whether every action in `state` stays there with reward 0."""
    own = [e for e in entries if e.state == state and e.probability > 0]
    return {e.action for e in own} == set(range(actions)) and all(e.successor == state and e.reward == 0 for e in own)


def _labels(desc: npt.NDArray[np.bytes_] | None, ends: list[int], copies: dict[int, int]) -> dict[str, list[int]]:
    """Return the labels. A state and its copy have the label of the tile; only the copy has `terminal`."""
    labels = {"terminal": [copies.get(s, s) for s in ends]} if ends else {}
    if desc is not None:
        tiles = np.asarray(desc).reshape(-1)
        for name, tile in (("hole", b"H"), ("goal", b"G"), ("start", b"S")):
            there = [int(s) for s in np.flatnonzero(tiles == tile)]
            labels[name] = there + [copies[s] for s in there if s in copies]
    return labels


def _names(tiles: npt.NDArray[np.bytes_], copies: dict[int, int]) -> list[str]:
    """Return names such as `row 2 column 3`, which place states in pictures. The name of a copy ends with `, ended`."""
    names = [f"row {row} column {column}" for row, column in np.ndindex(*np.shape(tiles))]
    return [*names, *(f"{names[state]}, ended" for state in copies)]


def _one_hot(count: int, copies: dict[int, int]) -> npt.NDArray[np.float32] | None:
    if not copies or (count + len(copies)) * count > _ONE_HOT_LIMIT:
        return None
    return np.eye(count, dtype=np.float32)[[*range(count), *copies]]


def _value(text: str) -> object:
    try:
        value = json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
