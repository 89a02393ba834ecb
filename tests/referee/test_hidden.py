"""Where states are hidden or policies remember: the referee against the engine, and against itself on seen states."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

import monitor
from monitor.errors import MonitorError
from monitor.evidence.canonical import plain
from monitor.evidence.contradictions import differences
from monitor.policy.controller import Controller, Policy
from monitor.referee import beliefs, derive
from tests.hidden.test_inputs import model
from tests.referee.hidden_questions import question, setting
from tests.referee.questions import setting as seen_setting
from tests.tiers import first

QUESTIONS = 8
REMEMBERS = Controller([[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[0, 1], [1, 1]])


@pytest.mark.parametrize("seed", first(25, range(400)))
def test_the_same_verdicts(seed: int) -> None:
    here, rng = setting(seed), Random(seed)
    wrong = []
    for _ in range(QUESTIONS):
        text = question(rng, here.held, remembers=here.remembers)
        answers = [plain(program(text, path=here.path, **here.about)) for program in (monitor.check, derive)]
        wrong += [(text, problem) for problem in differences("verdict", *answers)]
    assert not wrong


@pytest.mark.parametrize("seed", first(15, range(200)))
def test_states_that_are_seen_have_the_verdicts_of_the_other_evaluator(seed: int) -> None:
    """Policies that see the state are tables; here actions off the policy are common, under all changes."""
    here, rng = seen_setting(seed), Random(seed)
    about: dict[str, Any] = {"model": here.model, "models": {"other": here.other}, "path": here.path}
    about["terminated"] = here.path[-1][1] is not None and rng.random() < 0.3
    sighted = {
        name: Policy(table.probabilities if table.actions is None else table.actions, sees="state")
        for name, table in here.policies.items()
    }
    for _ in range(QUESTIONS):
        text = question(rng, here.held, remembers=False)
        expected = plain(derive(text, policies=here.policies, recourse=False, **about))
        for program in (derive, monitor.check):
            found = replace(
                program(text, policies=sighted, **about), belief=None, evidence=None, likely=None, unseen=None
            )
            assert list(differences("verdict", expected, plain(replace(found, recourse=None)))) == [], (text, program)


def test_the_questions_cover_what_can_be_asked() -> None:
    settings = [setting(seed) for seed in range(100)]
    texts = [question(Random(seed), here.held, remembers=here.remembers) for seed, here in enumerate(settings)]
    for word in ("regret", "delta", "do(", "model:other", "[1]@", "R=?", "P=?", " U[", "@-", "!("):
        assert sum(word in text for text in texts) > 2, word
    models, paths = [here.about["model"] for here in settings], [here.path for here in settings]
    assert sum(model.emissions is None for model in models) > 10
    assert sum(not model.availability.all() for model in models) > 10
    assert sum(here.remembers for here in settings) > 20
    assert sum("alt" in here.about["acted"] for here in settings) > 20
    assert sum(here.about["terminated"] for here in settings) > 10
    assert sum(len(path[0]) == 3 for path in paths) > 20
    for part in (0, 1):
        assert sum(any(pair[part] is None for pair in path) for path in paths) > 10


def test_an_action_off_the_policy_stays_under_another_model() -> None:
    """The nominal policy never takes action 1, and the state really visited sees it even so."""
    icy = monitor.MDP.from_transitions(
        states=2, actions=2, transitions=[(0, 0, 1, 1.0), (0, 1, 0, 1.0), (1, 0, 1, 1.0), (1, 1, 1, 1.0)]
    )
    sure = model(emissions=[(0, 0, 1.0), (1, 1, 1.0)])
    about: dict[str, Any] = {"model": sure, "models": {"icy": icy}, "policies": {"nominal": [0, 0]}}
    for program in (derive, monitor.check):
        assert program('model:icy@0.P=? [ X "bad" ]', path=[(0, 1)], **about).value == 0.0
        assert program('model:icy@0.P=? [ X "bad" ]', path=[(0, None)], **about).value == 1.0


def test_the_belief_before_each_pair() -> None:
    """Of a path without observations it is the distribution of the state, and of what the policy remembers then."""
    start, later = beliefs(model(), [(None, None), (None, None)], {"nominal": [0, 1]}, ())
    assert start == (0.0, 1.0)
    assert later == pytest.approx((0.0, 0.6, 1.0, 0.4)), "it takes action 0 with .8, and then stays with a half"
    found = beliefs(model(), [(1, None), (0, None)], {"nominal": REMEMBERS}, ())
    assert found == [(0.0, 1.0), (1.0, 1.0)], "it has seen 1, and takes action 1, which stays in state 0"


@pytest.mark.parametrize(
    "changed",
    [
        {"query": '"bad"'},
        {"query": 'P=? [ F<=2 "worse" ]'},
        {"query": "P=? [ F<=2 (P>=0.5 [ X true ]) ]"},
        {"query": 'max@1.P=? [ F<=2 "bad" ]'},
        {"query": 'regret(best@1, P<0.5 [ F<=2 "bad" ])'},
        {"query": 'other[1]@1.P=? [ F<=2 "bad" ]', "policies": {"nominal": [0, 1], "other": REMEMBERS}},
        {"query": 'do(1)[1]@1.P=? [ F<=2 "bad" ]', "policies": {"nominal": REMEMBERS}},
        {"causal_model": "stable"},
        {"model": model(initial=None)},
        {"model": model(emissions=[(0, 0, 1.0), (1, 1, 1.0)]), "path": ((0, 1), (1, 0))},
        {"policies": {"nominal": [0, 2]}},
        {"policies": {"nominal": [0, 1], "other": REMEMBERS}, "acted": ("other", "nominal")},
        {"policies": {"nominal": REMEMBERS, "other": [0, 1]}, "acted": ("other", "nominal")},
        {"acted": ("", "nominal")},
        {"acted": ("nominal",)},
        {"path": ()},
        {"path": ((0, 0), (2, 0))},
        {"path": ((0, 0), (0, 2))},
        {"path": ((0, 0), (0.5, 0))},
        {"path": ((0,), (0, 1))},
        {"path": ((0, 0, ()), (0, 1))},
        {"path": ((0, 0, (0, 0.5, 1, 0.4)), (0, 1))},
        {"path": ((0, 0, (1, 0.5, 0, 0.5)), (0, 1))},
        {"path": ((0, 0, (0, 0.5, 2, 0.5)), (0, 1))},
        {"path": ((0, 0, (0, 1.0, 1, 0.0)), (0, 1))},
        {"path": ((0, 0, (0.5, 1.0)), (0, 1))},
        {
            "model": model(signals=None, emissions=None),
            "policies": {"nominal": REMEMBERS},
            "path": ((None, 0), (0, 1)),
        },
    ],
)
def test_both_programs_refuse_the_same_with_errors_of_one_kind(changed: dict[str, Any]) -> None:
    kinds, policies = [], {"nominal": [0, 1], "other": [1, 1]}
    for program in (monitor.check, derive):
        about = {"model": model(), "policies": policies, "path": ((0, 0), (1, 0)), **changed}
        with pytest.raises(MonitorError) as error:
            program(about.pop("query", 'P=? [ F<=2 "bad" ]'), **about)
        kinds.append(type(error.value))
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("limited", ["hidden_values", "hidden_path"])
def test_what_is_too_large_for_the_referee_is_said(limited: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"monitor.referee.{limited}.LIMIT", 5)
    with pytest.raises(monitor.LimitError, match="the referee follows at most 5 "):
        derive('P=? [ F<=9 "bad" ]', model=model(), path=[(0, 0)] * 9, policies={"nominal": [[0.5, 0.5]] * 2})
