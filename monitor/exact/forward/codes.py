"""Codes that the compiled loops return to their callers or get from their callers."""

from __future__ import annotations

DONE, TABLE_FULL, SCRATCH_FULL, FORWARD_FULL, VALUES_MISSING, LEVELS_FULL = range(6)
"""Status that a loop returns. `Workspace.missing` then has, for FORWARD_FULL: the numbers of segments and nodes needed;
for VALUES_MISSING: offset and column; for LEVELS_FULL: a part of `Levels` and the length it needs."""

NOT_COMPUTED = -1
"""In `Future.vector`: the values are not computed yet."""

SKIP, OBSERVE, ANSWER, BEGIN = 0, 1, 3, 4
"""What `push_all` does with a pair: nothing; observe; observe and answer. The bit BEGIN: forget earlier pairs first."""
