"""The pair chain goes on with its path: to the bit as if it had begun there, whatever tables and arrays hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import monitor
from monitor.hidden import couplings, shared_tables
from monitor.hidden.filtering import Weights
from monitor.hidden.hidden_checker import HiddenCheck, HiddenChecker
from monitor.logic import parse
from monitor.types.stream_events import ObservedPair
from tests.hidden.played import Play, some_world
from tests.hidden.scores import KINDS, model_of, policy
from tests.tiers import first

PAIRS, WINDOW = 9, 5
TEXTS = (
    'regret(other@2, P<=0.5 [ F<=4 "bad" ])',
    'other@3.P=? [ !"bad" U[1,5] "good" ]',
    'nominal@1.P=? [ G<=3 !"bad" & F[1,4] "good" ]',
    "delta(other,nominal)@3.R=? [ C[1,4] ]",
    "other@2.R=? [ C<=1 ]",
    'other@-2.P=? [ X "bad" ]',
    'model:icy@2.P=? [ F<=3 "bad" ]',
    "model:icy@2.R=? [ C<=3 ]",
)
HANDED_BACK = ('other[1]@3.P=? [ F<=4 "bad" ]', "other[2]@3.R=? [ C<=5 ]")
"""For policies without memory."""


class Question:
    """One formula on a random world, and a path through it."""

    def __init__(self, kind: str, seed: int, text: str) -> None:
        rng = np.random.default_rng(seed)
        world = some_world(rng, **KINDS[kind])
        possible = [index for index in np.ndindex(world.rows.shape) if world.rows[index] > 0.0]
        model = model_of(world, rewards=[(*index, float(rng.normal())) for index in possible])
        even = [(*index, 1.0 / model.states) for index in np.ndindex(world.rows.shape)]
        icy = monitor.MDP.from_transitions(states=model.states, actions=model.actions, transitions=even)
        acting = {"nominal": policy(world.nominal), "other": policy(world.alternative)}
        checker, happened = HiddenChecker(model, acting, {"icy": icy}), Play(world, PAIRS, 1, rng).nominal()
        self.path: list[ObservedPair] = [
            (None if rng.random() < 0.2 else int(happened["seen"][k][0]), int(happened["actions"][k][0]))
            for k in range(PAIRS)
        ]
        self.beliefs: Sequence[Weights] = checker.beliefs(self.path, (), None)
        self._checker, self._formula, self._text = checker, parse(text), text
        checker.validate(self._formula, text)

    def check(self) -> HiddenCheck:
        return self._checker.check(self._formula, self._text)

    def verdict(self, check: HiddenCheck, length: int, added: int | None) -> monitor.Verdict:
        held = slice(max(length - WINDOW, 0), length)
        return check.verdict(self.path[held], self.beliefs[held], added)


def cases() -> list[tuple[str, str, str]]:
    return [
        (kind, str(seed), text)
        for seed in range(6)
        for kind in KINDS
        for text in (TEXTS if "memories" in KINDS[kind] else (*TEXTS, *HANDED_BACK))
    ]


@pytest.mark.parametrize("case", first(36, cases()), ids=" ".join)
def test_a_chain_that_goes_on_has_the_bits_of_one_that_begins(case: tuple[str, str, str]) -> None:
    """Pair by pair, with some left out that are asked about later, and a window that slides."""
    kind, seed, text = case
    question = Question(kind, int(seed), text)
    check, before = question.check(), 0
    for length in (1, 2, 3, 6, 7, 8, 9):
        found = question.verdict(check, length, length - before)
        assert found == question.verdict(question.check(), length, None)
        before = length


@pytest.mark.parametrize("kind", KINDS)
def test_an_offset_has_the_bits_it_has_alone(kind: str) -> None:
    """Start points that are held beside it add zeros to its sums."""
    for seed in range(3):
        deep = Question(kind, seed, 'regret(other@4, P<=0.5 [ !"bad" U[1,5] "good" ])')
        profile = deep.verdict(deep.check(), PAIRS, None).profile
        for offset in range(WINDOW):
            alone = Question(kind, seed, f'other@{offset}.P=? [ !"bad" U[1,5] "good" ]')
            assert alone.verdict(alone.check(), PAIRS, None).value == profile[offset][1]


@pytest.mark.parametrize("initial", [1, 4])
@pytest.mark.parametrize("limit", [0, 64, 4_000_000])
def test_tables_that_grow_or_begin_anew_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, initial: int, limit: int
) -> None:
    for kind in KINDS:
        texts = TEXTS if "memories" in KINDS[kind] else (*TEXTS, *HANDED_BACK)
        for text in texts:
            usual = Question(kind, 1, text)
            expected = usual.verdict(usual.check(), PAIRS, None)
            with monkeypatch.context() as small:
                small.setattr(couplings, "INITIAL", initial)
                small.setattr(couplings, "MAX_SUCCESSORS", limit)
                small.setattr(shared_tables, "MAX_NUMBERS", limit // 8)
                question = Question(kind, 1, text)
                check = question.check()
                for length in range(1, PAIRS):
                    question.verdict(check, length, 1)
                assert question.verdict(check, PAIRS, 1) == expected


def test_where_a_model_is_large_only_states_in_use_are_valued(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        for text in TEXTS:
            question = Question(kind, 2, text)
            expected = question.verdict(question.check(), PAIRS, None)
            with monkeypatch.context() as patch:
                patch.setattr(shared_tables, "is_large", lambda _: True)
                question = Question(kind, 2, text)
                assert question.verdict(question.check(), PAIRS, None) == expected
