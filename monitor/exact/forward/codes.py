"""Numbers by which the compiled loops and their callers understand each other."""

from __future__ import annotations

DONE, TABLE_FULL, SCRATCH_FULL, FORWARD_FULL, VALUES_MISSING, LEVELS_FULL = range(6)
"""Status of a loop. `Workspace.missing`: FORWARD_FULL: the segments and nodes needed; VALUES_MISSING: offset, column;
LEVELS_FULL: a part of `Levels`, the length it needs."""

NOT_COMPUTED = -1
"""In `Future.vector`: the values are not there yet."""

SKIP, OBSERVE, ANSWER, BEGIN = 0, 1, 3, 4
"""What `push_all` does with a pair, in bits: nothing; observe it; observe it and answer; forget what was before it."""
