"""Evaluators in which the rows change elsewhere than at the last pair, and choices that are told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.causal import CounterfactualWorld, Intervention
from monitor.exact import Checker, tables
from monitor.exact.evaluators import Evaluators
from monitor.exact.history import HistoryChain
from monitor.logic import parse
from monitor.logic.syntax import Goal, InterventionRef, Probability, Reward
from monitor.model import MDP
from tests.exact.test_world_value import MODEL, POLICIES

CHANCES = (0.125, 0.25, 0.25, 0.375)
DRAINED = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[
        *[(s, a, (s + a + k) % 4, p) for s in (1, 2, 3) for a in range(2) for k, p in enumerate(CHANCES)],
        *[(0, a, 0, 1.0) for a in range(2)],
    ],
)
"""Other dynamics in which state 0 stays anyway, so that an episode's end in it changes nothing there."""


def measure(text: str) -> Probability | Reward:
    goal = parse(text)
    assert isinstance(goal, Goal)
    return goal.measure


@pytest.mark.parametrize("text", ['P=? [ F[1,3] "bad" ]', "R=? [ C[1,4] ]"])
@pytest.mark.parametrize("until", [0, 1, 2, 3, 5])
@pytest.mark.parametrize(
    "change", [InterventionRef("nominal"), InterventionRef("policy", "alt"), InterventionRef("model", "drained")]
)
def test_an_end_is_where_it_is_said_to_be(change: InterventionRef, until: int, text: str) -> None:
    """By the loops where they can, else by whole histories, which know nothing of a last pair."""
    worlds = Evaluators(MODEL, tables(POLICIES, MODEL), {"drained": DRAINED})
    if text.startswith("P"):  # nothing is earned: then no copy of the other dynamics is made
        unpaid = replace(MODEL, rewards=np.zeros((4, 2)), transition_rewards=None, reward_spread=None)
        worlds = Evaluators(unpaid, tables(POLICIES, unpaid), {"drained": DRAINED})
    for path in (((0, 0), (0, 1), (0, 0)), ((3, 0), (0, 0), (0, 1), (0, 0))[: max(until, 1) + 2]):
        world = CounterfactualWorld.at(path, 0, worlds.nominal(0, until), worlds.intervention(change, 0))
        value_table = worlds.value_table(world.law, measure(text))
        chain = HistoryChain(world, value_table.automaton, value_table.labelling, {})
        assert worlds.value(world, measure(text)) == pytest.approx(chain.value(), abs=1e-12)


def test_after_an_end_the_state_is_constant() -> None:
    worlds = Evaluators(MODEL, tables(POLICIES, MODEL))
    world = CounterfactualWorld.at(
        ((0, 0), (0, 1), (0, 0)), 0, worlds.nominal(0, 0), Intervention(worlds.policies["alt"])
    )
    assert worlds.value(world, measure('P=? [ F<=5 "bad" ]')) == 0.0
    assert worlds.value(world, measure('P=? [ G<=5 !"mid" ]')) == 1.0


def test_actions_that_a_nested_quantity_distinguishes_are_not_summed() -> None:
    """By chance the policy goes or stays; whether it goes is what is asked."""
    model = MDP.from_transitions(
        states=2,
        actions=2,
        transitions=[(0, 0, 0, 1.0), (0, 1, 1, 1.0), (1, 0, 1, 1.0), (1, 1, 1, 1.0)],
        labels={"one": [1]},
    )
    checker = Checker(model, tables({"nominal": [0, 0], "mix": [[0.75, 0.25]] * 2}, model))
    for text, value in (
        ('mix@1.P=? [ @0.P>0.5 [ X "one" ] ]', 0.25),
        ('mix@1.P=? [ !"one" & @0.P<0.5 [ X "one" ] ]', 0.75),
        (
            'mix@1.P=? [ F<=1 (!"one" & @0.P>0.5 [ X "one" ]) ]',
            0.25 + 0.75 * 0.25,
        ),  # what was certain to be done says nothing
    ):
        verdict = checker.check(parse(text), [(0, 0), (0, 0)])
        assert verdict.value == pytest.approx(value), text
