"""Numbers of numpy in an `Observation` of Python code count as Python's own; on the wire there are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import InputError, Observation
from monitor.stream.decode import validate

PLAIN: dict[str, Any] = {"agent": "it", "episode": 3, "seq": 4, "state": (1.5, 2.0), "action": 1, "reward": 0.5}


@pytest.mark.parametrize(
    "change",
    [
        {"state": np.array([1.5, 2.0])},
        {"state": [np.float64(1.5), np.float32(2.0)]},
        {"state": (np.float64(1.5), 2.0)},
        {"seq": np.int64(4), "action": np.int8(1), "reward": np.float32(0.5), "episode": np.int32(3)},
        {"terminated": np.zeros(1, dtype=np.bool_)[0], "state": np.array([1.5, 2.0], dtype=np.float32)},
    ],
)
def test_they_are_what_their_values_are(change: dict[str, Any]) -> None:
    found, wanted = validate(Observation(**PLAIN | change)), validate(Observation(**PLAIN))
    assert found == wanted
    assert type(found.seq) is type(found.action) is type(found.episode) is int
    assert isinstance(found.state, tuple)
    assert [type(each) for each in found.state] == [float, float]


def test_named_numbers_and_indices() -> None:
    named = validate(Observation(**PLAIN | {"state": {"x": np.float64(2.5)}, "inputs": np.array([7.0])}))
    assert (named.state, named.inputs) == ({"x": 2.5}, (7.0,))
    assert validate(Observation(**PLAIN | {"state": np.int64(7)})).state == 7


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"state": np.ones((2, 2))}, "wrong_type"),
        ({"state": np.array([np.nan])}, "not_finite"),
        ({"action": np.array([1])}, "wrong_type"),
        ({"state": object()}, "wrong_type"),
    ],
)
def test_what_is_no_step_stays_none(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError) as refused:
        validate(Observation(**PLAIN | change))
    assert refused.value.reason == reason
