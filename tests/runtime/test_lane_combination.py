"""Tests of the model combined in compiled code: the numbers are those of `Fleet.combine`, or it leaves them alone."""

from __future__ import annotations

import random
from collections import Counter

from monitor.model import MDP
from monitor.runtime.lanes.combination import combine
from monitor.runtime.trust import ModelTrust
from monitor.statistics.discoveries import KEPT
from monitor.statistics.fleet import Fleet, wrong_agents
from monitor.statistics.model_test import DECIDED, HIGHEST, OWN_BETS, ModelTest
from monitor.types import TrustSettings
from tests.tiers import examples, scaled


def agents(draw: random.Random, fleet: Fleet) -> list[ModelTest]:
    """Return the tests of some agents, of which some see a coin that is not fair."""
    bias, part = draw.choice([0.5, 0.65, 0.9]), draw.choice([0.5, 1.0])
    tests = [fleet.join() for _ in range(draw.choice([1, 3, 12, 60]))]
    for test in tests:
        chance = bias if draw.random() < part else 0.5
        for _ in range(draw.randrange(60)):
            test.step(0, int(draw.random() < chance))
    return tests


@scaled
def test_it_is_what_the_fleet_computes_or_changes_nothing() -> None:
    seen: Counter[str] = Counter()
    for seed in range(examples(300, 1000)):
        draw = random.Random(seed)
        fleet = Fleet([0, 2], [0, 1], [0.5, 0.5], alpha=draw.choice([1e-8, 0.001, 0.01]))
        fleet = fleet.alone() if draw.random() < 0.7 else fleet  # without a test of the row, which finds it first
        tests = agents(draw, fleet)
        if draw.random() < 0.3:
            fleet.forget(tests.pop())
        fleet.follow(tests)
        fleet.reported = before_that = max(0, fleet.observed - draw.choice([0, 9, 10, 20, 30]))
        every, silent, sweeps = draw.choice([10, 10, 10, 10_000]), draw.random() < 0.9, draw.random() < 0.3
        address = fleet.combination(every, silent=silent)
        before = fleet.dump()
        found = combine(address, sweeps)
        after, reported = fleet.dump(), fleet.reported
        decided = any(test.stakes[DECIDED] for test in tests)
        fleet.combine(tests)
        if fleet.observed < before_that + (1 if sweeps else every):
            assert found
            assert (after, reported) == (before, before_that)
            seen["not due"] += 1
        elif found:
            assert silent
            assert not decided
            assert not fleet.doubted
            assert not wrong_agents(tests)
            assert not fleet.rejected_rows()
            assert (after, reported) == (fleet.dump(), fleet.observed)
            seen["combined"] += 1
        else:
            assert (after, reported) == (before, before_that)
            found_out = {
                "decided": decided,
                "not silent": not silent or bool(fleet.rejected_rows()),
                "model rejected": fleet.doubted,
                "agents rejected": bool(wrong_agents(tests)),
            }
            seen[next((why for why, so in found_out.items() if so), "nearly")] += 1
    reasons = ("not due", "combined", "decided", "not silent", "model rejected", "agents rejected")
    assert min(seen[why] for why in reasons) >= examples(1, 2), seen
    assert seen["nearly"] < seen["combined"] / 4


def test_agents_that_are_rejected_together_only_are_left_to_the_fleet() -> None:
    fleet = Fleet([0, 2], [0, 1], [0.5, 0.5], alpha=1e-8).alone()
    tests = [fleet.join() for _ in range(2)]
    for test, evidence in zip(tests, (30.0, 150.0), strict=True):  # at 20 = 1 / LEVEL / 2 / part_of(1), and at 120
        test.step(0, 1)
        test.stakes[HIGHEST] = OWN_BETS * (evidence / (1.0 - KEPT)) ** (1.0 / KEPT)
    fleet.follow(tests)
    address = fleet.combination(1, silent=True)
    assert len(wrong_agents(tests)) == 2
    assert not combine(address, sweeps=False)
    tests[0].stakes[HIGHEST] = 0.0
    assert wrong_agents(tests) == []


def test_the_first_report_and_whatever_is_contradicted_are_for_the_ordinary_way() -> None:
    coin = MDP.from_transitions(states=2, actions=1, transitions=[(s, 0, y, 0.5) for s in (0, 1) for y in (0, 1)])
    trust = ModelTrust(coin, TrustSettings(), "exact")
    test = trust.join()
    assert test is not None
    trust.follow([test])

    def silent(steps: int, successor: int | None = None) -> bool:
        for n in range(steps):
            test.step(0, n % 2 if successor is None else successor)
        found = combine(trust.combination(1), sweeps=False)
        assert bool(list(trust.combine({"ada": test}))) != found, "what is left to do says so"
        return found

    assert not silent(20)
    assert silent(20)
    assert silent(20)
    assert not silent(200, 1)
    assert not silent(20), "the row stays rejected"


def test_where_nothing_is_tested_there_is_nothing_to_combine() -> None:
    assert combine(0, sweeps=False)
