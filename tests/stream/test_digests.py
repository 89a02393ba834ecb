"""Digests of plain messages: the chain of bijections, by whole numbers of Python, and the words that are not used."""

from __future__ import annotations

import math
import struct

from hypothesis import example, given
from hypothesis import strategies as st

from monitor.stream.digests import plain_digest, policy_word

FACTOR, SEED = 0x9FB21C651E98DF25, 0x2545F4914F6CDD1D
WORD = 1 << 64
WORDS = st.integers(0, WORD - 1)
NUMBERS = st.one_of(st.just(math.nan), st.floats(allow_nan=False))


def mixed(*words: int) -> int:
    found = SEED
    for word in words:
        found = (found ^ word) * FACTOR % WORD
        found ^= found >> 32
    return found


def bits(number: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


def last_word(found: int, wanted: int) -> int:
    """Return the word that makes `wanted` of what was mixed before."""
    wanted ^= wanted >> 32
    return found ^ (wanted * pow(FACTOR, -1, WORD) % WORD)


@given(WORDS, WORDS, NUMBERS, NUMBERS, WORDS)
@example(0, 0, math.nan, math.nan, 0)
def test_the_digest_is_the_chain(state: int, action: int, time: float, reward: float, policy: int) -> None:
    assert plain_digest(state, action, time, reward, policy) == mixed(state, action, bits(time), bits(reward), policy)


@given(WORDS, WORDS, NUMBERS, NUMBERS)
def test_the_words_with_a_meaning_of_their_own_are_not_used(
    state: int, action: int, time: float, reward: float
) -> None:
    before = mixed(state, action, bits(time), bits(reward))
    for meant in (0, WORD - 1):
        assert plain_digest(state, action, time, reward, last_word(before, meant)) == SEED


def test_a_policy_counts_by_its_first_digits() -> None:
    assert policy_word(None) == 0
    assert policy_word("0" * 64) == 1
    assert policy_word("f" * 64) == 2**60
    assert policy_word("ab" * 32) != policy_word("ac" + "ab" * 31)
