"""Write arrays as a `.npz` archive. Equal arrays give equal bytes everywhere; large arrays are not copied."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from monitor.arrays import AnyArray

Piece = bytes | memoryview
"""A piece of the archive: bytes, or a view of an array."""

_FIXED_DATE = (1980, 1, 1, 0, 0, 0)


def packed(arrays: Mapping[str, AnyArray], compression: int) -> Iterable[Piece]:
    """Return the pieces of the archive of `arrays`, in order. Members are sorted by name.

    `compression`: `zipfile.ZIP_STORED` or `ZIP_DEFLATED`.
    """
    pieces = _Pieces()
    with zipfile.ZipFile(pieces, "w", compression, compresslevel=9) as archive:
        for key in sorted(arrays):
            info = zipfile.ZipInfo(f"{key}.npy", _FIXED_DATE)
            info.compress_type = compression
            info.create_system = 3  # the default depends on the operating system
            info.external_attr = 0o644 << 16
            array = np.ascontiguousarray(arrays[key]).reshape(arrays[key].shape)
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
            info.file_size = header.tell() + array.nbytes
            with archive.open(info, "w") as member:
                member.write(header.getvalue())
                member.write(array.reshape(-1).view(np.uint8).data)
    return pieces.at.values()


class _Pieces(io.RawIOBase):
    """File in memory that keeps the objects written to it. zipfile overwrites only whole headers of members.

    `at`: position -> object written at this position, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[int, Piece] = {}
        self._position = 0

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        assert whence == 0, "zipfile seeks absolute positions only"
        self._position = offset
        return offset

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        size = memoryview(data).nbytes
        if size:
            self.at[self._position] = data
        self._position += size
        return size
