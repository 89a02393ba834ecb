"""Evidence: equal bytes, nothing read but what was written, and every number found out that does not follow."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.alarm.message import Identity
from monitor.errors import EvidenceError, LimitError, PathError
from monitor.evidence.canonical import plain
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import MAX_EVIDENCE_BYTES, MAX_ITEMS, Evidence, evidence_id, read_evidence
from monitor.evidence.rederivation import ENGINE, REFEREE, Derived, Deriver, derive_again
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.types import Alert
from tests.evidence.rederived import make_evidence, rederive
from tests.tiers import examples

Tables = dict[str, PolicyTable]
Manifests = dict[str, dict[str, Any]]
Place = tuple[str | int, ...]


def packed(document: dict[str, Any]) -> bytes:
    """A document as an attacker would write it: with a digest that fits."""
    document = {key: value for key, value in plain(document).items() if key != "digest"}
    digest = hashlib.sha256(msgpack.packb(document)).hexdigest()
    return bytes(msgpack.packb(plain({**document, "digest": digest})))


def numbers(value: object, place: Place = ()) -> Iterator[Place]:
    """Where the numbers and truths of a document are."""
    match value:
        case dict():
            for key, item in value.items():
                yield from numbers(item, (*place, key))
        case list():
            for index, item in enumerate(value):
                yield from numbers(item, (*place, index))
        case bool() | int() | float():
            yield place


def altered(document: dict[str, Any], place: Place, change: Callable[[Any], Any]) -> dict[str, Any]:
    copy: dict[str, Any] = msgpack.unpackb(msgpack.packb(document))
    inner: Any = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = change(inner[place[-1]])
    return copy


def other(value: float) -> float:
    """The same number, a little wrong."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case _:
            return value + 1e-6


def test_equal_alerts_give_equal_bytes_in_whatever_order_things_come(
    regret: Alert, identity: Identity, tables: Tables, manifests: Manifests, content: bytes
) -> None:
    def turned(mapping: Mapping[str, Any]) -> dict[str, Any]:
        return dict(reversed(list(mapping.items())))

    profile = MappingProxyType(dict(reversed(list(regret.verdict.profile.items()))))
    again = make_evidence(
        replace(regret, verdict=replace(regret.verdict, profile=profile)),
        replace(identity, policies=turned(identity.policies), versions=turned(identity.versions)),
        turned(tables),
        {name: turned(manifest) for name, manifest in turned(manifests).items()},
    )
    assert again == content


def test_what_is_read_is_what_was_written(regret: Alert, identity: Identity, content: bytes) -> None:
    evidence = read_evidence(content)
    assert (
        evidence.id
        == evidence_id(content)
        == hashlib.sha256(
            msgpack.packb({k: v for k, v in msgpack.unpackb(content).items() if k != "digest"})
        ).hexdigest()[:32]
    )
    assert evidence.verdict == regret.verdict
    assert evidence.path == regret.path
    assert (evidence.alert, evidence.agent, evidence.episode) == (regret.id, "robot-7", "monday")
    assert evidence.versions == identity.versions
    assert evidence.policies["nominal"].sha256 == "a" * 64
    assert evidence.policies["careful"].manifest["input"] == {"shape": [1, 6]}
    assert evidence.policies["careful"].choices == ((0, ((0, 1.0),)), (1, ((0, 1.0),)), (2, ((0, 1.0),)))
    assert evidence.policies["nominal"].choices[2] == (2, ((0, 0.3), (1, 0.7)))


@pytest.mark.parametrize("episode", [3, "3", "", "\ud800", 2**63 - 1])
def test_any_episode_keeps_its_kind(
    regret: Alert, identity: Identity, tables: Tables, manifests: Manifests, episode: str | int
) -> None:
    written = make_evidence(replace(regret, episode=episode), identity, tables, manifests)
    read = read_evidence(written)
    assert (read.episode, type(read.episode)) == (episode, type(episode))


REGRETTED = ((0, 1), (0, 1), (1, 0), (2, 1))
HISTORIES: list[tuple[str, tuple[tuple[int, int | None], ...], dict[str, Any]]] = [
    ('regret(careful@2, P>=0.8 [ G<=4 !"crash" ])', REGRETTED, {"causal_model": "any"}),
    ('regret(careful@2, P>=0.8 [ G<=4 !"crash" ])', REGRETTED, {"causal_model": "gumbel", "first": 40}),
    ('regret(careful[2]@9, P>=0.99 [ G<=4 !"crash" ])', REGRETTED[:3], {"causal_model": "stable"}),
    ('careful@1.P>=0.99 [ G<=4 !"crash" ]', ((2, 1), (3, 0), (5, None)), {"first": 3, "terminated": True}),
    ("delta(careful,nominal)@-1.R>=5 [ C<=4 ]", ((0, 1), (1, 0), (2, 0)), {"causal_model": "stable", "first": 7}),
    ('P=? [ F<=4 "home" ]', ((0, 1),), {"causal_model": "gumbel"}),
    ('!"crash" & (P>=0.5 [ F<=4 "home" ] | do(1)@1.P<0.1 [ F<=3 "crash" ])', ((0, 1), (1, 1)), {}),
    ('!"crash"', ((0, 1), (4, None)), {"terminated": True}),
]


@pytest.mark.parametrize("history", HISTORIES, ids=[f"{text[:20]} {given}" for text, _, given in HISTORIES])
def test_true_evidence_is_verified(
    road: MDP, identity: Identity, tables: Tables, raise_alert: Callable[..., Alert], history: tuple[Any, ...]
) -> None:
    text, path, given = history
    alert = raise_alert(text, path, **given)
    evidence = read_evidence(make_evidence(alert, identity, tables, {}))
    assert evidence.verdict == alert.verdict
    assert rederive(evidence, road, tables) == []


INPUTS = {
    ("start_observed",): "after a conflict a path from seq 0 is none from an observed start; only @-k verdicts show it",
    ("policies", "nominal", "manifest", "greedy"): "the table handed over was made with the manifest",
    ("policies", "nominal", "manifest", "input", "shape", 0): "likewise",
    ("policies", "nominal", "manifest", "input", "shape", 1): "likewise",
    ("policies", "careful", "manifest", "greedy"): "likewise",
    ("policies", "careful", "manifest", "input", "shape", 0): "likewise",
    ("policies", "careful", "manifest", "input", "shape", 1): "likewise",
}


def test_every_number_altered_is_found_by_the_digest(content: bytes) -> None:
    document = msgpack.unpackb(content)
    places = list(numbers(document))
    assert len(places) > 60
    for place in places:
        with pytest.raises(EvidenceError, match="digest"):
            read_evidence(msgpack.packb(plain(altered(document, place, other))))


def test_every_number_altered_together_with_the_digest_is_found_by_deriving_it_again(
    content: bytes, road: MDP, tables: Tables
) -> None:
    document = msgpack.unpackb(content)
    assert rederive(read_evidence(packed(document)), road, tables) == []
    missed = set()
    for place in numbers(document):
        try:
            evidence = read_evidence(packed(altered(document, place, other)))
        except EvidenceError:
            assert place == ("v",) or place[:2] == ("verdict", "profile")  # no version 2; two rows for one offset
            continue
        if not rederive(evidence, road, tables):
            missed.add(place)
    assert missed == set(INPUTS)


def test_every_text_altered_together_with_the_digest_is_found_too_but_for_the_names(
    content: bytes, road: MDP, tables: Tables
) -> None:
    document = msgpack.unpackb(content)
    for place in [("alert",), ("agent",), ("episode",), ("formula",), ("model_sha256",), ("verdict", "outcome"),
                  ("policies", "nominal", "sha256"), ("verdict", "quantities", 0, "text")]:  # fmt: skip
        evil = altered(document, place, lambda text: "safe" if text == "regret" else text + "0")
        assert rederive(read_evidence(packed(evil)), road, tables), place
    document["verdict"]["causal_model"] = "stable"
    assert rederive(read_evidence(packed(document)), road, tables)[0].startswith("causal_model: any is recorded")
    document["verdict"]["causal_model"] = "any"
    for place in [("model",), ("versions", "numpy")]:
        evidence = read_evidence(packed(altered(document, place, lambda text: text + "0")))
        assert rederive(evidence, road, tables) == [], place


def test_a_disagreement_is_described_in_words(content: bytes, road: MDP, tables: Tables) -> None:
    document = msgpack.unpackb(content)
    evidence = read_evidence(packed(altered(document, ("verdict", "effect"), lambda _: 0.5)))
    (told,) = rederive(evidence, road, tables)
    assert told == f"verdict.effect: 0.5 is recorded, {document['verdict']['effect']!r} follows"


def test_rounding_is_no_disagreement(content: bytes, road: MDP, tables: Tables) -> None:
    document = msgpack.unpackb(content)
    evidence = read_evidence(packed(altered(document, ("verdict", "effect"), lambda effect: effect + 1e-12)))
    assert rederive(evidence, road, tables) == []


def test_another_model_or_other_policies_are_named(content: bytes, road: MDP, tables: Tables) -> None:
    evidence = read_evidence(content)
    other_model = dataclasses.replace(road, rewards=road.rewards + 1)
    (told,) = rederive(evidence, other_model, tables)
    assert told.startswith(f"model: {evidence.model_sha256} is recorded")
    swapped = {"nominal": tables["careful"], "careful": tables["careful"]}
    told = "\n".join(rederive(evidence, road, swapped))
    assert "policies.nominal.choices" in told
    assert "verdict.effect" in told
    fewer = rederive(evidence, road, {"nominal": tables["nominal"]})
    assert fewer[0] == "policies: careful, nominal are recorded, nominal are given"
    assert fewer[-1].startswith("no verdict follows: formula, line 1")


def test_a_manifest_of_another_file_than_the_policy_is_found(content: bytes, road: MDP, tables: Tables) -> None:
    document = msgpack.unpackb(content)
    document["policies"]["careful"]["manifest"]["sha256"] = "c" * 64
    (told,) = rederive(read_evidence(packed(document)), road, tables)
    assert told == f"policies.careful.manifest.sha256: {'c' * 64} is recorded, the policy is {'b' * 64}"
    del document["policies"]["careful"]["manifest"]["sha256"]
    (told,) = rederive(read_evidence(packed(document)), road, tables)
    assert told == f"policies.careful.manifest.sha256: None is recorded, the policy is {'b' * 64}"


def test_an_alarm_at_the_first_bad_verdict_has_one_time(content: bytes, road: MDP, tables: Tables) -> None:
    evidence = read_evidence(content)
    assert evidence.first_seq == evidence.seq
    for wrong in (replace(evidence, time=evidence.time + 1.0), replace(evidence, since=evidence.since - 1.0)):
        (told,) = rederive(wrong, road, tables)
        assert told.startswith("since: ")
    mid_episode = replace(evidence, start_observed=False, time=evidence.time + 1.0)
    assert contradictions(mid_episode) == []  # an agent may have started over, and meet the same seq again


def test_the_verdict_is_derived_by_the_first_program_that_answers(content: bytes, road: MDP, tables: Tables) -> None:
    evidence = read_evidence(content)

    def too_large(*_: object) -> Derived:
        raise LimitError("too large\n  and more of it")

    def refuses(*_: object) -> Derived:
        raise PathError("no such path")

    true = Deriver("true", lambda read, *_: Derived([read.verdict]))
    verdicts = [replace(evidence.verdict, effect=effect) for effect in (0.25, 0.5)]
    other = Deriver("other", lambda *_: Derived(verdicts))
    small = Deriver("small", too_large)

    def found(*derivers: Deriver) -> tuple[list[str], str | None, tuple[str, ...]]:
        return derive_again(evidence, road, tables, derivers=derivers)

    helped = Deriver("helped", lambda read, *_: Derived([read.verdict], (f"helped with {read.verdict.outcome}",)))
    assert found(true, other) == ([], "true", ())
    assert found(small, helped) == ([], "helped", ("not by the small: too large", "helped with regret"))
    assert found(small, true) == ([], "true", ("not by the small: too large",))
    assert found(other, true) == (
        [f"verdict.effect: {evidence.verdict.effect!r} is recorded, 0.25 follows"],
        "other",
        (),
    )
    assert found(Deriver("strict", refuses), true) == (["no verdict follows: no such path"], None, ())
    nobody = ("not by the small: too large",)
    assert found(small) == ([f"no verdict follows: {nobody[0]}"], None, nobody)
    assert derive_again(evidence, dataclasses.replace(road, rewards=road.rewards + 1), tables).by is None


def test_two_programs_derive_the_same_verdict(content: bytes, road: MDP, tables: Tables) -> None:
    evidence = read_evidence(content)
    for deriver in (REFEREE, ENGINE):
        assert derive_again(evidence, road, tables, derivers=[deriver]) == ([], deriver.name, ())


def test_the_referee_derives_decisions_made_for_the_goal(
    road: MDP, identity: Identity, tables: Tables, raise_alert: Callable[..., Alert]
) -> None:
    for change in ("best", "best[<=1]", "best[1]", "optimal"):
        alert = raise_alert(f'regret({change}@2, P>=0.8 [ G<=4 !"crash" ])', causal_model="stable")
        evidence = read_evidence(make_evidence(alert, identity, tables, {}))
        for deriver in (REFEREE, ENGINE):
            assert derive_again(evidence, road, tables, derivers=[deriver]) == ([], deriver.name, ())


def test_a_path_the_model_rules_out_gives_no_verdict(content: bytes, road: MDP, tables: Tables) -> None:
    document = msgpack.unpackb(content)
    for state in (5, 6, -1, 2**63):
        document["path"][1][0] = state
        evidence = read_evidence(packed(document))
        assert rederive(evidence, road, tables)[-1].startswith("no verdict follows: pair ")


def test_a_path_that_does_not_fit_its_seq_is_reported(content: bytes, road: MDP, tables: Tables) -> None:
    evidence = read_evidence(content)
    shorter = rederive(replace(evidence, path=evidence.path[1:]), road, tables)
    assert shorter[0] == "path: 3 pairs from the start of the episode do not end at seq 3"
    assert rederive(replace(evidence, path=()), road, tables)
    assert rederive(replace(evidence, seq=2, start_observed=False), road, tables)


@given(data=st.data())
@settings(
    max_examples=examples(25, 300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_one_flipped_bit_anywhere_is_found(content: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(EvidenceError):
        read_evidence(bytes(flipped))


@given(content=st.binary(max_size=200))
@settings(max_examples=examples(25, 500))
def test_any_bytes_are_evidence_or_an_evidence_error(content: bytes) -> None:
    with pytest.raises(EvidenceError):
        read_evidence(content)


def fitting(size: int = 3) -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
    more = leaves | st.binary(max_size=3) | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=3))
    return st.recursive(more, lambda inner: st.lists(inner, max_size=size) | st.dictionaries(more_keys, inner))


more_keys = st.text(max_size=3) | st.sampled_from(["digest", "verdict", "profile", "v", "path"])


@given(data=st.data())
@settings(
    max_examples=examples(25, 150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_any_document_with_a_fitting_digest_is_evidence_or_an_evidence_error(
    content: bytes, road: MDP, tables: Tables, data: st.DataObject
) -> None:
    document = msgpack.unpackb(content)
    inner: Any = document
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(inner[key], dict | list) or not inner[key] or data.draw(st.booleans()):
            break
        inner = inner[key]
    inner[key] = data.draw(fitting())
    evil = {k: v for k, v in document.items() if k != "digest"}
    packed_once = msgpack.packb(evil, unicode_errors="surrogatepass")
    evil["digest"] = hashlib.sha256(packed_once).hexdigest()
    written = msgpack.packb(dict(sorted(evil.items())), unicode_errors="surrogatepass")
    try:
        evidence = read_evidence(written)
    except EvidenceError:
        return
    assert isinstance(evidence, Evidence)
    assert evidence.id == evidence_id(written)
    assert isinstance(rederive(evidence, road, tables), list)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"", "not one msgpack document"),
        (b"\x80\x80", "not one msgpack document"),
        (b"\x93\x01\x02\x03", "not a msgpack map"),
        (b"\x81\x01\x02", "not one msgpack document"),
        (b"\x80", "digest"),
        (msgpack.packb({b"a": 1}), "a key that is not text"),
        (b"\x81\xa1a" * 20 + b"\x01", "nested deeper"),
        (b"\x81\xa1a" * 100_000 + b"\x01", "not one msgpack document"),
        (b"\x81\xa1a\xdd\xff\xff\xff\xff", "not one msgpack document"),
        (b"\x81\xa1a\xdd" + (MAX_ITEMS + 1).to_bytes(4, "big") + b"\x01" * (MAX_ITEMS + 1), "not one msgpack document"),
        (msgpack.packb({"a": float("nan")}), r"evidence\.a: nan is not a finite number"),
        (msgpack.packb({"a": [b"x"]}), r"evidence\.a\[0\]: bytes is not allowed"),
        (bytes(MAX_EVIDENCE_BYTES + 1), "larger than"),
    ],
)
def test_what_is_no_evidence_is_reported_so(bad: bytes, message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        read_evidence(bad)


def test_the_longest_path_there_can_be_is_read_back(regret: Alert, identity: Identity, tables: Tables) -> None:
    path = regret.path[:1] * 65_536
    assert read_evidence(make_evidence(replace(regret, path=path), identity, tables, {})).path == path


def test_the_same_numbers_written_another_way_are_not_the_evidence(content: bytes) -> None:
    document = msgpack.unpackb(content)
    shuffled = msgpack.packb(dict(reversed(list(document.items()))))
    with pytest.raises(EvidenceError, match="canonical form"):
        read_evidence(shuffled)
    with pytest.raises(EvidenceError, match="canonical form"):
        read_evidence(packed({**document, "time": 1_700_000_003}))
    with pytest.raises(EvidenceError, match="canonical form"):
        read_evidence(packed({**document, "note": "not asked for"}))
    for version in (1, 3, 0, True, "2", None, 2.0):
        with pytest.raises(EvidenceError, match="and this program reads version 2; use the program that wrote it"):
            read_evidence(packed({**document, "v": version}))
    for key in ("verdict", "path"):
        with pytest.raises(EvidenceError, match=f"not an evidence document.*{key}"):
            read_evidence(packed({name: value for name, value in document.items() if name != key}))


def test_a_number_that_is_not_finite_is_refused_when_written(regret: Alert, identity: Identity, tables: Tables) -> None:
    with pytest.raises(EvidenceError, match=r"evidence\.verdict\.effect: nan"):
        make_evidence(replace(regret, verdict=replace(regret.verdict, effect=float("nan"))), identity, tables, {})


def test_numpy_numbers_are_written_as_plain_ones(
    regret: Alert, identity: Identity, tables: Tables, manifests: Manifests, content: bytes
) -> None:
    path = tuple((np.int64(state), None if action is None else np.int64(action)) for state, action in regret.path)
    assert regret.verdict.effect is not None
    verdict = replace(regret.verdict, effect=np.float64(regret.verdict.effect))
    alert = replace(regret, path=path, seq=np.int64(regret.seq), verdict=verdict)
    assert make_evidence(alert, identity, tables, manifests) == content
