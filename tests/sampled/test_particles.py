"""Laws of drawn worlds: the path law of the MDP, replay, any cut into ranges, streams, bounded memory."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from monitor.errors import LimitError, PathError
from monitor.evaluation import check
from monitor.logic.syntax import InterventionRef
from monitor.model import MDP
from monitor.sampled import Sampler
from monitor.sampled.ensemble import Ensemble, StepTable
from monitor.sampled.noise import STATE, gumbels
from tests.exact.small import LAW, chances, question, small_world
from tests.oracle.evaluate import Evaluator
from tests.oracle.syntax import Change
from tests.sampled.worlds import FALSE_ALARM, error_bound, goal, sampler, sampler_of
from tests.tiers import examples, heavy, scaled

COLLECT = "R=? [ C<=30 ]"
"""A question that follows every particle to the end."""


def ensemble(drawn: Sampler, change: InterventionRef, count: int, state: int, first: int = 0) -> Ensemble:
    measure = goal(f"nominal@0.{COLLECT}").measure
    scene = drawn.scene
    labels = scene.labels(measure, change, None)
    steps = StepTable(scene.automaton(measure))
    whole = Ensemble(scene.world(change), steps, labels, seed=drawn.seed, state=state, first=first)
    return whole.apart(range(count))


@heavy
@scaled
def test_the_causal_model_and_the_mdp_have_the_same_path_law() -> None:
    """The paper's proposition: prior noise through the mechanism against the enumerated probabilities of all paths."""
    count, length, worlds, tested = 40_000, 4, examples(6, 25), 0
    for n in range(worlds):
        small = small_world(Random(n), stochastic=n % 2 == 1, length=1, open_end=True)
        # P of each path, by asking for its states one after the other: labels that tell all states apart
        labels = {f"s{s}": [s] for s in range(small.setting.states)}
        model = MDP.from_rows(
            **{name: getattr(small.model, name) for name in ("states", "actions", "indptr")},
            successors=small.model.successors,
            probabilities=small.model.probabilities,
            labels=labels,
        )
        drawn = sampler_of(model, small.policies, n)
        expected: dict[tuple[int, ...], float] = {}
        oracle = Evaluator(small.setting)
        world = oracle.laws.world(oracle.laws.observed, 0, small.setting.path, Change("nominal", "nominal", None))
        for last in oracle.tree(world, length - 1, "gumbel").levels[-1]:
            states = tuple(state for state, _ in last.history)
            expected[states] = expected.get(states, 0.0) + float(last.weight)
        seen = []
        for states in expected:
            path = " & ".join(f'F={k} "s{state}"' for k, state in enumerate(states))
            hits = drawn.outcomes(goal(f"nominal@0.P=? [ {path} ]"), small.setting.path, range(count))
            seen.append(hits)
        assert (np.sum(seen, axis=0) == 1).all()  # each particle cache exactly one of these paths
        observed, likely = np.array([hits.sum() for hits in seen]), np.array([*expected.values()])
        if len(likely) > 1:
            tested += 1
            assert chisquare(observed, likely / likely.sum() * count).pvalue > FALSE_ALARM / worlds
    assert tested > worlds / 2


def test_a_particle_moves_by_the_argmax_of_its_gumbels() -> None:
    """The mechanism itself: next = argmax_j (log P(j | s, a) + G_j), G of the step and the next state alone."""
    small = small_world(Random(5), length=1)
    drawn = sampler(small, 11)
    count, first = 300, 17
    (state, action), states = small.setting.path[0], np.arange(small.setting.states)
    assert action is not None
    path = [(state, action)]
    noise = gumbels(11, STATE, first, np.arange(count), states)
    chances = np.full(len(states), 1e-300)
    chances[small.model.row(state, action)[0]] = small.model.row(state, action)[1]
    reached = (np.log(chances) + noise).argmax(axis=1)
    for name, mark in small.model.labels.items():
        hits = drawn.outcomes(goal(f'nominal@0.P=? [ X "{name}" ]'), path, range(count), first_seq=first)
        assert np.array_equal(hits == 1.0, mark[reached])


@LAW
@given(chances, st.booleans(), st.integers(0, 2**64 - 1))
def test_the_very_actions_taken_replay_what_happened(chance: Random, stochastic: bool, seed: int) -> None:  # noqa: FBT001
    small = small_world(chance, stochastic=stochastic, on_policy=True, length=4)
    path = small.setting.path
    if not stochastic and any(small.policies["nominal"][s] != a for s, a in path):
        return
    drawn = sampler_of(small.model, {**small.policies, "same": small.policies["nominal"]}, seed)
    for change in (InterventionRef("policy", "same"), InterventionRef("policy", "same", 2), InterventionRef("nominal")):
        particles = ensemble(drawn, change, 200, path[0][0])
        for pair, (reached, _) in pairwise(path):
            particles.observe(pair, reached)
            assert (particles.states == reached).all()


def random_question(chance: Random) -> str:
    change = chance.choice(["alt", "third[2]", "nominal", "delta(alt,nominal)", "delta(alt[1],model:icy)", "do(1)"])
    return question(chance, f"{change}@{chance.choice([0, 1, 2, -1, -2])}")


@LAW
@given(chances, st.lists(st.integers(0, 60), max_size=4).map(sorted), st.integers(0, 2**32 - 61))
def test_any_cut_into_ranges_gives_the_same_outcomes(chance: Random, cuts: list[int], base: int) -> None:
    small = small_world(chance, stochastic=chance.random() < 0.5)
    drawn, asked, path = sampler(small, 3), goal(random_question(chance)), small.setting.path
    whole = drawn.outcomes(asked, path, range(base, base + 60))
    parts = [drawn.outcomes(asked, path, range(base + begin, base + end)) for begin, end in pairwise([0, *cuts, 60])]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(drawn.outcomes(asked, path, range(base + 1, base + 60, 7)), whole[1::7])
    assert np.array_equal(sampler(small, 3).outcomes(asked, path, range(base, base + 60)), whole)


def test_more_than_one_block_is_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small = small_world(Random(4), length=4)
    drawn, asked, path = sampler(small, 3), goal("delta(alt,nominal)@2.R=? [ C<=4 ]"), small.setting.path
    whole = drawn.outcomes(asked, path, range(5, 1_000, 3))
    monkeypatch.setattr("monitor.sampled.sampler.BLOCK", 100)
    assert np.array_equal(drawn.outcomes(asked, path, range(5, 1_000, 3)), whole)


def test_a_step_that_is_observed_leaves_the_noise_of_others_alone() -> None:
    """The same number for the same step, however long the path and whichever its first held pair."""
    small = small_world(Random(2), length=5)
    path, drawn, asked = small.setting.path, sampler(small, 1), goal('alt@1.P=? [ F<=3 "a" ]')
    whole = drawn.outcomes(asked, path, range(500))
    assert np.array_equal(drawn.outcomes(asked, path[3:], range(500), first_seq=3), whole)
    assert np.array_equal(drawn.outcomes(asked, path[2:], range(500), first_seq=2), whole)


def test_a_formula_of_many_labels_is_read_right() -> None:
    """More than a table of all labels would hold."""
    model = MDP.from_transitions(
        states=12,
        actions=1,
        transitions=[(s, 0, t, 0.5) for s in range(12) for t in (s, (s + 1) % 12)],
        labels={f"s{s}": [s] for s in range(12)},
    )
    drawn = sampler_of(model, {"nominal": [0] * 12}, 0)
    path = [(0, 0)]
    for text in (
        " & ".join(f'F={k} "s{k}"' for k in range(12)),
        " | ".join(f'F={k + 1} "s{k}"' for k in range(12)),
        " | ".join(f'(F={k + 2} "s{k}" & X "s{(k + 1) % 12}")' for k in range(12)),
    ):
        hits = drawn.outcomes(goal(f"nominal@0.P=? [ {text} ]"), path, range(5_000))
        truth = check(f"nominal@0.P=? [ {text} ]", model=model, path=path, policies={"nominal": [0] * 12}).value
        assert abs(hits.mean() - (truth or 0.0)) <= error_bound(hits, 1.0, FALSE_ALARM / 3)


def test_errors_say_what_is_wrong() -> None:
    small = small_world(Random(0), length=2)
    drawn, asked = sampler(small, 0), goal('alt@1.P=? [ X "a" ]')
    with pytest.raises(LimitError, match="particles are numbered 0 to 4294967295"):
        drawn.outcomes(asked, small.setting.path, range(2**32 - 1, 2**32 + 1))
    with pytest.raises(LimitError, match="a seed is a number from 0"):
        Sampler(drawn.scene, -1)
    with pytest.raises(PathError, match="the path is empty"):
        drawn.outcomes(asked, [], range(3))
    with pytest.raises(LimitError, match="looks back"):
        drawn.outcomes(goal('alt@1.P=? [ X (alt@1.P>0.5 [ X "a" ]) ]'), small.setting.path, range(3))
    state, action = small.setting.path[0]
    assert action is not None
    impossible = next(s for s in range(small.setting.states) if s not in small.model.row(state, action)[0])
    with pytest.raises(PathError, match="probability 0 after state"):
        drawn.outcomes(asked, [(state, action), (impossible, 0)], range(3))
    assert len(drawn.outcomes(asked, small.setting.path, range(0))) == 0
