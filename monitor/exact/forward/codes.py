"""Codes that the compiled loops return to their callers, or get from them."""

from __future__ import annotations

DONE, TABLE_FULL, SCRATCH_FULL, FORWARD_FULL, VALUES_MISSING, LEVELS_FULL = range(6)
"""Status of a loop. `Workspace.missing` then has, for FORWARD_FULL: the numbers of segments and nodes needed; for
VALUES_MISSING: offset and column; for LEVELS_FULL: a part of `Levels` and the length it needs."""

NOT_COMPUTED = -1
"""In `Future.vector`: the values are not computed yet."""

SKIP, OBSERVE, ANSWER, BEGIN = 0, 1, 3, 4
"""Bits that tell `push_all` what to do with a pair: nothing; observe; observe and answer; forget all earlier pairs."""
