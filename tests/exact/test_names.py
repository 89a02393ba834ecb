"""Errors about names in a formula that the model or the policies lack: position and suggestion."""

from __future__ import annotations

import pytest

from monitor.errors import FormulaError
from monitor.exact import validate
from monitor.logic import parse
from monitor.model import MDP

MODEL = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(0, 0, 1, 1.0), (0, 1, 2, 1.0), (1, 0, 1, 1.0), (1, 1, 1, 1.0), (2, 0, 2, 1.0)],
    labels={"unsafe": [1], "goal": [2]},
    action_names=["brake", "accelerate"],
)
UNNAMED = MDP.from_transitions(states=1, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 0, 1.0)], labels={})
POLICIES = {"nominal": [0, 0, 0], "fallback": [0, 0, 0], "careful": [0, 0, 0]}
MODELS = {"icy": MODEL}

KNOWN = [
    '"unsafe" & fallback@5.P>=0.9 [ G<=20 !"unsafe" ]',
    'regret(careful@-1, P>0.5 [ F<=2 "goal" ])',
    "delta(do(brake)[3], do(0))@2.R>1 [ C<=2 ]",
    'model:icy.P=? [ F<=2 (nominal@1.P>0.5 [ X "goal" ]) ]',
]


@pytest.mark.parametrize("text", KNOWN)
def test_known_names_are_accepted(text: str) -> None:
    validate(parse(text), MODEL, POLICIES, text, MODELS)


# ¦ marks the place that the caret must point at
UNKNOWN = [
    ('P=? [ F<=2 ¦"unsave" ]', "unknown label 'unsave'; did you mean 'unsafe'?"),
    ('P=? [ F<=2 ¦"Goal" ]', "unknown label 'Goal'; did you mean 'goal'?"),
    ('¦"unsave" & "goal"', "unknown label 'unsave'; did you mean 'unsafe'?"),
    ('P=? [ ¦"unsave" U<=2 "goal" ]', "unknown label 'unsave'; did you mean 'unsafe'?"),
    ('¦"unsave" | "goal"', "unknown label 'unsave'; did you mean 'unsafe'?"),
    ('"goal" &\n  ¦"xyz"', "unknown label 'xyz'; there is goal, unsafe"),
    ("¦fallbck@5.P=? [ true ]", "unknown policy 'fallbck'; did you mean 'fallback'?"),
    ("delta(fallback,¦zzz)@2.P=? [ true ]", "unknown policy 'zzz'; there is careful, fallback"),
    ("regret(¦fallbacks@5, P>0.5 [ true ])", "unknown policy 'fallbacks'; did you mean 'fallback'?"),
    ('regret(fallback, P>0.5 [ ¦"gaol" ])', "unknown label 'gaol'; did you mean 'goal'?"),
    ("do(¦break).P=? [ true ]", "unknown action 'break'; did you mean 'brake'?"),
    ("do(¦7)[2].P=? [ true ]", "unknown action '7'; there is accelerate, brake"),
    ("do(¦accelerate).P=? [ true ]", "do(accelerate) is impossible: the action is unavailable in 1 states, first in 2"),
    ("model:¦ice@2.P=? [ true ]", "unknown model 'ice'; did you mean 'icy'?"),
    ('P>0.5 [ X (¦fallbak@1.P>0.5 [ "goal" ]) ]', "unknown policy 'fallbak'; did you mean 'fallback'?"),
    ('P>0.5 [ X (fallback@1.P>0.5 [ !("goal" U<=2 ¦"save") ]) ]', "unknown label 'save'"),
]


@pytest.mark.parametrize(("marked", "problem"), UNKNOWN)
def test_an_unknown_name_is_shown_with_the_closest_known_one(marked: str, problem: str) -> None:
    at = marked.index("¦")
    text = marked.replace("¦", "")
    with pytest.raises(FormulaError) as caught:
        validate(parse(text), MODEL, POLICIES, text, MODELS)
    error = caught.value
    assert error.problem.startswith(problem)
    assert (error.line, error.column) == (text[:at].count("\n") + 1, at - text[:at].rfind("\n"))
    shown, caret = str(error).split("\n")[-2:]
    assert shown[caret.index("^") :].startswith(text[at])


def test_an_error_says_when_there_are_no_names_to_choose_from() -> None:
    for text, problem in [
        ('"unsafe"', "unknown label 'unsafe'; there is no label"),
        ("fallback.P=? [ true ]", "unknown policy 'fallback'; there is no policy"),
        ("model:icy.P=? [ true ]", "unknown model 'icy'; there is no model"),
        ("do(2).P=? [ true ]", "unknown action '2'; there is 0, 1"),
    ]:
        with pytest.raises(FormulaError) as caught:
            validate(parse(text), UNNAMED, {"nominal": [0]}, text)
        assert caught.value.problem == problem
