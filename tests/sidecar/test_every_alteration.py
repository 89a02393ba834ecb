"""Every single alteration of an evidence document, and who finds it: the digest, the name, the numbers, the signature.

Fourteen alarms of different kinds, all of their leaves, lists and maps: some 7,500 documents. In the fast tier, one
alarm, and each tenth document of the others. The last test makes the table of docs/security.md anew, which lists what
an unsigned document cannot prove.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import msgpack
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from monitor.errors import EvidenceError
from monitor.evidence import verification
from monitor.evidence.canonical import pack_plain, plain
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import Evidence, _digest, read_evidence
from monitor.evidence.proof import Proof, open_proof
from monitor.evidence.signing import Signer, Verifier
from monitor.evidence.verification import Expected, check_id, examine
from monitor.policy.manifest import Input, Output
from monitor.types import CausalModel, Outcome
from tests.sidecar.alarms import KINDS, alarm
from tests.tiers import first, slow

ROOT: Final = Path(__file__).parents[2]
Place = tuple[str | int, ...]

PRIVATE: Final = Ed25519PrivateKey.generate()
SIGNER: Final = Signer(PRIVATE)
VERIFIER: Final = Verifier(PRIVATE.public_key())

VOCABULARIES: Final = (
    get_args(CausalModel),
    get_args(Outcome),
    ("exact", "sampled"),
    ("greedy", "stochastic"),
    get_args(Input.model_fields["kind"].annotation),
    get_args(Output.model_fields["kind"].annotation),
)
"""A text that is a word of one of these becomes each of its other words."""


def leaves(value: Any) -> Iterator[Any]:  # noqa: ANN401 - plain data
    """What a leaf becomes."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, value - 1, 1000 - value)
        case float():
            yield from (value + 1e-6 * max(1.0, abs(value)), 1.0 - value)
        case str():
            yield from (f"{value}x", value[:-1], "0" * len(value))
            for words in VOCABULARIES:
                yield from (word for word in words if value in words)
        case None:
            yield from ("x", 0, 0.5, False, [], {}, [0.0, 1.0])


def alterations(value: Any, place: Place = ()) -> Iterator[tuple[Place, Place, Any]]:  # noqa: ANN401 - plain data
    """What is altered, what is replaced for it (the same, or the list or map that it is in), and by what."""
    match value:
        case dict():
            for key, item in value.items():
                yield from alterations(item, (*place, key))
                yield (*place, key), place, {name: other for name, other in value.items() if name != key}
            yield (*place, "added"), place, {**value, "added": next(iter(value.values()), 0)}
        case list():
            for index, item in enumerate(value):
                yield from alterations(item, (*place, index))
                before, after = value[:index], value[index + 1 :]
                yield (*place, index), place, before + after
                yield (*place, index), place, [*before, item, item, *after]
                yield (*place, index), place, [*before, *after[:1], item, *after[1:]]
        case _:
            yield from ((place, place, other) for other in leaves(value))


def put(document: dict[str, Any], place: Place, other: Any) -> dict[str, Any]:  # noqa: ANN401 - plain data
    """A copy of the document with `other` at this place."""
    if not place:
        return dict(other)
    copy: dict[str, Any] = deepcopy(document)
    inside: Any = copy
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = other
    return copy


def field(place: Place) -> str:
    """The place as the documentation names it: `*` for a policy or a package, nothing for the index of a list."""
    names = [name for name in place if isinstance(name, str)]
    if names[0] in ("policies", "versions") and len(names) > 1:
        names[1] = "*"
    return ".".join(names)


@cache
def every(kind: str) -> tuple[tuple[Place, dict[str, Any]], ...]:
    """All alterations that leave another document than the true one."""
    document: dict[str, Any] = msgpack.unpackb(alarm(kind).content)
    digest = document["digest"]
    given = {key: value for key, value in document.items() if key != "digest"}
    found = [(place, put(given, replaced, other)) for place, replaced, other in alterations(given)]
    return tuple((place, {**other, "digest": digest}) for place, other in found if packed(other) != packed(given))


def packed(document: dict[str, Any]) -> bytes:
    """The bytes of a document, in canonical form."""
    return pack_plain(plain(document))


def forged(document: dict[str, Any]) -> bytes:
    """The bytes of a document by a forger who makes the digest anew."""
    return packed({**document, "digest": _digest(document)})


@pytest.fixture(autouse=True)
def objects_are_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model and its policies are depends on nothing but their part of the document: 15 ms saved each."""
    opened: dict[bytes, Proof] = {}

    def remembered(evidence: Evidence, read: Any, **limits: Any) -> Proof:  # noqa: ANN401 - as in open_proof
        key = msgpack.packb(plain([evidence.model_sha256, evidence.models, evidence.policies]))
        if key not in opened:
            opened[key] = open_proof(evidence, read, **limits)
        return replace(opened[key], evidence=evidence)

    monkeypatch.setattr(verification, "open_proof", remembered)


def unnoticed(kind: str, step: int = 1) -> set[str]:
    """Fields that can be altered, digest and name with them, so that verify says nothing; each `step`-th alteration."""
    true, missed = alarm(kind), set()
    for place, document in every(kind)[::step]:
        content = forged(document)
        report = examine(content, true.read, Expected(_digest(document)[:32]))
        if not report.problems:
            missed.add(field(place))
    return missed


def table() -> set[str]:
    """The fields in the first column of the table in docs/security.md."""
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    section = page.partition("| an unsigned file cannot prove |")[2].partition("\n\n")[0]
    return {name for row in section.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


def fields_of(kind: Any, place: str = "") -> Iterator[str]:  # noqa: ANN401 - a type
    """The fields of a document, and of all structs in it."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for each in msgspec.structs.fields(kind):
            yield f"{place}{each.name}"
            yield from fields_of(each.type, f"{place}{each.name}.")
    elif get_origin(kind) is not None:
        star = "*." if get_origin(kind) is Mapping and place == "policies." else ""
        for part in get_args(kind):
            yield from fields_of(part, place + star)


def present(value: Any, place: Place = ()) -> Iterator[str]:  # noqa: ANN401 - plain data
    """The fields of a document; one that is empty is altered too."""
    if any(isinstance(name, str) for name in place):
        yield field(place)
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from present(item, (*place, key))


WORLDS: Final = {"inputs", "verdict.tiers", "verdict.resampled_from", "verdict.recourse.changes.samples"}
"""Of worlds with numbers only: tests/worlds/test_stream.py."""
HIDDEN: Final = {"verdict.belief", "verdict.believed", "verdict.evidence", "verdict.likely", "verdict.unseen"}
"""Of models with hidden states only: tests/evidence/test_hidden.py."""
TAKEOVER: Final = {"takeover", "takeover.policy", "takeover.outcome"}
"""Of judged takeovers only: tests/evidence/test_takeover.py."""
WORDS: Final = {"actions"}
"""Where the configuration has words for actions: tests/sidecar/test_load.py."""


def test_the_alarms_have_every_field_of_evidence() -> None:
    found = {name for kind in KINDS for name in present(msgpack.unpackb(alarm(kind).content))}
    assert set(fields_of(Evidence)) - found == TAKEOVER | WORLDS | HIDDEN | WORDS


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_true_is_verified(kind: str) -> None:
    true = alarm(kind)
    report = examine(true.content, true.read, Expected(true.id, key=VERIFIER, signature=SIGNER.sign(true.content)))
    assert report.problems == ()
    by = "engine" if report.document is not None and report.document.verdict.drawn else "referee"
    assert (report.id_compared, report.signed, report.derived_by) == (True, "valid", by)


def test_an_agent_that_starts_over_can_raise_an_alarm_before_the_step_of_its_first_bad_verdict() -> None:
    evidence = read_evidence(alarm("started over under the same episode").content)
    assert (evidence.seq, evidence.first_seq, evidence.start_observed) == (6, 7, False)
    assert contradictions(evidence) == []


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_altered_with_the_digest_as_it_was_is_never_read(kind: str) -> None:
    assert len(every(kind)) > 400
    document: dict[str, Any] = msgpack.unpackb(alarm(kind).content)
    digests = [{**document, "digest": other} for other in leaves(document["digest"])]
    without = {key: value for key, value in document.items() if key != "digest"}
    for wrong in (*digests, without, *(other for _, other in every(kind))):
        with pytest.raises(EvidenceError, match="digest"):
            read_evidence(packed(wrong))


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_altered_with_its_digest_it_has_another_name_and_no_signature(kind: str) -> None:
    true = alarm(kind)
    signature = SIGNER.sign(true.content)
    known = Expected(true.id, "the file's name says")
    for place, document in every(kind):
        content = forged(document)
        with contextlib.suppress(EvidenceError):  # it is not even evidence
            assert check_id(read_evidence(content), known), place
        assert not VERIFIER.accepts(signature, content), place


def test_altered_with_its_digest_and_renamed_no_more_than_the_documentation_lists_goes_unnoticed() -> None:
    """A tenth of the alterations."""
    missed = {kind: unnoticed(kind, 10) for kind in KINDS}
    assert set.union(*missed.values()) <= table(), missed


@slow
def test_altered_with_its_digest_and_renamed_just_what_the_documentation_lists_goes_unnoticed() -> None:
    missed = {kind: unnoticed(kind) for kind in KINDS}
    assert set.union(*missed.values()) == table(), missed
