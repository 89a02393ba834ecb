"""Counterfactuals against plain interventions, which must agree on average: `python -m experiments.sanity`.

Nominal paths, each replayed under `optimal` in its posterior worlds, satisfy phi as often as paths sampled under
`optimal` from the start: the observed paths are random themselves, so that their evidence averages out.

With one posterior world for each nominal path, both counts are binomial with the same parameters: both histograms have
the same distribution, which is drawn over them. With 20 worlds for each path, as in the other figures, the means agree
but the variances need not, because the worlds of one path have its evidence in common.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix, figure "Sanity check experiment".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from experiments.grid import PANELS, Grid, grouped
from experiments.histograms import DRAWS, PATHS, mean_line
from experiments.output import BLUE, ORANGE, arguments, figure, plain, progress, save, write_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COUNTS", "Row", "draw", "repetition", "summary"]

REPETITIONS = 1_000
COUNTS = (1, DRAWS)
"""Number of posterior worlds for each nominal path, in the two panels."""
Row = dict[str, float]
"""`repetition`; for each count n, fractions of 100 n outcomes: `interventional_n` and `counterfactual_n`."""


def main() -> None:
    """Run all repetitions; write the numbers, their summary and the figure."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="(default: %(default)s)")
    given = parser.parse_args()
    grid = Grid()
    rows = [repetition(grid, r, given.seed) for r in progress(range(given.repetitions), "sanity check")]
    write_csv(given.out / "sanity.csv", rows)
    lines = summary(grid, rows)
    write_csv(given.out / "sanity-summary.csv", lines)
    for line in lines:
        print(f"{line['what']:18} exact {line['exact']:.6f}  sampled {line['mean']:.6f} +- {line['deviation']:.4f}")
    save(draw(grid, rows), given.out / "sanity.png")


def repetition(grid: Grid, number: int, seed: int) -> Row:
    """Return one repetition, with the paths and posterior worlds of the histograms."""
    paths = grid.paths(PATHS, np.random.default_rng(seed + number))
    observed = grid.outcomes(PANELS[0], grouped(paths), DRAWS, seed + number)
    intervened = grid.unobserved(PATHS * DRAWS, seed + number).reshape(PATHS, DRAWS)
    row: Row = {"repetition": number}
    for count in COUNTS:
        row[f"interventional_{count}"] = float(intervened[:, :count].mean())
        row[f"counterfactual_{count}"] = float(observed[:, :count].mean())
    return row


def summary(grid: Grid, rows: Sequence[Row]) -> list[dict[str, float | str]]:
    """Return means and standard deviations; `binomial_deviation` is that of the same number of independent outcomes."""
    exact = grid.exact_mean(PANELS[0])
    lines: list[dict[str, float | str]] = []
    for count in COUNTS:
        for kind in ("interventional", "counterfactual"):
            drawn = _column(rows, f"{kind}_{count}")
            deviation = float(drawn.std(ddof=1))
            lines.append(
                {
                    "what": f"{kind}_{count}",
                    "exact": plain(exact),
                    "mean": plain(float(drawn.mean())),
                    "deviation": plain(deviation),
                    "binomial_deviation": plain(float(np.sqrt(exact * (1.0 - exact) / (PATHS * count)))),
                    "standard_error": plain(deviation / len(drawn) ** 0.5),
                }
            )
    return lines


def draw(grid: Grid, rows: Sequence[Row]) -> Figure:
    """Draw one panel for each number of posterior worlds."""
    picture = figure(10, 4)
    for place, count in zip(picture.subplots(1, len(COUNTS)), COUNTS, strict=True):
        _panel(place, rows, count, grid.exact_mean(PANELS[0]))
    first = picture.axes[0]
    first.set_ylabel("repetitions")
    picture.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return picture


def _panel(place: Axes, rows: Sequence[Row], count: int, exact: float) -> None:
    outcomes = PATHS * count
    intervened, observed = (_column(rows, f"{kind}_{count}") for kind in ("interventional", "counterfactual"))
    width = 0.01 if count == 1 else 0.0025
    least = np.floor(min(intervened.min(), observed.min()) / width) * width
    edges = np.arange(least - width / 2.0, 1.0 + width, width)
    bins = edges.tolist()
    place.hist(intervened, bins, color=ORANGE, alpha=0.55, hatch="///", label="interventional, sampled")
    place.hist(observed, bins, histtype="step", color=BLUE, linewidth=2.0, label="counterfactual, sampled")
    cumulated = binom.cdf(np.floor(edges * outcomes), outcomes, exact)
    place.plot(
        (edges[1:] + edges[:-1]) / 2.0,
        np.diff(cumulated) * len(rows),
        "k.",
        markersize=6,
        label="exact distribution, interventional",
    )
    place.set_xlim(edges[0], min(max(intervened.max(), observed.max()) + 2.0 * width, edges[-1]))
    place.margins(y=0.3)
    mean_line(place, exact, "-", "exact mean")
    worlds = "1 world for each path" if count == 1 else f"{count} worlds for each path"
    place.set(title=f"{worlds}: fractions of {outcomes:,} outcomes", xlabel="probability of reaching the goal unharmed")


def _column(rows: Sequence[Row], name: str) -> npt.NDArray[np.float64]:
    return np.array([row[name] for row in rows])


if __name__ == "__main__":
    main()
