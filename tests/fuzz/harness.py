"""One reader under a fuzzer that is guided by the branches it reaches: `python -m tests.fuzz.harness decoder --runs N`.

It prints one line of JSON at the end. An input that breaks the promise stops it; the input is in the folder `--out`.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import atheris

ROOMS: Final = Path(__file__).resolve().parents[2] / "monitor"
COMPILED: Final = [
    ".".join(file.relative_to(ROOMS.parent).with_suffix("").parts)
    for place in ("causal/**/*.py", "exact/**/*.py", "sampled/**/*.py", "**/*.pxd")
    for file in ROOMS.glob(place)
]
"""What is machine code, and so cannot tell which branches it takes, and what only computes: no reader is in it."""

with atheris.instrument_imports(include=["monitor", "lark"], exclude=COMPILED):
    from tests.fuzz.largest import LARGEST
    from tests.fuzz.targets import TARGETS, Target, found

__all__: list[str] = []

WARM: Final = 10
"""After one in so many inputs memory has settled: parsers, caches and the first corpus are there."""


@dataclass
class Tally:
    """What a run came to. Sizes in MiB, `slowest` in seconds.

    `growth`: of the resident set after warming up, the fuzzer's own corpus included. `kept`: its growth while the last
    inputs are read again and again, which is what the reader keeps of them. `idle`, `peak`: of the process after the
    true inputs, and at its largest, the fuzzer's corpus included.
    """

    target: str
    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    warm: float = 0.0
    growth: float = 0.0
    kept: float = 0.0
    peak: float = 0.0
    idle: float = 0.0


class Run:
    """Feeds inputs to a reader, and keeps the tally."""

    def __init__(self, target: Target, runs: int) -> None:
        self.target = target
        self.tally = Tally(target.name)
        self._settled = max(1, runs // WARM)
        self._runs = runs
        self._last: deque[bytes] = deque(maxlen=100)
        self._began = time.perf_counter()

    def one(self, data: bytes) -> None:
        """The reader on one input: an exception is a finding, and so is taking too long."""
        took = self.time(data)
        self._last.append(data)
        tally = self.tally
        tally.slowest = max(tally.slowest, took)
        tally.inputs += 1
        if tally.inputs == self._settled:
            tally.warm = _resident()
        elif tally.inputs == self._runs:
            self.tell()

    def time(self, data: bytes) -> float:
        """Seconds that the reader takes for an input."""
        took, slow = self._once(data), self.target.slow
        if took > slow:  # a machine may be busy: only an input that is slow each time is slow
            took = min(took, self._once(data), self._once(data))
            assert took <= slow, f"an input took {took:.1f} s"
        return took

    def tell(self) -> None:
        """Print the tally; libFuzzer ends the process by itself."""
        self.tally.seconds = time.perf_counter() - self._began
        self.tally.growth = _resident() - self.tally.warm
        before = self._reread(5)
        self.tally.kept = self._reread(20) - before
        self.tally.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(asdict(self.tally)), flush=True)  # noqa: T201 - what this command is for

    def _reread(self, times: int) -> float:
        """The resident set after the last inputs were read so many times more."""
        for data in list(self._last) * times:
            self.target.read(data)
        gc.collect()
        return _resident()

    def _once(self, data: bytes) -> float:
        began = time.perf_counter()
        self.target.read(data)
        return time.perf_counter() - began


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    """Fuzz the reader that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("var/fuzz"))
    chosen = parser.parse_args()
    target = TARGETS[chosen.target]
    for seed in target.seeds():  # what is made at first use shall not look like a slow input
        target.read(seed)
    run = Run(target, chosen.runs)
    run.tally.idle = _resident()
    for name, data in LARGEST:
        if name == target.name:
            run.time(data)

    def change(data: bytes, longest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.15:
            return bytes(atheris.Mutate(data, longest))
        return target.mutate(rng, data)[:longest]

    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate([*target.seeds(), *found(target.name)]):
            Path(corpus, f"seed-{number:03}").write_bytes(seed)
        flags = [f"-runs={chosen.runs}", f"-seed={chosen.seed}", f"-max_len={target.longest}", "-timeout=60"]
        flags += ["-rss_limit_mb=2048", "-reload=0", "-verbosity=0", f"-artifact_prefix={chosen.out}/{target.name}-"]
        atheris.Setup([sys.argv[0], *flags, corpus], run.one, custom_mutator=change)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
