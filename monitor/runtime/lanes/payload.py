"""Reading of payloads in compiled code: msgpack or JSON as agents write it, if nothing needs the ordinary way."""

from __future__ import annotations

import math
from array import array

import numpy as np

from monitor.arrays import Bytes, Ints
from monitor.jit import bytes_at, compiled, helper, ints_at
from monitor.runtime.lanes.accept import accept_step
from monitor.runtime.lanes.layout import ACTIONS, EPISODE, EPISODE_BYTES, POLICY, POLICY_WORD, ROWS, WORDS
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
    V,
    key_of,
    same,
)
from monitor.runtime.lanes.text import read_text

__all__ = ["LATEST", "LEFT", "UNTIMED", "PayloadBuffer", "accept_message", "accept_payload"]

LATEST = 253402300800.0
"""As `monitor.stream.decode` has it: times beyond are probably milliseconds."""
NIL, FALSE, FLOAT64, TEXT8 = 0xC0, 0xC2, 0xCB, 0xD9
MAP, LAST_MAP, OBJECT = 0x80, 0x8F, 0x7B
UNTIMED, LEFT = -1.0, -2.0
"""What `accept_message` returns, if not a time. UNTIMED: the message has none. LEFT: it was not accepted."""
BUFFER = 4096
"""Bytes of a `PayloadBuffer`: several times those of an ordinary message."""
REQUIRED = 1 << V | 1 << EPISODE_KEY | 1 << SEQ | 1 << STATE | 1 << ACTION


class PayloadBuffer:
    """Where single payloads are copied to, one after the other, for compiled code to read. Not thread-safe.

    Attributes:
        at: its address.
    """

    def __init__(self) -> None:
        content = array("B", bytes(BUFFER))
        self._content, self.at = memoryview(content), content.buffer_info()[0]

    def put(self, payload: bytes) -> bool:
        """Copy a payload, if it fits; return whether it does."""
        size = len(payload)
        if size > BUFFER:
            return False
        self._content[:size] = payload
        return True


@compiled
def accept_message(lane: int, payload: int, size: int, wall: float, ticks: float) -> float:
    """Do what `accept_payload` does; return the message's time, `UNTIMED` or `LEFT`. `lane`: address of its words."""
    accepted, time = _accept(ints_at(lane, WORDS), payload, size, wall, ticks)
    if not accepted:
        return LEFT
    return UNTIMED if math.isnan(time) else time


@helper
def accept_payload(words: Ints, payload: int, size: int, wall: float, ticks: float) -> bool:
    """Accept the step in a payload, at this address; False: nothing was changed, it needs the ordinary way."""
    return _accept(words, payload, size, wall, ticks)[0]


@helper
def _accept(words: Ints, payload: int, size: int, wall: float, ticks: float) -> tuple[bool, float]:
    """Accept the step in a payload; return whether that was done, and its time, NaN if it has none."""
    content = bytes_at(payload, size)
    if size < 2:
        return False, math.nan
    if content[0] == OBJECT:
        seen, seq, state, action, time, reward, policy = read_text(words, content, size)
    elif content[0] >= MAP and content[0] <= LAST_MAP:
        seen, seq, state, action, time, reward, policy = _read_map(words, content, size)
    else:
        return False, math.nan
    known = words[ROWS] // words[ACTIONS]
    if seen & REQUIRED != REQUIRED or state >= known or action >= words[ACTIONS]:
        return False, math.nan
    if not (math.isnan(time) or 0.0 <= time < LATEST) or math.isinf(reward):
        return False, math.nan
    return accept_step(words, seq, state, action, time, reward, policy, wall, ticks), time


@helper
def _read_map(words: Ints, content: Bytes, size: int) -> tuple[int, int, int, int, float, float, int]:
    """Return of a msgpack map what `read_text` returns of a JSON object."""
    seq, state, action, policy, seen, at = 0, 0, 0, 0, 0, 1
    time = reward = math.nan
    nothing = 0, 0, 0, 0, math.nan, math.nan, 0
    for _ in range(int(content[0]) - MAP):
        end = at + 1 + int(content[at]) - 0xA0 if at < size else size
        if end < at + 2 or end >= size:  # text of a length in its first byte, and a value after it
            return nothing
        key = key_of(content, at + 1, end)
        if key < 0 or seen & (1 << key):
            return nothing
        seen |= 1 << key
        at = end
        if key == EPISODE_KEY:
            if not same(content, size, at, words[EPISODE], words[EPISODE_BYTES]):
                return nothing
            at += words[EPISODE_BYTES]
        elif key in (TIME, REWARD):
            number, at = _real(content, size, at)
            if key == TIME:
                time = number
            else:
                reward = number
        elif key in (TERMINATED, TRUNCATED):
            if content[at] != FALSE and content[at] != NIL:
                return nothing
            at += 1
        elif key == POLICY_KEY:
            if content[at] == NIL:
                at += 1
            elif (
                words[POLICY] == 0
                or content[at] != TEXT8
                or at + 1 >= size
                or content[at + 1] != SHA256
                or not same(content, size, at + 2, words[POLICY], SHA256)
            ):
                return nothing
            else:
                policy = words[POLICY_WORD]
                at += 2 + SHA256
        else:
            whole, at = _whole(content, size, at)
            if key == SEQ:
                seq = whole
            elif key == STATE:
                state = whole
            elif key == ACTION:
                action = whole
            elif whole != 1:
                return nothing
        if at < 0:
            return nothing
    return (seen, seq, state, action, time, reward, policy) if at == size else nothing


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
