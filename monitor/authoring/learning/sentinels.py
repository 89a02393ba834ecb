"""Sentinel values: numbers such as -999 or 65535 that a logger writes if it has no value. Impure: reads rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.learning.batch import MISSING, RowBatch, is_missing
from monitor.authoring.learning.row_files import START, FilePosition, RowFile, RowsOf
from monitor.errors import ConfigError

MissingValues = Mapping[str, tuple[float | str, ...]]
"""Column -> values that stand for a missing value."""

APART: Final = 3.0
"""A value is far outside if the gap to the other values is at least this many times their whole range."""

NEGATIVE: Final = 2
"""Negative values of a column are doubtful if there are at most this many different ones among other numbers."""

REPEATED: Final = 2
"""A far value that occurs at least this often is not a single odd reading."""

LEAST: Final = 3
"""The range of the other values is meaningful if at least this number of them are different."""

ROWS: Final = 50
"""Far values are searched for only in columns with at least this number of values."""

NINES: Final = re.compile(r"(9{2,}|8{3,}|7{3,})(\.[789]+)?")
WORDS: Final = (7, 8, 15, 16, 31, 32, 63, 64)
"""Widths in bits of whole numbers. Their smallest or largest value may stand for a missing value."""

SENSORS: Final = (85.0,)
"""Value of a common thermometer (DS18B20) after a restart. If the sensor is missing, the value is -127."""

TEXTS: Final = MISSING - {"none", "na"}
"""Texts in lower case that stand for a missing value in any column."""

COMMON: Final = 0.05

RARE: Final = 0.01
"""A value in at most this fraction of the rows is rare, and may be doubtful for this reason."""

DOUBTFUL: Final = frozenset({"err", "error", "fault", "invalid", "unavailable", "undefined", "unknown"})
"""Texts in lower case that may say that there is no value. They may also be names."""

HUGE: Final = 1e20
"""A number at least this large is no reading in a usual unit. Formats of weather data use 9.97e36 for no value."""


@dataclass(frozen=True)
class FarValue:
    """A value far outside the other values of its column, or doubtful for another reason.

    `count`: number of its occurrences. `low`, `high`: range of the other values; NaN for texts. `sentinel`: True if it
    stands for a missing value, because it repeats and has a form that loggers use. `why`: what is doubtful.
    """

    value: float | str
    count: int
    low: float = math.nan
    high: float = math.nan
    sentinel: bool = False
    why: str = "far outside"


def number_text(value: float | str) -> str:
    """Return a number as YAML reads it again, without an unnecessary decimal point; or a text unchanged.

    >>> [number_text(value) for value in (-999.0, 0.1, 1e20, 2.0**64 - 1)]
    ['-999', '0.1', '1.0e+20', '1.8446744073709552e+19']
    """
    if isinstance(value, str):
        return value
    text = f"{value:.15g}" if float(f"{value:.15g}") == value else repr(value)
    digits, exponent, power = text.partition("e")
    return f"{digits}.0e{power}" if exponent and "." not in digits else text


def far_values(values: AnyArray) -> list[FarValue]:
    """Return, ascending, the values of a column [n] that are far outside the other values.

    The other values begin with the middle half of the different values. On either side, values are added one by one
    until there is a gap of more than `APART` times the range so far. A counter that is capped at 9999 therefore keeps
    this value if it also has values just below 9999.

    >>> [each.value for each in far_values(np.array([*range(60), -999, -999, 40_000]))]
    [-999.0, 40000.0]
    >>> far_values(np.array([*range(9_000, 10_000), 9999, 9999]))
    []
    """
    if values.dtype.kind not in "if":
        return []
    present = values[~is_missing(values)].astype(np.float64)
    kinds, counts = np.unique(present, return_counts=True)
    if len(present) < ROWS or len(kinds) <= LEAST:
        return []
    low, high = (len(kinds) - 1) // 4, 3 * (len(kinds) - 1) // 4
    grown = True
    while grown:
        grown = False
        most = APART * (kinds[high] - kinds[low])
        while low and kinds[low] - kinds[low - 1] <= most:
            low, grown = low - 1, True
        while high + 1 < len(kinds) and kinds[high + 1] - kinds[high] <= most:
            high, grown = high + 1, True
    if high - low + 1 < LEAST:
        return []
    least, most = float(kinds[low]), float(kinds[high])
    outside = [place for place in range(len(kinds)) if not low <= place <= high]
    return [
        FarValue(value, count, least, most, sentinel=count >= REPEATED and is_conventional(value))
        for value, count in ((float(kinds[place]), int(counts[place])) for place in outside)
    ]


def doubtful_values(values: AnyArray) -> list[FarValue]:
    """Return the rare values of a column [n] that a person should look at, besides `far_values`.

    These are: the largest or smallest number, if it has a form that loggers use for a missing value and lies outside
    the others by half their range; one or two negative whole numbers among numbers that are otherwise never negative;
    and texts that may say that there is no value. These values do not count as missing, because they may be readings.

    >>> [(one.value, one.why) for one in doubtful_values(np.array([*range(100)] * 9 + [255, -1, -1]))]
    [(-1.0, 'rare, the others are never negative'), (255.0, 'rare, outside the others')]
    >>> [one.value for one in doubtful_values(np.array(["up", "down"] * 99 + ["ERR"]))]
    ['ERR']
    """
    if not len(values) or values.dtype.kind not in "ifU":
        return []
    kinds, counts = np.unique(values[~is_missing(values)], return_counts=True)
    most = RARE * len(values)
    if values.dtype.kind == "U":
        pairs = zip(kinds.tolist(), counts.tolist(), strict=True)
        return [
            FarValue(text, n, why="rare, perhaps no value")
            for text, n in pairs
            if n <= most and text.lower() in DOUBTFUL
        ]
    kinds = kinds.astype(np.float64)
    if int(counts.sum()) < ROWS or len(kinds) <= LEAST:
        return []
    found: list[FarValue] = []
    below = int((kinds < 0).sum())
    whole = bool((kinds[:below] == np.floor(kinds[:below])).all())
    if 0 < below <= NEGATIVE and whole and counts[:below].sum() <= most:
        why = "rare, the others are never negative"
        pairs = zip(kinds[:below].tolist(), counts[:below].tolist(), strict=True)
        found += [FarValue(value, n, float(kinds[below]), float(kinds[-1]), why=why) for value, n in pairs]
        kinds, counts = kinds[below:], counts[below:]
    for end, rest in ((0, slice(1, None)), (-1, slice(None, -1))):
        value, others = float(kinds[end]), kinds[rest]
        gap = min(abs(value - float(others[0])), abs(value - float(others[-1])))
        if counts[end] <= most and is_conventional(value) and 2 * gap >= others[-1] - others[0] > 0:
            low, high = float(others[0]), float(others[-1])
            found.append(FarValue(value, int(counts[end]), low, high, why="rare, outside the others"))
    return sorted(found, key=lambda one: one.value)


def missing_texts(values: AnyArray) -> tuple[str, ...]:
    """Return the texts of a column [n] that stand for a missing value; not `none` and `na`, which may be names.

    If more than the fraction `COMMON` of the rows have such a text, these texts may also be names.

    >>> missing_texts(np.array(["av1", "none"] * 40 + ["NaN", "???", ""]))
    ('???', 'NaN')
    >>> missing_texts(np.array(["null", "stop"] * 40))
    ()
    """
    if values.dtype.kind != "U":
        return ()
    found = [text for text in np.unique(values).tolist() if text.lower() in TEXTS or text.strip("?") == "" != text]
    return tuple(found) if np.isin(values, found).mean() <= COMMON else ()


def is_conventional(value: float) -> bool:
    """Return whether a number has a form that loggers use for a missing value.

    >>> [is_conventional(value) for value in (-999.0, 9999.9, 65535.0, -127.0, 4294967295.0, 9.96921e36, 850.0, -3.0)]
    [True, True, True, True, True, True, False, False]
    """
    if abs(value) >= HUGE or value in SENSORS or NINES.fullmatch(number_text(abs(value))):
        return True
    return any(value in (2.0**bits - 1, -(2.0**bits) + 1, -(2.0**bits)) for bits in WORDS)


class WithoutSentinels(RowsOf):
    """File of rows in which some values of some columns stand for missing values."""

    def __init__(self, rows: RowFile, missing: MissingValues) -> None:
        super().__init__(rows)
        self._missing = missing

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns, with NaN or empty texts in place of these values; `coded` lists the places."""
        for batch in self._rows.batches(wanted, begin):
            yield decoded(batch, self._missing)


def decoded(batch: RowBatch, missing: MissingValues) -> RowBatch:
    """Return rows without the values that stand for missing values."""
    columns, coded = dict(batch.columns), dict(batch.coded)
    for name, codes in missing.items():
        values = columns.get(name)
        if values is None or values.dtype.kind == "b":
            continue
        text = values.dtype.kind == "U"
        for code in codes:
            if isinstance(code, str) and not text:
                if is_missing(values).all() or code.lower() in MISSING:
                    continue
                raise ConfigError(
                    f"{batch.source}: column {name!r} has numbers, so {code!r} cannot stand for a missing value; "
                    "rows with a text in it are left out, see --skip-bad"
                )
            if not (there := values == (number_text(code) if text else code)).any():
                continue
            columns[name] = np.where(there, "" if text else np.nan, columns[name])
            coded[f"{name!r} is {number_text(code)}, taken for missing"] = name, there
    return replace(batch, columns=columns, coded=coded)


def missing_of(lines: Sequence[str]) -> dict[str, tuple[float | str, ...]]:
    """Return column -> values from options such as `level: -999, 9999`. Raises ConfigError for a malformed option.

    >>> missing_of(["level: -999, 9999", "mode: ERR", "flow: none"])
    {'level': (-999.0, 9999.0), 'mode': ('ERR',), 'flow': ()}
    """
    found: dict[str, tuple[float | str, ...]] = {}
    for line in lines:
        name, colon, codes = line.rpartition(":")
        if not (colon and name.strip() and codes.strip()):
            raise ConfigError(
                f"{line.strip()!r:.80}: write COLUMN: VALUE, VALUE, such as  level: -999; or COLUMN: none"
            )
        found[name.strip()] = codes_of(codes)
    return found


def codes_of(text: str) -> tuple[float | str, ...]:
    """Return the values in a text such as `-999, 9999`; none for `none`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return () if parts in (["none"], ["[]"]) else tuple(map(_code, parts))


def _code(text: str) -> float | str:
    text = text.strip("'\"") or text
    try:
        return text if text.lower() in MISSING else float(text)
    except ValueError:
        return text
