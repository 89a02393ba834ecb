"""Total effects in the graph game of Triantafyllou et al.: `python -m experiments.graph_game`.

*Agent-Specific Effects* (ICML 2024, arXiv 2310.11334): six agents move on three levels, four times; they win if they
end with two on each level. For each lost game and each decision but those of the last move: given the noise of the
game, how likely had they won with another action, if all then react by their policies? The authors estimate this total
counterfactual effect from 100 draws of the noise. Here it is exact.

Their agents compare one uniform number with the cumulative probabilities of up, down, straight ("monotone" noise); the
monitor's causal model is Gumbel-Max. Both are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from experiments.graph_effects import (
    AGENTS,
    DOWN,
    MOVES,
    STRAIGHT,
    UP,
    after,
    alternatives,
    drawn,
    lost,
    monotone,
    values,
)
from experiments.output import BLUE, ORANGE, arguments, figure, plain, progress, save, write_csv
from monitor.causal.row import conditional_choices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CONVERGED", "DRAWS", "PRINTED", "THRESHOLD", "converged", "printed", "summary", "table"]

Row = dict[str, Any]
SEED: Final = 8854
"""Of the authors' published run."""
GAMES: Final = 500
DRAWS: Final = 100
THRESHOLD: Final = 0.75
"""The authors study the decisions with at least this estimate."""

PRINTED: Final = (
    *((0, 0, 0, UP, 0.09), (0, 0, 0, STRAIGHT, 0.01), (0, 1, 0, UP, 0.03), (0, 1, 0, STRAIGHT, 0.03)),
    *((0, 2, 0, DOWN, 0.15), (1, 2, 0, UP, 0.79), (1, 0, 1, DOWN, 0.83), (1, 4, 1, DOWN, 0.79)),
    *((1, 1, 2, DOWN, 1.0), (1, 5, 2, STRAIGHT, 1.0), (499, 5, 1, UP, 0.87), (499, 5, 1, STRAIGHT, 1.0)),
    *((499, 0, 2, UP, 1.0), (499, 3, 2, UP, 1.0), (499, 4, 2, DOWN, 0.0), (499, 4, 2, STRAIGHT, 0.0)),
    *((499, 5, 2, UP, 1.0), (499, 5, 2, STRAIGHT, 0.0)),
)
"""Game, agent, move, action and estimate, as in the output of the authors' notebook."""
CLOSE: Final = 0.01 + 1e-9
"""Variance of estimates that count as converged; with a margin for rounding."""
CONVERGED: Final = {10: 0.57, 20: 0.79, 30: 0.94, 40: 0.98, 50: 0.99}
"""Fraction of effects with a variance of at most .01 over 10 estimates, by draws for each; read off their figure."""


def main() -> None:
    """Compute all effects, exactly and from the authors' draws; write them, the comparison, and the figure."""
    parser = arguments(__doc__, seed=SEED)
    parser.add_argument("--games", type=int, default=GAMES, help="lost games (default: %(default)s)")
    given = parser.parse_args()
    rows = table(given.seed, given.games)
    write_csv(given.out / "graph-game.csv", rows)
    lines = summary(rows)
    write_csv(given.out / "graph-game-summary.csv", lines)
    convergence = converged(rows, np.random.default_rng(given.seed))
    write_csv(given.out / "graph-game-converged.csv", convergence)
    theirs = printed(rows) if (given.seed, given.games) == (SEED, GAMES) else []
    if theirs:
        write_csv(given.out / "graph-game-printed.csv", theirs)
    for line in [*lines, *convergence, *theirs]:
        print("  ".join(f"{name} {value}" for name, value in line.items()))
    save(draw(rows), given.out / "graph-game.png")


def table(seed: int, count: int, chosen: Sequence[int] | None = None) -> list[Row]:
    """Return one row for each decision and other action: `exact` and `drawn` with monotone noise, and `gumbel`.

    Of the games with the numbers `chosen`, or all.
    """
    games, rng = lost(seed, count)
    seeds = rng.integers(100_000, size=count)
    rows: list[Row] = []
    for number in progress(range(count) if chosen is None else chosen, "games"):
        game, seeder = games[number], np.random.default_rng(seeds[number])
        exact, gumbel = values(game, monotone), values(game, conditional_choices)
        for move, agent, actions in alternatives(game):
            for action, first in zip(actions, seeder.integers(100_000, size=len(actions)), strict=True):
                noise = np.array([np.random.default_rng(first + n).random((MOVES, AGENTS)) for n in range(DRAWS)])
                state = after(game, move, agent, action)
                rows.append(
                    {
                        "game": number,
                        "agent": agent,
                        "move": move,
                        "action": action,
                        "exact": plain(exact[move + 1, state]),
                        "drawn": drawn(game, move, agent, action, noise),
                        "gumbel": plain(gumbel[move + 1, state]),
                    }
                )
    return rows


def above(value: float) -> float:
    """Return the probability that an estimate from DRAWS draws reaches the threshold."""
    needed = range(round(THRESHOLD * DRAWS), DRAWS + 1)
    return sum(comb(DRAWS, n) * value**n * (1 - value) ** (DRAWS - n) for n in needed)


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return means and the numbers of decisions at the threshold, by move and for all.

    `selected`: estimates of at least the threshold; `expected` and its standard deviation `expected_error` are from the
    exact values. `selected_below`: those of them whose effect is below it.
    """
    lines: list[Row] = []
    for move in (*range(MOVES - 1), "all"):
        mine = [row for row in rows if move in (row["move"], "all")]
        exact, estimates, gumbel = (np.array([row[name] for row in mine]) for name in ("exact", "drawn", "gumbel"))
        spread = np.sqrt(exact * (1 - exact) / DRAWS)
        reached = np.array([above(value) for value in exact])
        lines.append(
            {
                "move": move,
                "effects": len(mine),
                "exact": round(float(exact.mean()), 5),
                "drawn": round(float(estimates.mean()), 5),
                "error": round(float(np.sqrt((spread**2).sum()) / len(mine)), 5),
                "at_threshold": int((exact >= THRESHOLD).sum()),
                "selected": int((estimates >= THRESHOLD).sum()),
                "selected_below": int(((estimates >= THRESHOLD) & (exact < THRESHOLD)).sum()),
                "expected": round(float(reached.sum()), 1),
                "expected_error": round(float(np.sqrt((reached * (1 - reached)).sum())), 1),
                "gumbel": round(float(gumbel.mean()), 5),
                "gumbel_at_threshold": int((gumbel >= THRESHOLD).sum()),
            }
        )
    return lines


def converged(rows: Sequence[Row], rng: np.random.Generator, repeats: int = 200) -> list[Row]:
    """Return the fraction of effects for which 10 estimates have a variance of at most .01, by draws for each estimate.

    From binomial estimates with the exact values, repeated; `error` is the standard error of the authors' fraction,
    of 500 effects.
    """
    exact = np.array([row["exact"] for row in rows])
    lines: list[Row] = []
    for draws, theirs in CONVERGED.items():
        met = [
            (rng.binomial(draws, exact, (10, len(exact))) / draws).var(axis=0, ddof=1) <= CLOSE for _ in range(repeats)
        ]
        fraction = float(np.mean(met))
        error = round(float(np.sqrt(fraction * (1 - fraction) / 500)), 4)
        lines.append({"draws": draws, "exact": round(fraction, 4), "error": error, "theirs": theirs})
    return lines


def printed(rows: Sequence[Row]) -> list[Row]:
    """Return the effects that the authors' notebook shows, with their estimates; `error` is that of one."""
    found = {(row["game"], row["agent"], row["move"], row["action"]): row for row in rows}
    lines = []
    for game, agent, move, action, estimate in PRINTED:
        row = found[game, agent, move, action]
        error = float(np.sqrt(row["exact"] * (1 - row["exact"]) / DRAWS))
        lines.append({**row, "error": round(error, 4), "theirs": estimate})
    return lines


def draw(rows: Sequence[Row]) -> Figure:
    """Return estimates and effects with Gumbel noise against exact effects."""
    picture = figure(10.0, 5.0)
    panels = picture.subplots(1, 2)
    exact = [row["exact"] for row in rows]
    for panel, name, color, label in (
        (panels[0], "drawn", BLUE, f"estimate from {DRAWS} draws"),
        (panels[1], "gumbel", ORANGE, "effect with Gumbel-Max noise"),
    ):
        panel.plot(exact, [row[name] for row in rows], ".", color=color, markersize=2, alpha=0.3)
        panel.plot([0, 1], [0, 1], color="black", linewidth=0.5)
        panel.set(xlabel="exact effect with monotone noise", ylabel=label)
    return picture


if __name__ == "__main__":
    main()
