"""How often the tests err and how many samples they take, measured by running them.

Long: `python -m tests.statistics.error_rates [--csv FILE]` (minutes; a row is printed as soon as it is known).
Short: the same functions, with fewer runs, in `test_error_rates.py`.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from monitor.statistics import EqualOutcome, Sprt, StreamRule, Strength, ThresholdBets, TSprt, expected_samples
from monitor.statistics.anytime import Bets, bet_sizes, log_capital
from tests.statistics.walks import fate

Draw = Callable[[int, int], NDArray[np.generic]]
"""(runs, samples) -> as many samples of as many runs."""
FALSE_ALARM = 1e-6
"""A correct procedure is called wrong with this probability at most, over all rows together."""


class Decides(Protocol):
    def decide(self, values: NDArray[np.generic], /) -> tuple[NDArray[np.int64], NDArray[np.int8]]: ...


@dataclass(frozen=True)
class Row:
    """One measurement.

    `limit`: the error probability promised (None: nominal, nothing is promised). `expected`: samples after Wald,
    `exact`: the error rate by following the walk exactly, where that was done.
    """

    what: str
    where: str
    runs: int
    errors: int
    rate: float
    limit: float | None
    undecided: int
    samples: float
    expected: float | None = None
    exact: float | None = None

    def within(self, rows: int) -> bool:
        """Whether a procedure that keeps its limit would err so often, with probability FALSE_ALARM / rows."""
        return self.limit is None or bool(binom.sf(self.errors - 1, self.runs, self.limit) > FALSE_ALARM / rows)


def play(test: Decides, draw: Draw, runs: int, *, block: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Runs of one test: each gets `block` samples, and those undecided twice as many until `limit`."""
    samples, sides = np.full(runs, limit), np.zeros(runs, dtype=np.int8)
    left, data = np.arange(runs), draw(runs, block)
    while left.size:
        samples[left], sides[left] = test.decide(data)
        still = sides[left] == 0
        left, data = left[still], data[still]
        if data.shape[-1] >= limit:
            break
        data = np.concatenate([data, draw(left.size, data.shape[-1])], axis=-1)
    return samples, sides


def coin(p: float, rng: np.random.Generator) -> Draw:
    return lambda runs, samples: rng.random((runs, samples), dtype=np.float32) < p


def edge(what: str, test: Decides, draw: Draw, *, true: bool, limit: float | None, runs: int) -> Row:
    samples, sides = play(test, draw, runs, block=128, limit=1 << 14)
    errors = int((sides == (-1 if true else 1)).sum())
    return Row(
        what, "above" if true else "below", runs, errors, errors / runs, limit, int((sides == 0).sum()), samples.mean()
    )


def sprt_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Both edges, beside Wald's expected sample size."""
    for theta, delta, alpha, beta in [(0.5, 0.1, 0.05, 0.05), (0.9, 0.05, 0.05, 0.05), (0.9, 0.05, 0.01, 0.1)]:
        test = Sprt(theta, delta, Strength(alpha, beta))
        for p, true, limit in [(test.sides[1], True, alpha), (test.sides[0], False, beta)]:
            what = f"SPRT theta={theta} delta={delta} <{alpha},{beta}>"
            row = edge(what, test, coin(p, rng), true=true, limit=limit, runs=runs)
            walk = fate(test, p)
            exact = walk.false if true else walk.true
            yield Row(**asdict(row) | {"expected": expected_samples(test, p), "exact": exact})


def tsprt_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Both edges, on normal samples (proven) and on the differences of two outcomes (nominal)."""
    for delta, alpha, beta in [(0.2, 0.05, 0.05), (0.5, 0.05, 0.05), (0.2, 0.01, 0.1)]:
        strength = Strength(alpha, beta)
        test = TSprt(3.0, delta, strength)
        for sign, true, limit in [(1, True, alpha), (-1, False, beta)]:
            mean = 3.0 + sign * delta * 2.0

            def normal(n: int, m: int, mean: float = mean) -> NDArray[np.float64]:
                return rng.normal(mean, 2.0, (n, m))

            yield edge(f"t-SPRT normal delta={delta} <{alpha},{beta}>", test, normal, true=true, limit=limit, runs=runs)
    strength = Strength(0.05, 0.05)
    for plus, minus in [(0.3, 0.1), (0.05, 0.0)]:
        mean = plus - minus
        sigma = math.sqrt(plus + minus - mean**2)
        for sign, true in [(1, True), (-1, False)]:
            test = TSprt(mean - sign * 0.2 * sigma, 0.2, strength, EqualOutcome(0.01, strength))

            def differences(n: int, m: int, plus: float = plus, minus: float = minus) -> NDArray[np.float64]:
                drawn = rng.random((n, m))
                return (drawn < plus).astype(float) - (drawn > 1 - minus)

            what = f"t-SPRT differences +1:{plus} -1:{minus} delta=0.2 <0.05,0.05>"
            yield edge(what, test, differences, true=true, limit=None, runs=runs)


def coverage_rows(runs: int, length: int, rng: np.random.Generator) -> Iterator[Row]:
    """How many whole trajectories the confidence sequence leaves: its interval at any time without the mean."""
    laws: list[tuple[str, float, Draw]] = [
        ("P=0.9", 0.9, coin(0.9, rng)),
        ("P=0.5", 0.5, coin(0.5, rng)),
        ("P=0.01", 0.01, coin(0.01, rng)),
        ("Beta(2,5)", 2 / 7, lambda n, m: rng.beta(2, 5, (n, m))),
    ]
    for name, mean, draw in laws:
        left = 0
        for start in range(0, runs, 500):
            values = draw(min(500, runs - start), length).astype(np.float64)
            sizes, _ = bet_sizes(Bets(0.025), values)
            most = (np.cumsum(gain, axis=-1).max(axis=-1) for gain in log_capital(values, sizes, mean))
            left += int(np.any([m >= math.log(40) for m in most], axis=0).sum())
        yield Row("confidence sequence alpha=0.05", name, runs, left, left / runs, 0.05, 0, float(length))


def stream_row(
    kind: str, streams: int, messages: int, rng: np.random.Generator, *, ruled: bool = True, fails: bool = False
) -> Row:
    """Streams in which every formula holds by as little as a test can tell; an error is a stream that says it fails.

    With `fails` every formula fails instead, by as little, and an error is a message that says it holds.
    """
    strength = Strength(0.05, 0.05)
    rule, wrong, used, undecided, mistakes = StreamRule(strength), np.zeros(streams, dtype=bool), 0.0, 0, 0
    for _ in range(messages):
        rule, spent = rule.next()
        each = spent if ruled else strength
        test: Sprt | ThresholdBets = Sprt(0.9, 0.05, each) if kind == "SPRT" else ThresholdBets(0.9, each)
        p = 0.9 if isinstance(test, ThresholdBets) else test.sides[0 if fails else 1]
        samples, sides = play(test, coin(p, rng), streams, block=128, limit=256 if kind == "betting" else 4096)
        wrong |= sides == -1
        mistakes += int((sides == 1).sum())
        used += float(samples.mean())
        undecided += int((sides == 0).sum())
    errors, runs = (mistakes, streams * messages) if fails else (int(wrong.sum()), streams)
    name = f"stream of {messages} messages, {kind}, " + ("the rule" if ruled else "every test at 0.05")
    limit = 0.05 / (1 - 0.05 * 0.4) if fails else 0.05 if ruled else None
    return Row(name, "below" if fails else "above", runs, errors, errors / runs, limit, undecided, used / messages)


def price_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """The samples that one test takes at the n-th message, where its formula holds and where it fails."""
    for n in (1, 100, 10_000, 1_000_000):
        _, each = StreamRule(Strength(0.05, 0.05), tests=n - 1).next()
        test = Sprt(0.9, 0.05, each)
        for p, true, limit in [(test.sides[1], True, each.alpha), (test.sides[0], False, each.beta / (1 - each.alpha))]:
            row = edge(f"SPRT at message {n}", test, coin(p, rng), true=true, limit=limit, runs=runs)
            yield Row(**asdict(row) | {"expected": expected_samples(test, p)})


def all_rows(rng: np.random.Generator) -> Iterator[Row]:
    yield from sprt_rows(10_000, rng)
    yield from tsprt_rows(10_000, rng)
    yield from coverage_rows(10_000, 2_000, rng)
    yield from price_rows(10_000, rng)
    yield stream_row("SPRT", 1_000, 200, rng, ruled=False)
    yield stream_row("SPRT", 1_000, 200, rng, fails=True)
    yield stream_row("betting", 1_000, 1_000, rng)
    yield stream_row("SPRT", 1_000, 10_000, rng)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, help="write the rows there as well")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rows = []
    for row in all_rows(np.random.default_rng(arguments.seed)):
        rows.append(row)
        limit = "nominal" if row.limit is None else f"<= {row.limit:.3g}"
        exact = "" if row.exact is None else f" (exactly {row.exact:.4g})"
        expected = "" if row.expected is None else f" (Wald {row.expected:.1f})"
        print(  # noqa: T201  (the report)
            f"{row.what:<60} {row.where:<10} {row.errors:>7}/{row.runs:<8} = {row.rate:<9.4g} {limit:<12}"
            f" undecided {row.undecided:<7} samples {row.samples:.1f}{expected}{exact}",
            flush=True,
        )
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Row)])
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
    return 0 if all(row.within(len(rows)) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
