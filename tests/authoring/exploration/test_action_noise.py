"""Action noise against a transcription of its definition, state by state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.authoring.exploration.action_noise import SlipTo, slip_weights
from monitor.errors import ModelError


def by_definition(available: list[bool], chosen: int, slip: float, to: SlipTo) -> list[float]:
    """Return the probability of each action to be done."""
    count = len(available)
    usable = [b for b in range(count) if available[b]]
    match to:
        case "others":
            drawn = [b for b in usable if b != chosen]
        case "all":
            drawn = usable
        case "neighbours":
            drawn = sorted({(chosen - 1) % count, (chosen + 1) % count} & set(usable) - {chosen})
    if not drawn:
        return [float(b == chosen) for b in range(count)]
    return [(1 - slip) * (b == chosen) + slip * (b in drawn) / len(drawn) for b in range(count)]


@given(
    st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1)),
    st.floats(0, 1),
    st.sampled_from(["others", "all", "neighbours"]),
)
def test_noise_is_as_defined(available: list[list[bool]], slip: float, to: SlipTo) -> None:
    weights = slip_weights(np.array(available), slip, to)
    for state, row in enumerate(available):
        for chosen, usable in enumerate(row):
            expected = by_definition(row, chosen, slip, to) if usable else [0.0] * len(row)
            assert weights[state, chosen] == pytest.approx(expected, abs=1e-12)


def test_what_is_no_probability_is_refused() -> None:
    for slip in (-0.1, 1.1, float("nan")):
        with pytest.raises(ModelError, match="a probability between 0 and 1"):
            slip_weights(np.ones((1, 2), dtype=np.bool_), slip, "all")


def test_too_large_a_table_is_refused() -> None:
    with pytest.raises(ModelError, match="too many to add noise to"):
        slip_weights(np.ones((200, 1000), dtype=np.bool_), 0.1, "all")
