"""What is computed has the bits that it had: rows, values, bounds, decisions, noise, notices, evidence.

Where these fail, numbers have changed. If that was not the purpose, the change is wrong, however small the difference.
"""

from __future__ import annotations

import pytest

from tests.bits.parts import PARTS
from tests.bits.stored import different, foreign, stored
from tests.tiers import slow


@pytest.fixture
def comparable(part: str) -> str:
    """The part, unless what it needs rounds in another way on this machine."""
    if others := foreign().intersection(PARTS[part].needs):
        pytest.skip(f"{', '.join(sorted(others))}: not those of the machine that made the digests of {part}")
    return part


@pytest.mark.parametrize("part", PARTS)
def test_the_first_batches_have_the_bits_of_before(comparable: str) -> None:
    assert different(comparable, range(PARTS[comparable].few)) == []


@slow
@pytest.mark.parametrize("part", PARTS)
def test_all_other_batches_have_the_bits_of_before(comparable: str) -> None:
    assert different(comparable, range(PARTS[comparable].few, PARTS[comparable].batches)) == []


def test_every_batch_has_a_digest() -> None:
    assert {name: len(stored()[name]) for name in PARTS} == {name: part.batches for name, part in PARTS.items()}
