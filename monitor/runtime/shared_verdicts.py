"""Exact verdicts shared by agents with the same recent path.

An exact verdict depends only on the newest pairs of a path, as far back as its formula looks, and not on the agent. A
shared verdict has the same bits as a new verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from monitor.alarm.machine import IDLE, Assessment, assess
from monitor.exact.verdict import is_missed
from monitor.logic import Formula
from monitor.logic.traversal import asks_back, goals, largest_offset
from monitor.stream.path import SlidingPath
from monitor.types.specs import FormulaSpec
from monitor.types.verdicts import Recourse, Verdict

ENTRIES: Final = 32_768
"""Maximum number of verdicts held for one formula, 1 KiB each. At the maximum, all verdicts are removed."""

PAIRS: Final = 8 * ENTRIES
"""Maximum total number of pairs on which these verdicts depend. A formula that looks far back has fewer verdicts."""

TRIAL: Final = 8192
"""After this many verdicts, and whenever all verdicts are removed, a test decides whether to go on sharing."""

WORTHWHILE: Final = 1 / 16
"""Sharing ends if less than this fraction of the verdicts was found among the shared ones."""

Key = tuple[tuple[tuple[int, int | None], ...], bool]


@dataclass(eq=False)
class SharedVerdict:
    """A verdict without bands and recourse.

    `assessment`: assessment for the formula's alarm. `quiet`: whether this verdict leaves a clear alarm clear and needs
    no recourse. `recourse`: result of examining a missed goal; None if not examined.
    """

    verdict: Verdict
    assessment: Assessment
    quiet: bool
    recourse: Recourse | None = None


class SharedVerdicts:
    """Verdicts of one formula on one model, by the pairs on which they depend.

    If a formula refers to the start of the episode or has nested quantities that look back, its verdicts are not
    shared, because they depend on more pairs than `largest_offset` says.
    """

    def __init__(self, spec: FormulaSpec, formula: Formula) -> None:
        self._spec = spec
        bounded = all(offset >= 0 and not asks_back(goal.measure) for goal, _, offset in goals(formula))
        self._pairs = largest_offset(formula) + 1 if bounded else 0
        self._most = min(ENTRIES, PAIRS // max(self._pairs, 1))
        self._known: dict[Key, SharedVerdict] = {}
        self._asked = self._found = 0

    def find(self, path: SlidingPath) -> SharedVerdict | None:
        """Return the verdict on a path, or None if it was not kept, and count the search.

        If other policies than nominal acted, the verdict depends on these policies too, so it is not kept.
        """
        if not self._pairs or path.acted:
            return None
        self._asked += 1
        found = self._known.get(self._key(path))
        if found is not None:
            self._found += 1
        return found

    def peek(self, path: SlidingPath) -> SharedVerdict | None:
        """Return the verdict on a path, or None, like `find`, but do not count the search."""
        return None if not self._pairs or path.acted else self._known.get(self._key(path))

    def keep(self, path: SlidingPath, verdict: Verdict) -> None:
        """Keep the exact verdict on a path."""
        if not self._pairs or path.acted:
            return
        full = len(self._known) >= self._most
        if (full or (self._known and len(self._known) % TRIAL == 0)) and not self._is_worthwhile():
            self.end()
            return
        if full:
            self._known.clear()
            self._asked = self._found = 0
        assessment = assess(verdict, self._spec.alarm)
        quiet = assessment in IDLE and not (self._spec.recourse == "always" and is_missed(verdict))
        self._known[self._key(path)] = SharedVerdict(verdict, assessment, quiet)

    def end(self) -> None:
        """Stop sharing verdicts."""
        self._pairs = 0
        self._known.clear()

    def _is_worthwhile(self) -> bool:
        return self._found >= WORTHWHILE * self._asked

    def _key(self, path: SlidingPath) -> Key:
        return tuple(path.held[-self._pairs :]), path.terminated
