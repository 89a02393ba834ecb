"""Decoding: every rule of the message, and the one sentence: InputError or an Observation, nothing else."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import ConfigError, InputError
from monitor.stream import encoding
from monitor.stream.decode import MAX_DIMENSIONS, MAX_TEXT, REASONS, agent_of, decode, validate
from monitor.types import Observation
from tests.tiers import examples

MESSAGE: dict[str, Any] = {
    "v": 1,
    "episode": "run-7",
    "seq": 3,
    "state": 12,
    "action": 2,
    "time": 1700000000.25,
    "reward": -1.0,
    "terminated": False,
    "truncated": True,
    "policy": "ab" * 32,
}
EXPECTED = Observation(
    agent="ward",
    episode="run-7",
    seq=3,
    state=12,
    action=2,
    time=1700000000.25,
    reward=-1.0,
    terminated=False,
    truncated=True,
    policy="ab" * 32,
)


WHOLE = ((b"\xcc", 1), (b"\xcd", 2), (b"\xce", 4), (b"\xcf", 8), (b"\xd0", 1), (b"\xd1", 2), (b"\xd2", 4), (b"\xd3", 8))
"""How msgpack may write a whole number: the first byte, and how many follow."""

FUZZ = settings(max_examples=examples(25, 500))


def packed(**changes: object) -> bytes:
    return bytes(msgpack.packb(MESSAGE | changes))


def reason_of(payload: bytes, **options: int) -> str:
    with pytest.raises(InputError) as caught:
        decode("ward", payload, **options)
    assert len(caught.value.detail) < 600
    return caught.value.reason


def test_msgpack_and_json_say_the_same() -> None:
    assert decode("ward", packed()) == EXPECTED
    assert decode("ward", json.dumps(MESSAGE).encode()) == EXPECTED
    assert decode("ward", b" \n" + json.dumps(MESSAGE).encode()) == EXPECTED


@pytest.mark.parametrize(
    ("key", "spelling"),
    [
        *[("seq", prefix + (3).to_bytes(size, "big")) for prefix, size in WHOLE],
        ("time", b"\xcb" + struct.pack(">d", 1700000000.25)),
        ("reward", b"\xca" + struct.pack(">f", -1.0)),
        ("reward", b"\xff"),
        ("episode", b"\xd9\x05run-7"),
        ("episode", b"\xda\x00\x05run-7"),
        ("episode", b"\xdb\x00\x00\x00\x05run-7"),
    ],
)
def test_longer_spellings_of_msgpack_say_the_same(key: str, spelling: bytes) -> None:
    """Other languages write numbers as wide as their types."""
    fields = [
        msgpack.packb(name) + (spelling if name == key else msgpack.packb(value)) for name, value in MESSAGE.items()
    ]
    for head in (bytes([0x80 + len(fields)]), b"\xde" + struct.pack(">H", len(fields))):
        assert decode("ward", head + b"".join(fields)) == EXPECTED


def test_optional_keys_may_be_left_out_or_nil() -> None:
    bare = {"v": 1, "episode": 4, "seq": 0, "state": "start"}
    expected = Observation(agent="ward", episode=4, seq=0, state="start")
    assert decode("ward", msgpack.packb(bare)) == expected
    nils = dict.fromkeys(("action", "time", "reward", "terminated", "truncated", "policy"))
    assert decode("ward", msgpack.packb(bare | nils)) == expected


def test_whatever_else_there_is_to_say_goes_into_a_map_of_its_own() -> None:
    for extra in ({}, {"ward": 3, "doses": [0.5, {"deep": None}]}, None):
        assert decode("ward", packed(extra=extra)) == EXPECTED
        assert decode("ward", json.dumps(MESSAGE | {"extra": extra}).encode()) == EXPECTED
    for other in (3, "text", [1], True):
        assert reason_of(packed(extra=other)) == "wrong_type"
    with pytest.raises(InputError, match="the map `extra`"):
        decode("ward", packed(ward=3))


def test_values_are_normalised() -> None:
    seen = decode("ward", packed(time=5, reward=2, policy="AB" * 32, state=[1, 2.5, "x", True]))
    assert (type(seen.time), type(seen.reward), seen.policy) == (float, float, "ab" * 32)
    assert seen.state == (1, 2.5, "x", True)


@pytest.mark.parametrize("key", ["v", "episode", "seq", "state"])
def test_required_keys(key: str) -> None:
    assert reason_of(msgpack.packb({k: v for k, v in MESSAGE.items() if k != key})) == "missing_key"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"colour": 1}, "unknown_key"),
        ({"v": 2}, "version"),
        ({"v": True}, "version"),
        ({"v": 1.0}, "version"),
        ({"v": [1]}, "version"),
        ({"episode": 1.5}, "wrong_type"),
        ({"episode": True}, "wrong_type"),
        ({"episode": None}, "wrong_type"),
        ({"episode": b"run"}, "wrong_type"),
        ({"episode": ""}, "out_of_range"),
        ({"episode": "x" * (MAX_TEXT + 1)}, "out_of_range"),
        ({"episode": 2**64 - 1}, "out_of_range"),
        ({"seq": -1}, "out_of_range"),
        ({"seq": 2**63 - 1}, "out_of_range"),
        ({"seq": 2**63}, "out_of_range"),
        ({"seq": True}, "wrong_type"),
        ({"seq": "3"}, "wrong_type"),
        ({"seq": 3.0}, "wrong_type"),
        ({"state": True}, "wrong_type"),
        ({"state": 1.0}, "wrong_type"),
        ({"state": None}, "wrong_type"),
        ({"state": {"x": [1]}}, "wrong_type"),
        ({"inputs": 1}, "wrong_type"),
        ({"inputs": [[1]]}, "wrong_type"),
        ({"state": [[1]]}, "wrong_type"),
        ({"state": [None]}, "wrong_type"),
        ({"state": [float("nan")]}, "not_finite"),
        ({"state": [2**63]}, "out_of_range"),
        ({"state": [0] * (MAX_DIMENSIONS + 1)}, "out_of_range"),
        ({"action": [1]}, "wrong_type"),
        ({"action": float("inf")}, "not_finite"),
        ({"action": 2**63}, "out_of_range"),
        ({"action": ""}, "out_of_range"),
        ({"time": "now"}, "wrong_type"),
        ({"time": True}, "wrong_type"),
        ({"time": float("nan")}, "not_finite"),
        ({"time": float("-inf")}, "not_finite"),
        ({"time": -1}, "out_of_range"),
        ({"time": 1e300}, "out_of_range"),
        ({"time": 2**63}, "out_of_range"),
        ({"reward": float("inf")}, "not_finite"),
        ({"reward": [1]}, "wrong_type"),
        ({"terminated": 1}, "wrong_type"),
        ({"truncated": "yes"}, "wrong_type"),
        ({"policy": "abc"}, "bad_policy"),
        ({"policy": "g" * 64}, "bad_policy"),
        ({"policy": 7}, "bad_policy"),
        ({"state": msgpack.Timestamp(1)}, "wrong_type"),
        ({"state": msgpack.ExtType(5, b"abc")}, "wrong_type"),
    ],
)
def test_wrong_fields_are_named(changes: dict[str, object], reason: str) -> None:
    assert reason in REASONS
    assert reason_of(packed(**changes)) == reason


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "malformed"),
        (b"\xc1", "malformed"),
        (packed()[:-1], "malformed"),
        (packed() + b"\x01", "malformed"),
        (b"\x91" * 2000, "malformed"),
        (b"\xdf\xff\xff\xff\xff", "malformed"),
        (b"\xdd\xff\xff\xff\xff", "malformed"),
        (b"\x81\x01\x02", "malformed"),
        (b"\x81\xa1\xff\x01", "malformed"),
        (b"\x81\x90\x01", "malformed"),
        (b"\x90", "not_a_map"),
        (b"\xc0", "not_a_map"),
        (b"\x82\xa1v\x01\xa1v\x01", "duplicate_key"),
        (b"\x81\xc4\x01v\x01", "unknown_key"),
        (b"{", "malformed"),
        (b"\x07", "malformed"),
        (b"[1]", "not_a_map"),
        (b"7", "not_a_map"),
        (b"[" * 60000, "malformed"),
        (b'{"v": ' * 10000, "malformed"),
        (b'{"v": 1, "v": 1}', "duplicate_key"),
        (b'{"v": NaN}', "not_finite"),
        (b'{"v": -Infinity}', "not_finite"),
        (b'{"v": "\xff"}', "malformed"),
        (b'{"v": 1, "episode": 1, "seq": 0, "state": 0, "reward": 1e999}', "not_finite"),
        (b'{"v": 1, "episode": 1, "seq": 0, "state": ' + b"9" * 4000 + b"}", "out_of_range"),
        (b'{"v": 1, "episode": 1, "seq": 0, "state": ' + b"9" * 5000 + b"}", "malformed"),
        (b'{"v": 1, "episode": "\\ud800", "seq": 0, "state": 0}', "bad_text"),
        (b'{"v": 1, "\\ud800": 0}', "unknown_key"),
        (b'\xef\xbb\xbf{"v": 1}', "malformed"),
    ],
)
def test_broken_payloads_are_named(payload: bytes, reason: str) -> None:
    assert reason_of(payload) == reason


def test_size_limit_is_inclusive() -> None:
    exact = json.dumps(MESSAGE).encode()
    padded = exact + b" " * (65536 - len(exact))
    assert decode("ward", padded) == EXPECTED
    assert reason_of(padded + b" ") == "too_large"
    assert reason_of(exact, max_bytes=len(exact) - 1) == "too_large"


def decodes_or_says_why(payload: bytes) -> None:
    """Any other exception than InputError fails the test that calls this."""
    refused: InputError | None = None
    try:
        observation = decode("ward", payload)
    except InputError as error:
        refused = error
    else:
        validate(observation)
        msgpack.packb([observation.episode, observation.seq])
    assert refused is None or (refused.reason in REASONS and refused.detail.encode())


@FUZZ
@given(st.binary(max_size=200))
def test_fuzz_random_bytes(payload: bytes) -> None:
    decodes_or_says_why(payload)


@FUZZ
@given(st.data())
def test_fuzz_mutated_messages(data: st.DataObject) -> None:
    payload = bytearray(data.draw(st.sampled_from([packed(), json.dumps(MESSAGE).encode(), packed(state=[1, 2.5])])))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(payload) - 1))
        payload[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        payload = payload or bytearray(b"\x80")
    decodes_or_says_why(bytes(payload))


@FUZZ
@given(st.integers(0, len(packed())), st.integers(0, len(json.dumps(MESSAGE))))
def test_fuzz_truncated_messages(short: int, shorter: int) -> None:
    decodes_or_says_why(packed()[:short])
    decodes_or_says_why(json.dumps(MESSAGE).encode()[:shorter])


TEXT = st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXT | st.binary(max_size=5)
VALUES = (
    SCALARS | st.lists(SCALARS | st.lists(SCALARS, max_size=1), max_size=3) | st.dictionaries(TEXT, TEXT, max_size=1)
)


@FUZZ
@given(st.sampled_from([*MESSAGE, "more"]), VALUES)
def test_fuzz_wrong_values_in_every_key(key: str, value: object) -> None:
    decodes_or_says_why(packed(**{key: value}))


def test_agent_names_come_from_the_topic() -> None:
    assert agent_of("agents/ward-3.b_C/steps", "agents/+/steps") == "ward-3.b_C"
    assert agent_of("a/b/c/x", "a/b/c/+") == "x"
    assert agent_of("x" * 64, "+") == "x" * 64


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 65, "a\n", "+", "a\x00"])
def test_other_agent_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="bad_agent"):
        agent_of(f"agents/{name}/steps", "agents/+/steps")


@pytest.mark.parametrize("topic", ["agents/a/step", "agent/a/steps", "agents/steps", ""])
def test_other_topics_are_refused(topic: str) -> None:
    with pytest.raises(InputError, match="bad_topic"):
        agent_of(topic, "agents/+/steps")


@pytest.mark.parametrize("pattern", ["agents/steps", "+/+/steps"])
def test_a_pattern_needs_one_plus(pattern: str) -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        agent_of("agents/a/steps", pattern)


# ---- the fast parser of JSON, and the one that notices a repeated key ----

NUMERALS = ["0", "-0", "1", "-0.0", "1.5", "1e5", "1E-400", "1e400", "01", "1.", ".5", "NaN", "-Infinity"]
ODD = [*NUMERALS, "true", "null", "{}", "[]", "[1,2]", '["a"]', "'x'"]
LITERALS = st.sampled_from([*ODD, '{"a": 1}', '{"a": 1, "a": 2}', str(2**63), str(-(2**63) - 1), str(10**30)])
TEXTS = st.sampled_from(
    ['"a"', '"b"', '"\\u0061"', '"\\"a"', '"\\ud800"', '"\\ud83d\\ude00"', '"é"', '""', '"a\n"', '"\\x"']
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers().map(str)
MEMBERS = st.tuples(TEXTS, LITERALS | TEXTS | NUMBERS)


@FUZZ
@given(st.lists(MEMBERS, max_size=5), st.sampled_from(["", " ", "\n", "x", "\ufeff", "\x00"]))
def test_both_parsers_of_json_read_the_same(members: list[tuple[str, str]], around: str) -> None:
    payload = f"{{{', '.join(f'{key}: {value}' for key, value in members)}}}{around}".encode()
    parsers = encoding._read_json, encoding._read_json_slowly  # noqa: SLF001 - no message shows which one read it
    assert read_by(parsers[0], payload) == read_by(parsers[1], payload)


def read_by(parser: Callable[[bytes], object], payload: bytes) -> str:
    """What a parser reads, with the types and to the bit, or why it refuses."""
    try:
        return repr(parser(payload))
    except InputError as error:
        return error.reason


def test_most_steps_are_read_by_the_fast_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_read_json_slowly", None)
    assert decode("ward", json.dumps(MESSAGE).encode()) == EXPECTED
