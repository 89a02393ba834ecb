from __future__ import annotations

import hashlib
import io
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest

from monitor.errors import ModelError
from monitor.model import MDP, canonical_bytes, model_sha256, read_model

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
