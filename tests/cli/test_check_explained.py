"""`cfmon check --explain`: which decision it was, in words and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.model import MDP, save_model

Run = Callable[..., tuple[int, str, str]]
ARGUMENTS = ("--model", "model.npz", "--path", "path.json", "--policy", "nominal=walk.json", "--policy", "up=up.json")


@pytest.fixture
def stairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stair of four steps, of which the agent climbed none; climbing is certain."""
    model = MDP.from_transitions(
        states=4,
        actions=2,
        transitions=[(s, a, min(s + a, 3), 1.0) for s in range(4) for a in range(2)],
        labels={"up": [2, 3], "top": [3], "start": [0]},
        action_names=["stay", "climb"],
        state_names=["ground", "first", "second", "third"],
    )
    save_model(model, tmp_path / "model.npz")
    (tmp_path / "walk.json").write_text(json.dumps([0, 0, 0, 0]))
    (tmp_path / "up.json").write_text(json.dumps([1, 1, 1, 1]))
    (tmp_path / "path.json").write_text(json.dumps([[0, 0], [0, 0], [0, 0]]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def explained(cfmon: Run, formula: str, *more: str) -> tuple[int, str, str]:
    return cfmon("check", *ARGUMENTS, "--formula", formula, "--explain", *more)


@pytest.mark.usefixtures("stairs")
def test_a_missed_goal_is_explained_in_words(cfmon: Run) -> None:
    code, out, err = explained(cfmon, 'nominal@2.P>=1 [ F<=3 "up" ]')
    words = " ".join(out.split())
    assert (code, err) == (1, "")
    for line in (
        "as it happened 0, missed",
        "optimal 1 as well as possible without hindsight",
        "best 1 with hindsight, which no policy has",
        "avoidable yes, with foresight: the best policy without hindsight meets the goal",
        "at most 1 change: 0, missed with hindsight (optimal policy: 1)",
        "no change helps",
        "at most 2 changes: 1, met with hindsight (optimal policy: 1)",
        "1 step before the last, in ground: climb instead of stay",
        "the last step, in first: climb instead of stay",
        "no better than fewer",
        "@2 ground stay climb 0 +0 1/2",
    ):
        assert line in words, out


@pytest.mark.usefixtures("stairs")
def test_what_needs_every_decision_and_what_none_can_reach(cfmon: Run) -> None:
    out = explained(cfmon, 'nominal@2.P>=1 [ F<=3 "top" ]')[1]
    assert out.count("1/3") == 3
    assert "at most 3 changes: 1, met" in out
    out = explained(cfmon, 'nominal@2.P>=1 [ F<=2 "top" ]')[1]
    assert "no: no decisions meet the goal" in out


@pytest.mark.usefixtures("stairs")
def test_a_goal_that_is_met_has_no_responsibility(cfmon: Run) -> None:
    code, out, _ = explained(cfmon, 'nominal@9.P>=1 [ F<=3 "start" ]')
    assert code == 0
    assert "clipped to the path" in out
    assert "avoidable" not in out
    assert "responsibility" not in out


@pytest.mark.usefixtures("stairs")
def test_the_document_has_the_same_content(cfmon: Run) -> None:
    code, out, _ = explained(cfmon, 'regret(up@2, P>=1 [ F<=3 "up" ])', "--json", "--most", "2")
    (verdict,) = json.loads(out)["verdicts"]
    found = verdict["explanation"]
    assert (code, verdict["answer"]) == (1, "regret")
    assert found["goal"] == 'nominal@2.P>=1 [ F<=3 "up" ]'
    assert [plan["value"] for plan in found["plans"]] == [0.0, 0.0, 1.0]
    assert found["plans"][2]["first"]["then"][0]["state"] == 1
    assert [decision["responsibility"] for decision in found["decisions"]] == [0.5, 0.5, 0.5]
    assert found["action_names"] == ["stay", "climb"]
    assert "explanation" not in cfmon("check", *ARGUMENTS, "--formula", '@2.P=? [ F<=3 "up" ]', "--json")[1]


@pytest.mark.usefixtures("stairs")
@pytest.mark.parametrize(
    ("formula", "options", "problem"),
    [
        ('@2.P>=1 [ F<=3 "up" ]', ("--engine", "sampled"), "leave out --engine sampled"),
        ('@2.P>=1 [ F<=3 "up" ]', ("--engine", "referee"), "leave out --engine referee"),
        ('@2.P>=1 [ F<=3 "up" ]', ("--most", "-1"), "most is -1; it must be at least 0"),
        ('@2.P>=1 [ F<=3 "up" ] & @1.P>=1 [ F<=3 "top" ]', (), "one goal, and this is none or several"),
        ('"up"', (), "one goal, and this is none or several"),
        ('@2.P=? [ F<=3 "up" ]', (), "say max@.. or min@.."),
        ('up@2.P>=1 [ F<=3 "up" ]', (), "the decisions of the world up are not those that were made"),
        ('delta(up,nominal)@2.P=? [ F<=3 "up" ]', (), "a difference of two worlds"),
        ('handover(up, P>=1 [ F<=3 "up" ], 2) >= 0', (), "explain the nested goal by itself"),
        ("@2.P>=1 [ true ]", (), "no decision matters"),
    ],
)
def test_what_cannot_be_explained_is_refused(cfmon: Run, formula: str, options: tuple[str, ...], problem: str) -> None:
    code, out, err = explained(cfmon, formula, *options)
    assert (code, out) == (2, "")
    assert problem in err


@pytest.mark.usefixtures("stairs")
def test_an_unchanged_decision_may_be_the_observed_action(cfmon: Run, stairs: Path) -> None:
    """Of two climbs the first is undone: the observed second one leads up from wherever it is made."""
    (stairs / "path.json").write_text(json.dumps([[0, 0], [0, 1], [1, 1]]))
    by_policy, by_action = (
        json.loads(explained(cfmon, 'max@2.P=? [ F=3 "top" ]', "--json", "--unchanged", unchanged)[1])
        for unchanged in ("nominal", "observed")
    )
    values = [found["verdicts"][0]["explanation"]["plans"][1]["value"] for found in (by_policy, by_action)]
    assert values == [0.0, 1.0]
