"""How often the tests err, how often intervals miss, and how many samples both take, measured by running them.

Long: `python -m tests.statistics.error_rates [--csv FILE] [--only PART ..]` (minutes; a row is printed as soon as it
is known). Short: the same functions, with fewer runs, in `test_error_rates.py` and in `tests/evaluation`.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from tests.evaluation import verdict_rates
from tests.statistics.measured import Row
from tests.statistics.rates_as_tables import markdown
from tests.statistics.rates_of_discoveries import discovery_rows
from tests.statistics.rates_of_intervals import interval_rows, sequence_rows, size_rows
from tests.statistics.rates_of_model_tests import learned_rows
from tests.statistics.rates_of_tests import (
    combination_rows,
    effect_rows,
    equal_rows,
    sprt_rows,
    threshold_rows,
    tsprt_rows,
)
from tests.statistics.rates_on_streams import price_rows, stream_row

RUNS = 10_000


def stream_rows(rng: np.random.Generator) -> Iterator[Row]:
    yield stream_row("SPRT", 1_000, 200, rng, ruled=False)
    yield stream_row("SPRT", 1_000, 200, rng, fails=True)
    yield stream_row("betting", 1_000, 1_000, rng)
    yield stream_row("SPRT", 1_000, 10_000, rng)


PARTS: dict[str, Callable[[np.random.Generator], Iterator[Row]]] = {
    "sprt": lambda rng: sprt_rows(RUNS, rng),
    "t-sprt": lambda rng: tsprt_rows(RUNS, rng),
    "effects": lambda rng: effect_rows(RUNS, rng),
    "thresholds": lambda rng: threshold_rows(RUNS, rng),
    "equal": lambda rng: equal_rows(RUNS, rng),
    "combinations": lambda rng: combination_rows(RUNS, rng),
    "sequences": lambda rng: sequence_rows(RUNS, 2_000, rng),
    "sizes": lambda rng: size_rows(RUNS, rng),
    "intervals": lambda rng: interval_rows(RUNS, rng),
    "price": lambda rng: price_rows(RUNS, rng),
    "streams": stream_rows,
    "verdicts": lambda _: verdict_rates.rows(2_000),
    "learned": lambda rng: learned_rows(500, 1_000, rng),
    "discoveries": lambda rng: discovery_rows(RUNS, 400, rng),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, help="write the rows there, and the tables beside them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts (default: all)")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.only:  # each part has a generator of its own, so that one alone gives the same numbers
        for row in PARTS[name](np.random.default_rng([arguments.seed, list(PARTS).index(name)])):
            rows.append(row)
            print(line(row), flush=True)  # noqa: T201  (the report)
    if arguments.csv:
        write(arguments.csv, rows)
        if arguments.only == list(PARTS):
            arguments.csv.with_suffix(".md").write_text(markdown(rows), encoding="utf-8")
    broken = [row for row in rows if not row.within(len(rows))]
    for row in broken:
        print("beyond its limit:", line(row))  # noqa: T201  (likewise)
    return 1 if broken else 0


def write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def read(path: Path) -> list[Row]:
    """Return the rows of a file that `write` made."""
    with path.open(newline="") as file:
        return [
            Row(
                line["what"],
                line["where"],
                int(line["runs"]),
                int(line["errors"]),
                float(line["rate"]),
                float(line["limit"]) if line["limit"] else None,
                int(line["undecided"]),
                float(line["samples"]),
                float(line["expected"]) if line["expected"] else None,
                float(line["exact"]) if line["exact"] else None,
            )
            for line in csv.DictReader(file)
        ]


def line(row: Row) -> str:
    limit = "nominal" if row.limit is None else f"<= {row.limit:.3g}"
    exact = "" if row.exact is None else f" (exactly {row.exact:.4g})"
    expected = "" if row.expected is None else f" (Wald {row.expected:.1f})"
    return (
        f"{row.what:<60} {row.where:<10} {row.errors:>7}/{row.runs:<8} = {row.rate:<9.4g} {limit:<12}"
        f" undecided {row.undecided:<7} samples {row.samples:.1f}{expected}{exact}"
    )


if __name__ == "__main__":
    sys.exit(main())
