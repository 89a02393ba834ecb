"""What became of the mutants: a table by file, and the survivors that nobody has explained."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.mutation.operators import Mutant
from tests.mutation.suite import Outcome

__all__ = ["EXPLAINED", "explained", "table", "unexplained"]

EXPLAINED = Path(__file__).with_name("survivors.toml")
COLUMNS = "mutants", "killed", "explained", "left", "share killed", "but for explained"

Results = dict[Mutant, Outcome]


def explained() -> Callable[[Mutant], bool]:
    """Return whether the list of known survivors has a mutant, by name or by how its name starts."""
    groups = tomllib.loads(EXPLAINED.read_text()).get("group", [])
    names = {f"{group['file']} {name}" for group in groups for name in group.get("mutants", ())}
    starts = tuple(f"{group['file']} {start}" for group in groups for start in group.get("starting", ()))

    def known(mutant: Mutant) -> bool:
        name = f"{mutant.file} {mutant.key}"
        return name in names or name.startswith(starts)

    return known


def unexplained(results: Results) -> list[tuple[Mutant, Outcome]]:
    """Return the survivors that the list does not have."""
    known = explained()
    return [(mutant, outcome) for mutant, outcome in results.items() if outcome.how != "killed" and not known(mutant)]


def table(results: Results) -> str:
    """Return a line for each file, for each room and for all."""
    known = explained()
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for mutant, outcome in results.items():
        killed = outcome.how == "killed"
        clear = not killed and known(mutant)
        for name in (mutant.file, str(Path(mutant.file).parent) + "/", "all"):
            for n, counted in enumerate((True, killed, clear, not killed and not clear)):
                counts[name][n] += counted
    width = max(map(len, counts))
    lines = ["  ".join([" " * width, *COLUMNS])]
    for name in sorted(counts, key=lambda each: (each == "all", each)):
        every, noticed, _, left = counts[name]
        shares = (f"{100 * noticed / max(some, 1):.1f} %" for some in (every, noticed + left))
        cells = [*map(str, counts[name]), *shares]
        lines.append("  ".join([f"{name:<{width}}", *(f"{c:>{len(h)}}" for c, h in zip(cells, COLUMNS, strict=True))]))
    return "\n".join(lines)
