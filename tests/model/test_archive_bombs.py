"""Archives that say little and hold much: refused before memory is taken for what they hold."""

from __future__ import annotations

import io
import pickle
import re
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from monitor.errors import ModelError
from monitor.model.npz import read_model
from tests.bombs import archive, array, at_most, header

MEGABYTE = 1 << 20


def lying() -> bytes:
    """Says that a member has 100 bytes; it unpacks to 60 megabytes."""
    content = bytearray(archive({"format": bytes(60 * MEGABYTE)}))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", content, content.index(signature) + offset, 100)
    return bytes(content)


def many_members() -> bytes:
    return archive({f"bin_edges_{n}": b"" for n in range(20_000)})


def object_array() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, format=np.array([pickle.dumps], dtype=object))
    return buffer.getvalue()


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "unpacks to more than the limit": (lambda: archive({"format": bytes(60 * MEGABYTE)}), "more than the limit"),
    "says less than it holds": (lying, "is not a NumPy array|not a readable"),
    "many members": (many_members, "far more members than a model has"),
    "a declared shape without content": (lambda: archive({"format": header("<i8", "(1000000000,)")}), "do not fit"),
    "a declared shape that overflows": (
        lambda: archive({"format": header("<i8", "(4294967296, 4294967296)")}),
        "do not fit",
    ),
    "text of a gigabyte each": (lambda: archive({"state_names": header("<U999999999", "(1000,)")}), "."),
    "a pickle": (object_array, "its header is not that of a plain array"),
    "states beyond memory": (
        lambda: archive(
            {
                "format": array(1),
                "states": array(1 << 40),
                "actions": array(1 << 20),
                "indptr": array([0]),
                "successors": array(np.zeros(0, np.int64)),
                "probabilities": array(np.zeros(0)),
            }
        ),
        ".",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_archive_bomb_is_refused_with_little_memory_taken(bomb: str) -> None:
    make, says = BOMBS[bomb]
    content = make()
    with at_most(20 * MEGABYTE), pytest.raises(ModelError, match=says):
        read_model(content, "bomb.npz", limit=30 * MEGABYTE)


# ---- what fits the limit takes no more than it ----

STATES = 20_000
ENTRIES = 2 * STATES
ORDERED = (np.arange(ENTRIES) % 2 + np.arange(ENTRIES) // 2 % (STATES - 1)).astype(np.int32)
ANY_ORDER = ORDERED.reshape(-1, 2)[:, ::-1].reshape(-1)
HALVES = {"indptr": np.arange(0, ENTRIES + 1, 2, dtype=np.int32), "probabilities": np.full(ENTRIES, 0.5, np.float16)}
ONES = np.ones(ENTRIES, np.int8)
VALUES = np.array([f'[{s % 256}, {s // 256}, "é{s % 7}", true, 1]' for s in range(STATES)])
LARGE: dict[str, dict[str, object]] = {
    "ordered": {"successors": ORDERED},
    "in any order": {"successors": ANY_ORDER},
    "given twice": {"successors": ANY_ORDER // 2 * 2},
    "paid for": {"successors": ANY_ORDER, "transition_rewards": ONES, "reward_spread": ONES},
    "refused": {"successors": ANY_ORDER, "probabilities": np.zeros(ENTRIES, np.float16)},
    "rows without entries": {
        "indptr": np.zeros(STATES + 1, np.int8),
        "successors": ONES[:0],
        "probabilities": np.zeros(0),
    },
    "rewarded": {"successors": ORDERED, "rewards": np.asfortranarray(np.ones((STATES, 1), np.int8))},
    "observed": {"successors": ORDERED, "observations": np.ones((STATES, 20), np.int8)},
    "begun": {"successors": ORDERED, "initial": np.eye(1, STATES)[0].astype(np.float16)},
    "ended": {"successors": ORDERED, "ended_as": np.zeros(STATES, np.int8)},
    "labelled": {
        "successors": ORDERED,
        "label_names": np.array([f"l{n}" for n in range(50)]),
        "labels": np.asfortranarray(np.zeros((50, STATES), np.bool_)),
    },
    "named": {"successors": ORDERED, "state_names": np.array([f"é{s}" for s in range(STATES)])},
    "valued": {"successors": ORDERED, "valuations": VALUES},
    "clustered": {
        "successors": ORDERED,
        "centres": np.arange(4 * STATES, dtype=np.float32).reshape(-1, 4),
        "centre_scales": np.ones(4, np.int8),
    },
    "binned": {"successors": ORDERED, "bin_edges_0": np.arange(STATES)},
    "binned text": {
        "successors": ORDERED,
        "bin_edges_0": np.arange(STATES + 1),
        "bin_names_0": np.array([f"é{s}" for s in range(STATES)]),
    },
    "many labels": {
        "states": 2,
        "actions": 1,
        "indptr": [0, 1, 2],
        "successors": [0, 1],
        "probabilities": np.ones(2),
        "label_names": np.array([f"l{n}" for n in range(20_000)]),
        "labels": np.zeros((20_000, 2), np.bool_),
    },
}


@pytest.mark.parametrize("shape", LARGE)
def test_reading_takes_no_more_memory_than_its_headers_say(shape: str) -> None:
    members = {"format": 1, "states": STATES, "actions": 1, **HALVES, **LARGE[shape]}
    content = archive({key: array(value) for key, value in members.items()})
    with pytest.raises(ModelError, match="more than the limit") as refused:
        read_model(content, "large.npz", limit=sum(np.asarray(value).nbytes + 128 for value in members.values()))
    told = re.search("reading it takes ([0-9,]+) bytes", str(refused.value))
    assert told is not None
    needed = int(told[1].replace(",", ""))
    tracemalloc.start()
    try:
        with suppress(ModelError):
            read_model(content, "large.npz", limit=needed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert needed / 20 < peak < needed


FEW = {"format": 1, "states": 3, "actions": 2, "indptr": [0, 1, 2, 3, 4, 5, 6], "successors": [0, 1, 2, 0, 1, 2]}
FEW |= {"probabilities": np.ones(6), "label_names": ["a"], "labels": [[True, False, True]]}
EACH: dict[str, object] = {
    **{key: np.zeros(10 * MEGABYTE, np.int8) for key in ("format", "states", "actions", "indptr", "ended_as")},
    **{key: np.zeros((10 * MEGABYTE, 1), np.int8) for key in ("rewards", "transition_rewards", "reward_spread")},
    "observations": np.zeros((3, 4 * MEGABYTE), np.int8),
    "centres": np.zeros((3, 4 * MEGABYTE), np.int8),
    "centre_scales": np.zeros(10 * MEGABYTE, np.int8),
    "successors": np.zeros(10 * MEGABYTE, np.int8),
    **{key: np.zeros(5 * MEGABYTE, np.float16) for key in ("probabilities", "initial", "bin_edges_0")},
    "labels": np.zeros((10 * MEGABYTE, 1), np.bool_),
    **{
        key: np.zeros(MEGABYTE // 4, "U10")
        for key in ("label_names", "state_names", "action_names", "valuations", "bin_names_0")
    },
    "state_names of any length": np.zeros(3, "U1000000"),
    "valuations of any length": np.zeros(3, "U1000000"),
}


@pytest.mark.parametrize("key", EACH)
def test_no_array_is_unpacked_that_is_larger_than_the_others_allow(key: str) -> None:
    """Each is small when packed, and unpacks to less than the limit."""
    content = archive({name: array(value) for name, value in {**FEW, key.partition(" ")[0]: EACH[key]}.items()})
    assert len(content) < MEGABYTE
    with at_most(5 * MEGABYTE), pytest.raises(ModelError):
        read_model(content, "bomb.npz", limit=20 * MEGABYTE)
