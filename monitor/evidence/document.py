"""Format of an evidence document: canonical msgpack with a digest over it.

A document has only one accepted encoding (keys sorted, shortest form of every length). So equal alarms give equal
bytes, and every flipped bit is detected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import msgpack
import msgspec

from monitor.errors import EvidenceError
from monitor.evidence.canonical import check_plain, map_of, members, pack, pack_plain, plain
from monitor.types.notices import TakeoverOutcome
from monitor.types.specs import CausalModel
from monitor.types.stream_events import Episode, State
from monitor.types.verdicts import Verdict

EVIDENCE_VERSION: Literal[2] = 2
MAX_EVIDENCE_BYTES = 16 << 20
"""Maximum accepted size of a document in bytes. A document with 64 steps, three policies and 25 actions has about 60
KB."""
MAX_ITEMS = 65_536
"""Maximum number of entries of a list or map: the longest configurable path. msgpack allocates entries before it reads
them."""


class PolicyEvidence(msgspec.Struct, frozen=True):
    """A policy that the verdict used."""

    sha256: str
    """SHA-256 of the policy's file, which is stored under `objects/`."""
    manifest: Mapping[str, object]
    """The file's manifest."""
    choices: tuple[tuple[State, tuple[tuple[int, float], ...]], ...]
    """For each state of the path, in ascending order: the actions with positive probability, and their probabilities.
    For hidden states, the observation replaces the state; if the policy sees inputs, the state has the inputs too.
    Empty if the probabilities depend on more than these."""


class TakeoverEvidence(msgspec.Struct, frozen=True):
    """The takeover that the evidence is about."""

    policy: str
    """The policy that took over."""
    outcome: TakeoverOutcome
    """Judgement of the takeover: whether it was needed to meet the goal."""


class Evidence(msgspec.Struct, frozen=True):
    """An evidence document. Its names are the names in `Alert` and `Verdict`."""

    v: Literal[2]
    """Version of this format."""
    digest: str
    """SHA-256, in hexadecimal, of the document without this field."""
    alert: str
    """The alarm's id. For a judged takeover, an id that is computed in the same way and is not the id of any alarm."""
    agent: str
    """The agent's name."""
    episode: Episode
    """The episode."""
    formula: str
    """The formula's name."""
    text: str
    """The formula's text."""
    causal_model: CausalModel
    """The class of causal models of the bounds. `gumbel`: no bounds. `world`: the world's own model, without bounds."""
    seq: int
    """The step of the path's last pair, at which the alarm fired or the takeover was judged."""
    first_seq: int
    """The step of the first bad verdict; for a takeover, its first step, at which the path begins."""
    time: float
    """Time of the step `seq`, in seconds since the epoch."""
    since: float
    """Time of the step `first_seq`, in seconds since the epoch."""
    path: tuple[tuple[State, int | None], ...]
    """The held path: state and action of each step, oldest first. For hidden states: observation and action, each of
    which may be null."""
    start_observed: bool
    """True if the path begins with the episode."""
    terminated: bool
    """True if the episode ended in the last state, which is absorbing."""
    model: str
    """The model's name."""
    model_sha256: str
    """SHA-256 of the model, which is stored under `objects/`."""
    models: Mapping[str, str]
    """Name -> SHA-256 of the models for `model:name`."""
    policies: Mapping[str, PolicyEvidence]
    """Name -> policy that the verdict used."""
    verdict: Verdict
    """The verdict on which the alarm fired, or which judged the takeover. Its `profile` is a list of [offset, nominal,
    alternative], and its `belief` a list of [state, probability]."""
    versions: Mapping[str, str]
    """Name -> version of the software."""
    acted: tuple[str, ...] = ()
    """The policy that acted at each pair of the path; left out if nominal acted at all pairs. An empty name means that
    the policy is unknown; the verdict does not depend on it."""
    inputs: tuple[tuple[float, ...], ...] = ()
    """The recorded inputs of each step of the path. For hidden states or policies that remember, the belief before each
    step: place, weight, place, weight, ... Left out if the model has neither inputs nor beliefs."""
    actions: tuple[tuple[str, str], ...] = ()
    """Pairs of an action (its name in the model or its number) and the configured words for it; left out if there are
    none. No number depends on these words."""
    takeover: TakeoverEvidence | None = None
    """The judged takeover; left out of the evidence of an alarm."""

    @property
    def id(self) -> str:
        """32 hexadecimal digits: the name of the file, and `evidence.id` in the alert."""
        return self.digest[:32]


def pack_evidence(evidence: Evidence) -> bytes:
    """Return the document's bytes, including the digest. Raises EvidenceError if a number in it is not finite."""
    return seal({name: pack(name, value) for name, value in members(evidence) if name != "digest"})


def seal(packed: Mapping[str, bytes]) -> bytes:
    """Return the document of these packed members, with its digest."""
    return map_of({**packed, "digest": pack_plain(hashlib.sha256(map_of(packed)).hexdigest())})


def read_evidence(content: bytes) -> Evidence:
    """Return the document in these bytes.

    Raises EvidenceError, and no other error, if `pack_evidence` does not write such bytes or if they were altered.
    """
    if len(content) > MAX_EVIDENCE_BYTES:
        raise EvidenceError(f"evidence: larger than {MAX_EVIDENCE_BYTES:,} bytes, the most it may have")
    document = _unpack(content)
    check_plain(document)
    if document.get("digest") != _digest(document):
        raise EvidenceError("evidence: its digest does not match its content: altered or damaged; use an intact copy")
    _check_version(document.get("v"))
    try:
        verdict = dict(document["verdict"])
        verdict["profile"] = {offset: (nominal, other) for offset, nominal, other in verdict["profile"]}
        if "belief" in verdict:
            verdict["belief"] = dict(verdict["belief"])
        evidence = msgspec.convert({**document, "verdict": verdict}, Evidence)
        written = pack_evidence(evidence)
    except LookupError as error:
        raise EvidenceError(f"evidence: not an evidence document: {error.args[0]} is missing") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise EvidenceError(f"evidence: not an evidence document of version {EVIDENCE_VERSION} ({error})") from error
    if written != content:
        raise EvidenceError("evidence: not in canonical form: altered; use an intact copy")
    return evidence


def evidence_id(content: bytes) -> str:
    """Return the id of a document that was just packed. For untrusted bytes use `read_evidence(content).id`."""
    reader = msgpack.Unpacker(unicode_errors="surrogatepass")
    reader.feed(content)
    reader.read_map_header()
    while reader.unpack() != "digest":  # members are in order, so the digest is one of the first
        reader.skip()
    return str(reader.unpack())[:32]


def _check_version(version: object) -> None:
    if type(version) is not int or version != EVIDENCE_VERSION:  # neither true nor 1.0 is a version
        raise EvidenceError(
            f"evidence: its version `v` is {version!r}, and this program reads version {EVIDENCE_VERSION}; use the "
            "program that wrote it"
        )


def _digest(document: Mapping[str, object]) -> str:
    rest = plain({key: value for key, value in document.items() if key != "digest"})
    return hashlib.sha256(pack_plain(rest)).hexdigest()


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
