"""Few changes in hindsight: rows, values and counts against independent ones, and the kept results against new ones."""

from __future__ import annotations

import csv
import re
from fractions import Fraction
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest

from experiments.few_changes import (
    CHANGES,
    MOST,
    best_changes,
    explanations,
    observed_actions,
    policy_choices,
    summary,
    table,
)
from experiments.synthetic import (
    ACTIONS,
    DRAWS,
    STATES,
    Floats,
    Ints,
    Observed,
    Realisation,
    counterfactual_rows,
    drawn_rows,
    observed,
)
from tests.oracle.race import ONE, counterfactual_row
from tests.oracle.recourse import Recourse
from tests.oracle.setting import Dist, Setting
from tests.oracle.window import Unchanged
from tests.tiers import slow

DOCS = Path(__file__).parents[2] / "docs"
KEPT = DOCS / "experiments"


def kept(name: str) -> list[dict[str, str]]:
    with (KEPT / name).open(newline="") as handle:
        return list(csv.DictReader(handle))


def exact(row: Floats) -> Dist:
    return {int(k): Fraction(float(row[k])) for k in np.flatnonzero(row)}


@pytest.fixture(scope="module")
def certain() -> list[Observed]:
    return list(observed(0.0, 0, 4, models=3))


@pytest.fixture(scope="module")
def uncertain() -> list[Observed]:
    return list(observed(1.0, 0, 3, models=1))


def test_rows_are_those_of_exponential_races(uncertain: list[Observed]) -> None:
    for each in uncertain:
        real = each.real
        for step, state, action in ((0, 0, 0), (7, 13, 4), (18, 19, 9)):
            seen = exact(each.rows[real.actions[step], real.states[step]])
            expected = counterfactual_row(seen, exact(each.rows[action, state]), int(real.states[step + 1]))
            found = real.rows[step, action, state]
            assert [found[k] for k in range(STATES)] == pytest.approx(
                [float(expected.get(k, 0)) for k in range(STATES)]
            )
        assert (real.rows[-1] == each.rows).all()


def test_drawn_rows_estimate_the_exact_ones(uncertain: list[Observed]) -> None:
    """Hoeffding for all entries together; they do not simply repeat them."""
    each = uncertain[0]
    found = drawn_rows(each.rows, each.real.states, each.real.actions, np.random.default_rng(1))
    error = np.abs(found - each.real.rows)
    assert error[:-1].max() <= sqrt(log(2 * error.size / 1e-6) / (2 * DRAWS))
    assert error[:-1].mean() > 1e-4


def small(seed: int, steps: int = 4, states: int = 3, actions: int = 2) -> tuple[Floats, Floats, Ints, Ints]:
    """Return a random model [A, S, S], a policy [S, A] and a realisation of the policy."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(states), size=(actions, states))
    policy = rng.dirichlet(np.ones(actions), size=states)
    at, taken = np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.int64)
    for step in range(steps):
        taken[step] = rng.choice(actions, p=policy[at[step]])
        if step + 1 < steps:
            at[step + 1] = rng.choice(states, p=rows[taken[step], at[step]])
    return rows, policy, at, taken


@pytest.mark.parametrize("meaning", ["observed", "policy"])
def test_values_are_those_of_the_oracle(meaning: Unchanged) -> None:
    improved = 0
    for seed in range(8):
        rows, policy, at, taken = small(seed)
        steps, (actions, states, _) = len(at), rows.shape
        setting = Setting(
            states,
            actions,
            {(s, a): exact(rows[a, s]) for s in range(states) for a in range(actions)},
            {"nominal": tuple(exact(choice) for choice in policy)},
            tuple(zip(at.tolist(), taken.tolist(), strict=True)),
            rewards={(s, a): s * ONE for s in range(states) for a in range(actions)},
        )
        oracle = Recourse(setting, f"R>=0 [ C<={steps - 1} ]", -1, unchanged=meaning)
        unchanged = {
            "observed": observed_actions(states, taken, actions),
            "policy": policy_choices(np.repeat(policy[None], steps, axis=0), at, taken),
        }[meaning]
        best, _ = best_changes(counterfactual_rows(rows, at, taken), unchanged, steps)
        expected = [float(oracle.value(f"best[<={k}]")) for k in range(steps + 1)]
        assert best[:, at[0]].tolist() == pytest.approx(expected, abs=1e-12)
        improved += expected[2] > expected[1] + 0.01
    assert improved >= 3


def test_a_certain_model_has_one_explanation_if_any_change_helps(certain: list[Observed]) -> None:
    """Then no other world has the observed noise."""
    counts = []
    for each in certain:
        real = each.real
        best, changed = best_changes(real.rows, observed_actions(STATES, real.actions, ACTIONS), MOST)
        for k in range(MOST + 1):
            count = explanations(real, changed, k, np.random.default_rng(0))
            assert count == (best[k, real.states[0]] > real.states.sum())
            counts.append(count)
    assert set(counts) == {0, 1}


def test_explanations_are_counted_once_each() -> None:
    """Two steps: with one change left, state 1 calls for it at the second; with two, the first has one as well."""
    rows = np.full((2, 2, 2, 2), 0.5)
    real = Realisation(np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64), rows)
    changed = np.full((2, 3, 2), -1)
    changed[0, 2, 0] = 1
    changed[1, 1, 1] = 1
    rng = np.random.default_rng(0)
    assert [explanations(real, changed, k, rng) for k in range(3)] == [0, 1, 2]


def test_no_change_is_the_observed_outcome_and_more_changes_are_no_worse(uncertain: list[Observed]) -> None:
    for each in uncertain:
        real = each.real
        for unchanged in (
            observed_actions(STATES, real.actions, ACTIONS),
            policy_choices(each.nominal, real.states, real.actions),
        ):
            best = best_changes(real.rows, unchanged, MOST)[0][:, real.states[0]]
            assert best[0] == pytest.approx(real.states.sum())
            assert (np.diff(best) > 0).all()


@slow
def test_kept_results_are_those_of_this_code() -> None:
    """Of one alpha; counts may differ where two changes are equally good up to rounding."""
    lines = summary(table(0, 50, [1.0]))
    before = [line for line in kept("few-changes-summary.csv") if line["alpha"] == "1.0"]
    assert len(lines) == len(before) == MOST + 1
    for line, old in zip(lines, before, strict=True):
        for name, value in line.items():
            assert value == pytest.approx(float(old[name]), abs=0.05 if "explanations" in name else 1e-3), (
                line["k"],
                name,
            )


def test_the_page_has_the_kept_results() -> None:
    page = (DOCS / "experiments.md").read_text(encoding="utf-8")
    section = page[page.index("## Few changes in hindsight") :]
    found = re.findall(
        r"^\| (\d[\d.]*) \| (\d+) \| ([\d.]+) \| ([\d.]+) ± ([\d.]+) \|.*\| ([\d.]+) \| ([\d.]+) \|$",
        section,
        re.MULTILINE,
    )
    lines = {(line["alpha"], int(line["k"])): line for line in kept("few-changes-summary.csv")}
    assert len(found) == len({line["alpha"] for line in lines.values()}) * len(CHANGES)
    for alpha, k, *numbers in found:
        line = lines[alpha, int(k)]
        names = ("outcome", "improvement", "improvement_error", "by_policy", "explanations")
        for number, name in zip(numbers, names, strict=True):
            assert abs(float(number) - float(line[name])) <= 0.51 * 10 ** -len(number.partition(".")[2]), (
                alpha,
                k,
                name,
            )
