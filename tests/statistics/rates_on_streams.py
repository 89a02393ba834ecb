"""How many streams of verdicts ever raise a false alarm, and what a late message's test costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

from monitor.statistics.alpha_spending import share_of_stream
from monitor.statistics.sprt import Sprt
from monitor.statistics.strength import Strength
from monitor.statistics.threshold import ThresholdBets
from tests.statistics.measured import Row, coin, edge, play
from tests.statistics.wald import expected_samples


def stream_row(
    kind: str, streams: int, messages: int, rng: np.random.Generator, *, ruled: bool = True, fails: bool = False
) -> Row:
    """Streams in which every formula holds by as little as a test can tell; an error is a stream that says it fails.

    With `fails` every formula fails instead, by as little, and an error is a message that says it holds.
    """
    strength = Strength(0.05, 0.05)
    wrong, used, undecided, mistakes = np.zeros(streams, dtype=bool), 0.0, 0, 0
    for n in range(1, messages + 1):
        each = share_of_stream(strength, n) if ruled else strength
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
        each = share_of_stream(Strength(0.05, 0.05), n)
        test = Sprt(0.9, 0.05, each)
        for p, true, limit in [(test.sides[1], True, each.alpha), (test.sides[0], False, each.beta / (1 - each.alpha))]:
            row = edge(f"SPRT at message {n}", test, coin(p, rng), true=true, limit=limit, runs=runs)
            yield Row(**asdict(row) | {"expected": expected_samples(test, p)})
