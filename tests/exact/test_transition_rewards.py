"""Rewards that depend on the successor, in every way an answer is found: by hand, along a stream, sampled, by Storm."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import norm

import monitor
import monitor.exact.value_table as table_module
from monitor.causal import counterfactual_row, extreme, row_bounds
from monitor.evaluation import check
from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.model import MDP
from tests.exact.small import LAW, chances, small_world

ROWS = {0: {0: 0.5, 1: 0.3, 2: 0.2}, 1: {0: 0.2, 1: 0.2, 2: 0.6}}
"""From state 0, by action; 1 and 2 stay."""
PAID = {0: {0: -1.0, 1: 10.0, 2: -100.0}, 1: {0: 2.0, 1: 3.0, 2: 7.0}}


def cliff() -> MDP:
    transitions = [(0, a, s, p) for a, row in ROWS.items() for s, p in row.items()]
    rewards: list[Any] = [(0, a, s, r) for a, row in PAID.items() for s, r in row.items()]
    loops = [(s, a, s, 1.0) for s in (1, 2) for a in (0, 1)]
    return MDP.from_transitions(states=3, actions=2, transitions=transitions + loops, rewards=[*rewards, (1, 1, 0.5)])


POLICIES = {"nominal": [0, 0, 0], "alt": [1, 1, 1]}


def ask(text: str, path: list[tuple[int, int | None]], **more: Any) -> monitor.Verdict:  # noqa: ANN401 - of check
    return check(text, model=cliff(), path=path, policies=POLICIES, **more)


def asked(action: int) -> tuple[Any, Any]:
    return np.array(list(ROWS[action])), np.array(list(ROWS[action].values()))


@pytest.mark.parametrize("outcome", [0, 1, 2])
def test_an_observed_transition_has_its_observed_reward(outcome: int) -> None:
    verdict = ask("nominal@1.R=? [ C<=0 ]", [(0, 0), (outcome, 0)])
    assert verdict.value == PAID[0][outcome]


@pytest.mark.parametrize("outcome", [0, 1, 2])
def test_other_states_have_the_expected_reward_of_the_counterfactual_row(outcome: int) -> None:
    row = counterfactual_row(asked(0), outcome, asked(1))
    expected = sum(p * PAID[1][s] for s, p in enumerate(row.tolist()))
    path: list[tuple[int, int | None]] = [(0, 0), (outcome, 0)]
    assert ask("alt@1.R=? [ C<=0 ]", path).value == pytest.approx(expected, abs=1e-12)
    models: tuple[Literal["any", "stable"], ...] = ("any", "stable")
    for causal_model in models:
        low, high = row_bounds(asked(0), outcome, asked(1), causal_model)
        paid = np.array(list(PAID[1].values()))
        bounds = ask("alt@1.R=? [ C<=0 ]", path, causal_model=causal_model).bounds
        ends = extreme(low, high, paid, largest=False), extreme(low, high, paid, largest=True)
        assert bounds == pytest.approx(ends, abs=1e-12)


def test_bounds_choose_rows_by_reward_and_successor() -> None:
    """Over two offsets the value of a successor is its reward and what follows there (state 1 pays .5 a step)."""
    path: list[tuple[int, int | None]] = [(0, 0), (2, 0)]
    low, high = row_bounds(asked(0), 2, asked(1), "any")
    later = np.array([sum(p * PAID[1][s] for s, p in ROWS[1].items()), 0.5, 0.0])
    worth = np.array(list(PAID[1].values())) + later
    ends = extreme(low, high, worth, largest=False), extreme(low, high, worth, largest=True)
    assert ask("alt@1.R=? [ C<=1 ]", path, causal_model="any").bounds == pytest.approx(ends, abs=1e-12)


def test_beyond_the_path_rewards_are_expected_values_of_the_model_row() -> None:
    expected = sum(p * PAID[1][s] for s, p in ROWS[1].items())
    assert ask("alt@0.R=? [ C<=0 ]", [(0, None)]).value == pytest.approx(expected, abs=1e-12)


def test_no_rewards_after_the_end_of_an_episode() -> None:
    assert ask("nominal@1.R=? [ C<=5 ]", [(0, 0), (0, 0)], terminated=True).value == PAID[0][0]


def test_another_dynamics_has_the_models_reward_for_the_same_transition() -> None:
    other = MDP.from_transitions(
        states=3,
        actions=2,
        transitions=[
            (0, 0, 1, 1.0),
            (0, 1, 1, 0.5),
            (0, 1, 2, 0.5),
            (1, 0, 0, 1.0),
            (1, 1, 1, 1.0),
            (2, 0, 2, 1.0),
            (2, 1, 2, 1.0),
        ],
        rewards=[(0, 0, 1, 55.0)],
    )
    verdict = ask("model:other@0.R=? [ C<=1 ]", [(0, 0)], models={"other": other})
    assert verdict.value == 10.0  # 0 -> 1 pays 10 as ever; 1 -> 0 is no transition of ours, and pays r(1, 0) = 0


def random_rewards(chance: Random, model: MDP) -> MDP:
    extra = [chance.choice([0.0, 1.0, -2.5, 7.0]) for _ in model.successors]
    return MDP.from_rows(
        states=model.states,
        actions=model.actions,
        indptr=model.indptr,
        successors=model.successors,
        probabilities=model.probabilities,
        rewards=model.rewards,
        transition_rewards=np.array(extra),
        labels=model.labels,
    )


WORLDS = ["alt", "nominal", "alt[1]", "do(1)", "model:icy", "delta(alt,nominal)", "third[2]"]


@settings(LAW)
@given(chances)
def test_a_stream_equals_a_rebuild_bit_for_bit(chance: Random) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.5, length=5, support=2)
    model = random_rewards(chance, small.model)
    checker = Checker(model, tables(small.policies, model), small.models)
    text = f"{chance.choice(WORLDS)}@{chance.randint(0, 3)}.R=? [ C<={chance.randint(0, 4)} ]"
    formula = parse(text)
    incremental, pairs = checker.incremental_check(formula, "any", window=4), small.setting.path
    for n in range(1, len(pairs) + 1):
        held = pairs[max(n - 4, 0) : n]
        streamed, rebuilt = incremental.verdict(held, 1), checker.check(formula, held, causal_model="any")
        assert (streamed.value, streamed.bounds) == (rebuilt.value, rebuilt.bounds), text
        assert streamed.value is not None
        assert streamed.bounds is not None
        assert streamed.bounds[0] - 1e-9 <= streamed.value <= streamed.bounds[1] + 1e-9


@settings(LAW)
@given(chances)
def test_values_around_reached_states_equal_those_of_a_table(chance: Random) -> None:
    small = small_world(chance, terminated=chance.random() < 0.5)
    model = random_rewards(chance, small.model)
    text = f"{chance.choice(WORLDS)}@{chance.randint(0, 3)}.R=? [ C<=3 ]"

    def answer() -> float:
        value = check(
            text,
            model=model,
            path=small.setting.path,
            policies=small.policies,
            models=small.models,
            terminated=small.setting.terminated,
            engine="exact",
        ).value
        assert value is not None
        return value

    tabled = answer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "SMALL", 0)
        assert answer() == pytest.approx(tabled, abs=1e-12)


def test_sampled_worlds_have_the_same_mean_reward() -> None:
    """Sixteen questions; family-wise probability of a false alarm 1e-6."""
    chance, z = Random(3), float(norm.isf(1e-6 / 2 / 16))
    for _ in range(16):
        small = small_world(chance, stochastic=chance.random() < 0.5)
        model = random_rewards(chance, small.model)
        text = f"{chance.choice(WORLDS)}@{chance.randint(0, 3)}.R=? [ C<=3 ]"
        given_: dict[str, Any] = {
            "model": model,
            "path": small.setting.path,
            "policies": small.policies,
            "models": small.models,
        }
        exact = check(text, engine="exact", **given_).value
        sampling = monitor.Sampling(seed=chance.randint(0, 2**30), error=0.01)
        drawn = check(text, engine="sampled", sampling=sampling, **given_)
        quantity = drawn.quantities[0]
        assert exact is not None
        assert quantity.bounds is not None
        # A Hoeffding interval at 95 % is wider than 1.96 standard errors of the mean.
        half = (quantity.bounds[1] - quantity.bounds[0]) / 2
        assert abs(quantity.value - exact) <= half * z / 1.96 + 1e-9, text


def test_storm_adds_up_the_same_rewards_of_transitions(tmp_path: Path) -> None:
    """Storm's own transition rewards, of the chain a policy makes of the model."""
    stormpy = pytest.importorskip("stormpy", reason="stormpy is not installed: it comes with the extra `bench`")
    model, file = cliff(), tmp_path / "chain"
    for policy in ([0, 0, 0], [1, 1, 1]):
        rows, paid = [], []
        for state, action in enumerate(policy):
            successors, row = model.row(state, action)
            rows += [f"{state} {s} {p!r}" for s, p in zip(successors.tolist(), row.tolist(), strict=True)]
            paid += [f"{state} {s} {model.reward(state, action, s)!r}" for s in successors.tolist()]
        file.with_suffix(".tra").write_text("dtmc\n" + "\n".join(rows) + "\n")
        file.with_suffix(".lab").write_text("#DECLARATION\ninit\n#END\n0 init\n")
        file.with_suffix(".trew").write_text("\n".join(paid) + "\n")
        chain = stormpy.build_model_from_explicit(
            file.with_suffix(".tra"), file.with_suffix(".lab"), transition_rewards=file.with_suffix(".trew")
        )
        for steps in (0, 1, 5, 20):
            (prop,) = stormpy.parse_properties(f"R=? [ C<={steps + 1} ]")
            result = stormpy.model_checking(chain, prop)
            for state in range(3):
                value = check(
                    f"R=? [ C<={steps} ]", model=model, path=[(state, None)], policies={"nominal": policy}
                ).value
                assert value == pytest.approx(result.get_value(state), abs=1e-9)
