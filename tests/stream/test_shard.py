"""The hash that distributes agents over shards: a published one, and the same in the client."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import cfmon_client.shard
import pytest

from monitor.errors import ConfigError
from monitor.stream.shard import MOST_SHARDS, Shard, parse_shard, shard_of

ABC = 0xBA7816BF8F01CFEA
"""The first 64 bits of SHA-256 of `abc`, from the examples of FIPS 180-4."""

ROW = r"(?m)^\| `([A-Za-z0-9_.-]+)` \| `([0-9a-f]{16})` \| (\d+) \| (\d+) \| (\d+) \|$"
PAGE = Path(__file__).parents[2] / "docs" / "fleets.md"


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 8, 12, MOST_SHARDS])
def test_the_shard_of_an_agent_is_that_of_the_standard_hash(shards: int) -> None:
    assert shard_of("abc", shards) == ABC % shards


def test_monitor_client_and_page_agree() -> None:
    rows = re.findall(
        r"(?m)^\| `([A-Za-z0-9_.-]+)` \| `([0-9a-f]{16})` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text()
    )
    assert len(rows) >= 5
    for name, hashed, *numbers in rows:
        for shards, number in zip((2, 3, 8), map(int, numbers), strict=True):
            assert shard_of(name, shards) == cfmon_client.shard.shard_of(name, shards) == number
            assert int(hashed, 16) % shards == number


def test_every_agent_belongs_to_exactly_one_shard() -> None:
    for name in (f"robot-{n}" for n in range(100)):
        assert [shard.number for shard in map(Shard, range(5), [5] * 5) if shard.has(name)] == [shard_of(name, 5)]


def test_names_that_differ_little_are_distributed_evenly() -> None:
    """A fair choice for each of 8,000 names gives a shard 1,000, with a standard deviation of 30."""
    counts = Counter(shard_of(f"robot-{n:04}", 8) for n in range(8000))
    assert set(counts) == set(range(8))
    assert all(850 < count < 1150 for count in counts.values())


@pytest.mark.parametrize(
    "text", ["", "3", "3/", "/8", "3/8/1", " 3/8", "3/0", "-1/8", f"0/{MOST_SHARDS + 1}", "٣/8", "a/b"]
)
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be NUMBER/OF, such as 3/8"):
        parse_shard(text)


def test_shards_are_numbered_from_0() -> None:
    assert parse_shard("7/8") == Shard(7, 8)
    with pytest.raises(ConfigError, match=r"numbered from 0: those of 8 are 0/8 to 7/8"):
        parse_shard("8/8")
