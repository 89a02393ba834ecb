"""Random models, and Storm's view of a model, for the tests of formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.arrays import Floats
from monitor.model import MDP, canonical_bytes
from monitor.model.centres import Centres
from monitor.model.emissions import Emissions
from monitor.model.formats import Format

__all__ = ["TWO_ROOMS", "carrying", "random_model", "same", "storm_values", "stormpy", "values"]

TWO_ROOMS = """\
mdp
const int N = 3;
module robot
  x : [0..N] init 0;
  broken : bool init false;
  [fast] x < N & !broken -> 0.7 : (x' = min(x + 2, N)) + 0.3 : (broken' = true);
  [slow] x < N & !broken -> 0.9 : (x' = x + 1) + 0.1 : true;
  [rest] x = N | broken -> true;
endmodule
label "home" = x = N & !broken;
label "broken" = broken;
rewards "time"
  [fast] true : 1;
  [slow] true : 2;
  broken : 0.5;
endrewards
"""


def random_model(seed: int, *, everywhere: bool = False, by_successor: bool = True, **more: Any) -> MDP:  # noqa: ANN401
    """Some actions are unavailable in some states; labels, rewards, one initial state."""
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(2, 12)), int(rng.integers(1, 5))
    rows: list[tuple[int, int, int, float]] = []
    rewards: list[tuple[int, int, int, float]] = []
    for s in range(states):
        there = rng.random(actions) < 0.7
        there[rng.integers(actions)] = True
        for a in range(actions):
            if not (everywhere or there[a]):
                continue
            after = rng.choice(states, size=int(rng.integers(1, min(states, 4) + 1)), replace=False)
            row = rng.dirichlet(np.ones(len(after)))
            rows += [(s, a, int(t), float(p)) for t, p in zip(after, row, strict=True)]
            paid = rng.normal(size=len(after)) if by_successor else np.full(len(after), rng.normal())
            rewards += [(s, a, int(t), float(r)) for t, r in zip(after, paid, strict=True)]
    labels = {name: sorted(set(rng.integers(0, states, 2).tolist())) for name in ("goal", "a.b-c")}
    return MDP.from_transitions(
        states=states,
        actions=actions,
        transitions=rows,
        rewards=rewards,
        labels=labels,
        initial={int(rng.integers(states)): 1.0},
        **more,
    )


def optional(model: MDP) -> dict[str, dict[str, Any]]:
    """Values for each optional part but counts, which belong to a learned model (`test_counts.py`)."""
    states = model.states
    numbers = np.arange(2.0 * states).reshape(states, 2)
    shown = Emissions.from_tuples(states, 2, [(s, s % 2, 1.0) for s in range(states)])
    return {
        "state_names": {"state_names": tuple(f"room {s} ö" for s in range(states))},
        "valuations": {
            "valuations": tuple((float(s), s % 2 == 0, s * 0.5, f"é{s % 3}", -1e-9 * (s + 1)) for s in range(states))
        },
        "emissions": {"emissions": shown},
        "signal_names": {"emissions": shown.named(["even", "odd ö"])},
        "observations": {"observations": numbers.astype(np.float32)},
        "samples": {"samples": numbers[1:].astype(np.float32), "sample_states": np.arange(1, states)},
        "bin_edges": {"bin_edges": (np.arange(states + 1.0),)},
        "bin_names": {"bin_names": (tuple(f"kind {s} ü" for s in range(states)),)},
        "centres": {"centres": Centres(numbers, np.ones(2))},
        "ranges": {"ranges": np.array([[0.0, 1.0], [-1.0, 2.0]])},
        "dimension_names": {"dimension_names": ("level ö", "flow")},
        "ended_as": {"ended_as": np.zeros(states, np.int64)},
        "reward_spread": {"reward_spread": np.ones(len(model.successors))},
        "distribution": {"initial": np.where(np.arange(states) < 2, 0.5, 0.0)},
    }


def carrying(model: MDP, form: Format, *, kept: bool) -> MDP:
    """The model with the optional parts that the format keeps, or with those that it does not."""
    parts = [part for name, part in optional(model).items() if (name in form.keeps) == kept]
    return replace(model, **{name: value for part in parts for name, value in part.items()})


def same(one: MDP, other: MDP) -> None:
    """Assert that the models are equal, bit by bit, but for where rewards are kept."""
    for name in ("states", "actions", "state_names", "action_names", "valuations"):
        assert getattr(one, name) == getattr(other, name)
    assert plain(one) == plain(other)


def plain(model: MDP) -> bytes:
    """The model with all rewards at transitions, as bytes."""
    return canonical_bytes(replace(model, rewards=np.zeros_like(model.rewards), transition_rewards=paid(model)))


def paid(model: MDP) -> Floats:
    """R(s, a, s') of each entry."""
    rewards = np.repeat(model.rewards.reshape(-1), np.diff(model.indptr))
    return rewards if model.transition_rewards is None else rewards + model.transition_rewards


def stormpy() -> Any:  # noqa: ANN401 - it ships no types
    return pytest.importorskip("stormpy", reason="stormpy is not installed: pip install '.[bench]' in a clone")


def program(folder: Path, text: str = TWO_ROOMS) -> Path:
    file = folder / "rooms.prism"
    file.write_text(text, encoding="utf-8")
    return file


def storm_values(built: Any, query: str) -> Floats:  # noqa: ANN401 - likewise
    """Storm's value of a query in each state."""
    module = stormpy()
    (asked,) = module.parse_properties(query)
    return np.array(module.model_checking(built, asked, only_initial_states=False).get_value_vector())


def values(model: MDP, goal: str, horizon: int, best: Any) -> tuple[Floats, Floats]:  # noqa: ANN401 - np.max or np.min
    """Best P(F<=h goal) and best expected reward in h steps of each state, by backward induction, slowly."""
    reach = model.labels[goal].astype(np.float64)
    total = np.zeros(model.states)
    for _ in range(horizon):
        chance, reward = np.zeros(model.states), np.zeros(model.states)
        for s in range(model.states):
            rows = [(a, *model.row(s, a)) for a in range(model.actions) if len(model.row(s, a)[0])]
            chance[s] = best([p @ reach[t] for _, t, p in rows])
            reward[s] = best(
                [
                    sum(q * (model.reward(s, a, int(u)) + total[u]) for u, q in zip(t, p, strict=True))
                    for a, t, p in rows
                ]
            )
        reach, total = np.where(model.labels[goal], 1.0, chance), reward
    return reach, total
