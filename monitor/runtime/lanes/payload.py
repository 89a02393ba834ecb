"""Reading of payloads in compiled code: msgpack as agents write it, with nothing in it that needs the ordinary way."""

from __future__ import annotations

import math

import numpy as np

from monitor.arrays import Bytes, Ints
from monitor.jit import bytes_at, helper
from monitor.runtime.lanes.accept import accept_step
from monitor.runtime.lanes.layout import ACTIONS, EPISODE, EPISODE_BYTES, POLICY, POLICY_WORD, ROWS

__all__ = ["LATEST", "accept_payload"]

LATEST = 253402300800.0
"""As `monitor.stream.decode` has it: times beyond are probably milliseconds."""
SHA256 = 64
NIL, FALSE, FLOAT64, TEXT8 = 0xC0, 0xC2, 0xCB, 0xD9
V, EPISODE_KEY, SEQ, STATE, ACTION, TIME, REWARD, TERMINATED, TRUNCATED, POLICY_KEY = range(10)
REQUIRED = 0b11111


@helper
def accept_payload(words: Ints, payload: int, size: int, wall: float, ticks: float) -> bool:
    """Accept the step in a payload, at this address; False: nothing was changed, it needs the ordinary way."""
    content = bytes_at(payload, size)
    if size < 2 or content[0] < 0x80 or content[0] > 0x8F:
        return False
    seq, state, action, policy, seen, at = 0, 0, 0, 0, 0, 1
    time = reward = math.nan
    for _ in range(int(content[0]) - 0x80):
        key, at = _key(content, size, at)
        if key < 0 or seen & (1 << key) or at >= size:
            return False
        seen |= 1 << key
        if key == EPISODE_KEY:
            if not _same(content, size, at, words[EPISODE], words[EPISODE_BYTES]):
                return False
            at += words[EPISODE_BYTES]
        elif key in (TIME, REWARD):
            number, at = _real(content, size, at)
            if at < 0:
                return False
            if key == TIME:
                time = number
            else:
                reward = number
        elif key in (TERMINATED, TRUNCATED):
            if content[at] != FALSE and content[at] != NIL:
                return False
            at += 1
        elif key == POLICY_KEY:
            if content[at] == NIL:
                at += 1
            elif (
                words[POLICY] == 0
                or content[at] != TEXT8
                or at + 1 >= size
                or content[at + 1] != SHA256
                or not _same(content, size, at + 2, words[POLICY], SHA256)
            ):
                return False
            else:
                policy = words[POLICY_WORD]
                at += 2 + SHA256
        else:
            number, at = _whole(content, size, at)
            if at < 0:
                return False
            if key == SEQ:
                seq = number
            elif key == STATE:
                state = number
            elif key == ACTION:
                action = number
            elif number != 1:
                return False
    known = words[ROWS] // words[ACTIONS]
    if at != size or seen & REQUIRED != REQUIRED or state >= known or action >= words[ACTIONS]:
        return False
    if not (math.isnan(time) or 0.0 <= time < LATEST) or math.isinf(reward):
        return False
    return accept_step(words, seq, state, action, time, reward, policy, wall, ticks)


@helper
def _key(content: Bytes, size: int, at: int) -> tuple[int, int]:
    """Return the number of the key at a place, -1 if it is none of these, and the place after it."""
    length = int(content[at]) - 0xA0 if at < size else -1
    end = at + 1 + length
    if length < 1 or end > size:
        return -1, at
    first, key = content[at + 1], -1
    if length == 1:
        key = V if first == ord("v") else -1
    elif _spells(content, at, end, b"episode"):
        key = EPISODE_KEY
    elif _spells(content, at, end, b"seq"):
        key = SEQ
    elif _spells(content, at, end, b"state"):
        key = STATE
    elif _spells(content, at, end, b"action"):
        key = ACTION
    elif _spells(content, at, end, b"time"):
        key = TIME
    elif _spells(content, at, end, b"reward"):
        key = REWARD
    elif _spells(content, at, end, b"terminated"):
        key = TERMINATED
    elif _spells(content, at, end, b"truncated"):
        key = TRUNCATED
    elif _spells(content, at, end, b"policy"):
        key = POLICY_KEY
    return key, end


@helper
def _spells(content: Bytes, at: int, end: int, word: bytes) -> bool:
    if end - at - 1 != len(word):
        return False
    for n in range(len(word)):  # noqa: SIM110 - compiled code has no generators
        if content[at + 1 + n] != word[n]:
            return False
    return True


@helper
def _same(content: Bytes, size: int, at: int, expected: int, length: int) -> bool:
    """Return whether the bytes from a place on are those at an address."""
    if at + length > size:
        return False
    wanted = bytes_at(expected, length)
    for n in range(length):  # noqa: SIM110 - likewise
        if content[at + n] != wanted[n]:
            return False
    return True


@helper
def _whole(content: Bytes, size: int, at: int) -> tuple[int, int]:
    """Return the whole number at a place, at least 0, and the place after it; -1 if there is none below 2^62."""
    first = int(content[at])
    if first < 0x80:
        return first, at + 1
    if first < 0xCC or first > 0xCF:
        return 0, -1
    end = at + 1 + (1 << (first - 0xCC))
    if end > size:
        return 0, -1
    number = 0
    for n in range(at + 1, end):
        if number >> 54:
            return 0, -1
        number = (number << 8) | int(content[n])
    return number, end


@helper
def _real(content: Bytes, size: int, at: int) -> tuple[float, int]:
    """Return the float at a place, NaN for nil, and the place after it; -1 if there is none. NaN itself is refused."""
    if content[at] == NIL:
        return math.nan, at + 1
    if content[at] != FLOAT64 or at + 9 > size:
        return math.nan, -1
    bits = np.uint64(0)
    for n in range(at + 1, at + 9):
        bits = (bits << np.uint64(8)) | np.uint64(content[n])
    number = _as_real(bits)
    return number, -1 if math.isnan(number) else at + 9


@helper
def _as_real(bits: np.uint64) -> float:
    return np.uint64(bits).view(np.float64)
