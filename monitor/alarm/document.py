"""Format of an evidence document: canonical msgpack with a digest over it.

A document has one encoding (keys sorted, shortest form of every length), and only that is accepted: equal alarms give
equal bytes, and any flipped bit is found.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgpack
import msgspec
import numpy as np

from monitor.errors import EvidenceError
from monitor.types import CausalModel, Episode, TakeoverOutcome, Verdict

__all__ = [
    "EVIDENCE_VERSION",
    "MAX_EVIDENCE_BYTES",
    "ONLY_LEARNED",
    "ONLY_MISSED",
    "Evidence",
    "PolicyEvidence",
    "TakeoverEvidence",
    "evidence_id",
    "pack_evidence",
    "plain",
    "read_evidence",
]

EVIDENCE_VERSION: Literal[2] = 2
MAX_EVIDENCE_BYTES = 16 << 20
"""Largest document accepted. One of 64 steps, three policies and 25 actions has about 60 KB."""
MAX_ITEMS = 65_536
"""Most entries of a list or map: the longest path a configuration allows. msgpack allocates before it reads."""
MAX_DEPTH = 12
"""Deepest nesting accepted; the deepest part of our own documents, a policy's choice, is at 6."""

ONLY_SAMPLED = frozenset({"samples", "confidence", "drawn"})
"""Fields of sampled answers; left out of exact ones."""
ONLY_LEARNED = frozenset(
    {"credible", "guaranteed", "effect_credible", "effect_guaranteed", "support", "to_visit", "bands"}
)
"""Fields of answers on learned models; left out where they have no value. A support of 0 is one."""
ONLY_MISSED = frozenset({"recourse"})
"""Fields of verdicts on missed goals; left out of all others."""
PLAIN = frozenset({bool, int, float, str, type(None)})
"""Types of values that are plain data already; not their subclasses, such as NumPy's float."""


ONLY_TAKEOVERS = frozenset({"acted", "takeover"})
"""Fields of evidence on a path on which another policy than nominal acted; left out elsewhere."""


class PolicyEvidence(msgspec.Struct, frozen=True):
    """A policy as the verdict used it."""

    sha256: str
    """SHA-256 of its file, which is kept under `objects/`."""
    manifest: Mapping[str, object]
    """The file's manifest."""
    choices: tuple[tuple[int, tuple[tuple[int, float], ...]], ...]
    """For each state of the path, ascending: the actions with positive probability, and their probabilities."""


class TakeoverEvidence(msgspec.Struct, frozen=True):
    """The takeover that the evidence is about."""

    policy: str
    """The policy that took over."""
    outcome: TakeoverOutcome
    """Whether the goal needed it."""


class Evidence(msgspec.Struct, frozen=True):
    """An evidence document; the names are those of `Alert` and `Verdict`."""

    v: Literal[2]
    """Version of this format."""
    digest: str
    """SHA-256, in hexadecimal, of the document without this field."""
    alert: str
    """The alarm's id; of a judged takeover an id made in the same way, which no alert has."""
    agent: str
    """The agent's name."""
    episode: Episode
    """The episode."""
    formula: str
    """The formula's name."""
    text: str
    """Its text."""
    causal_model: CausalModel
    """The class of causal models of the bounds; `gumbel`: no bounds."""
    seq: int
    """The step of the path's last pair, at which the alarm fired or the takeover was judged."""
    first_seq: int
    """The step at which the breach began; of a takeover its first step, where the path begins."""
    time: float
    """Time of the step `seq`, in seconds since the epoch."""
    since: float
    """Time of the step `first_seq`, in seconds since the epoch."""
    path: tuple[tuple[int, int | None], ...]
    """The held path: state and action of each step, oldest first."""
    start_observed: bool
    """True if the path begins with the episode."""
    terminated: bool
    """True if the episode ended in the last state, which is absorbing."""
    model: str
    """The model's name."""
    model_sha256: str
    """SHA-256 of the model, which is kept under `objects/`."""
    models: Mapping[str, str]
    """Name -> sha256 of the models for `model:name`."""
    policies: Mapping[str, PolicyEvidence]
    """Name -> policy, as the verdict used it."""
    verdict: Verdict
    """The verdict on which the alarm fired, or that judged the takeover; its `profile` is a list of [offset, nominal,
    alternative].
    """
    versions: Mapping[str, str]
    """Name -> version of the software."""
    acted: tuple[str, ...] = ()
    """The policy that acted at each pair of the path; left out if nominal did at all of them. An empty
    name: its table is not known; the answer does not depend on it.
    """
    takeover: TakeoverEvidence | None = None
    """The takeover that was judged, in place of an alarm; left out of the evidence of an alarm."""

    @property
    def id(self) -> str:
        """32 hexadecimal digits: the name of the file, and what the alert calls `evidence.id`."""
        return self.digest[:32]


def pack_evidence(evidence: Evidence) -> bytes:
    """Return the document's bytes, digest included. Raises EvidenceError if a number in it is not finite."""
    document = plain(evidence)
    assert isinstance(document, dict)
    _check(document)
    return _pack({**document, "digest": _digest(document)})


def read_evidence(content: bytes) -> Evidence:
    """Return the document in these bytes.

    Raises EvidenceError, and nothing else, if `pack_evidence` does not write such bytes, or they were altered.
    """
    if len(content) > MAX_EVIDENCE_BYTES:
        raise EvidenceError(f"evidence: larger than {MAX_EVIDENCE_BYTES:,} bytes, the most it may have")
    document = _unpack(content)
    _check(document)
    if document.get("digest") != _digest(document):
        raise EvidenceError("evidence: its digest does not match its content: altered or damaged; use an intact copy")
    _check_version(document.get("v"))
    try:
        verdict = dict(document["verdict"])
        verdict["profile"] = {offset: (nominal, other) for offset, nominal, other in verdict["profile"]}
        evidence = msgspec.convert({**document, "verdict": verdict}, Evidence)
        written = _pack(plain(evidence))
    except LookupError as error:
        raise EvidenceError(f"evidence: not an evidence document: {error.args[0]} is missing") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise EvidenceError(f"evidence: not an evidence document of version {EVIDENCE_VERSION} ({error})") from error
    if written != content:
        raise EvidenceError("evidence: not in canonical form: altered; use an intact copy")
    return evidence


def evidence_id(content: bytes) -> str:
    """Return the id of a document just packed; for bytes from elsewhere use `read_evidence(content).id`."""
    return str(_unpack(content)["digest"])[:32]


def plain(value: object) -> Any:  # noqa: ANN401 - whatever shape the value has, as plain data
    """Return a value in canonical form: maps with ascending keys, lists, and Python's own numbers.

    A profile, whose keys are numbers, becomes a list of [offset, nominal, alternative]: keys here are text.
    """
    if type(value) in PLAIN:  # most values: asking whether they are a mapping takes longer
        return value
    match value:
        case Mapping():
            return {key: plain(value[key]) for key in sorted(value)}
        case Sequence() if not isinstance(value, str):
            return [plain(item) for item in value]
        case np.generic():
            return value.item()
        case msgspec.Struct():
            members = msgspec.structs.asdict(value)
            for name in ONLY_SAMPLED & {name for name, member in members.items() if not member}:
                del members[name]
            for name in ONLY_LEARNED & members.keys():
                if members[name] is None or members[name] == ():
                    del members[name]
            for name in (ONLY_MISSED | ONLY_TAKEOVERS) & {name for name, member in members.items() if not member}:
                del members[name]
            if isinstance(value, Verdict):
                members["profile"] = [[offset, *value.profile[offset]] for offset in sorted(value.profile)]
            return plain(members)
        case _:
            return value


def _check_version(version: object) -> None:
    if type(version) is not int or version != EVIDENCE_VERSION:  # neither true nor 1.0 is a version
        raise EvidenceError(
            f"evidence: its version `v` is {version!r}, and this program reads version {EVIDENCE_VERSION}; use the "
            "program that wrote it"
        )


def _digest(document: Mapping[str, object]) -> str:
    return hashlib.sha256(_pack({key: value for key, value in document.items() if key != "digest"})).hexdigest()


def _pack(document: object) -> bytes:
    """Pack as msgpack. Text may hold lone surrogates, which JSON lets an agent send in an episode's name."""
    packed = msgpack.packb(plain(document), unicode_errors="surrogatepass")
    assert isinstance(packed, bytes)
    return packed


def _unpack(content: bytes) -> dict[str, Any]:
    try:
        document = msgpack.unpackb(
            content, strict_map_key=True, unicode_errors="surrogatepass", max_array_len=MAX_ITEMS, max_map_len=MAX_ITEMS
        )
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise EvidenceError(f"evidence: not one msgpack document ({error or type(error).__name__})") from error
    if not isinstance(document, dict):
        raise EvidenceError("evidence: not a msgpack map")
    return document


def _check(value: object, where: str = "evidence", depth: int = 0) -> None:
    """Raise EvidenceError, naming the place, for anything but plain data, deep nesting, or a number not finite."""
    if depth > MAX_DEPTH:
        raise EvidenceError(f"{where}: nested deeper than {MAX_DEPTH}")
    match value:
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise EvidenceError(f"{where}: a key that is not text")
                _check(item, f"{where}.{key}", depth + 1)
        case list():
            for index, item in enumerate(value):
                _check(item, f"{where}[{index}]", depth + 1)
        case float() if not math.isfinite(value):
            raise EvidenceError(f"{where}: {value} is not a finite number")
        case bool() | int() | float() | str() | None:
            pass
        case _:
            raise EvidenceError(f"{where}: {type(value).__name__} is not allowed")
