"""Where policies change their choices, and states that mix different choices: against known rules and slow counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.authoring.learning.abstraction import Numbering
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.bins import Reservoir
from monitor.authoring.learning.candidates import abstractions
from monitor.authoring.learning.policy_choices import MOST_MIXED, PolicyChoices, changes, mixed, mixed_problem
from monitor.authoring.learning.policy_choices import short_number as short

Rule = Callable[[float, int, str], int]


def deployed(wait: float, jobs: int, air: str) -> int:
    if wait - (30 if jobs > 60 else 0) > 112:
        return 2
    return int(wait > 54.5 or air == "match")


def recorded(rules: dict[str, Rule], seed: int = 0, count: int = 20_000, noise: float = 0.0) -> PolicyChoices:
    """Rows in which each rule is followed, except at random with probability `noise`."""
    rng = np.random.default_rng(seed)
    wait, jobs, other = np.round(rng.uniform(0, 180, count), 1), rng.integers(0, 200, count), rng.normal(size=count)
    air = rng.choice(["loop", "match"], count)
    rows = list(zip(wait.tolist(), jobs.tolist(), air.tolist(), strict=True))
    actions = {name: np.array([rule(*row) for row in rows]) for name, rule in rules.items()}
    for each in actions.values():
        odd = rng.random(count) < noise
        each[odd] = rng.integers(0, 3, int(odd.sum()))
    columns = {"wait": wait, "jobs": jobs, "air": air, "other": other}
    return PolicyChoices(RowBatch(columns, 1, "rows"), actions, frozenset(rules))


@pytest.mark.parametrize("noise", [0.0, 0.07])
def test_the_changes_are_those_of_the_rule(noise: float) -> None:
    found = changes(recorded({"nominal": deployed}, noise=noise), 16)
    assert sorted(found) == [("jobs", 61.0), ("wait", 54.6), ("wait", 112.1), ("wait", 142.1)]


def test_the_largest_changes_of_several_policies_come_first_and_once() -> None:
    rules: dict[str, Rule] = {
        "nominal": lambda wait, jobs, _: int(wait > 100) + int(jobs > 190),
        "fallback": lambda wait, *_: int(wait > 100.0) * 2,
    }
    assert changes(recorded(rules), 16) == [("wait", 100.1), ("jobs", 191.0)]
    assert changes(recorded(rules), 1) == [("wait", 100.1)]


def test_equal_policies_have_the_changes_of_one() -> None:
    assert changes(recorded(dict.fromkeys(("nominal", "fallback"), deployed)), 16) == changes(
        recorded({"nominal": deployed}), 16
    )


def test_unknown_choices_and_constant_policies_have_no_changes() -> None:
    choices = recorded({"nominal": lambda *_: 1, "fallback": lambda *_: -1})
    assert changes(choices, 16) == []


def test_a_rule_by_text_alone_has_no_edges() -> None:
    assert changes(recorded({"nominal": lambda _wait, _jobs, air: int(air == "match")}), 16) == []


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e6))
def test_a_short_number_is_between(low: float, width: float) -> None:
    if low + width > low:
        assert low < short(low, low + width) <= low + width


@pytest.mark.parametrize("seed", range(5))
def test_the_mixed_fraction_is_that_of_a_slow_count(seed: int) -> None:
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 40, 2_000) ** 2
    actions = np.where(rng.random(2_000) < 0.06, rng.integers(0, 4, 2_000), states % 3)
    of: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for state, action in zip(states.tolist(), actions.tolist(), strict=True):
        of[state][action] += 1
    slow = sum(counts.total() for counts in of.values() if sum(n > 0.05 * counts.total() for n in counts.values()) >= 2)
    assert 0 < slow < 2_000
    assert mixed(states, actions) == pytest.approx(slow / 2_000)
    assert mixed(states[:0], actions[:0]) == 0.0


def test_bins_at_the_changes_are_tried_and_do_not_mix_choices() -> None:
    choices = recorded({"nominal": deployed})
    columns = ("wait", "jobs", "air", "other")
    sample = Reservoir(4, np.random.default_rng(0))
    sample.read(choices.rows, columns)
    found = abstractions(choices.rows, columns, sample, 0, also={"wait": [150.0]}, changes=changes(choices, 16))
    option = "--bins 'wait:54.6|112.1|142.1|150,jobs:61,1q'"
    assert option in found
    assert choices.mixed(found[option]) == {"nominal": 0.0}
    assert found[option].size == 5 * 2 * 2
    assert choices.mixed(found["--bins 2q"])["nominal"] > MOST_MIXED
    plain = abstractions(choices.rows, columns, sample, 0, also={"wait": [150.0]})
    assert set(found) - set(plain) == {option, option.replace("1q", "2q")}


def test_choices_that_are_not_known_are_not_counted() -> None:
    rows = RowBatch({"x": np.array([0, 0, 0, 1])}, 1, "rows")
    actions = {"nominal": np.array([0, -1, 0, 1]), "estimate": np.arange(4)}
    choices = PolicyChoices(rows, actions, frozenset({"nominal"}))
    assert choices.mixed(Numbering("index", ("x",))) == {"nominal": 0.0}


def test_a_small_fraction_is_no_problem() -> None:
    assert mixed_problem("fallback", MOST_MIXED) is mixed_problem("nominal", 0.0) is None
    assert str(mixed_problem("fallback", 0.18)).startswith(
        "in 18% of the recorded steps the state mixes rows on which the fallback acts differently: what it would do"
    )
    assert "the agent acts differently" in str(mixed_problem("nominal", 0.11))
