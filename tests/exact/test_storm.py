"""Questions without counterfactuals, against the model checker Storm: published environments, and Storm's own models.

The monitor gets each model state by state. Storm gets the chain that a policy makes of it, built here from the
environment's or Storm's own tables and not from the monitor's: as text, or for a chain as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.model import MDP
from monitor.model.io import load_model
from tests.tiers import slow

stormpy = pytest.importorskip("stormpy", reason="stormpy is not installed: pip install '.[bench]' in a clone")
TOLERANCE = 1e-9

# The monitor's question, Storm's, and whether Storm's is its complement. Storm has no bounded G, W or R, and binds
# `a & b U c` as (a & b) U c; its C<=n stops before offset n.
QUESTIONS = [
    ('P=? [ F<=7 "x" ]', 'P=? [ F<=7 "x" ]', False),
    ('P=? [ F[3,9] "x" ]', 'P=? [ F[3,9] "x" ]', False),
    ('P=? [ G<=8 !"x" ]', 'P=? [ F<=8 "x" ]', True),
    ('P=? [ G[2,6] "y" ]', 'P=? [ F[2,6] !"y" ]', True),
    ('P=? [ X "y" ]', 'P=? [ X "y" ]', False),
    ('P=? [ !"y" U<=10 "x" ]', 'P=? [ (!"y") U<=10 "x" ]', False),
    ('P=? [ "y" U[2,6] !"y" ]', 'P=? [ "y" U[2,6] (!"y") ]', False),
    ('P=? [ "y" W<=6 "x" ]', 'P=? [ (!"x") U<=6 ((!"x") & (!"y")) ]', True),
    ('P=? [ "x" R<=6 !"y" ]', 'P=? [ (!"x") U<=6 "y" ]', True),
    ('P=? [ F<=5 (P>=0.3 [ F<=4 "x" ]) ]', 'P=? [ F<=5 (P>=0.3 [ F<=4 "x" ]) ]', False),
    ('P=? [ (P<0.9 [ X "y" ]) U<=6 "x" ]', 'P=? [ (P<0.9 [ X "y" ]) U<=6 "x" ]', False),
    ("R=? [ C<=0 ]", "R=? [ C<=1 ]", False),
    ("R=? [ C<=11 ]", "R=? [ C<=12 ]", False),
]


Pair = tuple[int, int]
Policy = list[dict[int, float]]


@dataclass
class Table:
    """A model as a table: rows, rewards and labels. The monitor and Storm each make their own of it."""

    states: int
    rows: dict[Pair, dict[int, float]]
    rewards: dict[Pair, float]
    labels: dict[str, list[int]]

    def options(self, state: int) -> list[int]:
        return [a for s, a in self.rows if s == state]

    def one_of(self) -> Policy:
        """A deterministic policy without any system."""
        return [{(o := self.options(s))[(s * 5 + s // 3) % len(o)]: 1.0} for s in range(self.states)]

    def mixed(self) -> Policy:
        """The same, with every option now and then."""
        chosen = self.one_of()
        shares = [{a: 0.25 / len(self.options(s)) for a in self.options(s)} for s in range(self.states)]
        return [{a: p + 0.75 * (a in chosen[s]) for a, p in row.items()} for s, row in enumerate(shares)]

    def chain(self, policy: Policy, folder: Path) -> Any:  # noqa: ANN401 - Storm's types are not known here
        """Storm's model of what the policy makes of it, by way of Storm's explicit text format."""
        names: list[list[str]] = [[] for _ in range(self.states)]
        for name, states in self.labels.items():
            for state in states:
                names[state].append(name)
        lines = ["@type: DTMC", "@parameters", "", "@reward_models", "r", "@nr_states", str(self.states)]
        lines += ["@nr_choices", str(self.states), "@model"]
        for state, choices in enumerate(policy):
            row: dict[int, float] = {}
            for action, share in choices.items():
                for successor, p in self.rows[state, action].items():
                    row[successor] = row.get(successor, 0.0) + share * p
            paid = sum(share * self.rewards[state, action] for action, share in choices.items())
            lines.append(" ".join([f"state {state} [{paid!r}]", *names[state], "init" * (state == 0)]))
            lines += ["\taction 0", *(f"\t\t{successor} : {p!r}" for successor, p in sorted(row.items()))]
        file = folder / "chain.drn"
        file.write_text("\n".join(lines) + "\n")
        return stormpy.build_model_from_drn(str(file))


def compare(model: MDP, table: Table, states: list[int], folder: Path) -> None:
    """Every question from every state, under two policies: `nominal@0` without a past is the plain answer.

    A nested quantity knows the action just taken, a PCTL state formula does not: they agree for deterministic policies.
    """
    interesting = 0
    for policy in (table.one_of(), table.mixed()):
        storm, certain = table.chain(policy, folder), all(len(row) == 1 for row in policy)
        checker = Checker(model, tables({"nominal": as_matrix(policy, model)}, model))
        for ours, theirs, complement in QUESTIONS:
            if "(P" in ours and not certain:
                continue
            (asked,) = stormpy.parse_properties(theirs)
            result, formula = stormpy.model_checking(storm, asked), parse(ours)
            for state in states:
                expected = abs(complement - float(result.get_value(state)))
                expected = expected if ours[0] == "P" else float(result.get_value(state))
                found = checker.check(formula, [(state, None)], text=ours).value
                assert found == pytest.approx(expected, abs=TOLERANCE), (ours, state)
                interesting += 1e-6 < expected % 1.0 < 1.0 - 1e-6
    assert interesting > 4 * len(QUESTIONS)


def as_matrix(policy: Policy, model: MDP) -> np.ndarray:
    """[S, A]; a list of actions where it is deterministic. States of the model beyond the table take action 0."""
    matrix = np.zeros((model.states, model.actions))
    matrix[:, 0] = 1.0
    for state, choices in enumerate(policy):
        if state < model.states:
            matrix[state] = [choices.get(action, 0.0) for action in range(model.actions)]
    return matrix.argmax(axis=1) if (matrix.max(axis=1) == 1.0).all() else matrix


# ---- Gymnasium ----

ENVIRONMENTS = [
    "FrozenLake-v1?is_slippery=true",
    "FrozenLake-v1?map_name=8x8&is_slippery=true",
    "CliffWalkingSlippery-v1",
    pytest.param("Taxi-v4?is_rainy=true&fickle_passenger=true", marks=slow),
]


@pytest.mark.filterwarnings("ignore::monitor.errors.ModelWarning")  # the table is compared, not the environment
@pytest.mark.parametrize("source", ENVIRONMENTS)
def test_environments(source: str, tmp_path: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    identifier, _, query = source.partition("?")
    arguments = dict(part.split("=") for part in query.split("&")) if query else {}
    environment = gymnasium.make(identifier, **{k: True if v == "true" else v for k, v in arguments.items()})
    dynamics = environment.unwrapped.P
    count = len(dynamics)
    # a state entered as terminated is another one than the same entered alive: s + count, where nothing happens
    rows: dict[Pair, dict[int, float]] = {}
    rewards = {}
    for s, a in [(state, action) for state in range(count) for action in dynamics[state]]:
        row: dict[int, float] = {}
        for p, t, _, ended in dynamics[s][a]:
            place = int(t) + count * bool(ended)
            row[place] = row.get(place, 0.0) + float(p)
        rows[s, a] = row
        rewards[s, a] = sum(float(p) * float(r) for p, _, r, _ in dynamics[s][a])
        rows[s + count, a], rewards[s + count, a] = {s + count: 1.0}, 0.0
    ended_in = sorted({t for (s, _), row in rows.items() if s < count for t in row if t >= count})
    marked = [s for s in range(count) if s % 3 == 1 and s + count not in ended_in]
    table = Table(2 * count, rows, rewards, {"x": ended_in, "y": marked})
    model = load_model(f"gymnasium:{source}")
    model = replace(model, labels={"x": model.labels["terminal"], "y": np.isin(np.arange(model.states), marked)})
    compare(model, table, [s for s in range(count) if s + count not in ended_in], tmp_path)


# ---- models that come with Storm ----

BUNDLED = [
    pytest.param("prism_dtmc_brp", "target", None, marks=slow),
    ("prism_dtmc_die", "done", "coin_flips"),
    ("prism_mdp_coin_2_2", "finished", "steps"),
    ("prism_mdp_maze", "goal", ""),
    ("prism_mdp_maze_multigoal", "goalalt1", ""),
    ("prism_mdp_slipgrid", "target", ""),
]


@pytest.mark.parametrize(("name", "label", "reward"), BUNDLED)
def test_models_bundled_with_storm(name: str, label: str, reward: str | None, tmp_path: Path) -> None:
    files = pytest.importorskip("stormpy.examples.files")
    program = stormpy.parse_prism_program(getattr(files, name))
    built = stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))
    pays = None if reward is None else built.reward_models[reward]
    rows: dict[Pair, dict[int, float]] = {}
    rewards: dict[Pair, float] = {}
    for state in built.states:
        for action, option in enumerate(state.actions):
            choice = len(rows)
            rows[state.id, action] = {move.column: float(move.value) for move in option.transitions}
            of_state = float(pays.get_state_reward(state.id)) if pays and pays.has_state_rewards else 0.0
            of_choice = float(pays.get_state_action_reward(choice)) if pays and pays.has_state_action_rewards else 0.0
            rewards[state.id, action] = of_state + of_choice
    labels = {
        "x": [s.id for s in built.states if label in s.labels],
        "y": [s for s in range(built.nr_states) if s % 3 == 1],
    }
    model = MDP.from_transitions(
        states=built.nr_states,
        actions=1 + max(action for _, action in rows),
        transitions=[(s, a, t, p) for (s, a), row in rows.items() for t, p in row.items()],
        rewards=[(s, a, r) for (s, a), r in rewards.items()],
        labels=labels,
    )
    table = Table(built.nr_states, rows, rewards, labels)
    compare(model, table, list(range(built.nr_states)), tmp_path)
