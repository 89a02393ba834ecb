"""Key files as openssl writes them."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

__all__ = ["make_keys"]


def make_keys(folder: Path, name: str = "evidence") -> tuple[Path, Path]:
    """A new private and its public key, as files."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.key.pem", folder / f"{name}.pub.pem"
    private.touch(mode=0o600)
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public
