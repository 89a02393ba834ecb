"""The evidence of an alarm: one msgpack document from which every number of it can be derived again.

There is one way to write a given document (keys sorted, shortest form of every length), and only that is read: so equal
alarms give equal bytes, and a flipped bit anywhere is found. `digest` is the SHA-256 of the document without itself; its
first 32 hexadecimal digits are the evidence's id. Whoever alters a number *and* the digest is found by `rederive`, as far
as that number follows from others. What does not follow from anything, and is guarded by the digest alone, are the inputs:

- who, what and when: `agent`, `episode`, `formula`, `first_seq` (together bound to `alert`, the alarm's id, but that is
  a hash anyone can compute), `time`, `since`, `model`, `versions`; `seq`, where the path's start was not observed;
- the manifests, beyond what changes a policy's table;
- the path, `terminated` and `start_observed`: altered, they are the honest evidence of another history. Mostly that shows
  (an impossible step, another verdict, a `seq` that does not fit), but a history that gives the same verdict is not told
  from the true one. Whether it happened, only a digest kept elsewhere (the published alert's `evidence`) can tell.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import msgpack
from pydantic import TypeAdapter

from monitor.alarm.message import Identity
from monitor.errors import EvidenceError
from monitor.policy.table import PolicyTable
from monitor.types import Alert, CausalModel, Episode, Verdict

__all__ = ["MAX_EVIDENCE_BYTES", "Evidence", "PolicyEvidence", "evidence_id", "make_evidence", "read_evidence"]

EVIDENCE_VERSION: Literal[1] = 1
MAX_EVIDENCE_BYTES = 16 << 20
"""A larger document is not read. One of 64 steps, three policies and 25 actions has about 60 KB."""
MAX_DEPTH = 12
"""Nesting a document may have; its deepest part is a policy's choice, at 6."""

Choices = tuple[tuple[int, tuple[tuple[int, float], ...]], ...]


@dataclass(frozen=True, slots=True)
class PolicyEvidence:
    """A policy as the verdict used it.

    `sha256`: of its file, kept under `objects/`. `manifest`: how to run that file. `choices`: for each state of the path,
    ascending, the actions with positive probability, and those.
    """

    sha256: str
    manifest: Mapping[str, object]
    choices: Choices


@dataclass(frozen=True, slots=True)
class Evidence:
    """The document. Names are those of `Alert` and `Verdict`; `alert` is the alarm's id, `text` the formula's.

    `seq` is that of the path's last pair, `first_seq` that of the step at which the breach began.
    """

    v: Literal[1]
    digest: str
    alert: str
    agent: str
    episode: Episode
    formula: str
    text: str
    causal_model: CausalModel
    seq: int
    first_seq: int
    time: float
    since: float
    path: tuple[tuple[int, int | None], ...]
    start_observed: bool
    terminated: bool
    model: str
    model_sha256: str
    policies: Mapping[str, PolicyEvidence]
    verdict: Verdict
    versions: Mapping[str, str]

    @property
    def id(self) -> str:
        """32 hexadecimal digits; the name of the file, and what the alert calls `evidence`."""
        return self.digest[:32]


_READER = TypeAdapter(Evidence)


def make_evidence(
    alert: Alert,
    identity: Identity,
    tables: Mapping[str, PolicyTable],
    manifests: Mapping[str, Mapping[str, object]],
) -> bytes:
    """The evidence for `alert`, whose verdict was given with these policies.

    `manifests`: name -> the policy's manifest as plain data (texts, numbers, truths, lists, maps); a policy without one
    gets an empty one. Raises EvidenceError if there is a number that is not finite.
    """
    states = sorted({state for state, _ in alert.path})
    policies = {
        name: PolicyEvidence(
            sha256=identity.policies[name],
            manifest=manifests.get(name, {}),
            choices=tuple((int(state), tuple(table.choices(state))) for state in states),
        )
        for name, table in tables.items()
    }
    evidence = Evidence(
        v=EVIDENCE_VERSION,
        digest="",
        alert=alert.id,
        agent=alert.agent,
        episode=alert.episode,
        formula=alert.formula,
        text=alert.text,
        causal_model=alert.verdict.causal_model,
        seq=alert.seq,
        first_seq=alert.first_seq,
        time=alert.time,
        since=alert.since,
        path=alert.path,
        start_observed=alert.start_observed,
        terminated=alert.terminated,
        model=identity.model_name,
        model_sha256=identity.model_sha256,
        policies=policies,
        verdict=alert.verdict,
        versions=identity.versions,
    )
    document = to_plain(evidence)
    _check_leaves(document)
    return _pack({**document, "digest": digest_of(document)})


def read_evidence(content: bytes) -> Evidence:
    """The document in these bytes.

    Raises EvidenceError, and nothing else, if they are not what `make_evidence` writes, or have been altered.
    """
    if len(content) > MAX_EVIDENCE_BYTES:
        raise EvidenceError(f"evidence: larger than {MAX_EVIDENCE_BYTES:,} bytes, so it is none")
    document = _unpack(content)
    _check_leaves(document)
    found = document.get("digest")
    if found != digest_of(document):
        raise EvidenceError(
            "evidence: its digest does not match its content: it was altered or damaged; use a true copy"
        )
    try:
        profile = document["verdict"]["profile"]
        document["verdict"]["profile"] = {offset: (nominal, alternative) for offset, nominal, alternative in profile}
        evidence = _READER.validate_python(document)
        written = _pack(to_plain(evidence))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise EvidenceError(f"evidence: not an evidence document of version {EVIDENCE_VERSION} ({error})") from error
    if written != content:
        raise EvidenceError("evidence: not in the one form that is written: it was altered; use a true copy")
    return evidence


def evidence_id(content: bytes) -> str:
    """The id of a document that `make_evidence` has just written; `read_evidence` for one that came from elsewhere."""
    return str(_unpack(content)["digest"])[:32]


def to_plain(evidence: Evidence) -> dict[str, Any]:
    """The document as maps, lists, texts and numbers; a profile as a list, for msgpack keys are texts."""
    document = asdict(evidence)
    profile = sorted(evidence.verdict.profile.items())
    document["verdict"]["profile"] = [[offset, nominal, alternative] for offset, (nominal, alternative) in profile]
    plain = _sorted(document)
    assert isinstance(plain, dict)
    return plain


def digest_of(document: Mapping[str, object]) -> str:
    """SHA-256, in hexadecimal, of the document without its digest."""
    return hashlib.sha256(_pack({key: value for key, value in document.items() if key != "digest"})).hexdigest()


def _sorted(value: object) -> object:
    """The one form: keys ascending, sequences as lists, NumPy's numbers as Python's."""
    match value:
        case Mapping():
            return {key: _sorted(value[key]) for key in sorted(value)}
        case str():
            return value
        case Sequence():
            return [_sorted(item) for item in value]
        case _:
            return value


def _pack(document: object) -> bytes:
    packed = msgpack.packb(_sorted(document), use_bin_type=True, unicode_errors="surrogatepass")
    assert isinstance(packed, bytes)
    return packed


def _unpack(content: bytes) -> dict[str, Any]:
    try:
        document = msgpack.unpackb(content, raw=False, strict_map_key=True, unicode_errors="surrogatepass")
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise EvidenceError(f"evidence: not one msgpack document ({error or type(error).__name__})") from error
    if not isinstance(document, dict):
        raise EvidenceError("evidence: not a msgpack map")
    return document


def _check_leaves(value: object, where: str = "evidence", depth: int = 0) -> None:
    """Nothing but plain data, not too deep, no number that is not finite; EvidenceError names the place."""
    if depth > MAX_DEPTH:
        raise EvidenceError(f"{where}: nested deeper than {MAX_DEPTH}")
    match value:
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise EvidenceError(f"{where}: a key that is not text")
                _check_leaves(item, f"{where}.{key}", depth + 1)
        case list():
            for index, item in enumerate(value):
                _check_leaves(item, f"{where}[{index}]", depth + 1)
        case float() if not math.isfinite(value):
            raise EvidenceError(f"{where}: {value} is not a finite number")
        case bool() | int() | float() | str() | None:
            pass
        case _:
            raise EvidenceError(f"{where}: {type(value).__name__} has no place here")
