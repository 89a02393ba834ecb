"""Codes that the compiled loops return to their callers or get from their callers."""

from __future__ import annotations

DONE, TABLE_FULL, SCRATCH_FULL, FORWARD_FULL, VALUES_MISSING, LEVELS_FULL = range(6)
"""Status that a loop returns. `Workspace.missing` then has details. FORWARD_FULL: the needed numbers of segments and
nodes. VALUES_MISSING: offset and column. LEVELS_FULL: the full part of `Levels` and its needed length."""

NOT_COMPUTED = -1
"""In `Future.vector`: the values are not computed yet."""

SKIP, OBSERVE, ANSWER, BEGIN = 0, 1, 3, 4
"""What `push_all` does with a pair: nothing; observe; observe and answer. The bit BEGIN: forget earlier pairs first."""
