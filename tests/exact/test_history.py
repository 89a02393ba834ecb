"""Where a nested quantity that looks back lies on the path, how long it is carried, and how much may be carried."""

from __future__ import annotations

import pytest

from monitor.causal import CounterfactualWorld, Intervention
from monitor.errors import LimitError
from monitor.exact import Checker, tables
from monitor.exact import history as history_module
from monitor.exact.evaluators import Evaluators
from monitor.exact.history import HistoryChain, PastAtom
from monitor.logic import parse
from monitor.logic.syntax import Label, Probability, Reward, eventually
from monitor.model import MDP
from monitor.types import CausalModel

RING = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(s, a, (s + 1 + a) % 3, 1.0) for s in range(3) for a in range(2)],
    labels={"b": [2]},
    rewards=[(0, 0, 1.0), (1, 0, 2.0), (2, 0, 4.0)],
)
POLICIES = {"nominal": [0, 0, 0], "alt": [1, 1, 1]}


def by_definition(offset: int, length: int) -> int:
    """Return the position of `@offset` on a path of so many pairs: counted from its end, or (negative) its start."""
    clipped = max(-(length - 1), min(length - 1, offset))
    return length - 1 - clipped if clipped >= 0 else -clipped - 1


@pytest.mark.parametrize("offset", range(-5, 6))
def test_a_nested_offset_counts_along_the_path_that_was_taken(offset: int) -> None:
    atom = PastAtom(offset, lambda *_: frozenset())
    for reached in range(9):
        assert atom.position(reached) == by_definition(offset, reached + 1)
        assert atom.earliest(reached) == min(by_definition(offset, later + 1) for later in range(reached, 30))


def ask(text: str, path: list[tuple[int, int]]) -> float:
    value = Checker(RING, tables(POLICIES, RING)).check(parse(text), path).value
    assert value is not None
    return value


@pytest.mark.parametrize("offset", [-3, -1, 1, 2])
@pytest.mark.parametrize("bound", [3.5, 5.5])
def test_a_nested_quantity_is_evaluated_at_its_position(offset: int, bound: float) -> None:
    states, rewards = [n % 3 for n in range(9)], [1.0, 2.0, 4.0]
    for reached in range(5):
        begin = by_definition(offset, reached + 1)
        earned = sum(rewards[state] for state in states[begin : begin + 2])
        asked = f"@0.P=? [ F[{reached},{reached}] nominal@{offset}.R>{bound} [ C<=1 ] ]"
        assert ask(asked, [(0, 0)]) == float(earned > bound), reached


@pytest.mark.parametrize("other", [-4, -2, 1, 3])
@pytest.mark.parametrize("offset", [-3, -1, 1, 2])
def test_two_nested_quantities_do_not_read_each_others_past(offset: int, other: int) -> None:
    states, rewards = [n % 3 for n in range(9)], [1.0, 2.0, 4.0]
    for reached in range(5):
        begin = by_definition(offset, reached + 1)
        earned = sum(rewards[state] for state in states[begin : begin + 2])
        one, never = f"nominal@{offset}.R>5.5 [ C<=1 ]", f"nominal@{other}.R>99 [ C<=1 ]"
        assert ask(f"@0.P=? [ F[{reached},{reached}] ({one} | {never}) ]", [(0, 0)]) == float(earned > 5.5), reached


def counted(model: MDP, text: str, path: list[tuple[int, int]], kind: CausalModel = "gumbel") -> int:
    """Return the histories that a question carries: the smallest limit at which it is answered."""
    states = model.states
    checker = Checker(model, tables({"nominal": [0] * states, "alt": [model.actions - 1] * states}, model))
    for most in range(100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(history_module, "MAX_HISTORIES", most)
            try:
                checker.check(parse(text), path, causal_model=kind)
            except LimitError:
                continue
            return most
    raise AssertionError("it carries a hundred")


COIN = MDP.from_transitions(
    states=2,
    actions=2,
    transitions=[(s, a, t, 0.5) for s in range(2) for a in range(2) for t in range(2)],
    labels={"one": [1]},
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("P=? [ F<=3 nominal@1.R>9 [ C<=1 ] ]", 1 + 2 + 4 + 4),  # one pair back
        ("P=? [ F<=3 nominal@2.R>9 [ C<=1 ] ]", 1 + 2 + 4 + 8),  # two
        ("P=? [ F<=3 nominal@-1.R>9 [ C<=1 ] ]", 1 + 2 + 4 + 8),  # the first, and all since
        ("P=? [ F<=3 (nominal@1.R>9 [ C<=1 ] | nominal@2.R>9 [ C<=1 ]) ]", 1 + 2 + 4 + 8),  # what either needs
        ("P=? [ F[3,3] nominal@1.R>9 [ C<=1 ] ]", 1 + 2 + 4 + 4),
    ],
)
def test_number_of_histories(text: str, count: int) -> None:
    assert counted(COIN, text, [(0, 0)]) == count


def test_histories_impossible_in_the_causal_class_are_not_kept() -> None:
    """Under `stable` the other action of a coin falls as the observed one did: one history at each of three offsets."""
    text, path = "alt@2.P=? [ F<=2 nominal@1.R>9 [ C<=1 ] ]", [(0, 0), (1, 0), (0, 0)]
    assert counted(COIN, text, path, "stable") == 3
    assert counted(COIN, text, path, "any") == 1 + 2 + 4


def test_a_chain_without_look_back_has_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = Evaluators(COIN, tables({"nominal": [0, 0]}, COIN))
    measure = Probability(eventually(3, 3, Label("one")))
    world = CounterfactualWorld.at([(0, 0)], 0, worlds.nominal(None, 0), Intervention())
    value_table = worlds.value_table(world.law, measure)
    chain = HistoryChain(world, value_table.automaton, value_table.labelling, {})
    monkeypatch.setattr(history_module, "MAX_HISTORIES", 1 + 2 + 2 + 2)
    assert chain.value() == 0.5


@pytest.mark.parametrize(("low", "high", "earned"), [(0, 0, 1.0), (0, 2, 7.0), (1, 2, 6.0), (2, 4, 4.0 + 1.0 + 2.0)])
def test_a_chain_collects_rewards_up_to_the_last_offset(low: int, high: int, earned: float) -> None:
    worlds = Evaluators(RING, tables(POLICIES, RING))
    world = CounterfactualWorld.at([(0, 0)], 0, worlds.nominal(), Intervention())
    value_table = worlds.value_table(world.law, Reward(low, high))
    assert HistoryChain(world, value_table.automaton, value_table.labelling, {}).value() == earned
    assert HistoryChain(world, value_table.automaton, value_table.labelling, {}, "any").interval() == (earned, earned)


def test_what_may_hold_or_not_is_followed_either_way() -> None:
    """What the other action of a coin would have done after one that fell differently is open at both offsets."""
    checker = Checker(COIN, tables({"nominal": [0, 0], "alt": [1, 1]}, COIN))
    path = [(0, 0), (1, 0), (0, 0)]
    for text in (
        'nominal@2.P=? [ F[1,2] alt@1.P>=0.5 [ X "one" ] ]',
        'nominal@2.P=? [ G[1,2] alt@1.P>=0.5 [ X "one" ] ]',
    ):
        assert checker.check(parse(text), path, causal_model="any").bounds == (0.0, 1.0)
    certain = checker.check(parse('nominal@2.P=? [ F[1,2] alt@1.P>=0.5 [ X "one" ] ]'), path, causal_model="stable")
    assert certain.bounds == (1.0, 1.0)  # it falls as the observed one did


def test_a_refusal_names_the_farthest_look_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_HISTORIES", 1)
    with pytest.raises(LimitError, match="looks back 3 steps"):
        ask("@0.P=? [ F<=4 (nominal@1.R>=9 [ C<=1 ] | nominal@-3.R>=9 [ C<=1 ] | nominal@2.R>=9 [ C<=1 ]) ]", [(0, 0)])


def test_the_whole_history_counts_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "@0.P=? [ F<=4 nominal@1.R>=9 [ C<=1 ] ]"  # never so: one history at each of five offsets
    monkeypatch.setattr(history_module, "MAX_HISTORIES", 5)
    assert ask(text, [(0, 0)]) == 0.0
    monkeypatch.setattr(history_module, "MAX_HISTORIES", 4)
    with pytest.raises(LimitError, match="MAX_HISTORIES"):
        ask(text, [(0, 0)])
