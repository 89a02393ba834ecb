"""Keys of a step as bytes, and their numbers, for the readers of msgpack and of JSON in compiled code."""

from __future__ import annotations

from monitor.arrays import Bytes
from monitor.jit import bytes_at, helper

__all__ = [
    "ACTION",
    "EPISODE_KEY",
    "POLICY_KEY",
    "REWARD",
    "SEQ",
    "SHA256",
    "STATE",
    "TERMINATED",
    "TIME",
    "TRUNCATED",
    "V",
    "key_of",
    "same",
    "spells",
]

SHA256 = 64
V, EPISODE_KEY, SEQ, STATE, ACTION, TIME, REWARD, TERMINATED, TRUNCATED, POLICY_KEY = range(10)


@helper
def key_of(content: Bytes, begin: int, end: int) -> int:
    """Return the number of the key at these places, -1 if it is none of a step."""
    if end - begin == 1:
        return V if content[begin] == 0x76 else -1
    if spells(content, begin, end, b"episode"):
        return EPISODE_KEY
    if spells(content, begin, end, b"seq"):
        return SEQ
    if spells(content, begin, end, b"state"):
        return STATE
    if spells(content, begin, end, b"action"):
        return ACTION
    if spells(content, begin, end, b"time"):
        return TIME
    if spells(content, begin, end, b"reward"):
        return REWARD
    if spells(content, begin, end, b"terminated"):
        return TERMINATED
    if spells(content, begin, end, b"truncated"):
        return TRUNCATED
    if spells(content, begin, end, b"policy"):
        return POLICY_KEY
    return -1


@helper
def spells(content: Bytes, begin: int, end: int, word: bytes) -> bool:
    """Return whether the bytes at these places are a word."""
    if end - begin != len(word):
        return False
    for n in range(len(word)):  # noqa: SIM110 - compiled code has no generators
        if content[begin + n] != word[n]:
            return False
    return True


@helper
def same(content: Bytes, size: int, at: int, expected: int, length: int) -> bool:
    """Return whether the bytes from a place on are those at an address."""
    if at + length > size:
        return False
    wanted = bytes_at(expected, length)
    for n in range(length):  # noqa: SIM110 - likewise
        if content[at + n] != wanted[n]:
            return False
    return True
