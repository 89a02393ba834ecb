"""Reading of JSON in compiled code: an object as agents write it, with nothing in it that needs the ordinary way."""

from __future__ import annotations

import math

from monitor.arrays import Bytes, Ints
from monitor.jit import helper
from monitor.runtime.lanes.layout import EPISODE_IN_TEXT, POLICY, POLICY_WORD, TEXT_BYTES
from monitor.runtime.lanes.spelling import (
    ACTION,
    EPISODE_KEY,
    POLICY_KEY,
    REWARD,
    SEQ,
    SHA256,
    STATE,
    TERMINATED,
    TIME,
    TRUNCATED,
    key_of,
    same,
    spells,
)

__all__ = ["read_text"]

QUOTE, COMMA, COLON, CLOSED, MINUS, POINT, ZERO, NINE = 0x22, 0x2C, 0x3A, 0x7D, 0x2D, 0x2E, 0x30, 0x39
DIGITS = 18
"""Most digits of a number: it is below 2^60."""
EXACT = 1 << 53
"""Whole numbers up to here are floats, and so are the powers of ten that are divided by."""


@helper
def read_text(words: Ints, content: Bytes, size: int) -> tuple[int, int, int, int, float, float, int]:
    """Return bits of the keys in a JSON object, seq, state, action, time, reward and word of the policy.

    No bits: it needs the ordinary way.
    """
    seq, state, action, policy, seen, at = 0, 0, 0, 0, 0, 1
    time = reward = math.nan
    nothing = 0, 0, 0, 0, math.nan, math.nan, 0
    while at < size:
        key, at = _key(content, size, at)
        if key < 0 or seen & (1 << key) or at >= size:
            return nothing
        seen |= 1 << key
        if key in (TIME, REWARD):
            number, at = _real(content, size, at)
            if key == TIME:
                time = number
            else:
                reward = number
        elif key in (SEQ, STATE, ACTION):
            whole, at = _whole(content, size, at)
            if key == SEQ:
                seq = whole
            elif key == STATE:
                state = whole
            else:
                action = whole
        else:
            if key == POLICY_KEY and content[at] == QUOTE:
                policy = words[POLICY_WORD]
            at = _expected(words, content, size, at, key)
        at = _skip(content, size, at)
        if at < 0 or at >= size:
            return nothing
        if content[at] == CLOSED:
            return (seen, seq, state, action, time, reward, policy) if _skip(content, size, at + 1) == size else nothing
        if content[at] != COMMA:
            return nothing
        at += 1
    return nothing


@helper
def _key(content: Bytes, size: int, at: int) -> tuple[int, int]:
    """Return the number of the key before a colon, -1 if there is none of a step, and the place of its value."""
    begin = _skip(content, size, at) + 1
    if begin > size or content[begin - 1] != QUOTE:
        return -1, size
    end = begin
    while end < size and content[end] != QUOTE:
        end += 1
    colon = _skip(content, size, end + 1)
    if colon >= size or content[colon] != COLON:
        return -1, size
    return key_of(content, begin, end), _skip(content, size, colon + 1)


@helper
def _expected(words: Ints, content: Bytes, size: int, at: int, key: int) -> int:
    """Return the place after a value that is the only one a key has in a lane, or one of two; -1 if it is another."""
    if key == EPISODE_KEY:
        end = at + words[TEXT_BYTES]
        return end if same(content, size, at, words[EPISODE_IN_TEXT], words[TEXT_BYTES]) else -1
    if key in (TERMINATED, TRUNCATED):
        return _word(content, size, at, b"false")
    if key == POLICY_KEY:
        end = at + 1 + SHA256
        if content[at] != QUOTE:
            return _null(content, size, at)
        named = words[POLICY] != 0 and same(content, size, at + 1, words[POLICY], SHA256)
        return end + 1 if named and end < size and content[end] == QUOTE else -1
    version, end = _whole(content, size, at)
    return end if version == 1 else -1


@helper
def _skip(content: Bytes, size: int, at: int) -> int:
    """Return the next place that is no white space; -1 stays."""
    while (
        at >= 0
        and at < size
        and (content[at] == 0x20 or content[at] == 0x0A or content[at] == 0x0D or content[at] == 0x09)
    ):
        at += 1
    return at


@helper
def _word(content: Bytes, size: int, at: int, word: bytes) -> int:
    """Return the place after a word, or after `null`; -1 if there is neither."""
    end = at + len(word)
    return end if end <= size and spells(content, at, end, word) else _null(content, size, at)


@helper
def _null(content: Bytes, size: int, at: int) -> int:
    """Return the place after `null`, -1 if it is not there."""
    return at + 4 if at + 4 <= size and spells(content, at, at + 4, b"null") else -1


@helper
def _digits(content: Bytes, size: int, at: int) -> tuple[int, int]:
    """Return the number that the digits at a place make, and the place after them; at most `DIGITS` are read."""
    number, first = 0, at
    while at < size and at - first <= DIGITS and content[at] >= ZERO and content[at] <= NINE:
        number = number * 10 + int(content[at]) - ZERO
        at += 1
    return number, at


@helper
def _whole(content: Bytes, size: int, at: int) -> tuple[int, int]:
    """Return the whole number at a place and the place after it; -1 if there is none of at most `DIGITS` digits."""
    number, end = _digits(content, size, at)
    if end == at or end - at > DIGITS or (content[at] == ZERO and end - at > 1):
        return 0, -1
    return number, end  # a fraction or an exponent is no comma, so its reader finds it


@helper
def _real(content: Bytes, size: int, at: int) -> tuple[float, int]:
    """Return the float at a place, NaN for null, and the place after it; -1 if there is none, or it has an exponent."""
    after = _null(content, size, at)
    if after >= 0:
        return math.nan, after
    negative = content[at] == MINUS
    if negative:
        at += 1
    whole, end = _whole(content, size, at)
    if end < 0:
        return math.nan, -1
    scale, places = 1, 0
    if end < size and content[end] == POINT:
        begin = end + 1
        fraction, end = _digits(content, size, begin)
        places = end - begin
        if places == 0 or end - at - 1 > DIGITS:
            return math.nan, -1
        for _ in range(places):
            scale *= 10
        whole = whole * scale + fraction
    if negative and whole == 0 and places == 0:
        return math.nan, -1  # a whole number has no sign at zero
    value = _quotient(whole, scale)
    return -value if negative else value, -1 if math.isnan(value) else end


@helper
def _quotient(number: int, scale: int) -> float:
    """Return number / scale, rounded once; NaN where that is not done here. `number`: below 10^18, `scale`: of ten.

    A division of two floats rounds once. If `number` is none it is rounded before, and the result may be a unit beside
    the right one. What is left of the division by it tells: that is small, so that computing it modulo 2^64 is exact.
    """
    value = float(number) / float(scale)
    if number <= EXACT or scale == 1:
        return value
    mantissa, exponent = math.frexp(value)
    units, shift = int(mantissa * EXACT), 53 - exponent
    if shift < 0 or units == EXACT // 2:
        return math.nan  # there the units below are smaller
    left = (number << shift) - units * scale
    if 2 * left > scale or (2 * left == scale and units & 1):
        units += 1
    elif 2 * left < -scale or (2 * left == -scale and units & 1):
        units -= 1
    return math.ldexp(float(units), -shift)
