"""Labels of a world on columns that are no features: the rule on features is the true one, or the label is refused."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.authoring.dynamics.label_rules import FeatureLabel, Rule, rule_of
from monitor.authoring.dynamics.steps import Visits
from monitor.authoring.learning.conditions import parsed
from monitor.errors import ModelError
from monitor.worlds.feature_conditions import compiled

pytest.importorskip("sklearn.tree")

NAMES = ("level", "warmth")


def visits(seed: int, count: int, decided: object, wrong: float = 0.0) -> Visits:
    rng = np.random.default_rng(seed)
    x = np.round(rng.uniform(0, 10, (count, 2)), 2)
    holds = decided(x) ^ (rng.uniform(size=count) < wrong)  # type: ignore[operator]
    return Visits(x, holds[:, np.newaxis], np.ones((count, 1), np.bool_))


def rule(found: Visits) -> Rule:
    return rule_of(parsed("bad: trip == 1"), NAMES, found, 0, 0)


def test_a_threshold_is_found_to_within_the_recorded_numbers() -> None:
    found = rule(visits(1, 5_000, lambda x: x[:, 0] > 9.5))
    name, above, cut = found.text.split()
    assert (name, above) == ("level", ">")
    assert 9.48 <= float(cut) <= 9.52
    assert len(cut) <= 5, "as short as the numbers allow"


def test_a_box_is_found_and_its_errors_are_counted() -> None:
    def decided(x: np.ndarray) -> np.ndarray:
        return np.asarray((x[:, 0] > 8) & (x[:, 1] <= 3) | (x[:, 1] > 9.2))

    found, other = rule(visits(1, 8_000, decided)), visits(2, 8_000, decided)
    said = compiled(found.text, NAMES, {}, "rule")(other.x)
    assert (said != other.holds[:, 0]).sum() <= 0.02 * other.holds.sum()
    true = int(visits(1, 8_000, decided).holds.sum())
    assert f"of the {true:,} in which 'trip == 1' holds, and holds in " in found.said
    assert f" of the {8_000 - true:,} others" in found.said


def test_a_few_wrong_rows_do_not_move_the_threshold() -> None:
    found = rule(visits(3, 5_000, lambda x: x[:, 0] > 5, wrong=0.03))
    assert 4.9 <= float(found.text.removeprefix("level > ")) <= 5.1


@pytest.mark.parametrize(
    ("decided", "problem"),
    [
        (lambda x: np.random.default_rng(9).uniform(size=len(x)) < 0.1, "no simple rule on them replaces it"),
        (lambda x: (x.sum(axis=1) * 3).astype(int) % 2 == 0, "no simple rule on them replaces it"),
        (lambda x: np.zeros(len(x), np.bool_), "holds in no recorded state"),
        (lambda x: np.ones(len(x), np.bool_), "holds in each recorded state"),
    ],
)
def test_what_no_rule_decides_is_refused(decided: object, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        rule(visits(4, 2_000, decided))


def test_unknown_visits_do_not_count() -> None:
    found = visits(5, 4_000, lambda x: x[:, 0] > 5)
    known = found.x[:, 1] > 5
    wrong = Visits(found.x, found.holds ^ ~known[:, np.newaxis], known[:, np.newaxis])
    assert 4.9 <= float(rule(wrong).text.removeprefix("level > ")) <= 5.1


@pytest.mark.parametrize(
    ("text", "parts", "whole"),
    [
        ("level > 9", [], "level > 9"),
        ("trip == 1", ["trip == 1"], "R0"),
        ("trip == 1 or level > 9", ["trip == 1"], "level > 9 or R0"),
        ("done and reward < 0", ["done and reward < 0"], "R0"),
        ("done and reward < 0 and level > 9", ["done and reward < 0"], "level > 9 and R0"),
        ("level > 9 or (end == 'trip' and not warmth < 2)", ["end == 'trip'"], "level > 9 or (not warmth < 2 and R0)"),
        ("not (level > 9 or done)", ["done"], "not (level > 9 or R0)"),
        ("abs(level) > 9", ["abs(level) > 9"], "R0"),
    ],
)
def test_only_the_parts_without_features_are_replaced(text: str, parts: list[str], whole: str) -> None:
    label = FeatureLabel(parsed(f"bad: {text}"), NAMES)
    assert [part.text for part in label.parts] == parts
    rules = {part.text: Rule(f"warmth > {number}", "") for number, part in enumerate(label.parts)}
    assert label.with_rules(rules) == whole.replace("R0", "warmth > 0")
    compiled(label.with_rules(rules), NAMES, {}, "label")
