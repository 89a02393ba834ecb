"""The limits of an evidence document: its size, its depth, and what an exact verdict leaves out."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from monitor.alarm import document as document_module
from monitor.alarm.document import MAX_DEPTH, read_evidence
from monitor.errors import EvidenceError


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
