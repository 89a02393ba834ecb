"""Single other decisions, against the value of one action held for one step."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest

from monitor import MDP, PolicyTable
from monitor.evaluation import check
from monitor.picture import draw, explain
from monitor.types import UNKNOWN_POLICY
from tests.picture.test_draw import SVG
from tests.picture.test_explanation import GRID, PATH, POLICIES, evidence_of

FELL = ((0, 3), (1, 3), (2, 1), (6, 1))
"""Into the unsafe cell."""


def words(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}text")]


def others(picture: str) -> list[tuple[int, str, float]]:
    """The step, the words and the value of each other action: in percent, or as a reward."""
    found = [each.attrib.get("aria-label", "") for each in ET.fromstring(picture).iter(f"{SVG}g")]
    told = [re.match(r"Step (\d+)\. .*?([^.;]+) \(with hindsight\): ([\d.]+\d)", text) for text in found]
    return [(int(match[1]), match[2].strip(), float(match[3])) for match in told if match]


def test_each_decision_has_a_mark_and_the_largest_its_action() -> None:
    evidence = evidence_of('regret(fallback@3, P>=0.99 [ G<=3 !"unsafe" ])', FELL)
    picture = draw(explain(evidence, GRID, POLICIES), GRID)
    drawn = others(picture)
    assert [step for step, _, _ in drawn] == [0, 1, 2, 3]
    best = max(value for _, _, value in drawn)
    assert best > 0.5
    assert len(list(ET.fromstring(picture).iter(f"{SVG}polygon"))) >= len(drawn)
    (largest,) = re.findall(r"The decision that mattered most: .+ instead of .+ at step \d+: (.+)\.<", picture)[-1:]
    assert float(largest) == pytest.approx(best)


def test_the_first_decision_has_the_value_of_its_action_for_one_step() -> None:
    evidence = evidence_of('regret(fallback@3, P>=0.99 [ G<=3 !"unsafe" ])', FELL)
    report = explain(evidence, GRID, POLICIES).recourse
    assert report is not None
    for effect in report.decisions[0].effects:
        text = f'do({GRID.action_names[effect.action]})[1]@3.P=? [ G<=3 !"unsafe" ]'
        value = check(text, model=GRID, path=FELL, policies=POLICIES).value
        assert effect.value == pytest.approx(value, abs=1e-12)


def test_where_no_single_decision_helps_the_picture_says_so() -> None:
    picture = draw(explain(evidence_of('regret(best@3, P>=0.99 [ G<=8 !"unsafe" ])'), GRID, POLICIES), GRID)
    assert "No single other action would have helped." in words(picture)
    assert "no curve for best: decisions made for the goal have no distribution of states" in words(picture)
    assert len(others(picture)) == len(PATH) - 1


@pytest.mark.parametrize(
    "text",
    [
        'fallback@2.P>=0.9 [ F[3,6] "goal" ]',  # decisions that were not made
        'P=? [ F<=4 "goal" ]',  # no direction
        'P>=0.9 [ G<=3 P>=0.5 [ F<=2 "goal" ] ]',  # nested
    ],
)
def test_without_decisions_to_explain_there_is_no_chart(text: str) -> None:
    explanation = explain(evidence_of(text), GRID, POLICIES)
    assert explanation.recourse is None
    assert not any("decision" in word for word in words(draw(explanation, GRID)))


def test_of_a_reward_that_is_to_be_small_the_smallest_is_drawn() -> None:
    priced = MDP.from_transitions(
        states=3,
        actions=3,
        transitions=[(s, a, t, 0.5) for s in range(2) for a in range(3) for t in ((s + 1) % 2, 2)]
        + [(2, a, 2, 1.0) for a in range(3)],
        rewards=[(s, a, price) for s in range(2) for a, price in enumerate((5.0, 3.0, 8.0))],
    )
    policies = {"nominal": table(2, 2, 0), "fallback": table(0, 0, 0)}
    path = ((0, 2), (1, 2), (0, 2))
    evidence = evidence_of("regret(fallback@2, R<=1 [ C<=3 ])", path, model=priced, tables=policies)
    drawn = others(draw(explain(evidence, priced, policies), priced))
    assert [(step, instead) for step, instead, _ in drawn] == [(n, "action 1 instead of action 2") for n in range(3)]
    for step, _, value in drawn:
        text = f"do(1)[1]@{2 - step}.R=? [ C<={3 - step} ]"
        rest = check(text, model=priced, path=path, policies=policies).quantities[0].value
        assert value == pytest.approx(8.0 * step + rest, rel=1e-3), text


def table(*actions: int) -> PolicyTable:
    return PolicyTable(actions=np.array(actions))


def test_an_alarm_that_fires_because_the_formula_holds_is_explained_by_what_would_have_made_it_fail() -> None:
    evidence = evidence_of('P>=0.1 [ F<=3 "unsafe" ]', FELL[:3])
    assert evidence.verdict.holds
    report = explain(evidence, GRID, POLICIES).recourse
    assert report is not None
    assert not report.largest
    assert min(effect.difference for each in report.decisions for effect in each.effects) < -0.1
    assert "The decision that mattered most: " in draw(explain(evidence, GRID, POLICIES), GRID)


def test_after_decisions_of_an_unknown_policy_the_rest_is_drawn() -> None:
    acted = ("nominal", UNKNOWN_POLICY, UNKNOWN_POLICY, UNKNOWN_POLICY)
    evidence = msgspec.structs.replace(evidence_of('regret(fallback@3, P>=0.99 [ G<=3 !"unsafe" ])', FELL), acted=acted)
    explanation = explain(evidence, GRID, POLICIES)
    assert explanation.recourse is None
    assert "nominal 0.000" in words(draw(explanation, GRID))
