"""The proposed length of takeovers: its figures against a recursion over what the guard decides, and its rule."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from cfmon_client.takeover_logic import NOBODY, Held, Situation, step
from cfmon_client.takeover_rules import Rules

from monitor.authoring.proposal.hold import HOLDS, Guarded, guarded, proposed
from monitor.authoring.proposal.measure import CandidateFormula
from monitor.authoring.proposal.paths import RecordedPath
from monitor.model.mdp import MDP
from monitor.types import AlarmSpec
from tests.authoring.proposal.test_proposal import random_model

STEPS = 6
CANDIDATE = CandidateFormula(3, 0, 0.5, "bad", AlarmSpec())
NOMINAL, FALLBACK = np.array([[0.9, 0.1], [0.6, 0.4], [1.0, 0.0], [0.5, 0.5]]), np.array([1, 1, 0, 1])


def path(*states: int) -> RecordedPath:
    return RecordedPath(np.array(states), np.zeros(len(states) - 1, np.int64), ended=False)


PATHS = [path(0, *[1] * STEPS), path(2, *[0] * STEPS), path(0, *[3] * STEPS), path(3, 0)]


def recursion(model: MDP, rules: Rules | None) -> tuple[float, float]:
    """The probability of a bad state, and the expected fraction of steps by the fallback: by the guard's own `step`."""
    bad = model.labels["bad"]
    laws = {None: NOMINAL, "fallback": np.eye(2)[FALLBACK]}

    @cache
    def spared(state: int, policy: str | None, left: int) -> float:
        if bad[state] or not left:
            return 0.0 if bad[state] else 1.0
        return sum(
            float(laws[policy][state][action] * p) * spared(int(after), policy, left - 1)
            for action in range(2)
            for after, p in zip(*model.row(state, action), strict=True)
        )

    @cache
    def walk(state: int, held: Held, left: int) -> tuple[float, float]:
        if bad[state] or not left:
            return float(bad[state]), 0.0
        fires = spared(state, None, CANDIDATE.horizon) < CANDIDATE.threshold
        helps = fires and spared(state, "fallback", CANDIDATE.horizon) >= CANDIDATE.threshold
        now = Situation("fallback" if helps else None, firing=fires)
        following = held if rules is None else step(rules, held, now, "fallback")
        unsafe, taken = 0.0, float(following.policy is not None)
        for action in range(2):
            for after, p in zip(*model.row(state, action), strict=True):
                weight = float(laws[following.policy][state][action] * p)
                more = walk(int(after), following, left - 1)
                unsafe, taken = unsafe + weight * more[0], taken + weight * more[1]
        return unsafe, taken

    starts = [int(each.states[0]) for each in PATHS if not bad[each.states[0]]]
    both = np.mean([walk(start, NOBODY, STEPS) for start in starts], axis=0)
    return float(both[0]), float(both[1]) / STEPS


@pytest.mark.parametrize("seed", range(5))
def test_the_figures_are_those_of_the_guards_own_decisions(seed: int) -> None:
    model = random_model(np.random.default_rng(seed))
    rows = guarded(model, {"nominal": NOMINAL, "fallback": FALLBACK}, CANDIDATE, PATHS)
    assert [row.hold for row in rows] == [0, 1, 2, 3, 5], "no longer than an episode"
    for row in rows:
        rules = Rules("carry_on", "carry_on", hold=row.hold) if row.hold else None
        assert (row.unsafe, row.taken) == pytest.approx(recursion(model, rules), abs=1e-12)
        assert row.length == STEPS
    assert rows[0].taken == 0.0


def test_a_guard_that_is_never_asked_changes_nothing_and_one_that_cannot_help_either() -> None:
    model = random_model(np.random.default_rng(0))
    for threshold in (0.0, 1.0):  # it never fires; it always does, and the fallback does not meet it either
        candidate = CandidateFormula(3, 0, threshold, "bad", AlarmSpec())
        rows = guarded(model, {"nominal": NOMINAL, "fallback": FALLBACK}, candidate, PATHS)
        assert {(row.unsafe, row.taken) for row in rows} == {(rows[0].unsafe, 0.0)}
        assert proposed(rows) is None


def test_paths_that_all_start_unsafe_propose_nothing() -> None:
    model = random_model(np.random.default_rng(0))
    rows = guarded(model, {"nominal": NOMINAL, "fallback": FALLBACK}, CANDIDATE, [path(3, 0)])
    assert (rows, proposed(rows)) == ([], None)


@pytest.mark.parametrize(
    ("unsafe", "hold"),
    [
        ([0.8, 0.40, 0.30, 0.295], 2),  # the third step spares .005, less than .008
        ([0.8, 0.40, 0.395, 0.2], 1),  # it does not look beyond the first that is not worth it
        ([0.8, 0.40, 0.30, 0.20, 0.18], 5),  # two steps spare .02, more than .016
        ([0.8, 0.40, 0.30, 0.20, 0.19], 3),
        ([0.08, 0.04, 0.03, 0.0295], 2),  # relative to what there is
        ([0.4, 0.4], None),
        ([0.4, 0.5, 0.45], None),
        ([0.0, 0.0], None),
    ],
)
def test_a_longer_takeover_is_proposed_while_each_step_is_worth_it(unsafe: list[float], hold: int | None) -> None:
    rows = [Guarded(at, 30, value, 0.1) for at, value in zip((0, *HOLDS), unsafe, strict=False)]
    assert proposed(rows) == hold
