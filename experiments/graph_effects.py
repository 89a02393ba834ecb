"""The graph game of Triantafyllou et al.: its policies, lost games, and the effect of a decision, exact and estimated.

S. Triantafyllou, A. Sukovic, D. Mandal, G. Radanovic: *Agent-Specific Effects* (ICML 2024, arXiv 2310.11334). Six
agents move on three levels, four times; they win if they end with two on each level. The policies are formulas, read
in the authors' code; nothing is trained. Random numbers are drawn with the seeds and in the order of the authors' code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from experiments.synthetic import Floats, Ints

__all__ = [
    "AGENTS",
    "DOWN",
    "MOVES",
    "POLICY",
    "STATES",
    "STRAIGHT",
    "UP",
    "WON",
    "Choice",
    "Game",
    "after",
    "alternatives",
    "drawn",
    "lost",
    "monotone",
    "moved",
    "values",
]

Choice = Callable[[Floats, int, Floats], Floats]
"""Distribution of a choice from the third argument, given that the first led to the second under the same noise."""

AGENTS: Final = 6
LEVELS: Final = 3
MOVES: Final = 4
UP, DOWN, STRAIGHT = range(3)
ACTIONS: Final = 3
DIRECTION: Final = np.array([-1, 1, 0])
STATES: Final[Ints] = np.array(list(product(range(LEVELS), repeat=AGENTS)))
"""The level of each agent in each state, [S, agents]; 0 is the highest."""
WEIGHT: Final = LEVELS ** np.arange(AGENTS)[::-1]
COUNTS: Final[Ints] = (STATES[:, :, None] == np.arange(LEVELS)).sum(axis=1)
WON: Final = (COUNTS == AGENTS // LEVELS).all(axis=1)


class Game(NamedTuple):
    """The states before each move and after the last, [moves + 1], and the actions [moves, agents]."""

    states: Ints
    actions: Ints


def policy_row(agent: int, here: int, counts: Sequence[int]) -> Floats:
    """Return the probabilities of up, down, straight for an agent on level `here`, with these numbers on the levels.

    An agent acts at random with probability .05, .1, ... .3. Otherwise it goes straight if N <= 2 are on its level, and
    else with probability 2 / N. If it does not, it goes towards the level with fewer than two agents, or to either side
    if there are two such levels.
    """
    random, number = 0.05 * (agent + 1), max(counts[here], 2)
    leaves = (1 - random) * (number - 2) / number
    free = [level for level in range(LEVELS) if counts[level] < 2]
    up = 0.5 if len(free) > 1 else float(bool(free) and free[0] < here)
    return np.array([leaves * up, leaves * (1 - up), (1 - random) * 2 / number]) + random / ACTIONS


POLICY: Final[Floats] = np.array(
    [[policy_row(n, state[n], counts) for n in range(AGENTS)] for state, counts in zip(STATES, COUNTS, strict=True)]
)
"""Probabilities of the actions, [S, agents, actions]."""


KINDS: Final = sorted({(int(here), tuple(map(int, c))) for s, c in zip(STATES, COUNTS, strict=True) for here in s})
"""What a policy can see: own level and numbers on the levels."""
ROW: Final[Ints] = np.array(
    [[KINDS.index((int(here), tuple(map(int, c)))) for here in s] for s, c in zip(STATES, COUNTS, strict=True)]
)
"""Index in `KINDS` of what each agent sees in each state, [S, agents]."""


def moved(levels: Ints, actions: Ints) -> Ints:
    """Return the levels after these actions; who would leave the graph goes straight."""
    result: Ints = np.clip(levels + DIRECTION[actions], 0, LEVELS - 1)
    return result


def lost(seed: int, count: int) -> tuple[list[Game], np.random.Generator]:
    """Return the first lost games, and the generator after these."""
    rng = np.random.default_rng(seed)
    limits = POLICY.cumsum(axis=2)[:, :, :-1]
    games: list[Game] = []
    while len(games) < count:
        states, actions = [int(WEIGHT.sum())], []  # all start on the middle level
        for _ in range(MOVES):
            actions.append((rng.random(AGENTS)[:, None] >= limits[states[-1]]).sum(axis=1))
            states.append(int(moved(STATES[states[-1]], actions[-1]) @ WEIGHT))
        if not WON[states[-1]]:
            games.append(Game(np.array(states), np.array(actions)))
    return games, rng


def monotone(observed: Floats, action: int, target: Floats) -> Floats:
    """Return the conditional choice if one uniform number is compared with cumulative probabilities."""
    high = observed[: action + 1].sum()
    low = high - observed[action]
    ends = target.cumsum()
    overlap = np.minimum(ends, high) - np.maximum(ends - target, low)
    result: Floats = overlap.clip(min=0.0) / (high - low)
    return result


@cache
def conditional(choice: Choice) -> Floats:
    """Return the choices of agents given what each did, [agents, rows, actions, rows, actions]; rows as in `ROW`."""
    found = np.zeros((AGENTS, len(KINDS), ACTIONS, len(KINDS), ACTIONS))
    for agent in range(AGENTS):
        rows = [policy_row(agent, here, counts) for here, counts in KINDS]
        for seen, action, target in product(range(len(KINDS)), range(ACTIONS), range(len(KINDS))):
            found[agent, seen, action, target] = choice(rows[seen], action, rows[target])
    return found


def values(game: Game, choice: Choice) -> Floats:
    """Return the probability of winning from each state before each move, given the noise of the game, [moves + 1, S].

    Backward induction; the noises of agents and moves are independent.
    """
    every = np.arange(AGENTS)
    ahead = np.zeros((MOVES + 1, len(STATES)))
    ahead[-1] = WON
    for move in reversed(range(MOVES)):
        seen = ROW[game.states[move]]
        chosen = conditional(choice)[every, seen, game.actions[move], ROW]  # [S, agents, actions]
        reached = np.zeros((len(STATES), AGENTS, LEVELS))
        for action in range(ACTIONS):
            level = moved(STATES, np.full_like(STATES, action))
            np.add.at(reached, (np.arange(len(STATES))[:, None], every, level), chosen[:, :, action])
        mean = np.broadcast_to(ahead[move + 1], (len(STATES), len(STATES)))
        for agent in range(AGENTS):
            mean = np.einsum("sl,slr->sr", reached[:, agent], mean.reshape(len(STATES), LEVELS, -1))
        ahead[move] = mean[:, 0]
    return ahead


def alternatives(game: Game) -> Iterator[tuple[int, int, list[int]]]:
    """Yield move, agent and the other actions that do not leave the graph, for all moves but the last."""
    for move, agent in product(range(MOVES - 1), range(AGENTS)):
        level = STATES[game.states[move], agent]
        leaving = {0: UP, LEVELS - 1: DOWN}.get(int(level))
        yield move, agent, [a for a in range(ACTIONS) if a not in (leaving, game.actions[move, agent])]


def after(game: Game, move: int, agent: int, action: int) -> int:
    """Return the state after a move in which one agent acted differently."""
    changed = game.actions[move].copy()
    changed[agent] = action
    return int(moved(STATES[game.states[move]], changed) @ WEIGHT)


def drawn(game: Game, move: int, agent: int, action: int, noise: Floats) -> float:
    """Return the fraction of games won with another action, by simulation with monotone posterior noise.

    The noise of each game comes from uniform numbers, [N, moves, agents].
    """
    state = np.full(len(noise), after(game, move, agent, action))
    for later in range(move + 1, MOVES):
        limits = np.cumsum(POLICY[game.states[later]], axis=1)
        taken = game.actions[later]
        high = limits[np.arange(AGENTS), taken]
        low = np.where(taken > 0, limits[np.arange(AGENTS), taken - 1], 0.0)
        posterior = low + (high - low) * noise[:, later]
        chosen = (posterior[:, :, None] >= POLICY.cumsum(axis=2)[state, :, :-1]).sum(axis=2)
        state = moved(STATES[state], chosen) @ WEIGHT
    return float(WON[state].mean())
