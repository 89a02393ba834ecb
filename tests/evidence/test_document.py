"""The form of an evidence document: its bytes, the limits of its size and depth, and what it leaves out."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import EvidenceError
from monitor.evidence import document as document_module
from monitor.evidence.canonical import MAX_DEPTH, list_of, pack
from monitor.evidence.document import evidence_id, pack_evidence, read_evidence, seal


def maps(levels: int) -> Any:  # noqa: ANN401 - a nested document
    return {"a": maps(levels - 1)} if levels else 1


def lists(levels: int) -> Any:  # noqa: ANN401 - likewise
    return [lists(levels - 1)] if levels else 1


@pytest.mark.parametrize("nested", [maps, lists])
def test_as_deep_as_may_be_and_one_deeper(nested: Any) -> None:  # noqa: ANN401 - one of the above
    with pytest.raises(EvidenceError, match="its digest does not match"):
        read_evidence(msgpack.packb({"a": nested(MAX_DEPTH - 1)}))
    with pytest.raises(EvidenceError, match=f"nested deeper than {MAX_DEPTH}"):
        read_evidence(msgpack.packb({"a": nested(MAX_DEPTH)}))


def test_as_large_as_may_be_and_one_byte_larger(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "MAX_EVIDENCE_BYTES", len(content))
    read_evidence(content)
    monkeypatch.setattr(document_module, "MAX_EVIDENCE_BYTES", len(content) - 1)
    with pytest.raises(EvidenceError, match=r"larger than \d,\d{3} bytes"):
        read_evidence(content)


def test_an_exact_verdict_says_nothing_of_samples(content: bytes) -> None:
    verdict = msgpack.unpackb(content)["verdict"]
    for part in (verdict, *verdict["quantities"]):
        assert not part.keys() & {"samples", "confidence", "drawn"}


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["\ud800", "half \udfff"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


def ordered(value: Any) -> Any:  # noqa: ANN401 - plain data
    """Plain data with the keys of its maps in order."""
    match value:
        case dict():
            return {key: ordered(value[key]) for key in sorted(value)}
        case list() | tuple():
            return [ordered(item) for item in value]
        case _:
            return value


def packed(value: Any) -> bytes:  # noqa: ANN401 - plain data
    return bytes(msgpack.packb(value, unicode_errors="surrogatepass"))


@given(st.dictionaries(st.text().filter(lambda name: name != "digest"), VALUES))
def test_a_document_is_its_packed_members_in_order_with_a_digest_of_them(members: dict[str, Any]) -> None:
    digest = hashlib.sha256(packed(ordered(members))).hexdigest()
    content = seal({name: pack(name, value) for name, value in members.items()})
    assert content == packed(ordered({**members, "digest": digest}))
    assert evidence_id(content) == digest[:32]


@given(st.lists(VALUES))
def test_a_list_of_packed_items_is_the_packed_list(items: list[Any]) -> None:
    assert list_of([pack("items", item) for item in items]) == packed(ordered(items))


@given(VALUES, st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_number_that_is_not_finite_is_named_wherever_it_is(value: Any, number: float) -> None:  # noqa: ANN401 - plain
    with pytest.raises(EvidenceError, match=rf"^evidence\.verdict\.a\[1\]\.b: {number} is not a finite number$"):
        pack("verdict", {"a": [value, {"b": number}]})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {2: 3}]}, r"evidence\.x\.a\[1\]: a key that is not text"),
        ([{"x"}], r"evidence\.x\[0\]: set is not allowed"),
        (object(), r"evidence\.x: object is not allowed"),
    ],
)
def test_anything_but_plain_data_is_refused_with_its_place(value: object, message: str) -> None:
    with pytest.raises(EvidenceError, match=f"^{message}$"):
        pack("x", value)


def test_the_document_of_an_alarm_is_the_packed_evidence(content: bytes) -> None:
    evidence = read_evidence(content)
    assert pack_evidence(evidence) == content
    assert packed(ordered(msgpack.unpackb(content, unicode_errors="surrogatepass"))) == content
