"""Sampled paths of the grid, drawn as lines through its cells: `python -m experiments.traces`.

Each of the three settings shows one observed path, that of the paper, and its counterfactual paths under `optimal` in
a few posterior worlds. The more worlds, the thicker the line. The noise is that of the sampler, world for world,
repeated here because the sampler returns only outcomes and no paths.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix, "Some example paths from the grid-world experiments".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.grid import PANELS, Grid, Panel, T
from experiments.output import arguments, figure, save, write_csv
from monitor.sampled.noise import STATE, ObservedRow, gumbels, posterior_gumbels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Trace", "draw", "observed", "simulated", "traces"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SIDE, WORLDS = 4, 20
CORNERS = (0, 1, 2, 3, 7, 11, 15)
"""The observed path of the paper: along the top row, then down the last column."""


class Look(NamedTuple):
    """Style of a kind of line; patterns differ too, for readers who do not see the colours."""

    colour: str
    pattern: Literal["-", "-.", "--", ":"]
    aside: float
    label: str


LOOKS = {
    "observed": Look("black", "-", 0.0, "observed"),
    "counterfactual": Look("#08306b", "-.", 0.10, "counterfactual"),
    "future": Look("#6baed6", "--", 0.20, "future under the optimal policy"),
    "nominal": Look("#a0a0a0", ":", 0.30, "future under the nominal policy"),
}


class Trace(NamedTuple):
    """Line of one kind in one world: its states from step `first` on."""

    kind: str
    world: int
    first: int
    states: tuple[int, ...]


def main() -> None:
    """Write the paths and the figure."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--worlds", type=int, default=WORLDS, help="drawn for each panel (default: %(default)s)")
    given = parser.parse_args()
    grid = Grid()
    drawn = {panel: list(traces(grid, panel, given.worlds, given.seed)) for panel in PANELS}
    rows = [
        {"panel": panel.key, "line": trace.kind, "world": trace.world, "step": trace.first + k, "state": state}
        for panel, lines in drawn.items()
        for trace in lines
        for k, state in enumerate(trace.states)
    ]
    write_csv(given.out / "traces.csv", rows)
    save(draw(grid, drawn), given.out / "traces.png")


def observed(panel: Panel) -> Ints:
    """Return the states [pairs] of the observed path, which stays in the goal."""
    return np.array([CORNERS[min(k, len(CORNERS) - 1)] for k in range(panel.pairs)])


def traces(grid: Grid, panel: Panel, worlds: int, seed: int) -> Iterator[Trace]:
    """Yield all lines of a panel; if the path is shorter than the horizon, also its future without intervention."""
    seen = observed(panel)
    yield Trace("observed", 0, 0, tuple(seen.tolist()))
    first, last = -panel.offset - 1, len(seen) - 1
    noise = [_noise(grid, seen, step, worlds, seed) for step in range(first + T)]
    for world, states in enumerate(simulated(grid, seen[first], grid.optimal, noise[first:]).tolist()):
        yield Trace("counterfactual", world, first, tuple(states[: last - first + 1]))
        yield Trace("future", world, last, tuple(states[last - first :]))
    if panel.pairs <= T:
        for world, states in enumerate(simulated(grid, seen[last], grid.nominal, noise[last:]).tolist()):
            yield Trace("nominal", world, last, tuple(states))


def simulated(grid: Grid, state: int, actions: Ints, noise: list[Floats]) -> Ints:
    """Return the states [worlds, steps + 1] from `state` on under `actions` [S]; `noise`: [worlds, S] of each step.

    Each step is the Gumbel-Max mechanism: the next state is where log q + G is largest.
    """
    states = np.full((len(noise[0]), len(noise) + 1), state)
    for k, gumbel in enumerate(noise):
        with np.errstate(divide="ignore"):  # an impossible successor has log probability -inf
            scores = np.log([grid.row(s, actions[s]) for s in states[:, k]])
        states[:, k + 1] = np.argmax(scores + gumbel, axis=1)
    return states


def _noise(grid: Grid, seen: Ints, step: int, worlds: int, seed: int) -> Floats:
    """Return the noise G [worlds, S] of a step: posterior if the step was observed, else prior."""
    particles, keys = np.arange(worlds), np.arange(grid.model.states)
    if step + 1 >= len(seen):
        return gumbels(seed, STATE, step, particles, keys)
    row, reached = grid.row(seen[step], grid.nominal[seen[step]]), int(seen[step + 1])
    return posterior_gumbels(seed, STATE, step, particles, keys, ObservedRow(keys, row, reached, float(row[reached])))


def draw(grid: Grid, drawn: dict[Panel, list[Trace]]) -> Figure:
    """Draw one grid for each panel."""
    picture = figure(11, 4.7)
    for place, (panel, lines) in zip(picture.subplots(1, len(drawn)), drawn.items(), strict=True):
        _cells(place, grid)
        for kind, look in reversed(LOOKS.items()):
            _lines(place, [trace for trace in lines if trace.kind == kind], look)
        place.set_title(f"({panel.key}) {panel.title}")
    handles = [_handle(look) for look in LOOKS.values()]
    picture.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, handlelength=3.5)
    return picture


def _cells(place: Axes, grid: Grid) -> None:
    """Draw the empty grid: first row on top, fire hatched, goal circled."""
    from matplotlib.patches import Circle, Rectangle  # noqa: PLC0415 - only a figure needs it

    place.set(xlim=(0, SIDE), ylim=(SIDE, 0), aspect="equal", xticks=range(SIDE + 1), yticks=range(SIDE + 1))
    place.grid(color="#cccccc", linewidth=0.8)
    place.tick_params(length=0, labelbottom=False, labelleft=False)
    for name, mark in (("unsafe", "fire"), ("goal", "goal"), ("start", "start")):
        for state in np.flatnonzero(grid.model.labels[name]).tolist():
            x, y = state % SIDE, state // SIDE
            if name == "unsafe":
                place.add_patch(
                    Rectangle((x, y), 1, 1, facecolor="#f3d9c0", hatch="..", edgecolor="#c0602a", linewidth=0)
                )
            if name == "goal":
                place.add_patch(Circle((x + 0.5, y + 0.5), 0.46, facecolor="none", edgecolor="#666666", linewidth=1.2))
            place.text(x + 0.95, y + 0.94, mark, fontsize="small", color="#333333", ha="right")


def _lines(place: Axes, lines: list[Trace], look: Look) -> None:
    """Draw each move from cell to cell once, thicker for more worlds, beside those of other kinds."""
    worlds = max(len(lines), 1)
    moves = Counter(move for trace in lines for move in zip(trace.states, trace.states[1:], strict=False))
    for (a, b), count in sorted(moves.items()):
        if a == b:  # no move: at the edge, or in an absorbing state
            continue
        right, down = b % SIDE - a % SIDE, b // SIDE - a // SIDE
        begin, end = ((s % SIDE + 0.5 - look.aside * down, s // SIDE + 0.5 + look.aside * right) for s in (a, b))
        fraction = min(count / worlds, 1.0)
        place.annotate(
            "",
            end,
            begin,
            arrowprops={
                "arrowstyle": "-|>,head_width=0.18,head_length=0.35",
                "color": look.colour,
                "linestyle": look.pattern,
                "linewidth": 0.6 + 3.0 * fraction,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )


def _handle(look: Look) -> object:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - only a figure needs it

    return Line2D([], [], color=look.colour, linestyle=look.pattern, linewidth=2.5, label=look.label)


if __name__ == "__main__":
    main()
