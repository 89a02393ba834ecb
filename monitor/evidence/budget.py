"""Limits on the memory for models and policies of untrusted evidence. A small file may unpack to gigabytes."""

from __future__ import annotations

from typing import Final

from monitor.errors import LimitError
from monitor.model.npz import MAX_UNPACKED_BYTES

MAX_OBJECT_BYTES: Final = 256 << 20
"""Maximum total bytes of the unpacked models and policies of an alarm, in a .zip file or in a folder."""

MAX_MODEL_BYTES: Final = 1 << 30
"""Maximum bytes of memory for reading the models of an alarm."""


class Budget:
    """Bytes that models and policies may still take. `trusted` (`--large`): use the limits of trusted models."""

    def __init__(self, *, trusted: bool = False) -> None:
        self._most = MAX_UNPACKED_BYTES if trusted else MAX_OBJECT_BYTES
        self._left = self._most
        self.model_bytes = MAX_UNPACKED_BYTES if trusted else MAX_MODEL_BYTES

    def take(self, size: int) -> None:
        """Subtract the bytes of a model or policy before it is read. Raises LimitError if not enough bytes are left."""
        if size > self._left:
            raise LimitError(
                f"its models and policies have more than {self._most:,} bytes; if you trust its source, add --large"
            )
        self._left -= size
