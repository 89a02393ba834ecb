"""The client's messages are those that the monitor reads, and it refuses what the monitor would reject."""

from __future__ import annotations

import enum
import math

import msgpack
import numpy as np
import pytest
from cfmon_client.message import REASONS, Refused, check_episode, check_policy, pack
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.errors import InputError
from monitor.stream import decode

ENTRIES = st.one_of(st.integers(), st.floats(), st.text(max_size=300), st.booleans(), st.none())
LISTS = st.one_of(st.lists(ENTRIES, max_size=4), st.lists(st.floats(0, 1), min_size=1020, max_size=1030))
MAPS = st.dictionaries(st.one_of(st.text(max_size=300), st.integers(0, 9)), ENTRIES, max_size=3)
STATES = st.one_of(ENTRIES, LISTS, MAPS)
SHA = "0bba4e75f97a5222462a17d435976da794c224bfde4090dc4401698580c86619"


class Move(enum.IntEnum):
    LEFT = 3


def raw(state: object, action: object, **others: object) -> bytes:
    """The message without any check."""
    fields = {"v": 1, "episode": "e", "seq": 0, "state": state, "action": action, "time": 1.0, **others}
    return bytes(msgpack.packb(fields, unicode_errors="surrogatepass"))


@given(
    STATES,
    ENTRIES.filter(lambda action: action is not None),
    st.one_of(st.none(), st.just(SHA), st.text(max_size=70)),
    st.one_of(st.none(), STATES),
)
@example(2**63, 0, None, None)
@example("", 0, None, None)
@example([True], "a", SHA.upper(), None)
@example({"level": 0.5}, 0, None, {"rain": 1})
def test_it_refuses_what_the_monitor_rejects_and_nothing_else(
    state: object, action: object, policy: str | None, inputs: object
) -> None:
    try:
        expected = decode("a", raw(state, action, policy=policy, inputs=inputs))
    except (InputError, OverflowError, ValueError):  # rejected, or no message can hold it
        with pytest.raises(Refused):
            pack("e", 0, state, action, time=1.0, policy=policy, inputs=inputs)
    else:
        payload, left_out = pack("e", 0, state, action, time=1.0, policy=policy, inputs=inputs)
        assert (decode("a", payload), left_out) == (expected, [])


@pytest.mark.parametrize(
    ("given_state", "sent"),
    [
        (np.int64(7), 7),
        (np.array([0.5, 2.0], np.float32), [0.5, 2.0]),
        (np.arange(3), [0, 1, 2]),
        ([np.float64(0.5), np.int32(2), np.bool_(True)], [0.5, 2, True]),  # noqa: FBT003 - an array's element
        ((1, 2.5), [1, 2.5]),
        ({"room": np.float32(0.1), "on": True}, {"room": float(np.float32(0.1)), "on": True}),
        (Move.LEFT, 3),
        (np.str_("ward"), "ward"),
    ],
)
def test_scalars_and_arrays_of_numpy_are_accepted(given_state: object, sent: object) -> None:
    payload, _ = pack("e", 0, given_state, np.int32(1), time=1.0, reward=np.float32(0.5), inputs=np.array([0.1, 2.0]))
    fields = msgpack.unpackb(payload)
    assert (fields["state"], fields["action"], fields["reward"]) == (sent, 1, 0.5)
    assert fields["inputs"] == [0.1, 2.0]
    decode("a", payload)


@pytest.mark.parametrize(
    ("state", "action", "reason"),
    [
        (math.nan, 0, "wrong_type"),
        ([0.0, math.nan], 0, "not_finite"),
        ([math.inf], 0, "not_finite"),
        ([[1.0]], 0, "wrong_type"),
        ({"x": [1]}, 0, "wrong_type"),
        ({1: 1.0}, 0, "wrong_type"),
        ({"x": math.nan}, 0, "not_finite"),
        (None, 0, "wrong_type"),
        (2**63, 0, "out_of_range"),
        (["x" * 300], 0, "out_of_range"),
        ([0.0] * 1025, 0, "out_of_range"),
        (["x" * 256] * 300, 0, "too_large"),
        (0, None, "missing_action"),
        (0, [1], "wrong_type"),
        (0, math.inf, "not_finite"),
        (0, 2**63, "out_of_range"),
        ("\ud800", 0, "bad_text"),
    ],
)
def test_what_is_refused_has_the_monitors_reason(state: object, action: object, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        pack("e", 0, state, action, time=1.0)
    assert refused.value.reason == reason
    assert reason in REASONS


def test_a_policy_that_is_no_digest_is_refused() -> None:
    with pytest.raises(Refused, match="the policy is 'fallback'; give the SHA-256"):
        pack("e", 0, 0, 0, time=1.0, policy="fallback")
    assert check_policy(SHA.upper()) == SHA


@pytest.mark.parametrize(
    ("reward", "extra", "reason"),
    [
        (math.nan, None, "not_finite"),
        ("much", None, "wrong_type"),
        (None, [1], "wrong_type"),
        (None, {"file": object()}, "wrong_type"),
        (None, {"blob": "x" * 70_000}, "too_large"),
    ],
)
def test_a_bad_reward_or_extra_is_left_out_and_the_step_published(reward: object, extra: object, reason: str) -> None:
    payload, left_out = pack("e", 4, 0, 0, time=1.0, reward=reward, extra=extra)
    assert [refused.reason for refused in left_out] == [reason]
    assert decode("a", payload).seq == 4


def test_extra_may_hold_arrays() -> None:
    payload, left_out = pack("e", 0, 0, 0, time=1.0, extra={"torque": np.array([0.5], np.float32)})
    assert not left_out
    assert msgpack.unpackb(payload)["extra"] == {"torque": [0.5]}
    decode("a", payload)


def test_the_last_message_of_an_episode_needs_no_action() -> None:
    payload, _ = pack("e", 9, 3, None, time=1.0, terminated=True)
    observation = decode("a", payload)
    assert (observation.action, observation.terminated, observation.truncated) == (None, True, False)


def test_an_episode_is_named_by_text_or_number() -> None:
    assert (check_episode("e"), check_episode(np.int64(4))) == ("e", 4)
    for wrong in (1.5, True, "", None, 2**63):
        with pytest.raises(Refused):
            check_episode(wrong)
