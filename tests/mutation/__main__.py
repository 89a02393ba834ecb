"""Run the mutants of the pure rooms: `python -m tests.mutation [rooms or files] [--share 60] ...`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

os.environ["MONITOR_UNCOMPILED"] = "1"  # before anything imports a compiled module
os.environ["TIER"] = "fast"  # few examples of each property: many properties find more than many examples

import pytest

from tests.mutation.operators import Mutant, mutants_of
from tests.mutation.report import Results, table, unexplained
from tests.mutation.share import chosen, hints, write_hints
from tests.mutation.suite import Outcome, Suite

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = {
    "logic": ("tests/logic", "monitor/logic"),
    "causal": ("tests/causal",),
    "exact": ("tests/exact", "monitor/exact"),
    "alarm": ("tests/alarm", "monitor/alarm"),
    "evidence": ("tests/evidence", "monitor/evidence"),
    "statistics": ("tests/statistics", "monitor/statistics"),
    "stream": ("tests/stream", "monitor/stream"),
    "runtime": ("tests/runtime", "monitor/runtime"),
}
ROOMS: Final = tuple(TESTS)
ABOVE: Final = {"logic": ("exact",), "causal": ("exact",), "statistics": ("runtime",), "stream": ("runtime",)}
"""Rooms whose tests notice mutants of another one too."""
QUESTIONS: Final = "tests/mutation/test_questions.py"


def main() -> int:
    """Run what the arguments ask for; 1 if a mutant survives that is not explained."""
    options = _options()
    mutants = _chosen(options)
    print(f"{len(mutants)} mutants", flush=True)
    runner = _Runner(mutants, options)
    plugins = ["no:cacheprovider", "no:cov", "no:xdist", "no:faulthandler"]
    code = pytest.main(["-q", "-s", *(f"-p{each}" for each in plugins), *_tests(options, mutants)], plugins=[runner])
    if code or len(runner.results) < len(mutants):
        print("the tests could not be run", file=sys.stderr)
        return 2
    runner.write()
    if options.write_share is not None:
        write_hints(runner.results, options.write_share)
    print(table(runner.results))
    left = unexplained(runner.results)
    for mutant, outcome in left:
        print(f"{mutant.file}:{mutant.lines[0]}: {outcome.how}: {mutant.key}")
    return bool(left)


class _Runner:
    """pytest's run of the tests it has collected: first as they are, then of each mutant."""

    def __init__(self, mutants: list[Mutant], options: argparse.Namespace) -> None:
        self._mutants, self._options = mutants, options
        self.results: Results = {}

    def pytest_configure(self) -> None:
        """Have the same examples in every fork, and none made small: what fails once is enough."""
        from hypothesis import Phase, settings  # noqa: PLC0415 - after pytest has seen to its own import of it

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutation", derandomize=True, database=None, phases=phases)
        settings.load_profile("mutation")

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> Iterator[None]:
        """Keep the slow tests too: those that take longer than `--longest` are left out later."""
        every = [*items]
        yield
        items[:] = every

    def pytest_runtestloop(self, session: Any) -> bool:  # noqa: ANN401 - pytest's session
        """Run the mutants in place of the tests."""
        began = time.monotonic()
        files = {mutant.file for mutant in self._mutants}
        noticed = None if self._options.share is None else hints()
        suite = Suite(session.items, ROOT, files, longest=self._options.longest, noticed=noticed)
        print(f"{len(suite)} tests, {suite.seconds:.0f} s of work, {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        self._run(suite)
        print(f"{len(self.results)} mutants in {time.monotonic() - began:.0f} s")
        return True

    def write(self) -> None:
        """Write down what became of the mutants so far."""
        if self._options.json is not None:
            self._options.json.write_text(json.dumps([_record(*each) for each in self.results.items()], indent=1))

    def _run(self, suite: Suite) -> None:
        """Keep as many forks going as there may be; the oldest is waited for."""
        going: deque[tuple[Mutant, Callable[[], Outcome]]] = deque()
        for mutant in self._mutants:
            if len(going) == self._options.jobs:
                self._take(*going.popleft())
            waiting = suite.start(mutant, self._options.budget)
            if waiting is None:
                self.results[mutant] = Outcome("not reached")
            else:
                going.append((mutant, waiting))
        while going:
            self._take(*going.popleft())

    def _take(self, mutant: Mutant, waiting: Callable[[], Outcome]) -> None:
        self.results[mutant] = waiting()
        if len(self.results) % 100 == 0:
            self.write()
            left = sum(outcome.how != "killed" for outcome in self.results.values())
            print(f"  {len(self.results)} done, {left} not killed", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("what", nargs="*", default=[], help="rooms or files (all rooms)")
    parser.add_argument("--share", type=int, help="only so many, each first with the test that noticed it last time")
    parser.add_argument("--write-share", type=int, help="write down which tests noticed a share of so many")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests at most for one mutant")
    parser.add_argument("--longest", type=float, default=0.6, help="seconds that a test may take to be among them")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once")
    parser.add_argument("--json", type=Path, help="a file for what became of each")
    parser.add_argument("--only", type=Path, help="not those killed in such a file")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    files: list[Path] = []
    for what in options.what or ROOMS:
        room = ROOT / "monitor" / what
        files += sorted(room.rglob("*.py")) if room.is_dir() else [ROOT / what]
    mutants = [mutant for file in files for mutant in mutants_of(file, ROOT)]
    if options.only is not None:
        done = {each["mutant"] for each in json.loads(options.only.read_text()) if each["how"] == "killed"}
        mutants = [mutant for mutant in mutants if f"{mutant.file} {mutant.key}" not in done]
    return mutants if options.share is None else chosen(mutants, options.share)


def _tests(options: argparse.Namespace, mutants: list[Mutant]) -> list[str]:
    """The tests to collect: questions first, then those of the rooms above and of the room itself."""
    if options.share is not None:
        return sorted({str(ROOT / test) for test in hints().values()} | {str(ROOT / QUESTIONS)})
    rooms = {mutant.file.split("/")[1] for mutant in mutants}
    wanted = [QUESTIONS] if rooms & {"logic", "causal", "exact"} else []
    rooms |= {above for room in rooms for above in ABOVE.get(room, ())}
    wanted += [test for room in ROOMS if room in rooms for test in TESTS[room]]
    return [str(ROOT / each) for each in wanted]


def _record(mutant: Mutant, outcome: Outcome) -> dict[str, Any]:
    return {
        "mutant": f"{mutant.file} {mutant.key}",
        "line": mutant.lines[0],
        "how": outcome.how,
        "by": outcome.by,
        "seconds": round(outcome.seconds, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
