"""Seeds"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections import Counter
from itertools import count

from tests.simulation.swarm import run


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--trace", action="store_true")
    given = parser.parse_args()
    if given.seed is not None:
        result = run(given.seed, keep=given.trace)
        print("\n".join(result.lines))
        print(result.digest, dict(result.faults))
        print("\n".join(result.problems))
        return bool(result.problems)
    faults: Counter[str] = Counter()
    hours, failed, began, seeds = 0.0, 0, time.monotonic(), 0
    for seed in count(given.first):
        if given.minutes is not None and time.monotonic() - began > 60 * given.minutes:
            break
        result = run(seed)
        seeds += 1
        faults += result.faults
        hours += result.hours
        if result.problems:
            failed += 1
            print(f"seed {seed}: {len(result.problems)} problems; python -m tests.simulation --seed {seed}")
            print("\n".join("  " + p for p in result.problems[:3]), flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{seeds} seeds, {failed} failed, {hours:.2f} agent-hours, {hours / minutes:.2f} an elapsed minute")
    print(dict(faults))
    return bool(failed)


sys.exit(main())
