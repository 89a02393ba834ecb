from __future__ import annotations

import hashlib
import io
import os
import random
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.errors import ModelError
from monitor.model import MDP, canonical_bytes, load_model, model_sha256, read_model, save_model
from monitor.model.npz import MAX_UNPACKED_BYTES
from tests.tiers import examples, scaled

RICH = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(0, 0, 1, 0.3), (0, 0, 2, 0.7), (0, 1, 0, 1.0), (1, 0, 2, 1.0), (2, 1, 2, 1.0)],
    rewards=[(0, 0, -1.5)],
    labels={"goal": [2], "a.label-1": [0, 1]},
    initial={0: 0.25, 1: 0.75},
    observations=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]]),
    state_names=["néw", "b", "c"],
    action_names=["left", "right"],
    bin_edges=[[0.0, 1.0, 2.0, 3.0]],
    centres=[[0.5, 1.0], [1.5, -1.0]],
    scales=[1.0, 0.1],
    valuations=[(0.0, "x", True), (1.5, "y", False), (2.0, "\u2603", True)],
)
FIELDS: dict[str, Any] = {
    "format": 1,
    "states": 2,
    "actions": 1,
    "indptr": [0, 2, 3],
    "successors": [0, 1, 1],
    "probabilities": [0.5, 0.5, 1.0],
}


def written(**fields: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{key: value for key, value in (FIELDS | fields).items() if value is not None})
    return file.getvalue()


def assert_equal(one: MDP, other: MDP) -> None:
    assert (one.states, one.actions) == (other.states, other.actions)
    for name in ("indptr", "successors", "probabilities", "rewards", "initial", "observations"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert list(one.labels) == list(other.labels)
    assert all(np.array_equal(one.labels[name], other.labels[name]) for name in one.labels)
    assert one.state_names == other.state_names
    assert one.action_names == other.action_names
    assert one.valuations == other.valuations
    assert (one.centres is None) == (other.centres is None)
    if one.centres is not None and other.centres is not None:
        assert np.array_equal(one.centres.points, other.centres.points)
        assert np.array_equal(one.centres.scales, other.centres.scales)
    assert all(np.array_equal(a, b) for a, b in zip(one.bin_edges, other.bin_edges, strict=True))


def test_a_saved_model_comes_back_whole(tmp_path: Path) -> None:
    save_model(RICH, tmp_path / "m.npz")
    back = load_model(tmp_path / "m.npz")
    assert_equal(RICH, back)
    assert back.source == str(tmp_path / "m.npz")
    assert (tmp_path / "m.npz").read_bytes() != canonical_bytes(RICH)  # compressed
    assert canonical_bytes(back) == canonical_bytes(RICH)
    assert_equal(read_model(canonical_bytes(RICH), "x"), RICH)


def test_copies_of_states_are_kept_and_left_out_where_there_are_none() -> None:
    copied = read_model(written(ended_as=np.array([1, 1], np.uint8)), "x")
    assert copied.ended_as is not None
    assert copied.ended_as.dtype == np.int64
    back = read_model(canonical_bytes(copied), "x")
    assert back.ended_as is not None
    assert back.ended_as.tolist() == [1, 1]
    assert model_sha256(back) == model_sha256(copied)
    without = read_model(written(), "x")
    assert without.ended_as is None
    assert model_sha256(read_model(written(ended_as=[0, 1]), "x")) == model_sha256(without) != model_sha256(copied)


def test_the_hash_is_that_of_the_canonical_bytes_and_pinned() -> None:
    # Evidence written elsewhere names models by this number: it must not change with machine or version.
    tiny = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], labels={"on": [0]}, source="here")
    assert model_sha256(tiny) == "1f0f9861443b117489eef516db715e36406f84a4c87048b6f77c898b6d512a44"
    same = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], labels={"on": [0]}, source="there")
    assert model_sha256(same) == model_sha256(tiny)
    other = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], labels={"off": [0]})
    assert model_sha256(other) != model_sha256(tiny)


def test_a_file_written_with_plain_numpy_is_read() -> None:
    model = read_model(
        written(label_names=["end"], labels=[[False, True]], probabilities=np.array([0.5, 0.5, 1], np.float32)), "x"
    )
    assert model.row(0, 0)[1].tolist() == [0.5, 0.5]
    assert model.labels["end"].tolist() == [False, True]


def test_fortran_order_and_big_endian_are_read() -> None:
    rewards = np.asfortranarray([[1.0, 2.0], [3.0, 4.0]])
    content = written(
        actions=2,
        indptr=np.array([0, 1, 2, 3, 4], ">i4"),
        successors=[0, 1, 0, 1],
        probabilities=np.ones(4, ">f8"),
        rewards=rewards,
    )
    model = read_model(content, "x")
    assert model.rewards.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert model.row(1, 1)[0].tolist() == [1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": 2}, "format 2; this version reads format 1"),
        ({"probabilities": None}, "key 'probabilities' is missing"),
        ({"probability": [1.0]}, "unknown key 'probability'"),
        ({"probabilities": [0.5, 0.49, 1.0]}, r"state 0, action 0\) sums to 0.99"),
        ({"probabilities": [1, 0, 1]}, "not one of the kinds f"),
        ({"probabilities": np.array([0.5, 0.5, {}], dtype=object)}, "plain array"),
        ({"states": [2, 2]}, "must be one number"),
        ({"states": 10**6}, "indptr has 3 entries"),
        ({"states": -1}, "states must be"),
        ({"labels": [[True, False]]}, r"labels have shape"),
        ({"label_names": ["a"]}, r"labels have shape"),
        ({"label_names": ["a", "a"], "labels": [[True, False]] * 2}, "a label name occurs twice"),
        ({"label_names": [["a"]], "labels": [[True, False]]}, "flat list of text"),
        ({"bin_edges_1": [0.0, 1.0]}, "without gaps"),
        ({"centres": [[0.0], [1.0]]}, "give both or none"),
        ({"centre_scales": [1.0]}, "give both or none"),
        ({"centres": [[0.0], [1.0]], "centre_scales": [1.0, 2.0]}, "give 1 numbers above 0"),
        ({"centres": [[0.0], [1.0]], "centre_scales": [0.0]}, "give 1 numbers above 0"),
        ({"centres": [0.0, 1.0], "centre_scales": [1.0]}, "not .K, D."),
        ({"centres": [[0.0], [1.0], [2.0]], "centre_scales": [1.0]}, "from 1 to the 2 states"),
        ({"centres": [[0.0], [np.nan]], "centre_scales": [1.0]}, "every entry must be finite"),
        ({"centres": [[0.0], [0.0]], "centre_scales": [1.0]}, "centre 1 equals another one"),
        ({"bin_edges_00": [0.0, 1.0]}, "unknown key"),
        ({"valuations": ["{}", "[]"]}, "not a JSON list"),
        ({"valuations": ["[1", "[]"]}, "not a readable"),
        ({"valuations": ["[" * 100_000, "[]"]}, "not a readable"),
        ({"state_names": np.array(["a\ud800", "b"])}, "text that is not Unicode"),
        ({"state_names": ["a\n", "b"]}, "printable"),
        ({"ended_as": [0]}, "names 1 states, not one for each of the 2"),
        ({"ended_as": [[0, 1]]}, "give a flat list"),
        ({"ended_as": [0, 2]}, "ended_as: state 2 .* is outside"),
        ({"ended_as": [1, 0]}, "state 0 ends as 1, which itself ends as 0"),
        ({"ended_as": [0.0, 1.0]}, "not one of the kinds i, u"),
    ],
)
def test_a_malformed_file_says_what_is_wrong(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        read_model(written(**fields), "the-file.npz")
    assert "model the-file.npz: " in str(caught.value)


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(ModelError, match="limit of 500 bytes"):
        read_model(written(), "x", limit=500)


def test_only_plain_compressions_and_one_member_a_key() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("states.npy", b"x")
    with pytest.raises(ModelError, match="stored or deflated"):
        read_model(file.getvalue(), "x")
    file = io.BytesIO(written())
    with zipfile.ZipFile(file) as archive:
        states = archive.read("states.npy")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("states", states)
    with pytest.raises(ModelError, match="occurs twice"):
        read_model(file.getvalue(), "x")


def test_damaged_bytes_are_a_model_error_and_nothing_else() -> None:
    damage = random.Random(5)
    originals = [canonical_bytes(RICH), written(), b"PK\x03\x04", b"", b"\x00" * 100]
    refused = 0
    for _ in range(3000):
        content = bytearray(damage.choice(originals))
        for _ in range(damage.randint(1, 6)):
            if not content:
                break
            at = damage.randrange(len(content))
            match damage.randrange(3):
                case 0:
                    content[at] = damage.randrange(256)
                case 1:
                    del content[at : at + damage.randint(1, 40)]
                case _:
                    content[at:at] = damage.randbytes(damage.randint(1, 8))
        try:
            read_model(bytes(content), "x")
        except ModelError:
            refused += 1
    assert refused > 2500


@scaled
def test_damaged_arrays_in_a_sound_archive_are_a_model_error_and_nothing_else() -> None:
    damage = random.Random(6)
    with zipfile.ZipFile(io.BytesIO(canonical_bytes(RICH))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    refused = 0
    for _ in range(examples(500, 1500)):
        name = damage.choice(sorted(members))
        content = bytearray(members[name])
        for _ in range(damage.randint(1, 3)):
            content[damage.randrange(len(content))] = damage.randrange(256)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for key, whole in members.items():
                archive.writestr(key, bytes(content) if key == name else whole)
        try:
            read_model(file.getvalue(), "x")
        except ModelError:
            refused += 1
    assert refused > examples(150, 500)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "m.npz").touch()
    os.truncate(tmp_path / "m.npz", MAX_UNPACKED_BYTES + 1)
    with pytest.raises(ModelError, match="larger than the limit"):
        load_model(tmp_path / "m.npz")


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for source in (tmp_path / "none.npz", tmp_path, "a\0b"):
        with pytest.raises(ModelError, match="cannot be read"):
            load_model(source)
    with pytest.raises(ModelError, match="cannot be written"):
        save_model(RICH, tmp_path / "no" / "folder.npz")


def test_a_large_model_is_named_without_being_copied() -> None:
    size = 100_000
    model = MDP.from_rows(
        states=size,
        actions=1,
        indptr=np.arange(size + 1),
        successors=np.arange(size),
        probabilities=np.ones(size),
    )
    tracemalloc.start()
    try:
        digest = model_sha256(model)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert digest == hashlib.sha256(canonical_bytes(model)).hexdigest()
    assert peak < 1.5 * 4 * size  # the successors, in the width of the file; the model holds 40 bytes a state
