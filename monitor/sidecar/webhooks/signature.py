"""Signatures after Standard Webhooks 1.0.0 (github.com/standard-webhooks/standard-webhooks): HMAC-SHA256, `v1`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
LEAST, MOST = 24, 64
"""Minimum and maximum number of bytes of a secret, from the specification."""


def parse_secrets(text: str) -> tuple[bytes, ...]:
    """Return the secrets in `text`, each `whsec_` and base64.

    While a secret is being replaced, the text has two secrets, separated by a space.

    The message of a ValueError does not repeat the text.
    """
    secrets = tuple(_parse(word) for word in text.split())
    if not 1 <= len(secrets) <= 2 or any(not LEAST <= len(secret) <= MOST for secret in secrets):
        raise ValueError(
            f"must contain whsec_ and {LEAST} to {MOST} bytes in base64, such as "
            '`echo "whsec_$(openssl rand -base64 32)"` prints, or two of these separated by a space'
        )
    return secrets


def _parse(word: str) -> bytes:
    """Return the bytes of one secret; empty if it is malformed."""
    try:
        return base64.b64decode(word.removeprefix(PREFIX), validate=True) if word.startswith(PREFIX) else b""
    except binascii.Error:
        return b""


def signed_headers(id_: str, body: bytes, secrets: Sequence[bytes], seconds: float) -> dict[str, str]:
    """Return the headers of one attempt at `seconds` since the epoch, with a signature for each secret.

    `id_` must not contain a full stop, because full stops separate the parts of the signed content.
    """
    headers = {"webhook-id": id_, "webhook-timestamp": str(int(seconds))}
    if secrets:
        content = f"{id_}.{int(seconds)}.".encode() + body
        signatures = (hmac.new(secret, content, hashlib.sha256).digest() for secret in secrets)
        headers["webhook-signature"] = " ".join(f"v1,{base64.b64encode(each).decode()}" for each in signatures)
    return headers
