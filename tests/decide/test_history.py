"""Where a nested quantity that looks back lies on the path, how long it is carried, and how much may be carried."""

from __future__ import annotations

import pytest

from monitor.decide import Checker, tables
from monitor.decide import history as history_module
from monitor.decide.history import PastAtom
from monitor.errors import LimitError
from monitor.logic import parse
from monitor.model import MDP

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
def test_what_is_nested_is_asked_where_it_lies(offset: int, bound: float) -> None:
    states, rewards = [n % 3 for n in range(9)], [1.0, 2.0, 4.0]
    for reached in range(5):
        begin = by_definition(offset, reached + 1)
        earned = sum(rewards[state] for state in states[begin : begin + 2])
        asked = f"@0.P=? [ F[{reached},{reached}] nominal@{offset}.R>{bound} [ C<=1 ] ]"
        assert ask(asked, [(0, 0)]) == float(earned > bound), reached


def test_all_that_is_carried_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "@0.P=? [ F<=4 nominal@1.R>=9 [ C<=1 ] ]"  # never so: one history at each of five offsets
    monkeypatch.setattr(history_module, "MAX_CELLS", 5)
    assert ask(text, [(0, 0)]) == 0.0
    monkeypatch.setattr(history_module, "MAX_CELLS", 4)
    with pytest.raises(LimitError, match="MAX_CELLS"):
        ask(text, [(0, 0)])
