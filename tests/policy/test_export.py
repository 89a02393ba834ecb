from __future__ import annotations

import hashlib
import sys

import numpy as np
import pytest

from monitor.errors import PolicyError
from monitor.policy.export import perceptron_onnx, table_onnx


def test_the_same_numbers_give_the_same_bytes() -> None:
    pytest.importorskip("onnx")
    scores = np.arange(6.0).reshape(3, 2)
    layers = ((np.eye(2), np.zeros(2)), (np.ones((2, 3)), np.zeros(3)))
    assert table_onnx(scores, "index") == table_onnx(scores.copy(), "index")
    assert table_onnx(scores, "index") != table_onnx(scores, "one_hot")
    assert perceptron_onnx(layers) == perceptron_onnx(layers)
    # Pinned: a new version of the onnx package must not change the shipped files' hashes unseen.
    assert (
        hashlib.sha256(table_onnx(scores, "index")).hexdigest()
        == "01deabbaaef17f53805f8fbf7d75b6cddf3f3e999cab359025e1508010dd7156"
    )


def test_without_onnx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(PolicyError, match=r"pip install '\.\[export\]'"):
        table_onnx(np.eye(2), "index")
