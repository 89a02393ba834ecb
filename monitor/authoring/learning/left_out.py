"""Rows of recordings that are left out: a listing by reason, and a limit beyond which nothing is learned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from monitor.errors import RecordingError

if TYPE_CHECKING:
    from monitor.arrays import Ints
    from monitor.authoring.learning.batch import RowBatch

SHOWN: Final = 3
"""Number of rows that are named for each reason."""

REASONS: Final = 8
"""Number of reasons that are listed."""

DEFAULT: Final = "0.1%,5%"

MISSING: Final = ("is empty or not finite", "taken for missing", "is no number")
"""If only a value is missing in a row, the text of the reason ends with one of these endings."""

ADVICE: Final = {
    "falls": "sort the file by episode and order, or name the right columns (--episode, --order); if the rows are in "
    "order as they are: --order ''",
    "is there twice": "leave out rows that were written twice, or name the right columns (--episode, --order)",
    "is no time": "if the rows are in order as they are: --order ''",
    "is no end marker": "an end marker is true, false, yes, no, 1 or 0; name its column (--terminated, --truncated), "
    "or '' for none",
    "no reward": "without rewards: --reward ''",
    "not UTF-8": "convert the file, such as with iconv",
    "has over": "name other columns",
}
"""Part of a reason -> advice on how to keep such rows."""


@dataclass(frozen=True)
class RowLimit:
    """Limit of the rows that may be left out: a fraction of all rows, or a number.

    `text`: the limit as it was given. `missing`: a separate limit for rows in which only a value is missing; None:
    these rows count towards the common limit.
    """

    text: str
    fraction: float = 0.0
    rows: int = 0
    missing: RowLimit | None = None

    @classmethod
    def parsed(cls, text: str) -> RowLimit:
        """Return the limit in a text such as `1%`, `3`, or `0.1%,5%`. Raises RecordingError for another text.

        >>> RowLimit.parsed("1%").allows(2, 100), RowLimit.parsed("3").allows(3, 5)
        (False, True)
        >>> RowLimit.parsed("1%,5%").allows(1, 100, missing=5), RowLimit.parsed("1%").allows(1, 100, missing=5)
        (True, False)
        """
        first, comma, second = text.partition(",")
        try:
            if comma and "," not in second:
                return replace(cls.parsed(first), text=text, missing=cls.parsed(second))
            if text.endswith("%") and 0.0 <= float(text[:-1]) <= 100.0:
                return cls(text, fraction=float(text[:-1]) / 100.0)
            if text.isdecimal():
                return cls(text, rows=int(text))
        except (ValueError, RecordingError):
            pass
        raise RecordingError(
            f"--skip-bad is {text!r:.80}; give a percentage of the rows, such as 1%, or a number of rows. A second one "
            "after a comma is for rows in which a value is missing"
        )

    def allows(self, bad: int, rows: int, missing: int = 0) -> bool:
        """Return whether `bad` of `rows` rows may be left out, and also `missing` rows that only lack a value."""
        if self.missing is not None:
            return self.allows_bad(bad, rows) and self.missing.allows_bad(missing, rows)
        return self.allows_bad(bad + missing, rows)

    def allows_bad(self, bad: int, rows: int) -> bool:
        """Return whether `bad` of `rows` rows may be left out, all of one kind."""
        return bad <= max(self.rows, self.fraction * rows)


@dataclass
class LeftOut:
    """Rows that were left out.

    Attributes:
        rows: number of all rows read.
        counts: reason -> number of rows.
        first: reason -> file and number (from 1) of the first rows, at most `SHOWN`.
    """

    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def add(self, reason: str, source: str, numbers: Ints) -> None:
        """Add rows of a file."""
        if len(numbers):
            self.counts[reason] = self.counts.get(reason, 0) + len(numbers)
            named = self.first.setdefault(reason, [])
            named += [(source, number) for number in numbers[: SHOWN - len(named)].tolist()]

    def take(self, batch: RowBatch) -> None:
        """Count the rows of a batch, and add its rows that could not be read."""
        self.rows += batch.rows
        for reason, numbers in batch.torn.items():
            self.add(reason, batch.source, numbers)

    @property
    def bad(self) -> int:
        """Number of rows left out."""
        return sum(self.counts.values())

    @property
    def missing(self) -> int:
        """Number of rows left out because only a value is missing."""
        return sum(count for reason, count in self.counts.items() if reason.endswith(MISSING))

    def listing(self) -> str:
        """Return the listing in a sentence; "" if no row was left out.

        >>> found = LeftOut(138_373, {"torn": 2}, {"torn": [("log.csv", 1_592), ("log.csv", 90_011)]})
        >>> found.listing()
        'left out: 2 of 138,373 rows: torn (1,592; 90,011)'
        """
        if not self.counts:
            return ""
        ordered = sorted(self.counts, key=lambda reason: -self.counts[reason])
        several = len({source for named in self.first.values() for source, _ in named}) > 1
        parts = [f"{reason} ({self._named(reason, several=several)})" for reason in ordered[:REASONS]]
        if rest := sum(self.counts[reason] for reason in ordered[REASONS:]):
            parts.append(f"{rest:,} for other reasons")
        return f"left out: {self.bad:,} of {self.rows:,} rows: {', '.join(parts)}"

    def _named(self, reason: str, *, several: bool) -> str:
        shown = [f"{source} {number:,}" if several else f"{number:,}" for source, number in self.first[reason]]
        more = self.counts[reason] - len(shown)
        return "; ".join(shown) + (f"; {more:,} more" if more else "")

    def refuse(self, limit: RowLimit, source: str, before: LeftOut | None = None) -> None:
        """Raise RecordingError if more rows were left out than the limit allows.

        `before`: rows that were already left out, within the limit, in earlier runs; they do not count.
        """
        bad, missing, rows = self.bad, self.missing, self.rows
        if before is not None:
            bad, missing, rows = bad - before.bad, missing - before.missing, rows - before.rows
        if limit.allows(bad - missing, rows, missing):
            return
        most = max(self.counts, key=lambda reason: self.counts[reason])
        advice = next((f". {most}: {way}" for end, way in ADVICE.items() if end in most), "")
        raise RecordingError(
            f"{source}: {self.listing()}; more than --skip-bad {limit.text} allows. Correct them, or leave them out by "
            f"--skip-bad {_enough(bad / rows)}{advice}"
        )

    def document(self) -> dict[str, Any]:
        """Return this object as JSON data, which `of` reads."""
        return {"rows": self.rows, "counts": dict(self.counts), "first": {k: list(v) for k, v in self.first.items()}}

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> LeftOut:
        """Return the object from the result of `document`; an empty object for None."""
        if document is None:
            return cls()
        first = {reason: [(str(s), int(n)) for s, n in named] for reason, named in document["first"].items()}
        return cls(int(document["rows"]), {str(k): int(v) for k, v in document["counts"].items()}, first)


def _enough(fraction: float) -> str:
    """Return a short percentage that is at least the fraction.

    >>> _enough(2 / 11), _enough(0.00123)
    ('19%', '0.13%')
    """
    percent = min(100.0 * fraction, 100.0)
    step = 10.0 ** (math.floor(math.log10(percent)) - 1)
    return f"{min(math.ceil(percent / step - 1e-9) * step, 100.0):.10g}%"
