"""One evidence file held against everything there is to hold it against: id, signature, model, policies, numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from monitor.alarm.document import Evidence, read_evidence
from monitor.alarm.effort import MAX_WORK, work
from monitor.alarm.evidence import ENGINE, REFEREE, Deriver, contradictions, derive_again
from monitor.errors import ConfigError, EvidenceError, FormulaError, LimitError
from monitor.sidecar.evidence.proof import Proof, open_proof
from monitor.sidecar.evidence.signing import SIGNATURE_BYTES, Verifier

__all__ = ["Expected", "Report", "Signed", "check_id", "examine", "id_in_name"]

Signed = Literal["valid", "invalid", "missing", "unchecked"]
"""What became of the signature; `unchecked`: no key was given."""

_NAMED: Final = re.compile(r"([0-9a-f]{32})(?![0-9a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Expected:
    """What is known of the evidence from elsewhere.

    `id`: the id it must have, None if nobody says; `says`: who says so, for the message. `key`: who must have signed
    it. `signature`: the bytes of the detached signature, None if there is none; `place`: where it was looked for.
    """

    id: str | None = None
    says: str = "--id says"
    key: Verifier | None = None
    signature: bytes | None = None
    place: str = "FILE.sig"


@dataclass(frozen=True)
class Report:
    """What was found. `problems`: one sentence each, none if the evidence is verified.

    `document`: None if the file is no evidence. `id_compared`: with the id in `Expected`. `derived_by`: the program
    that derived the verdict again; None if none was derived, and then no number was compared. `passed`: why the
    programs before it did not, one sentence each. `proof`: the evidence with what it names, where that could be opened.
    """

    document: Evidence | None
    problems: tuple[str, ...]
    signed: Signed
    id_compared: bool = False
    derived_by: str | None = None
    passed: tuple[str, ...] = ()
    proof: Proof | None = None


def id_in_name(name: str) -> str | None:
    """Return the id that a file's name claims: its first 32 hexadecimal digits, if it begins with exactly so many.

    That covers what the monitor writes (`<id>`), what a browser saves (`<id>.evidence`, `<id> (1).evidence`) and copies
    such as `<id>.msgpack`. Any other name claims nothing: None.

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
) -> Report:
    """Verify the evidence in `content`; `read` gives the model or policy kept under a sha256.

    The numbers are derived by the first of `derivers` that answers such a question, if that is at most `most` work.

    Everything that can be said is said: a wrong id or signature does not keep the numbers from being derived.

    Raises ConfigError if a model or policy cannot be read, LimitError if it is more work; both only where nothing else
    is wrong with the evidence.
    """
    signed = _signed(content, expected)
    problems = _of_signature(signed, expected)
    try:
        document = read_evidence(content)
    except EvidenceError as error:
        return Report(None, (*problems, str(error)), signed)
    problems += check_id(document, expected)
    problems += contradictions(document) or _of_text(document)
    if problems:  # wrong already, so nothing in it is worth much work
        most = min(most, MAX_WORK)
    derived_by: str | None = None
    passed: tuple[str, ...] = ()
    proof: Proof | None = None
    try:
        _check_work(document, most)
        proof = open_proof(document, read)
    except EvidenceError as error:
        problems += [str(error)] if str(error) not in problems else []
    except (ConfigError, LimitError, FormulaError):
        if not problems:
            raise
    else:
        found = derive_again(document, proof.model, proof.tables, proof.models, derivers)
        problems += [problem for problem in found.problems if problem not in problems]
        derived_by, passed = found.by, found.passed
    return Report(document, tuple(problems), signed, expected.id is not None, derived_by, passed, proof)


def _of_text(document: Evidence) -> list[str]:
    """Whether the formula's text is one, before anything is opened for it."""
    try:
        work(document)
    except FormulaError as error:
        return [f"text: no formula: {str(error).splitlines()[0]}"]
    return []


def _check_work(document: Evidence, most: float) -> None:
    if (parts := work(document)) > most:
        raise LimitError(
            f"to derive this alarm again may take minutes: its formula, path and samples have some {parts:,} parts "
            f"(limit {MAX_WORK:,}); if you know where the evidence comes from, say --large"
        )


def check_id(document: Evidence, expected: Expected) -> list[str]:
    """Return the sentence that says so if the document is not the one that is expected."""
    if expected.id is None or expected.id == document.id:
        return []
    return [f"id: {expected.says} {expected.id}, the document inside is {document.id}: renamed or exchanged"]


def _signed(content: bytes, expected: Expected) -> Signed:
    if expected.key is None:
        return "unchecked"
    if expected.signature is None:
        return "missing"
    return "valid" if expected.key.accepts(expected.signature, content) else "invalid"


def _of_signature(signed: Signed, expected: Expected) -> list[str]:
    match signed:
        case "missing":
            return [
                f"signature: there is none at {expected.place}; without one nothing says that the monitor wrote this"
            ]
        case "invalid" if expected.signature is not None and len(expected.signature) != SIGNATURE_BYTES:
            return [f"signature: {expected.place} is no Ed25519 signature, which has {SIGNATURE_BYTES} bytes"]
        case "invalid":
            key = "" if expected.key is None else f" {expected.key.fingerprint}"
            return [f"signature: not made over this file by the key{key}: altered, or signed with another key"]
        case _:
            return []
