"""Lists of an evidence document whose lengths are altered at random: each program reports it, and none fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from monitor.errors import ConfigError
from monitor.evidence.document import read_evidence
from monitor.evidence.proof import open_proof
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.evidence.verification import examine
from tests.evidence.test_hidden import Filed
from tests.sidecar.alarms import alarm
from tests.sidecar.test_every_alteration import Place, field, forged, packed, put, table
from tests.tiers import examples, first, scaled
from tests.worlds.test_stream import House

Read = Callable[[str], bytes]


def of_table(kind: str) -> Callable[[Path], tuple[bytes, Read]]:
    return lambda _: (alarm(kind).content, alarm(kind).read)


def of_hidden(folder: Path, *, recurrent: bool = False) -> tuple[bytes, Read]:
    filed = Filed(folder, recurrent=recurrent)
    return filed.content, filed.objects.__getitem__


def of_world(_: Path) -> tuple[bytes, Read]:
    house = House()
    return house.evidence()[0], house.loaded.objects().__getitem__


def of_takeover(_: Path) -> tuple[bytes, Read]:
    house = House(careful_from=4)
    taken = (each for each in house.evidence() if read_evidence(each).takeover is not None)
    return next(taken), house.loaded.objects().__getitem__


KINDS: dict[str, Callable[[Path], tuple[bytes, Read]]] = {
    "hidden": of_hidden,
    "recurrent": lambda folder: of_hidden(folder, recurrent=True),
    "another policy acted": of_table("another policy acted"),
    "learned": of_table("learned"),
    "world": of_world,
    "takeover": of_takeover,
}


def lists(value: Any, place: Place = ()) -> Iterator[tuple[Place, list[Any]]]:  # noqa: ANN401 - plain data
    if isinstance(value, list):
        yield place, value
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from lists(item, (*place, key))


def resized(rng: random.Random, given: list[Any]) -> list[Any]:
    """Another length, by entries taken away or repeated."""
    size = rng.choice([n for n in range(2 * len(given) + 1) if n != len(given)] or [1])
    kept = sorted(rng.choices(range(len(given)), k=size)) if size > len(given) > 0 else range(min(size, len(given)))
    return [given[n] for n in kept] or [0] * size


@scaled
@pytest.mark.parametrize("kind", first(3, KINDS))
def test_a_list_of_another_length_is_reported(kind: str, tmp_path: Path) -> None:
    content, read = KINDS[kind](tmp_path)
    document: dict[str, Any] = msgpack.unpackb(content)
    del document["digest"]
    rng = random.Random(kind)
    places = list(lists(document))
    assert {"path", "inputs", "acted"} & {field(place) for place, _ in places} > {"path"} or kind == "learned"
    unnoticed = set()
    for place, given in rng.sample(places * 8, min(examples(60, 600), 8 * len(places))):
        other = put(document, place, resized(rng, given))
        if packed(other) == packed(document):
            continue
        try:
            report = examine(forged(other), read)
        except (ConfigError, KeyError):  # it refers to a model or policy that is not there
            continue
        if not report.problems:
            unnoticed.add(field(place))
    assert unnoticed <= table()


@pytest.mark.parametrize("name", ["inputs", "acted"])
@pytest.mark.parametrize("kind", ["hidden", "another policy acted"])
def test_lists_that_belong_to_the_path_have_its_length(kind: str, name: str, tmp_path: Path) -> None:
    """Also without a check for contradictions before, and without another problem that hides it."""
    content, read = KINDS[kind](tmp_path)
    proof = open_proof(read_evidence(content), read)
    document: dict[str, Any] = msgpack.unpackb(content)
    pairs = len(document["path"])
    assert pairs > 1
    absent: dict[str, list[Any]] = {"inputs": [[0.0, 1.0]], "acted": ["nominal"]}
    given = document.get(name) or absent[name] * pairs
    for size in (*range(1, pairs), pairs + 1, 2 * pairs):
        other = {**document, name: (given * 2)[:size]}
        del other["digest"]
        altered = forged(other)
        problem = f"{name}: entries for {size} pairs are recorded, and the path has {pairs}"
        for deriver in (ENGINE, REFEREE):
            found = derive_again(read_evidence(altered), proof.model, proof.tables, proof.models, [deriver])
            assert (found.problems, found.by) == ([problem], None)
        assert problem in examine(altered, read).problems


def test_a_document_without_a_path_is_no_alarm(tmp_path: Path) -> None:
    content, read = of_hidden(tmp_path)
    document = msgpack.unpackb(content)
    del document["digest"], document["inputs"]
    problems = examine(forged({**document, "path": []}), read).problems
    assert any(problem.startswith("path: 0 pairs") for problem in problems)
