"""Verify an evidence file: its id, signature, models, policies and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from monitor.errors import ConfigError, EvidenceError, FormulaError, LimitError
from monitor.evidence.budget import MAX_MODEL_BYTES
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import Evidence, read_evidence
from monitor.evidence.effort import MAX_WORK, work
from monitor.evidence.proof import Proof, open_proof
from monitor.evidence.rederivation import ENGINE, REFEREE, Deriver, derive_again
from monitor.evidence.signing import SIGNATURE_BYTES, Verifier
from monitor.worlds import CheckedWorld

Signed = Literal["valid", "invalid", "missing", "unchecked"]
"""Result of checking the signature. `unchecked` means that no key was given."""

_NAMED: Final = re.compile(r"([0-9a-f]{32})(?![0-9a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Expected:
    """Independent knowledge about the evidence.

    `id`: the id that the evidence must have; None if unknown. `says`: source of the id, for messages. `key`: the
    signer's public key. `signature`: bytes of the detached signature; None if there is none. `place`: path at which the
    signature was expected.
    """

    id: str | None = None
    says: str = "--id says"
    key: Verifier | None = None
    signature: bytes | None = None
    place: str = "FILE.sig"


@dataclass(frozen=True)
class VerificationReport:
    """Result of a verification. `problems`: one sentence for each problem; empty if the evidence is verified.

    `document`: None if the file is no evidence. `id_compared`: whether the id was compared with the id in `Expected`.
    `derived_by`: the program that recomputed the verdict; None if no number was compared. `notes`: sentences on why
    earlier programs could not recompute the verdict, and on numbers that other programs had to compute. `proof`: the
    evidence with its models and policies, if they could be opened.
    """

    document: Evidence | None
    problems: tuple[str, ...]
    signed: Signed
    id_compared: bool = False
    derived_by: str | None = None
    notes: tuple[str, ...] = ()
    proof: Proof | None = None


def id_in_name(name: str) -> str | None:
    """Return the id at the start of a file's name (exactly 32 hexadecimal digits); None if there is none.

    This recognizes files of the monitor (`<id>`), of a browser (`<id>.evidence`, `<id> (1).evidence`), and copies.

    >>> id_in_name("db615469a8447408ddc518929796c612.evidence")
    'db615469a8447408ddc518929796c612'
    >>> id_in_name("alarm-of-monday") is None
    True
    """
    found = _NAMED.match(name)
    return None if found is None else found[1].lower()


def examine(
    content: bytes,
    read: Callable[[str], bytes],
    expected: Expected = Expected(),
    derivers: Sequence[Deriver] = (REFEREE, ENGINE),
    *,
    most: float = MAX_WORK,
    memory: int = MAX_MODEL_BYTES,
    worlds: Sequence[CheckedWorld] = (),
) -> VerificationReport:
    """Verify the evidence in `content`, and report all problems. `read` returns a model or policy by its SHA-256.

    The first of `derivers` that supports the formula recomputes the numbers, if the work is at most `most`. Reading the
    models takes at most `memory` bytes. `worlds`: the verifier's own copies of worlds written in Python.

    Raises ConfigError if a model or policy cannot be read, or if a needed world is not in `worlds`. Raises LimitError
    if the work exceeds `most`, or if `read` raises LimitError. These errors are raised only if there is no other
    problem.
    """
    signed = _signed(content, expected)
    problems = _of_signature(signed, expected)
    try:
        document = read_evidence(content)
    except EvidenceError as error:
        return VerificationReport(None, (*problems, str(error)), signed)
    problems += check_id(document, expected)
    impossible = contradictions(document)
    problems += impossible
    derived_by: str | None = None
    notes: tuple[str, ...] = ()
    proof: Proof | None = None
    try:
        _check_work(document, min(most, MAX_WORK) if problems else most)  # problems: do not spend much work
        proof = open_proof(document, read, memory=memory, worlds=worlds)
    except FormulaError as error:
        problems += [] if impossible else [f"text: not a formula: {str(error).splitlines()[0]}"]
    except EvidenceError as error:
        problems += [str(error)] if str(error) not in problems else []
    except (ConfigError, LimitError):
        if not problems:
            raise
    else:
        if not impossible:  # otherwise the evidence is of another alarm, and its verdict says nothing about this one
            found = derive_again(document, proof.model, proof.tables, proof.models, derivers)
            problems += [problem for problem in found.problems if problem not in problems]
            derived_by, notes = found.by, found.notes
    return VerificationReport(document, tuple(problems), signed, expected.id is not None, derived_by, notes, proof)


def _check_work(document: Evidence, most: float) -> None:
    if (parts := work(document)) > most:
        raise LimitError(
            f"recomputing this alarm may take minutes: its formula, path and samples have about {parts:,} parts "
            f"(limit {MAX_WORK:,}); if you trust its source, add --large"
        )


def check_id(document: Evidence, expected: Expected) -> list[str]:
    """Return a problem if the document has another id than expected."""
    if expected.id is None or expected.id == document.id:
        return []
    return [f"id: {expected.says} {expected.id}, the document has {document.id}: renamed or replaced"]


def _signed(content: bytes, expected: Expected) -> Signed:
    if expected.key is None:
        return "unchecked"
    if expected.signature is None:
        return "missing"
    return "valid" if expected.key.accepts(expected.signature, content) else "invalid"


def _of_signature(signed: Signed, expected: Expected) -> list[str]:
    match signed:
        case "missing":
            return [f"signature: none at {expected.place}; nothing else shows that the monitor wrote this"]
        case "invalid" if expected.signature is not None and len(expected.signature) != SIGNATURE_BYTES:
            return [f"signature: {expected.place} is not an Ed25519 signature, which has {SIGNATURE_BYTES} bytes"]
        case "invalid":
            key = "" if expected.key is None else f" {expected.key.fingerprint}"
            return [f"signature: not made over this file by the key{key}: altered, or signed with another key"]
        case _:
            return []
