"""Keys and signatures: Ed25519 as openssl has it, a clear word for every file that is no key, and no key shown."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.errors import ConfigError
from monitor.evidence.signing import SIGNATURE_BYTES, read_signer, read_verifier
from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import check_secrets, load_config
from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.reload import check_fixed
from monitor.sidecar.service import Service
from tests.sidecar.keys import make_keys
from tests.sidecar.project import CONFIG, write_project
from tests.tiers import examples

RFC_8032 = (
    "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
    "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
    hashlib.sha512(b"abc").hexdigest(),
    (
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
        "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"
    ),
)
"""Secret key, public key, message (the SHA-512 of "abc") and signature: "SHA(abc)" of RFC 8032, Section 7.1."""


def test_a_signature_is_accepted_over_the_very_bytes_by_the_very_key(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    signer, verifier = read_signer(private), read_verifier(public)
    signature = signer.sign(b"evidence")
    assert (len(signature), signer.sign(b"evidence")) == (SIGNATURE_BYTES, signature)
    assert signer.fingerprint == verifier.fingerprint
    assert verifier.accepts(signature, b"evidence")
    assert not verifier.accepts(signature, b"Evidence")
    assert not verifier.accepts(signature[:-1], b"evidence")
    assert not read_verifier(make_keys(tmp_path, "other")[1]).accepts(signature, b"evidence")


def test_it_is_the_ed25519_of_the_rfc(tmp_path: Path) -> None:
    secret, public, message, expected = map(bytes.fromhex, RFC_8032)
    key = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
    (tmp_path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw) == public
    assert read_signer(tmp_path / "key.pem").sign(message) == expected


def test_a_private_key_is_shown_nowhere(tmp_path: Path) -> None:
    private, _ = make_keys(tmp_path)
    signer = read_signer(private)
    key = load_pem_private_key(private.read_bytes(), None)
    assert isinstance(key, ed25519.Ed25519PrivateKey)
    raw = key.private_bytes_raw()
    for shown in (repr(signer), str(vars(signer)), signer.fingerprint):
        assert raw.hex() not in shown
        assert str(raw) not in shown


def files(folder: Path) -> dict[str, Path]:
    """Files that are no such key, by what is wrong with them."""
    private, public = make_keys(folder)
    curve, own = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    locked = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    contents = {
        "another kind": curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "another public kind": curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "encrypted": locked,
        "nothing": b"",
        "no PEM": own.private_bytes_raw(),
        "broken": private.read_bytes().replace(b"M", b"!"),
        "huge": bytes(5000),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    named = {name: folder / name for name in (*contents, "missing")}
    return {**named, "private": private, "public": public, "folder": folder}


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("public", "is a public key; the monitor signs with the private one"),
        ("another kind", "is not an Ed25519 key; make one with `openssl genpkey"),
        ("encrypted", "is encrypted, which is not supported"),
        ("nothing", "is not a PEM file with"),
        ("no PEM", "is not a PEM file with"),
        ("broken", "is not a PEM file with"),
        ("huge", "is larger than 4096 bytes, so it is not a key"),
        ("missing", "cannot be read: No such file or directory"),
        ("folder", "cannot be read: Is a directory"),
    ],
)
def test_what_is_no_private_key_is_refused_in_words(tmp_path: Path, file: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_signer(files(tmp_path)[file])
    assert str(raised.value).startswith("store.signing_key: ")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("private", "is a private key; give the public one, `openssl pkey -in PRIVATE -pubout"),
        ("another public kind", "is not an Ed25519 key"),
        ("nothing", "is not a PEM file with"),
        ("missing", "cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_public_key_is_refused_in_words(tmp_path: Path, file: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_verifier(files(tmp_path)[file])
    assert str(raised.value).startswith("--key: ")
    assert says in str(raised.value)


@given(data=st.data())
@settings(
    max_examples=examples(25, 300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_any_bytes_are_a_key_or_a_configuration_error(tmp_path: Path, data: st.DataObject) -> None:
    private, public = make_keys(tmp_path)
    for true, read in ((private, read_signer), (public, read_verifier)):
        content = bytearray(true.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        (tmp_path / "key").write_bytes(bytes(content))
        with contextlib.suppress(ConfigError):
            read(tmp_path / "key")


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = make_keys(tmp_path)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    for read, file in ((read_signer, private), (read_verifier, public)):
        with pytest.raises(ConfigError, match=r"need the extra `sign`: run pip install '\.\[sign\]' in a clone"):
            read(file)


# ---- in a configuration ----

SIGNED = CONFIG.replace("store: {path: var/cfmon.sqlite}", "store: {path: var/cfmon.sqlite, signing_key: key.pem}")


def test_a_key_of_the_configuration_is_checked_with_the_other_secrets(tmp_path: Path, corridor: MDP) -> None:
    path = write_project(tmp_path / "project", corridor, SIGNED)
    config = load_config(path)  # as for a replay, which needs no key
    assert config.store.signing_key == path.parent / "key.pem"
    with pytest.raises(ConfigError, match=r"config\.yaml, line \d+, store\.signing_key: .*key\.pem cannot be read"):
        check_secrets(config)
    path.write_text(SIGNED.replace("path: var/cfmon.sqlite", "path: null"))
    with pytest.raises(ConfigError, match=r"line \d+, store: signing_key is of no use without path"):
        load_config(path)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_key_that_everyone_can_read_is_warned_of(
    tmp_path: Path, corridor: MDP, caplog: pytest.LogCaptureFixture, mode: int, *, warned: bool
) -> None:
    path = write_project(tmp_path / "project", corridor, SIGNED)
    private, public = make_keys(tmp_path)
    private.rename(path.parent / "key.pem").chmod(mode)
    service = Service(assemble(path, {}))
    with caplog.at_level(logging.INFO, "monitor.service"):
        service.start()
        service.close()
    assert f"fingerprint is {read_verifier(public).fingerprint}" in caplog.text
    assert ("everyone on this machine can read" in caplog.text) == warned


def test_the_running_monitor_gives_out_signatures_of_the_evidence_it_keeps(tmp_path: Path, corridor: MDP) -> None:
    for text, signs in ((SIGNED, True), (CONFIG, False)):
        path = write_project(tmp_path / f"project-{signs}", corridor, text)
        private, public = make_keys(path.parent)
        private.rename(path.parent / "key.pem")
        service = Service(assemble(path, {}))
        assert service.store is not None
        service.store.commit([], [EvidenceFile("a" * 32, b"proof")], [])
        signature = service.sources.signature("a" * 32)
        assert (signature is not None and read_verifier(public).accepts(signature, b"proof")) == signs
        assert service.sources.signature("b" * 32) is None
        service.close()


def test_another_key_takes_a_restart(tmp_path: Path, corridor: MDP) -> None:
    old = load_config(write_project(tmp_path / "project", corridor, CONFIG))
    new = load_config(write_project(tmp_path / "project", corridor, SIGNED))
    with pytest.raises(ConfigError, match=r"store\.signing_key: read at start only"):
        check_fixed(old, new)
