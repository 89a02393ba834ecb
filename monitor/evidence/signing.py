"""Ed25519 signatures (RFC 8032) of evidence: made with a private key in a file, checked with the public key.

A signature has 64 bytes and covers the unchanged evidence file, so other programs can check it too: `openssl pkeyutl
-verify -pubin -inkey PUBLIC -rawin -in FILE -sigfile FILE.sig`. Equal files have equal signatures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monitor.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY: Final = "store.signing_key"
"""Setting with the path of the private key."""
SIGNATURE_BYTES: Final = 64
MAX_KEY_BYTES: Final = 4096

_MAKE: Final = "make one with `openssl genpkey -algorithm ed25519 -out FILE`"
_PUBLISH: Final = "`openssl pkey -in PRIVATE -pubout -out PUBLIC` writes it"


class Signer:
    """Private key of a monitor; thread-safe. Its repr does not contain the key.

    `fingerprint`: fingerprint of the public key (see `Verifier`). `exposed`: whether the key's file is world-readable.
    """

    def __init__(self, key: Ed25519PrivateKey, *, exposed: bool = False) -> None:
        self._key = key
        self.fingerprint = _fingerprint(key.public_key())
        self.exposed = exposed

    def sign(self, content: bytes) -> bytes:
        """Return the signature of `content`, `SIGNATURE_BYTES` long."""
        return self._key.sign(content)


class Verifier:
    """Public key. `fingerprint`: `openssl pkey -pubin -in PUBLIC -outform DER | sha256sum`, in hexadecimal."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.fingerprint = _fingerprint(key)

    def accepts(self, signature: bytes, content: bytes) -> bool:
        """Return whether the private key of this public key made `signature` over exactly `content`."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

        try:
            self._key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


def read_signer(path: Path) -> Signer:
    """Return the private key in a PEM file (PKCS 8, not encrypted).

    Raises ConfigError if the file cannot be read, if the key is of another kind, or if the extra `sign` is not
    installed.
    """
    content = _read(path, KEY)
    _need(KEY)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - likewise

    if b"PUBLIC KEY-----" in content:
        raise ConfigError(f"{KEY}: {path} is a public key; the monitor signs with the private one")
    key = _load(lambda: load_pem_private_key(content, None), f"{KEY}: {path}", f"a private key; {_MAKE}")
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{KEY}: {path} is not an Ed25519 key; {_MAKE}")
    return Signer(key, exposed=bool(path.stat().st_mode & 0o004))


def read_verifier(path: Path) -> Verifier:
    """Return the public key in a PEM file. Raises ConfigError as `read_signer` does."""
    content = _read(path, "--key")
    _need("--key")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415 - likewise

    if b"PRIVATE KEY-----" in content:
        raise ConfigError(f"--key: {path} is a private key; give the public one, {_PUBLISH}")
    key = _load(lambda: load_pem_public_key(content), f"--key: {path}", f"a public key; {_PUBLISH}")
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"--key: {path} is not an Ed25519 key; {_MAKE}, and {_PUBLISH}")
    return Verifier(key)


def _load(read: Callable[[], object], where: str, what: str) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra

    try:
        return read()
    except TypeError:
        raise ConfigError(f"{where} is encrypted, which is not supported; store it unencrypted") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{where} is not a PEM file with {what}") from None


def _fingerprint(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 - an extra

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _read(path: Path, where: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_KEY_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{where}: {path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_KEY_BYTES:
        raise ConfigError(f"{where}: {path} is larger than {MAX_KEY_BYTES} bytes, so it is not a key")
    return content


def _need(where: str) -> None:
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            f"{where}: signatures need the extra `sign`: run pip install '.[sign]' in a clone of the monitor"
        ) from None
