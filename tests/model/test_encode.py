from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InputError, ModelError
from monitor.model import MDP, encode_action, encode_state
from monitor.model.encode import StateEncoder
from monitor.types import RawState

MODEL = MDP.from_transitions(
    states=6,
    actions=2,
    transitions=[(s, a, s, 1.0) for s in range(6) for a in range(2)],
    state_names=["a", "b", "c", "d", "e", "f"],
    action_names=["stay", "go"],
    bin_edges=[[0.0, 1.0, 2.0], [-math.inf, 0.0, math.inf]],
    centres=[[0.0, 0.0], [2.0, 0.0], [0.0, 30.0], [2.0, 30.0]],
    scales=[1.0, 10.0],
    valuations=[(0, "x"), (1, "x"), (2, "x"), (0, "y"), (1.5, "y"), (True, "z")],
)
BARE = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])


@pytest.mark.parametrize(
    ("encoder", "raw", "state"),
    [
        ("index", 0, 0),
        ("index", 5, 5),
        ("name", "c", 2),
        ("valuation", (1, "x"), 1),
        ("valuation", (1.0, "x"), 1),
        ("valuation", (1.5, "y"), 4),
        ("bins", (0.0, -5.0), 0),
        ("bins", (0.999, 0.0), 1),
        ("bins", (1.0, -1), 2),
        ("bins", (2.0, 1e308), 3),
        ("nearest", (0.9, 0), 0),
        ("nearest", (1, 0.0), 0),  # as near to 1
        ("nearest", (1.1, 10.0), 1),
        ("nearest", (0.0, 16.0), 2),  # by raw numbers, 15 is the middle too
        ("nearest", (1.0, 15.0), 0),  # as near to all
        ("nearest", (1e6, -1e6), 1),
        ("nearest", (1e308, 1e308), 0),  # beyond double precision, all are as far
    ],
)
def test_a_state_is_found(encoder: StateEncoder, raw: RawState, state: int) -> None:
    assert encode_state(MODEL, encoder, raw) == state


@pytest.mark.parametrize(
    ("encoder", "raw"),
    [
        ("index", 6),
        ("index", -1),
        ("index", True),
        ("index", "0"),
        ("index", (0,)),
        ("index", 1.0),
        ("name", "g"),
        ("name", 0),
        ("valuation", (3, "x")),
        ("valuation", "x"),
        ("valuation", (0,)),
        ("bins", (2.1, 0.0)),
        ("bins", (-0.1, 0.0)),
        ("bins", (float("nan"), 0.0)),
        ("bins", (0.5,)),
        ("bins", (True, 0.0)),
        ("bins", ("0.5", 0.0)),
        ("bins", 0),
        ("nearest", (float("nan"), 0.0)),
        ("nearest", (0.0, float("-inf"))),
        ("nearest", (0.5,)),
        ("nearest", (True, 0.0)),
        ("nearest", ("0.5", 0.0)),
        ("nearest", 0),
    ],
)
def test_an_unknown_state_is_an_input_error(encoder: StateEncoder, raw: RawState) -> None:
    with pytest.raises(InputError) as caught:
        encode_state(MODEL, encoder, raw)
    assert caught.value.reason == "unknown_state"
    assert len(caught.value.detail) < 300


RANGED = MDP.from_transitions(
    states=6,
    actions=1,
    transitions=[(s, 0, s, 1.0) for s in range(6)],
    bin_edges=[[-math.inf, 1.0, math.inf], [-math.inf, 0.0, math.inf]],
    centres=[[0.0, 0.0], [2.0, 0.0]],
    scales=[1.0, 1.0],
    ranges=[[0.0, 10.0], [-1.0, 1.0]],
)


@pytest.mark.parametrize("encoder", ["bins", "nearest"])
def test_a_number_far_outside_the_recorded_range_is_out_of_range(encoder: StateEncoder) -> None:
    for usual in ((0.0, 0.0), (10.0, 1.0), (-1.0, -1.2), (11.0, 1.2)):  # a tenth of the range is allowed
        assert encode_state(RANGED, encoder, usual) >= 0
    for value, place in (
        ((11.001, 0.0), 1),
        ((-1.001, 0.0), 1),
        ((5.0, 1.3), 2),
        ((5000.0, 0), 1),
    ):
        with pytest.raises(InputError) as caught:
            encode_state(RANGED, encoder, value)
        assert caught.value.reason == "out_of_range"
        assert caught.value.detail.startswith(f"number {place} of the state is ")
        assert ("0 to 10" if place == 1 else "-1 to 1") in caught.value.detail
    with pytest.raises(InputError) as caught:
        encode_state(RANGED, encoder, (5.0,))
    assert caught.value.reason == "unknown_state"
    assert "(it has 1 entry, and a state has 2)" in caught.value.detail
    named = dataclasses.replace(RANGED, dimension_names=("level", "flow"))
    with pytest.raises(InputError, match=r"it has 3 entries, and a state has 2: level, flow\)"):
        encode_state(named, encoder, (5.0, 0.0, 1.0))
    with pytest.raises(InputError, match=r": flow is 1\.3, far outside"):
        encode_state(named, encoder, (5.0, 1.3))
    assert encode_state(RANGED, "index", 5) == 5


@pytest.mark.parametrize("ranges", [[[0, 1]], [[0, 1], [1, 0]], [[0, 1], [0, math.nan]], [0, 1]])
def test_ranges_are_checked(ranges: object) -> None:
    with pytest.raises(ModelError, match="ranges"):
        MDP.from_transitions(
            states=4, actions=1, transitions=[(s, 0, s, 1.0) for s in range(4)],
            bin_edges=[[0, 1, 2], [0, 1, 2]], ranges=ranges,
        )  # fmt: skip


@pytest.mark.parametrize("encoder", ["name", "valuation", "bins", "nearest"])
def test_a_model_without_the_encoder_says_so(encoder: StateEncoder) -> None:
    with pytest.raises(InputError, match="it has no"):
        encode_state(BARE, encoder, "x" * 100_000)


def test_huge_numbers_are_compared_not_converted() -> None:
    huge = 10**5000
    assert encode_state(MODEL, "bins", (1, huge)) == 3
    unknown: list[tuple[StateEncoder, RawState]] = [("index", huge), ("valuation", (huge, "x")), ("bins", (huge, 0))]
    unknown.append(("nearest", (huge, 0)))
    for encoder, raw in unknown:
        with pytest.raises(InputError, match="a huge number"):
            encode_state(MODEL, encoder, raw)


def test_actions_by_number_and_by_name() -> None:
    assert encode_action(MODEL, 1) == encode_action(MODEL, 1.0) == 1
    assert encode_action(MODEL, "go") == 1
    assert encode_action(BARE, 0) == 0


@pytest.mark.parametrize("raw", [2, -1, True, "jump", "0", 0.5, None])
def test_an_unknown_action_is_an_input_error(raw: int | str) -> None:
    with pytest.raises(InputError) as caught:
        encode_action(MODEL, raw)
    assert caught.value.reason == "unknown_action"


RAW = st.one_of(
    st.integers(), st.text(max_size=5), st.lists(st.one_of(st.floats(), st.text(max_size=3), st.booleans())).map(tuple)
)


@given(st.sampled_from(["index", "name", "valuation", "bins", "nearest"]), RAW)
def test_encoding_returns_a_state_or_raises_input_error(encoder: StateEncoder, raw: RawState) -> None:
    try:
        state = encode_state(MODEL, encoder, raw)
    except InputError:
        return
    assert 0 <= state < MODEL.states


def test_the_only_value_of_a_state_may_come_alone() -> None:
    codes = MDP.from_transitions(
        states=3, actions=1, transitions=[(s, 0, s, 1.0) for s in range(3)], valuations=[(-1.0,), (404.0,), ("off",)]
    )
    assert [encode_state(codes, "valuation", raw) for raw in (-1, 404, "off", (404,))] == [0, 1, 2, 1]
    with pytest.raises(InputError, match="1 is not a state of the model"):
        encode_state(codes, "valuation", 1)
