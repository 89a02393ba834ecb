"""Memory for the models and policies of evidence of any origin: a small file may unpack to gigabytes."""

from __future__ import annotations

from typing import Final

from monitor.errors import LimitError
from monitor.model.npz import MAX_UNPACKED_BYTES

MAX_OBJECT_BYTES: Final = 256 << 20
"""Most bytes of all models and policies of an alarm, unpacked, as they are in a .zip file or in a folder."""

MAX_MODEL_BYTES: Final = 1 << 30
"""Most bytes of memory to read the models of an alarm."""


class Budget:
    """What is left of the bytes for objects. `trusted`: as much as any model may have, as with `--large`."""

    def __init__(self, *, trusted: bool = False) -> None:
        self._most = MAX_UNPACKED_BYTES if trusted else MAX_OBJECT_BYTES
        self._left = self._most
        self.model_bytes = MAX_UNPACKED_BYTES if trusted else MAX_MODEL_BYTES

    def take(self, size: int) -> None:
        """Take the bytes of an object, before it is read. Raises LimitError if there are not so many left."""
        if size > self._left:
            raise LimitError(
                f"its models and policies have more than {self._most:,} bytes; if you trust its source, add --large"
            )
        self._left -= size
