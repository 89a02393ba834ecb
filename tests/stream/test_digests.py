"""Digests of plain messages: the chain of bijections, by whole numbers of Python, and the words that are not used."""

from __future__ import annotations

import math
import struct

from hypothesis import example, given
from hypothesis import strategies as st

from monitor.stream.digests import FACTOR, SEED, number_or_nan, plain_digest, policy_word

WORD = 1 << 64
WORDS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(st.just(math.nan), st.floats(allow_nan=False))


def mixed(*words: int) -> int:
    found = int(SEED)
    for word in words:
        found = (found ^ (word % WORD)) * int(FACTOR) % WORD
        found ^= found >> 32
    return found


def bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def last_word(found: int, wanted: int) -> int:
    """Return the word that makes `wanted` of what was mixed before."""
    wanted ^= wanted >> 32
    word = found ^ (wanted * pow(int(FACTOR), -1, WORD) % WORD)
    return word - WORD if word >= WORD // 2 else word


@given(WORDS, WORDS, NUMBERS, NUMBERS, WORDS)
@example(0, 0, math.nan, math.nan, 0)
def test_the_digest_is_the_chain(state: int, action: int, time: float, reward: float, policy: int) -> None:
    found = plain_digest(state, action, time, reward, policy)
    assert found % WORD == mixed(state, action, bits(time), bits(reward), policy)
    assert found == int(found)
    assert -(2**63) <= found < 2**63


@given(WORDS, WORDS, NUMBERS, NUMBERS)
def test_the_words_with_a_meaning_of_their_own_are_not_used(
    state: int, action: int, time: float, reward: float
) -> None:
    before = mixed(state, action, bits(time), bits(reward))
    for meant in (0, WORD - 1):
        assert plain_digest(state, action, time, reward, last_word(before, meant)) % WORD == int(SEED)


def test_a_number_that_is_missing_is_not_a_number() -> None:
    assert math.isnan(number_or_nan(None))
    assert number_or_nan(0.5) == 0.5


def test_a_policy_counts_by_its_first_digits() -> None:
    assert policy_word(None) == 0
    assert policy_word("0" * 64) == 1
    assert policy_word("f" * 64) == 2**60
    assert policy_word("ab" * 32) != policy_word("ac" + "ab" * 31)
