"""The value of a measure in one world, by the loops and by carrying whole histories: wherever an episode ends."""

from __future__ import annotations

from itertools import product

import pytest

from monitor.causal import CounterfactualWorld, Intervention
from monitor.exact import Checker, tables
from monitor.exact.evaluators import Evaluators
from monitor.exact.history import HistoryChain
from monitor.logic import parse
from monitor.logic.syntax import Goal, InterventionRef, Probability, Reward
from monitor.model import MDP
from tests.mutation.test_questions import call_every_model_large

MODEL = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[
        *[(s, 0, t, 0.5) for s in range(3) for t in (s, s + 1)],
        *[(s, 1, t, p) for s in range(3) for t, p in ((s, 0.75), (3, 0.25))],
        *[(3, a, t, 0.5) for a in range(2) for t in (0, 3)],
    ],
    labels={"bad": [3], "mid": [1]},
    rewards=[*((s, 1, float(s + 1)) for s in range(4)), (3, 0, 0, 2.0), (0, 0, 1, -1.0)],
)
SLIPPERY = MDP.from_transitions(
    states=4, actions=2, transitions=[(s, a, t, 0.25) for s in range(4) for a in range(2) for t in range(4)]
)
POLICIES = {"nominal": [0] * 4, "alt": [1] * 4, "mix": [[0.5, 0.5]] * 4}
PATH = ((0, 0), (1, 0), (1, 1), (3, 0), (3, 0), (0, 1))
TEXTS = ('P=? [ "mid" R<=3 !"bad" ]', 'P=? [ F[1,4] "bad" ]', "R=? [ C[1,5] ]")
CHANGES = {
    "nominal": InterventionRef("nominal"),
    "alt": InterventionRef("policy", "alt"),
    "alt[2]": InterventionRef("policy", "alt", 2),
    "alt[1]": InterventionRef("policy", "alt", 1),
    "mix[3]": InterventionRef("policy", "mix", 3),
    "model:slippery": InterventionRef("model", "slippery"),
}


def measure(text: str) -> Probability | Reward:
    goal = parse(text)
    assert isinstance(goal, Goal)
    return goal.measure


def made() -> Evaluators:
    return Evaluators(MODEL, tables(POLICIES, MODEL), {"slippery": SLIPPERY})


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("change", CHANGES)
def test_world_value_equals_the_checkers_value(text: str, change: str) -> None:
    worlds = made()
    checker = Checker(MODEL, tables(POLICIES, MODEL), {"slippery": SLIPPERY})
    for position in range(len(PATH)):
        world = CounterfactualWorld.at(
            PATH, position, worlds.nominal(None, 0), worlds.intervention(CHANGES[change], None)
        )
        asked = parse(f"{change}@{len(PATH) - 1 - position}.{text}")
        plain = checker.check(asked, PATH)
        assert worlds.value(world, measure(text)) == pytest.approx(plain.value, abs=1e-12)
        if change != "nominal":
            for kind in ("any", "stable"):
                bounds = checker.check(asked, PATH, causal_model=kind).bounds
                assert worlds.interval(world, measure(text), kind) == pytest.approx(bounds, abs=1e-12)


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_episode_may_end_before_or_after_the_path_does(
    change: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if size == "large":
        call_every_model_large(monkeypatch)
    worlds = made()
    for end, until, text in product((0, 3), (0, 2, 3, 7), TEXTS):
        law = worlds.nominal(end, until)
        for path in (((3, 1),), PATH[:4]):
            world = CounterfactualWorld.at(path, 0, law, worlds.intervention(CHANGES[change], end))
            value_table = worlds.value_table(world.law, measure(text))
            chain = HistoryChain(world, value_table.automaton, value_table.labelling, {})
            assert worlds.value(world, measure(text)) == pytest.approx(chain.value(), abs=1e-12)
            bounded = HistoryChain(world, value_table.automaton, value_table.labelling, {}, "any").interval()
            assert worlds.interval(world, measure(text), "any") == pytest.approx(bounded, abs=1e-12)


def test_a_constant_is_its_own_bounds() -> None:
    worlds = made()
    world = CounterfactualWorld.at(PATH, 2, worlds.nominal(None, 0), Intervention(worlds.policies["alt"]))
    assert worlds.value(world, measure("P=? [ true ]")) == 1.0
    assert worlds.interval(world, measure("P=? [ false ]"), "any") == (0.0, 0.0)
