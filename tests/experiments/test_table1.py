"""Table 1, in short. A correct sampler and test fail here with probability 1e-6 at most, which the test computes."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from experiments import table1
from monitor.statistics.strength import Strength
from monitor.statistics.tsprt import TSprt, log_bound
from policies.minigrid import table
from tests.statistics.random_walk import fate
from tests.tiers import slow

FALSE_ALARM, RUNS = 1e-6, 10
KEPT = Path(__file__).parents[2] / "docs" / "experiments" / "table1.csv"


@pytest.fixture(scope="module")
def found() -> list[table1.Cell]:
    return [cell for name in sorted(table.FORMULAS) for cell in table1.cells(name, 0, RUNS)]


def wrong(cell: table1.Cell) -> float:
    """A bound on the probability that a run of one cell comes out the other way or not at all."""
    if cell.question.column != "effect":
        fates = [
            fate(table1.threshold_test(exchanged=exchanged), cell.exact, table1.LIMIT) for exchanged in (False, True)
        ]
        return sum((one.false if cell.question.holds else one.true) + one.left for one in fates)
    # Differences are -1, 0, 1, so P(1) <= (1 + effect) / 2. To say true, 2 delta m sum / sqrt(m sum of squares) must
    # pass 1.6, which takes a sum of 4 at some time within the limit (as sum <= sum of squares <= m): gambler's ruin.
    up = max((1.0 + cell.exact) / 2.0, 0.0)
    return float((up / (up - cell.exact)) ** 4)


@slow
def test_every_verdict_is_the_papers_in_every_run(found: list[table1.Cell]) -> None:
    assert len(found) == 20
    assert RUNS * sum(wrong(cell) for cell in found) < FALSE_ALARM
    for cell in found:
        side = 1 if cell.question.holds else -1
        assert (cell.sides == side).all()
        assert (cell.other == side).all()


@slow
def test_no_run_is_shorter_than_the_tests_allow(found: list[table1.Cell]) -> None:
    """With the rates as written the paper's 50 differences decide nothing; exchanged, they do."""
    least = {"nominal": (36, 63), "undertrained": (7, 4), "effect": (81, 40)}
    for cell in found:
        assert cell.taken.min() >= least[cell.question.column][0]
        assert cell.exchanged.min() >= least[cell.question.column][1]
    line = Strength(table1.ALPHA_EFFECT, table1.BETA).upper
    m = np.arange(1, 200)
    assert m[log_bound(m, table1.DELTA * np.sqrt(m)) >= line][0] == 110


def test_the_ratio_alone_is_the_sequential_t_test_where_differences_vary() -> None:
    differences = np.random.default_rng(5).choice([-1.0, 0.0, 1.0], (50, table1.LIMIT), p=[0.5, 0.3, 0.2])
    differences[:, :2] = [-1.0, 0.0]
    test = TSprt(0.0, table1.DELTA, Strength(table1.BETA, table1.ALPHA_EFFECT))
    (ours, sides), (tested, verdicts) = table1.ratio_alone(differences), test.decide(differences)
    assert np.array_equal(ours, tested)
    assert np.array_equal(sides, verdicts)


def test_of_equal_differences_the_ratio_is_the_limit_of_nearly_equal_ones() -> None:
    nearly = -1.0 + 1e-6 * np.random.default_rng(6).standard_normal((1, table1.LIMIT))
    assert table1.ratio_alone(np.full((1, table1.LIMIT), -1.0)) == table1.ratio_alone(nearly)


def test_realizations_come_in_batches() -> None:
    assert [table1.rounded_up(n) for n in (1, 25, 26, 50)] == [25, 25, 50, 50]


@slow
def test_the_kept_table_is_what_comes_out(found: list[table1.Cell]) -> None:
    """All but what depends on the number of runs; the first run is the same."""
    with KEPT.open(newline="") as handle:
        kept = list(csv.DictReader(handle))
    for line, cell in zip(kept, found, strict=True):
        row = cell.row()
        assert math.isclose(float(line["exact"]), cell.exact, abs_tol=1e-11)
        for name in ("benchmark", "formula", "sampled", "paper", "realizations", "exchanged_realizations"):
            assert line[name] == str(row[name])
        assert (line["as_paper"], line["exchanged_as_paper"]) == ("1.0", "1.0")


def test_the_page_shows_the_kept_numbers() -> None:
    page = (KEPT.parents[1] / "experiments.md").read_text()
    assert KEPT.with_suffix(".md").read_text() in page
    for name in ("histograms-summary.csv", "sanity-summary.csv"):
        with KEPT.with_name(name).open(newline="") as handle:
            for line in csv.DictReader(handle):
                shown = (f"{float(line[key]):.6f}" for key in ("exact", "mean", "standard_error"))
                assert f"| {' | '.join(shown)} | {float(line['deviation']):.4f} |" in page
