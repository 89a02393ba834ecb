"""What is made from a verdict, kept while agents on the same path share it.

Most alerts of a fleet are about a verdict that another agent got before (`runtime/shared_verdicts.py`). What alerts on
one verdict have in common is made once: figures, sentences, and the bytes of the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from monitor.types import Verdict

_T = TypeVar("_T")

ENTRIES: Final = 2048
"""Values kept. When they are full, all are forgotten: the next ones fill them again."""

OFFSETS: Final = 64
"""Longest profile of a verdict of which something is kept: longer ones take more memory, and hardly any is shared."""


class VerdictCache(Generic[_T]):
    """Values made from verdicts, and from an `owner` that lives as long as its formula.

    A verdict is recognized by the identity of its quantities and its recourse: each copy of a shared verdict has the
    same objects. An entry keeps these objects, so no others can get their identity. All other fields are compared.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[Hashable, ...], tuple[Verdict, object, _T]] = {}

    def get(self, make: Callable[[], _T], verdict: Verdict, owner: object, *context: Hashable) -> _T:
        """Return the value for this verdict, owner and context; `make` it if none is kept."""
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
