"""The hash tables of the caches: as dictionaries, in arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from monitor.exact.hash_table import doubled, empty_table, find_slot


def test_every_key_is_found_again_in_a_larger_table() -> None:
    keys, values = empty_table(32)
    for n, key in enumerate(range(0, 3200, 100)):
        at = key // 100 % 64
        keys[at], values[at] = key, n
    new_keys, new_values = doubled(keys, values)
    assert len(new_keys) == len(new_values) == 128
    assert dict(zip(new_keys[new_keys >= 0].tolist(), new_values[new_keys >= 0].tolist(), strict=True)) == {
        key: n for n, key in enumerate(range(0, 3200, 100))
    }


@given(st.lists(st.integers(0, 2**62), max_size=32, unique=True), st.sets(st.integers(0, 2**62), max_size=8))
def test_a_key_has_its_place_and_no_other(keys: list[int], others: set[int]) -> None:
    """As in a dictionary, also where many keys fall on one place."""
    held = np.full(64, -1)
    with np.errstate(over="ignore"):
        for key in keys:
            at = find_slot(held, key)
            assert held[at] == -1
            held[at] = key
        assert [held[find_slot(held, key)] for key in keys] == keys
        assert all(held[find_slot(held, key)] == -1 for key in others - {*keys})
