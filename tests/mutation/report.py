"""What became of the mutants: a table by file, and the survivors that nobody has explained."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path

from tests.mutation.operators import Mutant
from tests.mutation.suite import Outcome

__all__ = ["explanations", "table", "unexplained"]

EXPLAINED = Path(__file__).with_name("survivors.toml")
COLUMNS = "mutants", "killed", "explained", "left", "share killed"

Results = dict[Mutant, Outcome]


def explanations() -> dict[str, str]:
    """Return the known survivors, as `file function: change`, with the reason for each."""
    groups = tomllib.loads(EXPLAINED.read_text()).get("group", [])
    return {f"{group['file']} {mutant}": group["why"] for group in groups for mutant in group["mutants"]}


def unexplained(results: Results) -> list[tuple[Mutant, Outcome]]:
    """Return the survivors that the list does not have."""
    known = explanations()
    return [
        (mutant, outcome)
        for mutant, outcome in results.items()
        if outcome.how != "killed" and f"{mutant.file} {mutant.key}" not in known
    ]


def table(results: Results) -> str:
    """Return a line for each file, for each room and for all."""
    known = explanations()
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for mutant, outcome in results.items():
        killed = outcome.how == "killed"
        explained = not killed and f"{mutant.file} {mutant.key}" in known
        for name in (mutant.file, str(Path(mutant.file).parent) + "/", "all"):
            for n, counted in enumerate((True, killed, explained, not killed and not explained)):
                counts[name][n] += counted
    width = max(map(len, counts))
    lines = ["  ".join([" " * width, *COLUMNS])]
    for name in sorted(counts, key=lambda each: (each == "all", each)):
        cells = [*map(str, counts[name]), f"{100 * counts[name][1] / counts[name][0]:.1f} %"]
        lines.append("  ".join([f"{name:<{width}}", *(f"{c:>{len(h)}}" for c, h in zip(cells, COLUMNS, strict=True))]))
    return "\n".join(lines)
