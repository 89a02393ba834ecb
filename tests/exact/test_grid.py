"""The 4x4 grid: two published numbers for `!unsafe U<=10 goal`, to ten digits."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.evaluation import check
from monitor.model import MDP

SIDE, GOAL, UNSAFE, STEPS = 4, 15, (5, 11), 10
MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]
SLIP = 0.1
DOWN, RIGHT = 2, 1


def moved(cell: int, move: int) -> int:
    row, column = (min(max(x + d, 0), SIDE - 1) for x, d in zip(divmod(cell, SIDE), MOVES[move], strict=True))
    return row * SIDE + column


def outcomes(cell: int, action: int) -> list[tuple[int, float]]:
    """With probability .9 as meant, else one of the other three moves, each as likely."""
    return [(moved(cell, move), 1 - SLIP if move == action else SLIP / 3) for move in range(4)]


def test_down_until_the_last_row_then_right() -> None:
    rows = [(s, a, t, p) for s in range(16) for a in range(4) for t, p in outcomes(s, a)]
    model = MDP.from_transitions(states=16, actions=4, transitions=rows, labels={"goal": [GOAL], "unsafe": UNSAFE})
    policy = [RIGHT if s >= 12 else DOWN for s in range(16)]
    verdict = check('P=? [ !"unsafe" U<=10 "goal" ]', model=model, path=[(0, DOWN)], policies={"nominal": policy})
    assert verdict.value == pytest.approx(0.9089689536, abs=1e-9)


def test_the_best_policy_depends_on_time() -> None:
    """The optimum depends on the time left, so time is unfolded into the state: 16 cells at 11 times."""
    worth = np.zeros((STEPS + 1, 16))
    best = np.zeros((STEPS + 1, 16), dtype=int)
    for time in range(STEPS, -1, -1):
        for cell in range(16):
            if cell == GOAL or cell in UNSAFE or time == STEPS:
                worth[time, cell] = float(cell == GOAL)
                continue
            chances = [sum(p * worth[time + 1, t] for t, p in outcomes(cell, a)) for a in range(4)]
            best[time, cell] = int(np.argmax(chances))
            worth[time, cell] = max(chances)
    rows = [
        (time * 16 + s, a, min(time + 1, STEPS) * 16 + t, p)
        for time in range(STEPS + 1)
        for s in range(16)
        for a in range(4)
        for t, p in outcomes(s, a)
    ]
    labels = {
        name: [time * 16 + s for time in range(STEPS + 1) for s in cells]
        for name, cells in (("goal", (GOAL,)), ("unsafe", UNSAFE))
    }
    model = MDP.from_transitions(states=176, actions=4, transitions=rows, labels=labels)
    policy = best.reshape(-1)
    verdict = check(
        'P=? [ !"unsafe" U<=10 "goal" ]', model=model, path=[(0, int(policy[0]))], policies={"nominal": policy}
    )
    assert verdict.value == pytest.approx(0.9393148692, abs=1e-9)
    # looked at after the fact, from five observed steps later, the deployed path is what it was
    path = [(0, int(policy[0]))]
    for _ in range(5):
        state, action = path[-1]
        ahead = int(model.row(state, action)[0][np.argmax(model.row(state, action)[1])])
        path.append((ahead, int(policy[ahead])))
    careless = [DOWN] * 176
    text = 'delta(same,careless)@5.P=? [ !"unsafe" U<=10 "goal" ]'
    effect = check(text, model=model, path=path, policies={"nominal": policy, "same": policy, "careless": careless})
    assert effect.value is not None
    assert 0.0 < effect.value <= 1.0
