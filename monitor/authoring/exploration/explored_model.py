"""Make the model of an explored environment: rows with action noise, rewards, labels, and the states' valuations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Floats
from monitor.authoring.exploration.action_noise import SlipTo, slip_weights
from monitor.authoring.exploration.explorable import Explorable
from monitor.authoring.exploration.identity import shown
from monitor.authoring.exploration.search import SearchResult
from monitor.errors import ModelError
from monitor.model.annotations import Valuation
from monitor.model.label_conditions import labelled
from monitor.model.mdp import MDP
from monitor.model.rewards import common_rewards

MOST_OBSERVED: Final = 1 << 28
"""Largest number of values in the observations of all states. A larger model has no observations."""


def model_of(
    simulator: Explorable, found: SearchResult, *, slip: float, to: SlipTo, conditions: Sequence[str], source: str
) -> MDP:
    """Return the model of the states found, in the order of discovery. State 0 is the first initial state.

    A terminated state is absorbing, with reward 0 and the label `terminal`. If an episode can pass through a key, and
    can also end there, the model has two states for this key: one to pass through, and one for ends. `ended_as` maps
    the first state to the second. If a transition has several rewards, its reward is the middle of their range. If
    action noise joins several rows, the reward is the mean of the rows' rewards. `reward_spread` is the largest
    distance between a reward and the reward in the model. Valuations are the keys. Raises ModelError.
    """
    twins = {
        number: found.numbers[node.key, True]
        for number, node in enumerate(found.nodes)
        if not node.terminated and (node.key, True) in found.numbers
    }
    model = MDP.from_rows(
        states=len(found.nodes),
        actions=simulator.actions,
        **_rows(found, simulator.actions, slip, to),
        labels=_labels(found),
        initial=_initial(found),
        observations=_observations(found),
        action_names=simulator.action_names,
        valuations=_valuations(found, set(twins.values())),
        ended_as=[twins.get(number, number) for number in range(len(found.nodes))],
        source=source,
    )
    return _with_conditions(model, found, simulator, conditions)


def _rows(found: SearchResult, actions: int, slip: float, to: SlipTo) -> dict[str, Any]:
    """Return the arrays of `MDP.from_rows`."""
    states = len(found.nodes)
    table = np.array(
        [
            (s, a, entry.target, entry.probability, (entry.low + entry.high) / 2, (entry.high - entry.low) / 2)
            for s, rows in enumerate(found.rows)
            for a, row in enumerate(rows)
            for entry in row
        ]
        + [(s, a, s, 1.0, 0.0, 0.0) for s, node in enumerate(found.nodes) if node.terminated for a in range(actions)]
    )
    if slip:
        table = _noisy(table, states, actions, slip, to)
    rows = (table[:, 0] * actions + table[:, 1]).astype(np.int64)
    order = np.argsort(rows, kind="stable")
    table, rows = table[order], rows[order]
    common = common_rewards(rows, table[:, 4], table[:, 3] > 0, states * actions)
    return {
        "indptr": np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=states * actions))]),
        "successors": table[:, 2].astype(np.int64),
        "probabilities": table[:, 3],
        "rewards": common.reshape(states, actions),
        "transition_rewards": table[:, 4] - common[rows],
        "reward_spread": table[:, 5],
    }


def _noisy(table: AnyArray, states: int, actions: int, slip: float, to: SlipTo) -> AnyArray:
    """Return the entries [n, 6] of rows in which another action may replace the chosen one."""
    s, done = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    available = np.zeros((states, actions), dtype=np.bool_)
    available[s, done] = True
    weights = slip_weights(available, slip, to)
    parts = []
    for chosen in range(actions):
        factor = weights[s, chosen, done]
        part = table[factor > 0].copy()
        part[:, 1] = chosen
        part[:, 3] *= factor[factor > 0]
        parts.append(part)
    return np.concatenate(parts)


def _labels(found: SearchResult) -> dict[str, list[int]]:
    labels: dict[str, list[int]] = {}
    for number, node in enumerate(found.nodes):
        for name in node.labels:
            labels.setdefault(name, []).append(number)
    ends = [number for number, node in enumerate(found.nodes) if node.terminated]
    if "terminal" in labels:
        raise ModelError("the function of the labels returned 'terminal', which marks the ends of episodes; rename it")
    return labels | ({"terminal": ends} if ends else {})


def _initial(found: SearchResult) -> AnyArray:
    weights = np.zeros(len(found.nodes))
    weights[list(found.initial)] = list(found.initial.values())
    return weights


def _observations(found: SearchResult) -> Floats | None:
    """Return the observations [S, D], or None if there are none, lengths differ, or there are too many numbers."""
    seen = [node.observation for node in found.nodes if node.observation is not None]
    if len(seen) < len(found.nodes) or len({len(each) for each in seen}) > 1:
        return None
    return np.stack(seen) if len(seen) * len(seen[0]) <= MOST_OBSERVED else None


def _valuations(found: SearchResult, copies: set[int]) -> list[Valuation]:
    """Return the keys; none if their lengths differ.

    The second state of a key, which exists only for ends of episodes, gets a marked key, because no agent publishes it.
    """
    longest = max(len(node.key) for node in found.nodes)
    if any(len(node.key) != longest for node in found.nodes):
        return []
    return [
        (f"ended {node.key[0]}", *node.key[1:]) if number in copies else node.key
        for number, node in enumerate(found.nodes)
    ]


def _with_conditions(model: MDP, found: SearchResult, simulator: Explorable, conditions: Sequence[str]) -> MDP:
    """Return the model with the labels of `--label`. Raises ModelError if a label depends on the step into a state."""
    if not conditions:
        return model
    earned = [sorted(node.rewards) or [0.0] for node in found.nodes]
    columns: dict[str, Sequence[Any]] = _variables(found, simulator)
    columns |= {"terminated": [node.terminated for node in found.nodes]}
    first = labelled(model, conditions, columns | {"reward": [each[0] for each in earned]}, empty=True)
    for k in range(1, max(map(len, earned))):
        rewards = [each[min(k, len(each) - 1)] for each in earned]
        _check_same(first, labelled(model, conditions, columns | {"reward": rewards}, empty=True), found)
    for text in conditions:
        name = text.partition(":")[0].strip()
        if not first.labels[name].any():
            raise ModelError(f"label {name!r}: {text.partition(':')[2].strip()} holds in no state")
    return first


def _variables(found: SearchResult, simulator: Explorable) -> dict[str, Sequence[Any]]:
    """Return the named entries of the keys, with one value for each state."""
    return {name: [node.key[n] for node in found.nodes] for n, name in enumerate(simulator.variables)}


def _check_same(one: MDP, other: MDP, found: SearchResult) -> None:
    for name, mask in one.labels.items():
        differ = np.flatnonzero(mask != other.labels[name])
        if differ.size:
            node = found.nodes[int(differ[0])]
            raise ModelError(
                f"label {name!r}: steps into state {shown(node.key)} earn {sorted(node.rewards)}, and the condition "
                "holds for some of these only; make it depend on the state, or let --key tell the states apart"
            )
