"""The archive of a UMB file: a tar file, compressed with gzip or xz or uncompressed, and the arrays in its members.

Sizes are checked before memory is allocated. Source: the UMB specification (github.com/pmc-tools/umb), version 1.
"""

from __future__ import annotations

import io
import itertools
import json
import lzma
import math
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ModelError

_BLOCK: Final = 512
MAX_INDEX_BYTES: Final = 4 << 20
MAX_MEMBERS: Final = 20_000
_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True)
class UmbArchive:
    """The members of a UMB file by name."""

    members: Mapping[str, memoryview]

    def index(self) -> dict[str, Any]:
        """Return the content of the index, a JSON file."""
        content = self._content("index.json")
        if len(content) > MAX_INDEX_BYTES:
            raise ModelError(f"index.json has {len(content):,} bytes, more than the limit of {MAX_INDEX_BYTES:,}")
        try:
            index = json.loads(bytes(content))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"index.json is not JSON ({error})") from error
        if not isinstance(index, dict):
            raise ModelError("index.json must hold an object")
        return index

    def has(self, name: str) -> bool:
        """Return whether there is a member of this name."""
        return name in self.members

    def array(self, name: str, dtype: str, count: int) -> Any:  # noqa: ANN401 - an array of that type
        """Return the `count` numbers of a member."""
        content, width = self._content(name), np.dtype(dtype).itemsize
        if len(content) != count * width:
            raise ModelError(f"{name} has {len(content):,} bytes; {count:,} numbers of {width} bytes are expected")
        return np.frombuffer(content, dtype)

    def length(self, name: str, dtype: str) -> int:
        """Return the number of values in a member."""
        return len(self._content(name)) // np.dtype(dtype).itemsize

    def indices(self, name: str, dtype: str, count: int, limit: int) -> Ints:
        """Return the `count` numbers of a member, each in `0..limit-1`."""
        values = self.array(name, dtype, count)
        bad = np.flatnonzero(values >= limit)
        if bad.size:
            raise ModelError(f"{name}: entry {bad[0]} is {values[bad[0]]}, outside 0..{limit - 1}")
        return np.asarray(values, np.int64)

    def ranges(self, name: str, count: int, total: int) -> Ints:
        """Return the limits of the ranges of `count` things, [count + 1].

        Without the member, each thing has a range of one.
        """
        if not self.has(name):
            if count != total:
                raise ModelError(f"{name} is missing, and {count:,} things do not have one of {total:,} each")
            return np.arange(count + 1)
        found = self.indices(name, "<u8", count + 1, total + 1)
        if found[0] != 0 or found[-1] != total or bool((np.diff(found) < 0).any()):
            raise ModelError(f"{name} must rise from 0 to {total:,}")
        return found

    def bits(self, name: str, count: int) -> Bools:
        """Return the `count` bits of a member. Without the member, all are false."""
        if not self.has(name):
            return np.zeros(count, np.bool_)
        content = self._content(name)
        if not math.ceil(count / 8) <= len(content) <= math.ceil(count / 64) * 8:
            raise ModelError(f"{name} has {len(content):,} bytes, which do not fit {count:,} bits")
        return np.unpackbits(np.frombuffer(content, np.uint8), count=count, bitorder="little").astype(np.bool_)

    def numbers(self, name: str, kind: object, count: int) -> Floats:
        """Return the `count` finite numbers of a member. `kind`: the type that the index gives, double or rational."""
        match kind:
            case {"type": "double", **more} if more.get("size", 64) == 64:
                values = self.array(name, "<f8", count)
            case {"type": "rational", **more} if isinstance(size := more.get("size", 128), int) and size > 0:
                values = self._rationals(name, size, count)
            case _:
                raise ModelError(f"{name}: numbers of type {str(kind)[:80]} are not supported; use double or rational")
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise ModelError(f"{name}: entry {bad[0]} is {values[bad[0]]}; every entry must be finite")
        return np.asarray(values, np.float64)

    def texts(self, mapping: str, strings: str, count: int) -> tuple[str, ...]:
        """Return `count` texts.

        One member has the positions where texts end, and the other member has the characters.
        """
        content = bytes(self._content(strings))
        ends = self.ranges(mapping, count, len(content)).tolist() if self.has(mapping) else [0] * (count + 1)
        try:
            return tuple(content[a:b].decode() for a, b in itertools.pairwise(ends))
        except UnicodeDecodeError as error:
            raise ModelError(f"{strings} is not UTF-8 text") from error

    def _rationals(self, name: str, size: int, count: int) -> Floats:
        """Return fractions. Each has a signed numerator and an unsigned denominator of size/2 bits."""
        content, half = self._content(name), size // 16
        if size % 16 or len(content) != count * 2 * half:
            raise ModelError(f"{name} has {len(content):,} bytes, which do not fit {count:,} rationals of {size} bits")
        parts = [content[at : at + half] for at in range(0, len(content), half)]
        try:
            return np.array(
                [
                    int.from_bytes(parts[n], "little", signed=True) / int.from_bytes(parts[n + 1], "little")
                    for n in range(0, len(parts), 2)
                ],
                np.float64,
            )
        except (ZeroDivisionError, OverflowError) as error:
            raise ModelError(f"{name}: a fraction cannot be computed ({error})") from error

    def _content(self, name: str) -> memoryview:
        try:
            return self.members[name]
        except KeyError:
            raise ModelError(f"{name} is missing from the archive") from None


def unpacked_tar(content: bytes, limit: int) -> UmbArchive:
    """Return the members of a UMB file whose unpacked size is at most `limit` bytes.

    Raises:
        ModelError: the content is not such an archive, is larger, or has members other than files and folders.
    """
    return UmbArchive(_members(memoryview(_decompressed(content, limit))))


def packed_tar(members: Mapping[str, bytes]) -> bytes:
    """Return the members as a tar file compressed with gzip. Equal members give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    packer = zlib.compressobj(wbits=31)  # gzip, without a date
    return packer.compress(buffer.getvalue()) + packer.flush()


def _decompressed(content: bytes, limit: int) -> bytes:
    try:
        if content[:2] == b"\x1f\x8b":
            gzip = zlib.decompressobj(31)
            raw, done = gzip.decompress(content, limit + 1), gzip.eof
        elif content[:6] == b"\xfd7zXZ\x00":
            xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=max(_MEGABYTE, min(limit, 256 * _MEGABYTE)))
            raw, done = xz.decompress(content, limit + 1), xz.eof
        else:
            raw, done = content, True
    except (zlib.error, lzma.LZMAError, EOFError, MemoryError) as error:
        raise ModelError(f"not a readable .umb file ({error})") from error
    if len(raw) > limit:
        raise ModelError(f"it unpacks to more than the limit of {limit:,} bytes")
    if not done:
        raise ModelError("the .umb file is cut off")
    return raw


def _members(raw: memoryview) -> dict[str, memoryview]:
    """Return the files of a tar archive. `tarfile` is not used, as it would fill sparse members of any size."""
    members: dict[str, memoryview] = {}
    at = 0
    while at + _BLOCK <= len(raw) and any(raw[at : at + _BLOCK]):
        header = bytes(raw[at : at + _BLOCK])
        size = _size(header)
        content = raw[at + _BLOCK : at + _BLOCK + size]
        if header[257:262] != b"ustar" or len(content) != size:
            raise ModelError("not a readable .umb file: it is no tar archive, or cut off")
        match header[156:157]:
            case b"0" | b"\0":
                name = _name(header)
                if name in members or len(members) >= MAX_MEMBERS:
                    raise ModelError(f"the archive holds {name!r} twice, or more than {MAX_MEMBERS:,} files")
                members[name] = content
            case b"5" | b"x" | b"g":  # folders, and dates
                pass
            case kind:
                raise ModelError(f"the archive holds a member of kind {kind!r}; files and folders are read")
        at += _BLOCK + math.ceil(size / _BLOCK) * _BLOCK
    if not members:
        raise ModelError("not a readable .umb file: it is no tar archive, or empty")
    return members


def _size(header: bytes) -> int:
    digits = header[124:136].strip(b" \0")
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise ModelError("not a readable .umb file: it is no tar archive")
    return int(digits, 8)


def _name(header: bytes) -> str:
    name, prefix = (part.split(b"\0")[0].decode("ascii", "replace") for part in (header[:100], header[345:500]))
    return (f"{prefix}/{name}" if prefix else name).removeprefix("./")
