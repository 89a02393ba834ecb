"""The tests as they lie in this process: the lines each reaches and its time; and a run of some in a fork."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import coverage
import numpy as np

from tests.mutation.learned import Known, Learned
from tests.mutation.operators import Mutant
from tests.mutation.transplant import Live, NotApplied

__all__ = ["Outcome", "Suite"]

SURVIVED, KILLED, NOT_APPLIED = range(3)
ROOM = 3 << 30
"""Bytes a fork may take beyond what is mapped here."""
PROMISING: Final = 30
"""Mutants that the oracle's questions are taken to have noticed, before it is known: they come first.

So are those of a file, by the tests that are named after it.
"""
LONG: Final = 300.0
"""Seconds of waiting, not of work, after which a fork is given up."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `how` is killed, survived, not reached or not applied; `by` the test that noticed."""

    how: str
    by: str = ""
    seconds: float = 0.0


class Suite:
    """Tests that pass, with the lines of the source each reaches.

    With `noticed` (a test for the name of a mutant) nothing is found out: each mutant meets that test, then the others.
    """

    def __init__(
        self,
        items: Sequence[Any],
        root: Path,
        files: set[str],
        *,
        longest: float,
        noticed: Mapping[str, str] | None = None,
    ) -> None:
        self._items: list[Any] = []
        self._root = root
        self._seconds: list[float] = []
        self._costs: list[float] = []
        """Seconds times lines reached: a test that reaches little notices much of it."""
        self._reached: dict[str, dict[int, list[int]]] = {file: {} for file in files}
        self._noticed = noticed
        if noticed is None:
            self._learn(items, files, longest)
        else:
            self._items, self._seconds = list(items), [longest] * len(items)
        self._kills = [PROMISING if _answers(item) else 0 for item in self._items]
        self._live = Live(root, files)
        gc.collect()
        gc.freeze()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def seconds(self) -> float:
        """Those of all tests, under coverage."""
        return sum(self._seconds)

    def _learn(self, items: Sequence[Any], files: set[str], longest: float) -> None:
        """Take in the tests that are of use; those not known yet run in a fork of their own, under coverage."""
        learned = Learned(self._root / "var" / "mutation.pickle", self._root)
        for item in items:
            if _answers(item):
                _run(item)  # what the oracle answers is wanted in the forks
            known = learned.get(item.nodeid)
            if known is None:
                known = self._watched(item, longest)
                learned.put(item.nodeid, known)
            if not known.useful or known.seconds > longest:
                continue
            for file in files & known.lines.keys():
                for line in known.lines[file]:
                    self._reached[file].setdefault(line, []).append(len(self._items))
            self._items.append(item)
            self._seconds.append(known.seconds)
            self._costs.append(known.seconds * sum(map(len, known.lines.values())))
        learned.save()

    def _watched(self, item: Any, longest: float) -> Known:  # noqa: ANN401 - pytest's items
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._watch(item, longest, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        known: Known = pickle.loads(told) if told else Known(longest, {}, useful=False)
        if not known.useful:
            print(f"left out: {item.nodeid} ({'it fails' if told else f'more than {longest:g} s'})", flush=True)
        return known

    def _watch(self, item: Any, longest: float, writing: int) -> None:  # noqa: ANN401 - likewise
        """Be the process that runs one test under coverage and tells what it reached: never returns."""
        try:
            _hush()
            watch = coverage.Coverage(data_file=None, config_file=False, include=[str(self._root / "monitor" / "*")])
            watch.start()
            began = time.process_time()
            with _limit(longest):
                problem = _run(item)
            took = time.process_time() - began
            watch.stop()
            with warnings.catch_warnings(action="ignore"):  # some tests reach nothing
                data = watch.get_data()
            reached = {str(Path(f).relative_to(self._root)): data.lines(f) or () for f in data.measured_files()}
            lines = {file: frozenset(some) for file, some in reached.items()}
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(pickle.dumps(Known(took, lines, problem is None)))
        finally:
            os._exit(0)

    def reaching(self, mutant: Mutant) -> list[int]:
        """Return the tests that reach a mutant's lines, those first that find much in little time."""
        if self._noticed is not None:
            first = self._noticed.get(f"{mutant.file} {mutant.key}", "")
            return sorted(range(len(self._items)), key=lambda n: self._items[n].nodeid != first)
        lines = self._reached[mutant.file]
        if mutant.first_line:
            found = {n for line in range(mutant.lines[0], mutant.lines[1] + 1) for n in lines.get(line, ())}
        else:
            found = {n for some in lines.values() for n in some}
        found &= set(range(len(self._items)))
        own = f"/test_{Path(mutant.file).stem}"
        kills = {n: self._kills[n] + PROMISING * (own in self._items[n].nodeid) for n in found}
        return sorted(found, key=lambda n: self._costs[n] / (1 + kills[n]))

    def start(self, mutant: Mutant, budget: float) -> Callable[[], Outcome] | None:
        """Fork a process that runs what reaches a mutant; `budget`: seconds of tests at most. None: nothing does."""
        tests, spent = [], 0.0
        for n in self.reaching(mutant):
            if spent + self._seconds[n] <= budget:
                tests.append(n)
                spent += self._seconds[n]
        if not tests:
            return None
        reading, writing = os.pipe()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._be(mutant, tests, writing)
        os.close(writing)
        return lambda: self._outcome(child, reading, began)

    def _be(self, mutant: Mutant, tests: list[int], writing: int) -> None:
        """Be the mutant: never returns."""
        code = KILLED
        try:
            _hush()
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
            signal.setitimer(signal.ITIMER_REAL, LONG)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            with _limit(10.0):
                self._live.put(mutant)
            code = self._notice(tests, writing)
        except NotApplied:
            code = NOT_APPLIED
        except BaseException:  # noqa: BLE001 - the module itself fails
            code = KILLED
        finally:
            os._exit(code)

    def _notice(self, tests: list[int], writing: int) -> int:
        for n in tests:
            os.write(writing, n.to_bytes(4, "little"))
            with _limit(3 * self._seconds[n] + 0.5):
                if _run(self._items[n]) is not None:
                    return KILLED
        return SURVIVED

    def _outcome(self, child: int, reading: int, began: float) -> Outcome:
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        seconds = time.monotonic() - began
        last = int.from_bytes(told[-4:], "little") if told else None
        by = "" if last is None else self._items[last].nodeid
        if os.WIFSIGNALED(status):
            return Outcome("killed", f"{by} (time)", seconds)
        code = os.WEXITSTATUS(status)
        if code == KILLED and last is not None:
            self._kills[last] += 1
        how = {SURVIVED: "survived", NOT_APPLIED: "not applied"}.get(code, "killed")
        return Outcome(how, by if how == "killed" else "", seconds)


def _answers(item: Any) -> bool:  # noqa: ANN401 - pytest's items
    """Whether a test asks the oracle, whose answers are kept."""
    return hasattr(getattr(item, "module", None), "answered")


def _hush() -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


class _limit(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as a function
    """End this process after so many seconds of work."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _run(item: Any) -> BaseException | None:  # noqa: ANN401 - pytest's items
    """Run one test as pytest does, without its reports: the exception that it ended with, if any."""
    state = item.session._setupstate  # noqa: SLF001 - pytest has no public way to set up one test again and again
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if hasattr(item, "_request") and not item._request:  # noqa: SLF001 - likewise
                item._initrequest()  # noqa: SLF001 - likewise
            state.setup(item)
            item.runtest()
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - whatever a test ends with
        return problem
    finally:
        with contextlib.suppress(Exception):
            state.teardown_exact(None)
        if hasattr(item, "_request"):
            item._request = False  # noqa: SLF001 - likewise
            item.funcargs = None
    return None
