"""Deduplication, compared with a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.stream.deduplication import REMEMBERED, Deduplicator, digest
from monitor.types import Observation


@given(st.lists(st.integers(1, 300), max_size=40), st.integers(0, 3))
def test_it_agrees_with_a_dict(jumps: list[int], start: int) -> None:
    digests, truth, seq = Deduplicator(), dict[int, bytes](), start
    digests.clear(start)
    for jump in jumps:
        truth[seq] = (seq + 1).to_bytes(8, "big")
        digests.put(seq, truth[seq])
        seq += jump
    end = max(truth, default=start - 1) + 1
    for asked in range(end + 5):
        known = truth.get(asked) if asked == 0 or asked >= end - REMEMBERED else None
        assert digests.get(asked) == known
    again = Deduplicator.load(*digests.dump())
    assert [again.get(asked) for asked in range(end + 5)] == [digests.get(asked) for asked in range(end + 5)]


def test_memory_is_bounded() -> None:
    digests = Deduplicator()
    for seq in range(0, 10 * REMEMBERED, 3):
        digests.put(seq, b"\x01" * 8)
    assert len(digests.dump()[0]) == REMEMBERED * 8
    assert digests.get(0) == b"\x01" * 8


def test_clear_forgets() -> None:
    digests = Deduplicator()
    for seq in range(700):
        digests.put(seq, b"\x01" * 8)
    digests.clear(300)
    assert [digests.get(seq) for seq in range(700)] == [None] * 700
    digests.put(300, b"\x02" * 8)
    assert [seq for seq in range(1000) if digests.get(seq)] == [300]


def test_every_field_of_the_content_counts() -> None:
    base = Observation(agent="a", episode="e", seq=1, state=1, action=1)
    others = [
        replace(base, state="1"),
        replace(base, state=(1,)),
        replace(base, action=2),
        replace(base, action=None),
        replace(base, time=1.0),
        replace(base, reward=1.0),
        replace(base, terminated=True),
        replace(base, truncated=True),
        replace(base, policy="ab" * 32),
    ]
    assert len({digest(observation) for observation in [base, *others]}) == len(others) + 1
    assert digest(base) == digest(replace(base))
