"""One alarm's evidence with all that it follows from, in a zip file that can be taken anywhere.

Unpacked it is a folder as the monitor keeps it, `evidence/<id>`, `evidence/<id>.sig` where it is signed, and
`objects/<sha256>` for the model and every policy; `cfmon verify` and `cfmon explain` read it packed as well.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from monitor.alarm.document import MAX_EVIDENCE_BYTES, Evidence, read_evidence
from monitor.errors import EvidenceError, LimitError
from monitor.model.npz import MAX_UNPACKED_BYTES
from monitor.sidecar.evidence.signing import SIGNATURE_BYTES

__all__ = ["Bundle", "pack_bundle", "read_bundle", "referenced_objects"]

EVIDENCE: Final = re.compile(r"evidence/([0-9a-f]{32})")
DATE: Final = (1980, 1, 1, 0, 0, 0)
"""The oldest a zip file can say: the same evidence gives the same bytes."""

MOST_MEMBERS: Final = 1100
"""Evidence, signature, and a thousand models and policies."""

DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError)
"""What `zipfile` raises on bytes that are no zip file, are cut off, encrypted, or packed in a way of their own."""


class Bundle(NamedTuple):
    """What lies in a zip file. `signature`: None if it holds none. `objects`: sha256 -> content, not compared yet."""

    id: str
    content: bytes
    signature: bytes | None
    objects: Callable[[str], bytes]


def referenced_objects(evidence: Evidence) -> Iterator[str]:
    """The sha256 of everything that the evidence follows from, each once: the model, other models, the policies."""
    every = [evidence.model_sha256, *evidence.models.values(), *(p.sha256 for p in evidence.policies.values())]
    yield from dict.fromkeys(every)


def pack_bundle(
    content: bytes, read: Callable[[str], bytes], signature: bytes | None = None, *, most: int = MAX_UNPACKED_BYTES
) -> bytes:
    """The zip file for the evidence in `content`; `read` gives the model or policy kept under a sha256.

    Raises:
        EvidenceError: it is no evidence, or something it names is not what is kept under that name.
        LimitError: all together it is more than `most` bytes.
        Whatever `read` raises.
    """
    evidence = read_evidence(content)
    members = {f"evidence/{evidence.id}": content}
    if signature is not None:
        members[f"evidence/{evidence.id}.sig"] = signature
    size = len(content)
    for sha256 in referenced_objects(evidence):
        found = read(sha256)
        if hashlib.sha256(found).hexdigest() != sha256:
            raise EvidenceError(f"objects/{sha256}: what is kept under this name is something else: altered")
        members[f"objects/{sha256}"] = found
        size += len(found)
        if size > most:
            raise LimitError(f"model and policies are more than {most:,} bytes")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            told = zipfile.ZipInfo(name, DATE)
            told.external_attr = 0o644 << 16
            told.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(told, member)
    return packed.getvalue()


def read_bundle(file: Path) -> Bundle:
    """What lies in a zip file; nothing is unpacked to disk, and nothing larger than such a thing may be.

    Raises EvidenceError if it is no zip file with the evidence of one alarm. `Bundle.objects` raises it too.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            found = [match[1] for name in archive.namelist()[:MOST_MEMBERS] if (match := EVIDENCE.fullmatch(name))]
            if len(found) != 1:
                raise EvidenceError(f"{file}: holds the evidence of {len(found)} alarms; of one alarm is wanted")
            there = f"evidence/{found[0]}"
            content = _member(archive, there, MAX_EVIDENCE_BYTES)
            signed = f"{there}.sig" in archive.namelist()
            signature = _member(archive, f"{there}.sig", SIGNATURE_BYTES + 1) if signed else None
    except DAMAGE as error:
        raise EvidenceError(f"{file}: not a readable zip file ({error})") from error
    except OSError as error:
        raise EvidenceError(f"{file}: cannot be read ({error.strerror or error})") from error

    def objects(sha256: str) -> bytes:
        try:
            with zipfile.ZipFile(file) as archive:
                return _member(archive, f"objects/{sha256}", MAX_UNPACKED_BYTES)
        except DAMAGE as error:
            raise EvidenceError(f"{file}: objects/{sha256} cannot be read from it ({error})") from error

    return Bundle(found[0], content, signature, objects)


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """One member; zipfile gives out no more bytes of it than it says that it has."""
    told = archive.getinfo(name)
    if told.file_size > most:
        raise EvidenceError(f"{archive.filename}: {name} says that it has {told.file_size:,} bytes; {most:,} at most")
    return archive.read(told)
