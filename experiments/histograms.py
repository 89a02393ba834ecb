"""The paper's three histograms, with exact values drawn in: `python -m experiments.histograms`.

A repetition draws paths under the nominal policy and, for each path, posterior worlds under the optimal policy. It
returns one number for each histogram; all three use the same paths.

Source: Kazemi & Paoletti (arXiv 2212.08712), "Reach-Avoid Example", figure "Counterfactual probabilities under the
optimal policy": 1,000 repetitions of 100 paths, 20 posterior realizations each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from experiments.grid import PANELS, Grid, grouped
from experiments.output import BLUE, ORANGE, arguments, figure, plain, progress, save, write_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DRAWS", "PATHS", "Row", "draw", "mean_line", "repetition", "summary"]

REPETITIONS, PATHS, DRAWS = 1_000, 100, 20
Row = dict[str, float]
"""`repetition`, `nominal`; for each panel, such as `a`, the sampled mean `a` and the exact `a_exact` of its paths."""


def main() -> None:
    """Run all repetitions; write the numbers, their summary and the figure."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="(default: %(default)s)")
    given = parser.parse_args()
    grid = Grid()
    rows = [repetition(grid, r, given.seed) for r in progress(range(given.repetitions), "histograms")]
    write_csv(given.out / "histograms.csv", rows)
    lines = summary(grid, rows)
    write_csv(given.out / "histograms-summary.csv", lines)
    for line in lines:
        print(f"{line['what']:8} exact {line['exact']:.6f}  sampled {line['mean']:.6f} +- {line['deviation']:.4f}")
    save(draw(grid, rows), given.out / "histograms.png")


def repetition(grid: Grid, number: int, seed: int) -> Row:
    """Return one repetition; paths and posterior noise depend on seed + number only."""
    paths = grid.paths(PATHS, np.random.default_rng(seed + number))
    row: Row = {"repetition": number, "nominal": float(grid.satisfied(paths).mean())}
    for panel in PANELS:
        groups = grouped(paths[:, : panel.pairs])
        row[panel.key] = float(grid.outcomes(panel, groups, DRAWS, seed + number).mean())
        exact = np.array([grid.exact(panel, states) for states in groups.states])
        row[f"{panel.key}_exact"] = plain(float(exact @ groups.counts) / PATHS)
    return row


def summary(grid: Grid, rows: Sequence[Row]) -> list[dict[str, float | str]]:
    """Return for each histogram the exact mean, and mean, standard deviation and range of the sampled values.

    `standard_error`: of the mean. `exact_deviation`: standard deviation in the limit of infinitely many posterior
    realizations for each path.
    """
    exact = {"nominal": grid.exact_nominal()} | {panel.key: grid.exact_mean(panel) for panel in PANELS}
    lines: list[dict[str, float | str]] = []
    for what, value in exact.items():
        drawn = _column(rows, what)
        deviation = float(drawn.std(ddof=1))
        left = float(_column(rows, f"{what}_exact").std(ddof=1)) if what != "nominal" else deviation
        lines.append(
            {
                "what": what,
                "exact": plain(value),
                "mean": plain(float(drawn.mean())),
                "deviation": plain(deviation),
                "least": float(drawn.min()),
                "most": float(drawn.max()),
                "standard_error": plain(deviation / len(drawn) ** 0.5),
                "exact_deviation": plain(left),
            }
        )
    return lines


def draw(grid: Grid, rows: Sequence[Row]) -> Figure:
    """Draw three panels as in the paper: nominal hatched orange, counterfactual blue, exact means as lines."""
    picture = figure(12, 4)
    for place, panel in zip(picture.subplots(1, len(PANELS), sharey=True), PANELS, strict=True):
        _panel(place, _column(rows, "nominal"), _column(rows, panel.key), _column(rows, f"{panel.key}_exact"))
        mean_line(place, grid.exact_nominal(), "--", "exact mean, nominal")
        mean_line(place, grid.exact_mean(panel), "-", "exact mean, counterfactual")
        place.set(title=f"({panel.key}) {panel.title}", xlabel="probability of reaching the goal unharmed")
    first = picture.axes[0]
    first.set_ylabel("repetitions")
    picture.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return picture


def mean_line(place: Axes, value: float, style: str, label: str) -> None:
    """Draw an exact mean as a line with its value."""
    place.axvline(value, color="black", linestyle=style, linewidth=1.4, label=label)
    place.annotate(
        f"{value:.6f}",
        (value, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        rotation=90,
        fontsize="small",
    )


def _panel(
    place: Axes, nominal: npt.NDArray[np.float64], drawn: npt.NDArray[np.float64], exact: npt.NDArray[np.float64]
) -> None:
    # Fractions of 100 paths are multiples of .01: bins centred on them. Finer bins for the others.
    coarse, fine = np.arange(0.695, 1.01, 0.01).tolist(), np.arange(0.9, 1.0005, 0.005).tolist()
    place.hist(nominal, coarse, color=ORANGE, alpha=0.55, hatch="///", edgecolor="black", label="nominal, sampled")
    place.hist(drawn, fine, color=BLUE, edgecolor="black", label="counterfactual, sampled")
    place.hist(exact, fine, histtype="step", color="black", linestyle=":", label="the same, exact for each path")
    for bar in place.patches:
        bar.set_linewidth(0.5 if bar.get_fill() else 1.2)
    place.set_xlim(0.69, 1.005)


def _column(rows: Sequence[Row], name: str) -> npt.NDArray[np.float64]:
    return np.array([row[name] for row in rows])


if __name__ == "__main__":
    main()
