"""Rows kept from path to path: the answers on growing paths do not depend on how many are kept."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import MDP, Checker, PolicyTable, parse
from monitor.exact.best import posteriors

FORMULAS = [parse(f'{word}@3.P>=0.5 [ G<=4 !"bad" ]') for word in ("best", "best[1]", "best[<=1]", "best[<=2]")]


def world(seed: int) -> tuple[MDP, dict[str, PolicyTable], list[tuple[int, int]]]:
    """Twelve states, three actions, and a path of 12 pairs, some of whose transitions recur."""
    random = np.random.default_rng(seed)
    rows = random.dirichlet(np.full(4, 0.5), (12, 3))
    after = np.argsort(random.random((12, 3, 12)))[..., :4]
    model = MDP.from_transitions(
        states=12,
        actions=3,
        transitions=[
            (s, a, int(t), float(p)) for s, a in np.ndindex(12, 3) for t, p in zip(after[s, a], rows[s, a], strict=True)
        ],
        labels={"bad": [5, 9]},
    )
    actions = random.integers(3, size=12)
    actions.setflags(write=False)
    path, state = [], 0
    for _ in range(12):
        path.append((state, int(actions[state])))
        state = int(random.choice(after[state, actions[state]], p=rows[state, actions[state]]))
    return model, {"nominal": PolicyTable(actions=actions)}, path


@pytest.mark.parametrize("seed", range(6))
def test_answers_do_not_depend_on_how_many_rows_are_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies, path = world(seed)
    found = []
    for kept in (0, 1, 2, 16):
        monkeypatch.setattr(posteriors, "MOST", kept)
        checker = Checker(model, policies)
        found.append(
            [
                checker.check(formula, path[begin:end]).quantities[0].value
                for begin in (0, 5, 0)
                for end in range(begin + 4, len(path) + 1)
                for formula in FORMULAS
            ]
        )
    assert len(set(found[0])) > 5
    assert found[1:] == found[:1] * 3
