"""Each reader on what once broke it, on the largest inputs it takes, and on some hundred changed ones.

The long run, guided by coverage, is `python -m tests.fuzz.drive`, which also takes the time of each input.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark

from monitor.logic.grammar import grammar
from tests.fuzz.largest import LARGEST
from tests.fuzz.targets import TARGETS, Target, found
from tests.tiers import examples, scaled

FEW = settings(
    max_examples=examples(25, 100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
every = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@every
def test_true_inputs_and_those_that_once_broke_it(target: Target) -> None:
    for data in (*target.seeds(), *found(target.name)):
        target.read(data)


@scaled
@every
def test_changed_inputs_bring_nothing_but_the_declared_errors(target: Target) -> None:
    known = [*target.seeds(), *found(target.name)]

    @FEW
    @given(data=st.sampled_from(known), changes=st.lists(st.integers(0, 2**32), min_size=1, max_size=4))
    def holds(data: bytes, changes: list[int]) -> None:
        for change in changes:
            data = target.mutate(random.Random(change), data)
        target.read(data)

    holds()


@scaled
@every
def test_any_bytes_bring_nothing_but_the_declared_errors(target: Target) -> None:
    @FEW
    @given(st.binary(max_size=300))
    def holds(data: bytes) -> None:
        target.read(data)

    holds()


@settings(FEW, max_examples=examples(10, 30))
@given(from_lark(grammar(), start="start"))
def test_formulas_of_the_grammar(written: str) -> None:
    TARGETS["formula"].read(written.encode())


@pytest.mark.parametrize(("name", "data"), LARGEST, ids=[f"{name}-{data[:8]!r}-{len(data)}" for name, data in LARGEST])
def test_the_largest_inputs_bring_nothing_but_the_declared_errors(name: str, data: bytes) -> None:
    TARGETS[name].read(data)
