"""Which atoms hold where: the same for one pair, for some, and for all."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.causal import Intervention
from monitor.exact import tables
from monitor.exact.evaluators import Evaluators
from monitor.exact.labelling import StateLabels
from monitor.logic import PathAutomaton, parse
from monitor.logic.syntax import Goal, Label, Probability
from monitor.model import MDP
from tests.exact.forward.test_evaluator import with_certain
from tests.exact.small import exact, telling_world

EVERYWHERE = np.arange(6)


def labelled(count: int) -> MDP:
    """Six states; label `l<n>` holds in a state if n + state is a multiple of 3."""
    labels = {f"l{n}": [s for s in range(6) if (n + s) % 3 == 0] for n in range(count)}
    return MDP.from_transitions(states=6, actions=1, transitions=[(s, 0, s, 1.0) for s in range(6)], labels=labels)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 16, 17, 20])
def test_labels_need_a_bit_each(count: int) -> None:
    model = labelled(count)
    goal = parse("P=? [ X (" + " & ".join(f'"l{n}"' for n in range(count)) + ") ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    automaton = PathAutomaton(goal.measure.path)
    static = StateLabels(automaton, model)
    names = [atom.name for atom in automaton.atoms if isinstance(atom, Label)]
    expected = [sum(2**bit for bit, name in enumerate(names) if (int(name[1:]) + s) % 3 == 0) for s in range(6)]
    assert static.masks.tolist() == expected
    assert static.masks.dtype.itemsize == (1 if count <= 8 else 2 if count <= 16 else 4)
    assert static.many(EVERYWHERE[::-1]).tolist() == expected[::-1]
    assert [static.one(s) for s in range(6)] == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("inner", ['third[1]@0.P>{} [ F<=2 ("a" & X "b") ]', "@0.R>{} [ C<=1 ]"])
@pytest.mark.parametrize("outer", ["alt[1]@2", "nominal@1"])
@pytest.mark.parametrize("certain", ["nothing", "third", "alt"])
def test_a_takeover_for_one_step_inside_another(outer: str, inner: str, seed: int, certain: str) -> None:
    small = telling_world(seed, stochastic=True, length=3, support=2)
    if certain != "nothing":
        small = with_certain(small, certain)
    for bound in (0.2, 0.45, 0.7):
        text = f"{outer}.P=? [ F<=1 {inner.format(bound)} ]"
        assert small.number(text) == pytest.approx(float(exact(small, text)), abs=1e-12), text


def test_a_stochastic_action_is_evidence_about_other_choices() -> None:
    """Two policies of the same chances do the same; what is certain says nothing; the outer law rules what follows."""
    model = MDP.from_transitions(
        states=2,
        actions=2,
        transitions=[(0, 0, 0, 1.0), (0, 1, 1, 1.0), (1, 0, 1, 1.0), (1, 1, 1, 1.0)],
        labels={"one": [1]},
    )
    half = [[0.5, 0.5]] * 2
    worlds = Evaluators(model, tables({"nominal": [0, 0], "mix": half, "same": half}, model))

    def truths(steps: int, inner: str, offset: int) -> list[int]:
        goal = parse(f"P=? [ X {inner} ]")
        assert isinstance(goal, Goal)
        law = worlds.nominal().under(Intervention(worlds.policies["mix"], steps))
        letters = worlds.value_table(law, goal.measure).labelling
        found: list[int] = letters.many(offset, np.array([0, 0]), np.array([0, 1])).tolist()
        return found

    assert truths(1, 'same@0.P>0.75 [ X "one" ]', 0) == [0, 1]  # as it was
    assert truths(1, 'same@0.P>0.25 [ X "one" ]', 1) == [1, 1]  # either way
    assert truths(1, 'same@0.P>0.75 [ X "one" ]', 1) == [0, 0]
    assert truths(2, 'same[1]@0.P>0.25 [ X X "one" ]', 0) == [1, 1]  # by chance at the next offset
    assert truths(1, 'same[1]@0.P>0.25 [ X X "one" ]', 0) == [0, 1]  # never


def test_a_nested_quantity_is_read_at_each_offset_until_the_law_settles() -> None:
    """Under `alt[2]`, state 1 follows at once before offset 2 and never from it on."""
    model = MDP.from_transitions(
        states=2,
        actions=2,
        transitions=[(0, 0, 0, 1.0), (0, 1, 1, 1.0), (1, 0, 1, 1.0), (1, 1, 1, 1.0)],
        labels={"one": [1]},
    )
    worlds = Evaluators(model, tables({"nominal": [0, 0], "alt": [1, 1]}, model))
    goal = parse('P=? [ F<=9 (alt@0.P>0.5 [ X "one" ] & @0.P>0.5 [ X X "one" ]) ]')
    assert isinstance(goal, Goal)
    law = worlds.nominal(None, 0).under(Intervention(worlds.policies["alt"], 2))
    letters = worlds.value_table(law, goal.measure).labelling
    both, only_alt = 3, 1  # the second: after action 0 at this offset, the law's own at the next
    for _ in range(2):
        assert [letters.one(offset, 0, 0) for offset in (0, 1, 2, 5)] == [both, only_alt, only_alt, only_alt]
        assert [letters.one(offset, 0, 1) for offset in (0, 1, 2, 5)] == [both] * 4
    assert letters.many(1, np.array([0, 0, 1]), np.array([0, 1, 0])).tolist() == [only_alt, both, both]
    assert letters.all(1, np.array([0, 0, 1]), np.array([0, 1, 0])).tolist() == [only_alt, both, both]
