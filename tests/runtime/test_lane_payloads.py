"""Compiled code that reads payloads: what it accepts, the decoder accepts, and both keep the same of it."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.arrays import Bytes
from monitor.errors import InputError
from monitor.jit import compiled
from monitor.model import MDP
from monitor.runtime.lanes.payload import BUFFER
from monitor.runtime.lanes.run import Evaluations, Messages, Run
from monitor.runtime.lanes.text import _real
from monitor.runtime.monitor import Monitor
from monitor.stream.decode import decode
from monitor.types import FormulaSpec, Instant, Received, StreamSettings
from tests.runtime.test_lanes import in_lanes, without_lanes
from tests.tiers import examples

LAW = settings(max_examples=examples(10, 60))
POLICY = "ab" * 32
BEGUN = 22
"""Steps after which the agent has a lane."""
MODEL = MDP.from_transitions(
    states=3,
    actions=1,
    transitions=[(s, 0, t, 1 / 3) for s in range(3) for t in range(3)],
    labels={"bad": [0]},
    rewards=[(0, 0, 1.0)],
)
NO_EVALUATIONS = Evaluations(np.zeros(1, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
written = msgspec.msgpack.encode


def monitor() -> Monitor:
    patient = StreamSettings(window=6, stale_after=1e6, idle_after=1e6, forget_after=1e7, policies={POLICY: "nominal"})
    return Monitor(MODEL, {"nominal": [0] * 3}, [FormulaSpec("f", 'P>=0.0 [ G<=2 !"bad" ]')], patient)


def forms(value: object) -> list[bytes]:
    """Return a value as msgpack writes it, in other forms, and others in its place."""
    match value:
        case bool():
            return [b"\xc2", b"\xc3", b"\xc0", b"\x00"]
        case int():
            number = [b"\xcf" + struct.pack(">Q", value & (2**63 - 1)), b"\xd3" + struct.pack(">q", value)]
            if not 0 <= value <= 127:
                return number
            wide = [b"\xcc" + bytes([value]), b"\xcd" + struct.pack(">H", value), b"\xce" + struct.pack(">I", value)]
            other = [b"\xd0" + bytes([value]), b"\xcb" + struct.pack(">d", value), b"\xc0", b"\xff", b"\xc3"]
            return [*number, *wide, *other, b"\xcf" + struct.pack(">Q", value | 1 << 62)]
        case float():
            odd = (value, float("nan"), float("inf"), -0.0, -1.0, 2.6e11)
            return [
                b"\xca" + struct.pack(">f", value),
                b"\x05",
                b"\xc0",
                *(b"\xcb" + struct.pack(">d", x) for x in odd),
            ]
        case str():
            text, size = value.encode(), len(value)
            long = [b"\xd9" + bytes([size]) + text, b"\xda" + struct.pack(">H", size) + text]
            return [*long, b"\xc4" + bytes([size]) + text, written(value.upper()), b"\xc0"]
        case _:
            return [b"\xc0", b"\x01"]


def step(rng: random.Random, episode: int | str, seq: int, *, named: bool) -> dict[str, Any]:
    optional: dict[str, Any] = {
        "time": 1000.0 + seq + rng.choice([0.0, rng.random()]),
        "reward": None,
        "terminated": False,
        "truncated": False,
    }
    chosen = {key: value for key, value in optional.items() if rng.random() < 0.4}
    return {
        "v": 1,
        "episode": episode,
        "seq": seq,
        "state": rng.randrange(3),
        "action": 0,
        **chosen,
        **({"policy": POLICY} if named else {}),
    }


def changed(rng: random.Random, said: dict[str, Any]) -> bytes:
    """Return a message, mostly as it should be."""
    items = [
        (written(key), rng.choice(forms(value)) if rng.random() < 0.07 else written(value))
        for key, value in said.items()
    ]
    rng.shuffle(items)
    match rng.randrange(10):
        case 0:
            items.append(rng.choice(items))
        case 1:
            items.append(
                (written(rng.choice(["extra", "w", "polic", "seqq", ""])), rng.choice([b"\x01", b"\xc0", b"\x80"]))
            )
        case 2:
            items.pop(rng.randrange(len(items)))
        case _:
            pass
    head = b"\xde" + struct.pack(">H", len(items)) if rng.random() < 0.1 else bytes([0x80 + len(items)])
    payload = bytearray(head + b"".join(key + value for key, value in items))
    match rng.randrange(10):
        case 0:
            payload.append(rng.randrange(256))
        case 1:
            del payload[rng.randrange(1, len(payload)) :]
        case 2 | 3:
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        case _:
            pass
    return bytes(payload)


def texts(value: object) -> list[str]:
    """Return a value as JSON in other forms, and others in its place."""
    match value:
        case bool():
            return ["true", "false", "null", "0"]
        case int():
            same = [f"{value}.0", f'"{value}"', f"0{value}", f"-{value}", f"{value}e0", f"{value}1", "-0", "null"]
            return [*same, "9" * 17, "9" * 18, "9" * 19, "9" * 20, "18446744073709551616", ""]
        case float():
            odd = [
                "-0.0",
                "-0",
                "0",
                "0.0",
                "00.5",
                "1.",
                ".5",
                "-",
                "1e3",
                "1.5e3",
                "NaN",
                "Infinity",
                "260000000000.5",
            ]
            return [
                *odd,
                "null",
                repr(value) + "0" * 12,
                repr(value) + "1" * 12,
                f"{value:.7f}",
                str(int(value)),
                "1 2",
            ]
        case str():
            return [f'"{value.upper()}"', f'"{value}', f'"\\u0061{value[1:]}"', f'"{value}x"', "null", '""']
        case _:
            return ["null", "1", "1.25", "7", "{}"]


def changed_text(rng: random.Random, said: dict[str, Any]) -> bytes:
    """Return a message in JSON, mostly as it should be."""

    def space() -> str:
        return rng.choice(["", "", "", " ", "\n\t", "\r "])

    def one(value: object) -> str:
        return rng.choice(texts(value)) if rng.random() < 0.07 else json.dumps(value)

    items = [f'{space()}"{key}"{space()}:{space()}{one(value)}{space()}' for key, value in said.items()]
    rng.shuffle(items)
    match rng.randrange(10):
        case 0:
            items.append(rng.choice(items))
        case 1:
            items.append(f'"{rng.choice(["extra", "w", "polic", "seqq", ""])}":{rng.choice(["1", "null", "{}"])}')
        case 2:
            items.pop(rng.randrange(len(items)))
        case _:
            pass
    payload = bytearray(f"{{{','.join(items)}}}{space()}".encode())
    match rng.randrange(10):
        case 0:
            payload.append(rng.randrange(256))
        case 1:
            del payload[rng.randrange(1, len(payload)) :]
        case 2 | 3:
            payload[rng.randrange(len(payload))] = rng.choice([rng.randrange(256), *b'0123456789.,:-"{}'])
        case _:
            pass
    return bytes(payload)


def received(one: Monitor, payload: bytes, now: Instant) -> bool:
    """Let a lane read a payload; return whether it accepted it."""
    offsets = np.array([0, len(payload)], np.int64)
    times = np.array([now.wall]), np.array([now.ticks])
    messages = Messages(["ada"], np.zeros(1, np.int64), memoryview(payload), offsets, *times)
    with Run(one, messages, NO_EVALUATIONS, 65536) as run:
        run.go()
    return run.accepted == 1


def in_lane(rng: random.Random, episode: int | str, *, named: bool) -> Monitor:
    """Return a monitor whose agent has its lane after `BEGUN` steps."""
    one = monitor()
    for seq in range(BEGUN):
        now = Instant(1000.0 + seq, float(seq))
        one.observe(decode("ada", written(step(rng, episode, seq, named=named))), now)
        one.evaluate(now)
    return one


@LAW
@given(st.integers(0, 2**32))
def test_a_payload_is_read_as_the_decoder_reads_it(seed: int) -> None:
    rng = random.Random(seed)
    lanes, plain = monitor(), without_lanes(monitor())
    named = rng.random() < 0.5
    episodes: list[int | str] = ["e1", 7, -5, "x" * 40, 2**40]
    episode = rng.choice(episodes)
    for seq in range(BEGUN):
        now = Instant(1000.0 + seq, float(seq))
        said = decode("ada", written(step(rng, episode, seq, named=named)))
        for one in (lanes, plain):
            one.observe(said, now)
            one.evaluate(now)
    for seq in range(BEGUN, BEGUN + 4):
        if "ada" not in in_lanes(lanes):
            break
        now = Instant(1000.0 + seq, float(seq))
        payload = rng.choice((changed, changed_text))(rng, step(rng, episode, seq, named=named))
        found = lanes.receive("ada", payload, now) if rng.random() < 0.5 else received(lanes, payload, now)
        try:
            said = decode("ada", payload)
        except InputError:
            assert not found
            continue
        expected = plain.observe(said, now)
        if found is True:
            assert [each.result for each in expected] == ["accepted"]  # type: ignore[union-attr]
        else:
            assert (found or lanes.observe(said, now)) == expected
        assert lanes.evaluate(now) == plain.evaluate(now)
    kept, others = (each.changed(everything=True)["ada"] for each in (lanes, plain))
    assert kept is not None
    assert others is not None
    assert (kept.session, kept.trust) == (others.session, others.trust)


def write_text(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("write", [written, msgspec.json.encode, write_text])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("episode", ["e1", 7, -5, 2**40])
def test_what_an_agent_writes_is_read_in_compiled_code(
    episode: int | str, write: Callable[[object], bytes], *, named: bool
) -> None:
    rng = random.Random(1)
    one = in_lane(rng, episode, named=named)
    assert received(one, write(step(rng, episode, BEGUN, named=named)), Instant(1022.0, 22.0))


def test_a_payload_longer_than_the_buffer_is_left_to_the_ordinary_way() -> None:
    """JSON may have spaces. What is left changes nothing, as does a message of an agent that has no lane."""
    rng = random.Random(1)
    one = in_lane(rng, 7, named=True)
    said = write_text({**step(rng, 7, BEGUN, named=True), "time": 1021.5})
    longest = said[:-1] + b" " * (BUFFER - len(said)) + said[-1:]
    now = Instant(1022.0, 22.0)
    assert one.receive("ada", longest[:-1] + b" }", now) is None
    assert one.waiting.steps == 0
    assert one.receive("bob", longest, now) is None, "he has no lane"
    assert one.receive("ada", longest, now) == [Received("ada", "accepted", lag=0.5)]
    assert one.waiting.steps == 1
    buffers = [each._buffer for each in (one, one.anew())]  # noqa: SLF001 - compiled code writes into it
    assert buffers[0] is not buffers[1], "each monitor has its own"


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("seq", "22", True),
        ("seq", "022", False),
        ("seq", "+22", False),
        ("seq", "22.0", False),
        ("seq", "2.2e1", False),
        ("state", "01", False),
        ("v", "01", False),
        ("v", "1.0", False),
        ("time", "1000.5", True),
        ("time", "1000", True),
        ("time", "null", True),
        ("time", "01000.5", False),
        ("time", "1000.", False),
        ("time", "1e3", False),
        ("time", "-0.0", True),
        ("time", "-0", False),
        ("truncated", "false", True),
        ("truncated", "null", True),
        ("truncated", "fals", False),
        ("policy", "null", True),
        ("policy", f'"{POLICY}"', True),
        ("policy", f'"{POLICY}0"', False),
        ("policy", f'"{POLICY[1:]}"', False),
        ("extra", "{}", False),
    ],
)
def test_json_that_compiled_code_reads_and_that_it_leaves(key: str, value: str, *, accepted: bool) -> None:
    rng = random.Random(1)
    one = in_lane(rng, 7, named=True)
    said = {
        "v": "1",
        "episode": "7",
        "seq": str(BEGUN),
        "state": "1",
        "action": "0",
        "policy": f'"{POLICY}"',
        key: value,
    }
    text = ",".join(f'"{name}":{each}' for name, each in said.items())
    assert received(one, f"{{{text}}}".encode(), Instant(1022.0, 22.0)) == accepted


@compiled
def read_number(content: Bytes) -> tuple[float, int]:
    return _real(content, len(content), 0)


@LAW
@given(st.integers(0, 2**32))
def test_a_decimal_number_is_read_as_python_reads_it(seed: int) -> None:
    rng = random.Random(seed)
    read = 0
    for _ in range(300):
        whole = str(rng.randrange(10 ** rng.randrange(1, 18)))
        text = f"{rng.choice(['', '-'])}{whole}.{rng.randrange(10 ** rng.randrange(1, 18))}"
        near = repr(float(text)) if rng.random() < 0.5 else halfway(rng)
        for each in (text, near, repr(rng.uniform(1.7e9, 1.9e9)), repr(rng.random())):
            value, end = read_number(np.frombuffer(each.encode(), np.uint8))
            if end == len(each):
                read += 1
                assert (value, math.copysign(1.0, value)) == (float(each), math.copysign(1.0, float(each)))
    assert read > 600


def halfway(rng: random.Random) -> str:
    """Return a number in the middle between two floats, or a hair beside it."""
    number = rng.randrange(2**52, 2**53) * 2 + 1
    text = str(Decimal(number) / 2 ** rng.randrange(1, 3))
    return text + rng.choice(["", "0", "1"])
