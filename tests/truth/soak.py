"""Questions without end, of the engine and of the oracle: `python -m tests.truth.soak --minutes 10 --seed 1`.

Every seed is one setting with some tens of formulas. Where the two disagree, the case is shrunk, printed as a test and
written into `tests/truth/found`, whose cases `test_found.py` asks again. The exit status is 1 if there was any.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.truth.engine_side import Engine
from tests.truth.features import features
from tests.truth.generate import QUESTIONS, Case, batch
from tests.truth.judge import Fault, judge, rejudge
from tests.truth.shrink import as_test, shrink

FOUND = Path(__file__).with_name("found")
ALONE = 40  # one question in so many is also asked of a fresh `monitor.check`
PROGRESS = 60.0  # seconds between two lines of it
REFEREE = 10  # one in so many of the second evaluator, `monitor.referee`


@dataclass
class Report:
    """What came of one seed, or of many."""

    questions: int = 0
    refereed: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, Case, Fault]] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Count another report in."""
        self.questions += other.questions
        self.refereed += other.refereed
        self.kinds.update(other.kinds)
        self.faults.extend(other.faults)


def ask(seed: int, questions: int = QUESTIONS, *, count_features: bool = True) -> Report:
    """Return what came of the questions of one seed, without shrinking."""
    evaluator, cases = batch(seed, questions)
    engine = Engine(cases[0].setting)
    report = Report()
    for number, case in enumerate(cases):
        fault = judge(evaluator, engine, case)
        if not fault and number % ALONE == 0:
            fault = judge(evaluator, engine, case, "check")
        if not fault and number % REFEREE == 0:
            fault = judge(evaluator, engine, case, "referee")
            report.refereed += 1
        if fault:
            report.faults.append((seed, _with_before(case, cases[:number]), fault))
        report.questions += 1
        if count_features:
            report.kinds.update(features(evaluator, case))
    return report


def _with_before(case: Case, others: list[Case]) -> Case:
    """Return a case that fails on its own, or else after the questions before it."""
    if rejudge(case):
        return case
    before = tuple((other.formula, other.causal_model) for other in others)
    return Case(case.setting, case.formula, case.causal_model, before)


def _reports(first: int, until: float, questions: int, processes: int) -> Iterator[Report]:
    """Yield the reports of seed after seed until the time is over."""
    if processes == 1:
        for seed in count(first):
            if time.monotonic() > until:
                return
            yield ask(seed, questions)
    with ProcessPoolExecutor(processes) as pool:
        for start in count(first, 8 * processes):
            if time.monotonic() > until:
                return
            seeds = range(start, start + 8 * processes)
            yield from pool.map(ask, seeds, [questions] * len(seeds))


def _tell(seed: int, case: Case, fault: Fault, number: int) -> None:
    """Shrink a failing case, print it and write it down."""
    small, fault = shrink(case) if rejudge(case) else (case, fault)
    file = FOUND / f"seed-{seed}-{number}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(small.to_json(), indent=1) + "\n")
    print(f"\nseed {seed}: {file}\n{as_test(small, fault)}", flush=True)  # noqa: T201 - what this command is for


def main() -> int:
    """Run the soak and return its exit status."""
    parser = ArgumentParser(description="Ask random questions of the engine and of the oracle.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1_000_000, help="first seed; each seed is one setting")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="formulas on each setting")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--most", type=int, default=5, help="disagreements to shrink")
    args = parser.parse_args()
    print(f"seed {args.seed}, {args.minutes:g} minutes, {args.processes} processes", flush=True)  # noqa: T201 - likewise
    begun, total = time.monotonic(), Report()
    told = begun
    try:
        for report in _reports(args.seed, begun + 60 * args.minutes, args.questions, args.processes):
            for number, fault in enumerate(report.faults[: max(0, args.most - len(total.faults))]):
                _tell(*fault, number)
            total.add(report)
            if time.monotonic() > told + PROGRESS:
                told = time.monotonic()
                print(f"{total.questions} questions, {len(total.faults)} disagreements so far", flush=True)  # noqa: T201
    except KeyboardInterrupt:
        print("interrupted")  # noqa: T201 - what was found by then is told
    minutes = (time.monotonic() - begun) / 60
    pace, faults = total.questions / minutes, len(total.faults)
    summary = f"{total.questions} questions, {pace:.0f} a minute, {total.refereed} of the referee too"
    print(f"{summary}: {faults} disagreements")  # noqa: T201 - likewise
    for kind, number in sorted(total.kinds.items()):
        print(f"  {kind:<16}{number}")  # noqa: T201 - likewise
    return bool(total.faults)


if __name__ == "__main__":
    sys.exit(main())
