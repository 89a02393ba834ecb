"""Cache of values computed from a verdict, while agents on the same path share the verdict.

Most alerts of a fleet are about a verdict that another agent shares (`runtime/shared_verdicts.py`). The common
parts of alerts on one verdict are computed once: figures, sentences, and the bytes of the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from monitor.types.verdicts import Verdict

_T = TypeVar("_T")

ENTRIES: Final = 2048
"""Maximum number of cached values. At the maximum, all are removed and collected anew."""

OFFSETS: Final = 64
"""Maximum length of the profile of a cached verdict. Longer profiles take more memory, and are hardly ever shared."""


class VerdictCache(Generic[_T]):
    """Cache of values made from verdicts, and from an `owner` that lives as long as its formula.

    A verdict is recognized by the identity (`is`) of its quantities and its recourse, because all copies of a shared
    verdict have the same objects. An entry keeps these objects alive, so no other objects can get their identity. All
    other fields are compared by value.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[Hashable, ...], tuple[Verdict, object, _T]] = {}

    def get(self, make: Callable[[], _T], verdict: Verdict, owner: object, *context: Hashable) -> _T:
        """Return the value for this verdict, owner and context. If it is not cached, call `make`."""
        key = (id(verdict.quantities), id(verdict.recourse), id(owner), *context)
        found = self._entries.get(key)
        if found is not None and (found[0] is verdict or found[0] == verdict):
            return found[2]
        value = make()
        if len(verdict.profile) <= OFFSETS:
            if len(self._entries) >= ENTRIES:
                self._entries.clear()
            self._entries[key] = (verdict, owner, value)
        return value
