"""Pauses before failed attempts are repeated: exponential backoff with jitter, or longer at the receiver's request."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

FIRST: Final = 1.0
LONGEST: Final = 300.0
"""Minimum and maximum pause in seconds; each pause is shortened at random by up to a half."""

LONGEST_REQUESTED: Final = 900.0
"""Maximum number of seconds that a receiver can request.

A mistake of a receiver thus cannot silence a pager for days.
"""


def pause_after(failures: int, *, chance: float, requested: float = 0.0) -> float:
    """Return the seconds to wait after `failures` (1 or more) failures in a row.

    `chance`: uniform in [0, 1). `requested`: seconds that the receiver requested.

    >>> [pause_after(failures, chance=0.0) for failures in (1, 2, 3, 20)]
    [1.0, 2.0, 4.0, 300.0]
    """
    ours = min(LONGEST, FIRST * 2.0 ** min(failures - 1, 10)) * (1 - chance / 2)
    return max(ours, min(requested, LONGEST_REQUESTED))


def parse_retry_after(value: str | None, now: float) -> float:
    """Return the seconds that a `Retry-After` header requests; 0 if it is absent or malformed.

    `now`: seconds since the epoch, for a header with a date.

    >>> parse_retry_after("120", 0.0), parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20.0)
    (120.0, 40.0)
    """
    if value is None:
        return 0.0
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        seconds = parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return 0.0
    return max(seconds, 0.0)
