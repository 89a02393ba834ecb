"""Simulate the sidecar and its world from seeds. The exit status is 1 if something did not hold."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from itertools import count

from tests.simulation.faults import FAULTS
from tests.simulation.shrink import shrink
from tests.simulation.swarm import Plan, run

EACH: int = 20
"""Seeds between two lines of progress."""


def options() -> Namespace:
    parser = ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--first", type=int, default=0, help="run all seeds from this one on (0)")
    parser.add_argument("--minutes", type=float, help="for so long; without end if left out")
    parser.add_argument("--seconds", type=float, help="for how long agents step in each; drawn if left out")
    parser.add_argument("--agents", type=int, help="how many; drawn if left out")
    parser.add_argument("--faults", help="kinds of faults, separated by commas, or '' for none; any if left out")
    parser.add_argument("--shrink", action="store_true", help="make each run that fails smaller; takes up to 60 runs")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    return parser.parse_args()


def main() -> int:
    given = options()
    kinds = None if given.faults is None else tuple(kind for kind in given.faults.split(",") if kind)
    if unknown := set(kinds or ()) - FAULTS.keys():
        sys.exit(f"--faults: no such kind: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    faults, takeovers = Counter[str](), Counter[str]()
    seeds, failed, hours = 0, 0, 0.0
    began, worked = time.monotonic(), time.process_time()
    for seed in count(given.first) if given.seed is None else [given.seed]:
        if given.minutes is not None and time.monotonic() - began > 60 * given.minutes:
            break
        result = run(Plan(seed, given.seconds, given.agents, kinds), keep=given.trace)
        seeds, hours, faults = seeds + 1, hours + result.hours, faults + result.faults
        takeovers += result.takeovers
        lines = [*result.lines]
        if given.seed is not None:
            lines.append(f"digest of the trace: {result.digest}")
        if result.problems:
            failed += 1
            if given.shrink:
                result = shrink(result)
            lines += [f"FAILED: {result.plan.command}", *result.problems]
        if seeds % EACH == 0:
            lines.append(f"{seeds} seeds, {failed} failed, {hours:.1f} agent-hours")
        if lines:
            print("\n".join(lines), flush=True)  # noqa: T201 - its output
    minutes = (time.process_time() - worked) / 60
    print(f"{seeds} seeds, {failed} failed; {hours:.2f} agent-hours, {hours / minutes:.1f} a minute of one core")  # noqa: T201
    print("faults: " + ", ".join(f"{name} {faults[name]}" for name in FAULTS))  # noqa: T201
    print("takeovers: " + ", ".join(f"{cause} {number}" for cause, number in sorted(takeovers.items())))  # noqa: T201
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
