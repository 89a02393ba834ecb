"""Each reader on what once broke it, on the largest inputs it takes, and on some hundred changed ones.

The long run, guided by coverage, is `python -m tests.fuzz.drive`.
"""

from __future__ import annotations

import gc
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark

from monitor.logic.grammar import grammar
from tests.fuzz.targets import TARGETS, Target, found
from tests.tiers import examples

FEW = settings(
    max_examples=examples(25, 100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
MIB = 1 << 20
LARGEST: list[tuple[str, bytes]] = [
    ("decoder", b"[" * 65536),
    ("decoder", b'{"a":' * 13000),
    ("decoder", b"\x91" * 65536),
    ("decoder", b"\xdf\xff\xff\xff\xff"),
    ("decoder", b'{"v":1,"episode":"e","seq":0,"state":' + b"1" * 60000 + b"}"),
    ("decoder", b'{"v":1,"episode":"e","seq":0,"state":[' + b"1.5," * 15000 + b"1]}"),
    ("formula", b"(" * 10000),
    ("formula", b"!" * 9990 + b"true"),
    ("formula", b"true" + b" <=> true" * 1000),
    ("formula", b"\n" * 9999 + b"x"),
    ("formula", b"P>=0." + b"9" * 9000 + b" [ true ]"),
    ("config", b"a: [" + b"1," * 500_000 + b"1]"),
    ("config", b"".join(b"k%d: 1\n" % n for n in range(80_000))),
    ("config", b"a: " + b"1:" * 100_000 + b"1"),
    ("config", b"a: |\n" + b" x\n" * 300_000),
    ("config", b"[" * MIB),
    (
        "manifest",
        b"k0: &k0 {x: 1}\n"
        + b"".join(b"k%d: &k%d {<<: [%s]}\n" % (n, n, b"*k%d," % (n - 1) * 9) for n in range(1, 20)),
    ),
    ("manifest", b"[" * 65000),
    ("evidence", b"\xdd\x00\x01\x00\x00" * 1000),
    ("recording", b"\xdb\x7f\xff\xff\xff"),
    ("path", b"j" + b"[" * 100_000),
    ("path", b"j[[" + b"[" * 900 + b"]" * 900 + b",1]]"),
    ("path", b"j" + b"1" * 5000),
    ("path", b'c"' + b"x" * 200_000),
    ("path", b"f" + b"x\n" * 100_000),
]
every = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@every
def test_true_inputs_and_those_that_once_broke_it(target: Target) -> None:
    for data in (*target.seeds(), *found(target.name)):
        target.read(data)


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


@every
def test_any_bytes_bring_nothing_but_the_declared_errors(target: Target) -> None:
    @FEW
    @given(st.binary(max_size=300))
    def holds(data: bytes) -> None:
        target.read(data)

    holds()


@settings(FEW, max_examples=examples(25, 30))
@given(from_lark(grammar(), start="start"))
def test_formulas_of_the_grammar(written: str) -> None:
    TARGETS["formula"].read(written.encode())


@pytest.mark.parametrize(("name", "data"), LARGEST, ids=[f"{name}-{data[:8]!r}-{len(data)}" for name, data in LARGEST])
def test_the_largest_inputs_take_no_more_than_a_second(name: str, data: bytes) -> None:
    TARGETS[name].read(TARGETS[name].seeds()[0])  # what is made at first use is no fault of the input
    gc.disable()  # nor is what other tests have left, which takes the collector a second
    try:
        began = time.thread_time()
        TARGETS[name].read(data)
        took = time.thread_time() - began
    finally:
        gc.enable()
    assert took < 1.0
