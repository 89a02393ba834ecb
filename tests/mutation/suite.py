"""The tests as they lie in this process: which lines each reaches and how long it takes; and a run of some in a fork."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import coverage
import numpy as np
import pytest

from tests.mutation.learned import Known, Learned
from tests.mutation.operators import Mutant
from tests.mutation.transplant import Live, NotApplied

__all__ = ["Outcome", "Suite"]

SURVIVED, KILLED, NOT_APPLIED = range(3)
ROOM = 3 << 30
"""Bytes a fork may take beyond what is mapped here."""
LONG: Final = 300.0
"""Seconds of waiting, not of work, after which a fork is given up."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `how` is killed, survived, not reached or not applied; `by` the test that noticed."""

    how: str
    by: str = ""
    seconds: float = 0.0


class Suite:
    """Tests that pass, with the lines of the source each reaches."""

    def __init__(self, items: Sequence[Any], root: Path, files: set[str], *, longest: float) -> None:
        self._items: list[Any] = []
        self._root = root
        self._seconds: list[float] = []
        self._reached: dict[str, dict[int, list[int]]] = {file: {} for file in files}
        self._learn(items, files, longest)
        self._kills = [0] * len(self._items)
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
        learned = Learned(self._root / "var" / "mutation.pickle", self._root)
        for item in items:
            known = learned.get(item.nodeid)
            if known is None:
                known = self._watched(item, longest)
                learned.put(item.nodeid, known)
            elif known.useful and hasattr(item.module if hasattr(item, "module") else None, "answered"):
                _run(item)  # the oracle's answers are wanted in the forks
            if not known.useful or known.seconds > longest:
                continue
            for file in files & known.lines.keys():
                for line in known.lines[file]:
                    self._reached[file].setdefault(line, []).append(len(self._items))
            self._items.append(item)
            self._seconds.append(known.seconds)
        learned.save()

    def _watched(self, item: Any, longest: float) -> Known:  # noqa: ANN401 - pytest's items
        watch = coverage.Coverage(data_file=None, config_file=False, include=[str(self._root / "monitor" / "*")])
        began = time.process_time()
        watch.start()
        try:
            with _limit(longest * 2, raised=True):
                problem = _run(item)
        finally:
            watch.stop()
        took = time.process_time() - began
        if problem is not None or took > longest:
            print(f"left out: {item.nodeid} ({took:.1f} s{'' if problem is None else f': {problem!r}'[:200]})")
        data = watch.get_data()
        lines = {str(Path(f).relative_to(self._root)): frozenset(data.lines(f) or ()) for f in data.measured_files()}
        return Known(took, lines, problem is None)

    def reaching(self, mutant: Mutant) -> list[int]:
        """Return the tests that reach a mutant's lines, those first that find much in little time."""
        lines = self._reached[mutant.file]
        if mutant.first_line:
            found = {n for line in range(mutant.lines[0], mutant.lines[1] + 1) for n in lines.get(line, ())}
        else:
            found = {n for some in lines.values() for n in some}
        found &= set(range(len(self._items)))
        return sorted(found, key=lambda n: self._seconds[n] / (1 + self._kills[n]))

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
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
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
            with _limit(10 * self._seconds[n] + 2):
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


class _Overtime(BaseException):
    """A test has taken too long."""


def _overtime(*_: object) -> None:
    raise _Overtime


class _limit(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as a function
    """End this process, or (`raised`) what it does, after so many seconds of work."""

    def __init__(self, seconds: float, *, raised: bool = False) -> None:
        self._seconds, self._raised = seconds, raised

    def __enter__(self) -> None:
        signal.signal(signal.SIGPROF, _overtime if self._raised else signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _run(item: Any) -> BaseException | None:  # noqa: ANN401 - pytest's items
    """Run one test as pytest does, without its reports: the exception that it ended with, if any."""
    state = item.session._setupstate
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if hasattr(item, "_request") and not item._request:
                item._initrequest()
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
            item._request = False
            item.funcargs = None
    return None
