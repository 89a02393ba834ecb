from __future__ import annotations

import pytest

from monitor.errors import PolicyError
from monitor.policy.export import manifest_yaml
from monitor.policy.manifest import Manifest, read_manifest
from monitor.policy.onnx_policy import of_network

GOOD = f"""
file: net.onnx
sha256: {"a" * 64}
input: {{name: x, kind: observation}}
output: {{name: y, kind: logits}}
mode: greedy
"""


def read_network(content: bytes, where: str) -> Manifest:
    return of_network(read_manifest(content, where), where)


def test_a_manifest_is_read_and_written_back() -> None:
    manifest = read_network((GOOD + "mask: true\nname: mine\ndescription: a néw one\n").encode(), "p.yaml")
    assert manifest.input.kind == "observation"
    assert manifest.mask
    assert read_manifest(manifest_yaml(manifest).encode(), "again") == manifest
    assert not read_network(GOOD.encode(), "p.yaml").mask


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mode: greedy", "mode: random", "mode: Input should be 'greedy' or 'stochastic'"),
        ("mode: greedy", "", "mode: Field required"),
        ("mode: greedy", "mode: greedy\nmodel: x", "model: Extra inputs are not permitted"),
        ("kind: logits", "kind: scores", "output.kind"),
        ("kind: logits", "kind: q_values, shape: 3", "output.shape: Extra"),
        ("a" * 64, "A" * 64, "sha256"),
        ("a" * 64, "a" * 63, "sha256"),
        ("file: net.onnx", "file: ../net.onnx", "file: must name a file inside the manifest's own folder"),
        ("file: net.onnx", "file: /etc/net.onnx", "inside the manifest's own folder"),
        ("file: net.onnx", "file: a/../../net.onnx", "inside the manifest's own folder"),
        ("file: net.onnx", "file: 'a\\..\\net.onnx'", "inside the manifest's own folder"),
        ("file: net.onnx", 'file: "a\\0b"', "inside the manifest's own folder"),
        ("kind: logits}\nmode: greedy", "kind: q_values}\nmode: stochastic", "needs logits or probabilities"),
        ("kind: logits}\nmode: greedy", "kind: action}\nmode: stochastic", "needs logits or probabilities"),
        ("kind: logits}\nmode: greedy", "kind: action}\nmode: greedy\nmask: true", "mask needs scores"),
        ("mode: greedy", "mode: greedy\nname: 'a b'", "name: String should match"),
        ("mode: greedy", "mode: [", r"line \d+: not valid YAML"),
        ("mode: greedy", "mode: !!python/object:os.system {}", "the tag .* not allowed"),
        ("mode: greedy", "mode: greedy\n---\nmode: greedy", "not valid YAML"),
        ("mode: greedy", "mode: \x07", "not valid YAML"),
        (GOOD, "", "empty"),
        (GOOD, "[1, 2]", "must be `key: value` lines"),
        (GOOD, "[" * 5_000, "nested deeper"),
        ("mode: greedy", "mode: &a greedy", "anchors and aliases"),
        ("mode: greedy", 'mode: !!int ""', "the tag .* not allowed"),
        ("mode: greedy", "mode: greedy\nmode: greedy", "is there twice"),
        (GOOD, "x" * 70_000, "larger than the limit of 65536 bytes"),
    ],
)
def test_a_wrong_manifest_says_where_and_why(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(PolicyError, match=message) as caught:
        read_manifest(GOOD.replace(old, new).encode(), "folder/p.yaml")
    assert str(caught.value).startswith(("policy folder/p.yaml: ", "policy folder/p.yaml, line "))


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(PolicyError, match="not UTF-8 text"):
        read_manifest(b"\xff\xfe\xfa", "p.yaml")
