"""A share of the mutants that a test run has time for: which, and the test that noticed each when all were run.

They are those whose names have the smallest digests, so that a change of the source changes few of them. What the list
of tests says is only where to look first: a mutant that it does not have, or that its test misses, meets the questions.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.mutation.operators import Mutant
from tests.mutation.report import Results

__all__ = ["chosen", "hints", "write_hints"]

NOTICED = Path(__file__).with_name("noticed.json")


def chosen(mutants: list[Mutant], count: int) -> list[Mutant]:
    """Return so many of the mutants, always the same."""
    return sorted(mutants, key=lambda each: hashlib.sha256(_name(each).encode()).digest())[:count]


def hints() -> dict[str, str]:
    """Return the test that noticed a mutant, by the mutant's name."""
    found: dict[str, str] = json.loads(NOTICED.read_text()) if NOTICED.is_file() else {}
    return found


def write_hints(results: Results, count: int) -> None:
    """Write down which tests noticed the mutants of a share."""
    share = chosen(list(results), count)
    noticed = {_name(mutant): results[mutant].by.removesuffix(" (time)") for mutant in share if results[mutant].by}
    NOTICED.write_text(json.dumps(dict(sorted(noticed.items())), indent=1) + "\n")


def _name(mutant: Mutant) -> str:
    return f"{mutant.file} {mutant.key}"
