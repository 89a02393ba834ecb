"""Portable zip file of one alarm's evidence, with the models and policies that the evidence refers to.

The unpacked file has the layout of the store: `evidence/<id>`, `evidence/<id>.sig` if signed, and `objects/<sha256>`
for each model and policy. `cfmon verify` and `cfmon explain` read packed and unpacked files.
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

from monitor.errors import EvidenceError, LimitError, ModelError
from monitor.evidence.budget import Budget
from monitor.evidence.document import MAX_EVIDENCE_BYTES, Evidence, read_evidence
from monitor.evidence.signing import SIGNATURE_BYTES
from monitor.model.npz import MAX_UNPACKED_BYTES
from monitor.model.unpack import MAX_DIRECTORY_BYTES, check_directory, read_member

EVIDENCE: Final = re.compile(r"evidence/([0-9a-f]{32})")
DATE: Final = (1980, 1, 1, 0, 0, 0)
"""Date of all members: the earliest date of the zip format. It is constant, so equal evidence gives equal bytes."""

MAX_MEMBERS: Final = 1100
"""Maximum number of members: evidence, signature, and about a thousand models and policies."""

DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError)
"""Exceptions of `zipfile` for files that are malformed, truncated, encrypted, or compressed in an unknown way."""


class Bundle(NamedTuple):
    """Content of a zip file. `signature`: None if missing.

    `objects`: SHA-256 -> content, whose digest is not checked.
    """

    id: str
    content: bytes
    signature: bytes | None
    objects: Callable[[str], bytes]


def referenced_objects(evidence: Evidence) -> Iterator[str]:
    """Yield once the SHA-256 of each object that the evidence refers to: the model, other models, and the policies."""
    every = [evidence.model_sha256, *evidence.models.values(), *(p.sha256 for p in evidence.policies.values())]
    yield from dict.fromkeys(every)


def pack_bundle(
    content: bytes, read: Callable[[str], bytes], signature: bytes | None = None, *, most: int = MAX_UNPACKED_BYTES
) -> bytes:
    """Return a zip file with the evidence in `content`. `read` returns a model or policy by its SHA-256.

    Raises:
        EvidenceError: `content` is not evidence, or the digest of an object differs from its name.
        LimitError: the members together have more than `most` bytes.

    It also raises the errors of `read`.
    """
    evidence = read_evidence(content)
    members = {f"evidence/{evidence.id}": content}
    if signature is not None:
        members[f"evidence/{evidence.id}.sig"] = signature
    size = len(content)
    for sha256 in referenced_objects(evidence):
        found = read(sha256)
        if hashlib.sha256(found).hexdigest() != sha256:
            raise EvidenceError(f"objects/{sha256}: altered: its content has another digest")
        members[f"objects/{sha256}"] = found
        size += len(found)
        if size > most:
            raise LimitError(f"model and policies are more than {most:,} bytes")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member)
    return packed.getvalue()


def read_bundle(file: Path, budget: Budget | None = None) -> Bundle:
    """Read a zip file, in memory and with limits on sizes. `budget`: limit for the models and policies in the file.

    This function and `Bundle.objects` raise EvidenceError if the file is not a zip file with the evidence of one alarm.
    `Bundle.objects` raises LimitError if the models and policies are larger than the budget.
    """
    try:
        _check_directory(file)
        with zipfile.ZipFile(file) as archive:
            found = [match[1] for name in archive.namelist()[:MAX_MEMBERS] if (match := EVIDENCE.fullmatch(name))]
            if len(found) != 1:
                raise EvidenceError(f"{file}: contains the evidence of {len(found)} alarms; give one with one alarm")
            name = f"evidence/{found[0]}"
            content = _member(archive, name, MAX_EVIDENCE_BYTES)
            signed = f"{name}.sig" in archive.namelist()
            signature = _member(archive, f"{name}.sig", SIGNATURE_BYTES + 1) if signed else None
    except DAMAGE as error:
        raise EvidenceError(f"{file}: not a readable zip file ({error})") from error
    except OSError as error:
        raise EvidenceError(f"{file}: cannot be read ({error.strerror or error})") from error

    def objects(sha256: str) -> bytes:
        try:
            with zipfile.ZipFile(file) as archive:
                (budget or Budget()).take(archive.getinfo(f"objects/{sha256}").file_size)
                return _member(archive, f"objects/{sha256}", MAX_UNPACKED_BYTES)
        except DAMAGE as error:
            raise EvidenceError(f"{file}: objects/{sha256} cannot be read from it ({error})") from error

    return Bundle(found[0], content, signature, objects)


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return a member of at most `most` bytes. zipfile reads no more than the declared size."""
    info = archive.getinfo(name)
    if info.file_size > most:
        raise EvidenceError(f"{archive.filename}: {name} has {info.file_size:,} bytes; at most {most:,} are allowed")
    return read_member(archive, info)


def _check_directory(file: Path) -> None:
    """Raise EvidenceError if the list of members is too large to read."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - MAX_DIRECTORY_BYTES - 1024))
        try:
            check_directory(opened.read(MAX_DIRECTORY_BYTES + 1024))
        except ModelError as error:
            raise EvidenceError(f"{file}: it holds far more members than evidence has") from error
