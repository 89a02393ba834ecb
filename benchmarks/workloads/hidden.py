"""Cost of a step where states are hidden: a grid of 400 cells with a noisy position sensor, and 100 dense states.

A step is that of `Monitor`: the belief, the verdict with the values of both policies at five offsets, and the alarm.
"""

from __future__ import annotations

import numpy as np

from benchmarks.rows import Bench, Row, absolute, benchmark
from benchmarks.timing import Work, in_turns, one_by_one
from benchmarks.worlds import grid, patrol, safest
from monitor.arrays import Ints
from monitor.model import MDP
from monitor.policy import PolicyTable
from monitor.runtime.monitor import Monitor
from monitor.types import AlarmSpec, FormulaSpec, Instant, Judged, Observation, StreamSettings

__all__ = ["dense", "noisy_grid", "steps"]

WATCHED = 'regret(fallback@4, P>=0.9 [ G<=20 !"unsafe" ])'
NEXT_CELL = 0.05
"""Probability with which the sensor shows each of the eight cells around the right one; beyond the wall, that one."""
SIGNALS = 10
WARM, BLOCK = 300, 10
"""Steps before the first that is timed, and in a block."""


def noisy_grid(side: int) -> tuple[MDP, dict[str, Ints]]:
    """Return a grid of which a sensor shows the cell, or one beside it, and policies on what it shows."""
    moves = grid(side)
    cells = np.arange(moves.states)
    at = np.stack(np.divmod(cells, side), axis=1)
    around = np.array([(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)])
    shown = np.clip(at[:, None, :] + around, 0, side - 1) @ np.array([side, 1])
    chances = np.where((around == 0).all(axis=1), 1 - 8 * NEXT_CELL, NEXT_CELL)
    emissions = [
        (cell, seen, chance)
        for cell, here in enumerate(shown.tolist())
        for seen, chance in zip(here, chances.tolist(), strict=True)
    ]
    model = MDP.from_transitions(
        states=moves.states,
        actions=moves.actions,
        transitions=[
            (s, a, int(to), float(p))
            for s in range(moves.states)
            for a in range(4)
            for to, p in zip(*moves.row(s, a), strict=True)
        ],
        labels={name: np.flatnonzero(there).tolist() for name, there in moves.labels.items()},
        initial={0: 1.0},
        signals=moves.states,
        emissions=emissions,
    )
    return model, {"nominal": _actions(patrol(side)), "fallback": _actions(safest(moves))}


def dense(states: int, rng: np.random.Generator) -> tuple[MDP, dict[str, Ints]]:
    """Return a model whose sensor may show anything in every state; five successors of each state and action."""
    transitions = []
    for s in range(states):
        for a in range(2):
            successors = rng.choice(states, 5, replace=False)
            transitions += [(s, a, int(to), p) for to, p in zip(successors, rng.dirichlet(np.ones(5)), strict=True)]
    emissions = rng.dirichlet(np.ones(SIGNALS), size=states)
    model = MDP.from_transitions(
        states=states,
        actions=2,
        transitions=transitions,
        labels={"unsafe": [0]},
        initial=dict.fromkeys(range(states), 1 / states),
        signals=SIGNALS,
        emissions=[(*at, emissions[at]) for at in np.ndindex(emissions.shape)],
    )
    return model, {name: rng.integers(2, size=SIGNALS) for name in ("nominal", "fallback")}


@benchmark("hidden")
def hidden(bench: Bench) -> list[Row]:
    """Measure a step on both models, once the rows of most steps have been computed before."""
    rows = []
    for key, (model, policies), title, at_most in (
        ("grid", noisy_grid(20), "400 cells, a sensor that may show the next one", 0.002),
        ("dense", dense(100, bench.rng()), "100 states, five successors, a sensor that excludes none", 0.0025),
    ):
        (mine,) = in_turns([steps(model, policies, bench)], bench.rounds)
        name = f"step of Monitor, {WATCHED}, {title}"
        rows.append(absolute(f"hidden/{key}", name, mine, at_most=at_most, target=f"<= {at_most * 1e3:g} ms"))
    return rows


def steps(model: MDP, policies: dict[str, Ints], bench: Bench) -> Work:
    """Return steps of one agent, after WARM of them; each gets a verdict."""
    spec = FormulaSpec("safe", WATCHED, alarm=AlarmSpec(for_=3, keep=5))
    monitor = Monitor(model, dict(policies), [spec], StreamSettings(window=20))
    count = BLOCK if bench.quick else 10 * BLOCK
    seen = iter(_walked(model, policies["nominal"], WARM + (bench.rounds + 1) * (count + BLOCK), bench.rng(1)))

    def step() -> bool:
        seq, shown, action = next(seen)
        now = Instant(1e9 + 0.1 * seq, 0.1 * seq)
        notices = monitor.observe(Observation("agent", 0, seq, action=action, observation=shown), now)
        return any(isinstance(notice, Judged) for notice in notices + monitor.evaluate(now))

    def block() -> int:
        assert all(step() for _ in range(count)), "a step has no verdict"
        return count

    for _ in range(WARM):
        step()
    return Work(block, lambda: one_by_one(step, BLOCK))


def _walked(model: MDP, policy: Ints, count: int, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """Return steps (number, observation, action) of a policy that sees the observation."""
    assert model.initial is not None
    assert model.emissions is not None
    state, walked = int(rng.choice(model.states, p=model.initial)), []
    for seq in range(count):
        shown, chances = model.emissions.row(state)
        seen = int(rng.choice(shown, p=chances))
        walked.append((seq, seen, int(policy[seen])))
        successors, chances = model.row(state, walked[-1][2])
        state = int(rng.choice(successors, p=chances))
    return walked


def _actions(policy: PolicyTable) -> Ints:
    assert policy.actions is not None
    return policy.actions
