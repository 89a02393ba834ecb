"""All readers under the fuzzer, ten million inputs in all: `python -m tests.fuzz.drive`; a table, and var/fuzz.json."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.fuzz.targets import TARGETS

__all__: list[str] = []

WHOLE: Final = sum(target.share for target in TARGETS.values())
MOST: Final = 256.0
"""MiB that a process may take beyond what it has when idle, its fuzzer included."""

KEPT: Final = 2.0
"""MiB that reading a hundred inputs twenty times may leave: noise of the allocator."""


def main() -> None:
    """Run every reader's harness; exit code 1 if one of them found something or keeps what it has read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="default: all")
    parser.add_argument("--inputs", type=int, default=WHOLE, help="in all, if every reader is run")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("var/fuzz.json"))
    chosen = parser.parse_args()
    names = chosen.targets or list(TARGETS)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)

    tallies: list[dict[str, Any]] = []

    def fuzz(name: str) -> None:
        runs = max(1000, TARGETS[name].share * chosen.inputs // WHOLE)
        tallies.append(_fuzz(name, runs, chosen.seed))
        _tell(tallies[-1])
        inputs = sum(tally.get("inputs", 0) for tally in tallies)
        chosen.out.write_text(json.dumps({"inputs": inputs, "seed": chosen.seed, "readers": tallies}, indent=1) + "\n")

    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(fuzz, names))
    if any("problem" in tally for tally in tallies):
        raise SystemExit(1)


def _fuzz(name: str, runs: int, seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.fuzz.harness", name, "--runs", str(runs), "--seed", str(seed)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    told = [line for line in ended.stdout.splitlines() if line.startswith('{"target"')]
    tally: dict[str, Any] = json.loads(told[-1]) if told else {"target": name}
    if ended.returncode != 0 or not told:
        lines = [line for line in ended.stderr.splitlines() if not line.startswith("INFO")]
        tally["problem"] = "\n".join(lines[-40:])
    elif tally["peak"] - tally["idle"] > MOST:
        tally["problem"] = f"{tally['peak'] - tally['idle']:.0f} MiB were taken beyond those of the idle process"
    elif tally["kept"] > KEPT:
        tally["problem"] = f"{tally['kept']:.1f} MiB stay of inputs that were read again"
    return tally


def _tell(tally: dict[str, Any]) -> None:
    shown = [f"{tally['target']:<10}"]
    if "inputs" in tally:
        shown += [f"{tally['inputs']:>10,} inputs", f"{tally['seconds']:>7.0f} s", f"slowest {tally['slowest']:.3f} s"]
        shown += [f"rss {tally['warm']:.0f} {tally['growth']:+.1f} MiB", f"kept {tally['kept']:+.1f} MiB"]
        shown += [f"most {tally['peak'] - tally['idle']:+.0f} MiB"]
    print("  ".join([*shown, tally.get("problem", "")]), flush=True)  # noqa: T201 - what this command is for


if __name__ == "__main__":
    main()
