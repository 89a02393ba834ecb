"""The paper's Table 1 by its sequential tests, with exact values beside it: `python -m experiments.table1`.

Verdicts and numbers of realizations come from sampled outcomes only; the exact probability is shown beside them. Each
cell is run many times with new noise, because a single count varies a lot.

The error rates can be read in two ways. As written, alpha is the probability of the verdict false for a true formula.
Exchanged, it is that of the verdict true for a false formula. The paper's counts fit the second (docs/experiments.md).
Then the ratio of an effect is also used if all differences are equal, as the paper's counts suggest; as written, we
test that case separately.

Source: Kazemi & Paoletti (arXiv 2212.08712), "MiniGrid Benchmark" and Appendix "Decision procedures".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.output import arguments, plain, progress, write_csv
from monitor.exact import Checker
from monitor.exact.evaluators import Evaluators
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.sampled import Enumerated, Sampler
from monitor.statistics.equal import EqualOutcome
from monitor.statistics.sprt import Sprt
from monitor.statistics.strength import Strength
from monitor.statistics.tsprt import TSprt
from policies.minigrid import table

__all__ = ["Cell", "cells", "effect_test", "markdown", "ratio_alone", "rounded_up", "threshold_test"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Sides = npt.NDArray[np.int8]

DELTA, BETA = 0.02, 0.2
ALPHA_P, ALPHA_EFFECT = 0.05, 0.01
THETA_P, THETA_EFFECT = 0.9, 0.0
BATCH = 25
"""Batch size: the paper's counts are multiples of it."""
RUNS, LIMIT = 200, 512
"""Runs of each cell, and realizations available to each run: more than any test here needs."""
OBSERVED = 1
"""Seed of the observed path; see policies/minigrid/PROVENANCE.md."""


@dataclass(frozen=True)
class Cell:
    """Cell of the table, decided in many runs.

    Attributes:
        exact: the probability or effect.
        paper: number of realizations in the paper.
        taken, sides: realizations of each run and its verdict (1 true, -1 false, 0 none), error rates as written.
        exchanged, other: the same with the error rates exchanged.
    """

    benchmark: str
    question: table.Question
    exact: float
    paper: int
    taken: Ints
    sides: Sides
    exchanged: Ints
    other: Sides

    def row(self) -> dict[str, object]:
        """Return the cell as a line of the CSV file: the first run, and statistics over all runs."""
        return {
            "benchmark": self.benchmark,
            "formula": self.question.text,
            "exact": plain(self.exact),
            "paper": self.question.holds,
            "sampled": _truth(self.sides[0]),
            "paper_realizations": self.paper,
            "in_batches": rounded_up(int(self.taken[0])),
            "exchanged_in_batches": rounded_up(int(self.exchanged[0])),
            "realizations": int(self.taken[0]),
            "exchanged_realizations": int(self.exchanged[0]),
            "runs": len(self.taken),
            "as_paper": float(np.mean(self.sides == (1 if self.question.holds else -1))),
            "mean": float(self.taken.mean()),
            "most": int(self.taken.max()),
            "exchanged_as_paper": float(np.mean(self.other == (1 if self.question.holds else -1))),
            "exchanged_mean": float(self.exchanged.mean()),
            "exchanged_most": int(self.exchanged.max()),
        }


def main() -> None:
    """Decide all cells; write them as CSV and as a Markdown table."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each cell (default: %(default)s)")
    parser.add_argument(
        "--environment", action="append", choices=sorted(table.FORMULAS), help="only this one; may be repeated"
    )
    given = parser.parse_args()
    names = given.environment or sorted(table.FORMULAS)
    found = [
        cell for index in progress(range(len(names)), "table 1") for cell in cells(names[index], given.seed, given.runs)
    ]
    write_csv(given.out / "table1.csv", [cell.row() for cell in found])
    text = markdown(found)
    (given.out / "table1.md").write_text(text, encoding="utf-8")
    print(text, end="")


def cells(name: str, seed: int, runs: int) -> Iterator[Cell]:
    """Yield the five cells of one environment, with episodes that follow one another."""
    benchmark = table.load(name, "following")
    checker = Checker(benchmark.model, benchmark.policies)
    sampler = Sampler(Enumerated(Evaluators(benchmark.model, benchmark.policies)), seed)
    path = table.observed(benchmark, OBSERVED)
    for question, paper in zip(table.questions(table.FORMULAS[name]), table.PAPER[name], strict=True):
        formula = parse(question.text)
        assert isinstance(formula, Goal)
        observed = path[:1] if question.column == "nominal" else path
        exact = checker.check(formula, observed).quantities[0].value
        outcomes = sampler.outcomes(formula, observed, range(runs * LIMIT)).reshape(runs, LIMIT)
        yield Cell(name, question, exact, paper, *decided(question, outcomes))


def decided(question: table.Question, outcomes: Floats) -> tuple[Ints, Sides, Ints, Sides]:
    """Return realizations and sides of runs [n, LIMIT], with the error rates as written and exchanged."""
    if question.column != "effect":
        return *threshold_test(exchanged=False).decide(outcomes), *threshold_test(exchanged=True).decide(outcomes)
    return *effect_test().decide(outcomes), *ratio_alone(outcomes)


def threshold_test(*, exchanged: bool) -> Sprt:
    """Return the test of `P >= 0.9`."""
    return Sprt(THETA_P, DELTA, Strength(BETA, ALPHA_P) if exchanged else Strength(ALPHA_P, BETA))


def effect_test() -> TSprt:
    """Return the test of `delta P > 0` on the paired differences, with a separate one for equal differences."""
    strength = Strength(ALPHA_EFFECT, BETA)
    return TSprt(THETA_EFFECT, DELTA, strength, EqualOutcome(DELTA, strength), strict=True)


def ratio_alone(differences: Floats) -> tuple[Ints, Sides]:
    """Decide effects by the ratio only, error rates exchanged, without a separate test for equal differences.

    It starts at the second difference. If all differences are equal, the ratio is its limit for nearly equal ones.
    """
    test = TSprt(THETA_EFFECT, DELTA, Strength(BETA, ALPHA_EFFECT))
    off = differences - THETA_EFFECT
    total, squares = np.cumsum(off, axis=-1), np.cumsum(off * off, axis=-1)
    samples = np.broadcast_to(np.arange(1, off.shape[-1] + 1), off.shape)
    ratio = np.zeros(off.shape)
    known = (squares > 0.0) & (samples > 1)
    ratio[known] = test.log_ratio(samples[known], total[known], squares[known])
    beyond = (ratio <= test.strength.lower) | (ratio >= test.strength.upper)
    first = np.argmax(beyond, axis=-1)
    at = np.take_along_axis(ratio, first[:, None], axis=-1)[:, 0]
    sides: Sides = np.where(beyond.any(axis=-1), -np.sign(at), 0.0).astype(np.int8)
    return np.where(sides != 0, first + 1, off.shape[-1]), sides


def rounded_up(realizations: int) -> int:
    """Round up to whole batches."""
    return -(-realizations // BATCH) * BATCH


def markdown(found: list[Cell]) -> str:
    """Return the table in Markdown, with verdicts and counts."""
    lines = [
        "| environment | query | exact | sampled | paper | as written | exchanged | paper's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in found:
        column = cell.question.column + (f", t = {cell.question.offset}" if cell.question.offset else "")
        row = cell.row()
        lines.append(
            f"| {cell.benchmark} | {column} | {cell.exact:.4f} | {_word(row['sampled'])} | {_word(row['paper'])} | "
            f"{row['in_batches']} ({cell.taken.mean():.0f}) | "
            f"{row['exchanged_in_batches']} ({cell.exchanged.mean():.0f}) | {cell.paper} |"
        )
    return "\n".join(lines) + "\n"


def _truth(side: np.int8) -> bool | None:
    return None if side == 0 else bool(side > 0)


def _word(verdict: object) -> str:
    return {True: "true", False: "false", None: "undecided"}[verdict]  # type: ignore[index] # one of the three


if __name__ == "__main__":
    main()
