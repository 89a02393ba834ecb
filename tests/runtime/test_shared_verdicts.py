"""Agents that went the same way share verdicts; every verdict is still that of a check from scratch, to the bit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from monitor import check
from monitor.exact import verdict as verdict_module
from monitor.model import MDP
from monitor.runtime import shared_verdicts
from monitor.runtime.monitor import Monitor
from monitor.types import AlarmSpec, FormulaSpec, Instant, Judged, Observation, StreamSettings, Verdict
from tests.exact.calls import note_calls
from tests.runtime.test_takeovers import DITCH, ROAD, RUSH, road
from tests.runtime.test_takeovers import POLICIES as TWO_POLICIES
from tests.tiers import examples, first, scaled

SHA = {"nominal": "a" * 64, "careful": "b" * 64}
POLICIES: dict[str, list[Any]] = {"nominal": [0, 0, 0, 0], "careful": [1, 1, 1, 1]}
FORMULAS = [
    'regret(careful@2, P>=0.6 [ G<=4 !"ditch" ])',
    'regret(careful[1]@1, P<=0.5 [ F<=3 "ditch" ])',
    'careful@3.P=? [ F<=4 "home" ]',
    'careful@-1.P>=0.5 [ F<=5 "home" ]',
    'handover(careful, P>=0.5 [ G<=2 !"ditch" ], 2) < 0.5',
    'nominal@1.P>=0.3 [ F<=2 (careful[1]@1.P>=0.4 [ X "home" ]) ]',
    'nominal@0.P>=0.3 [ F<=2 (careful[1]@0.P>=0.4 [ X "home" ]) ]',
    '"home" | delta(careful,nominal)@2.P>=0.1 [ F<=4 "home" ]',
]


def world(random: Random) -> MDP:
    """Four states; the last ends the episode. Rows are rough, so that paths repeat."""
    rows = []
    for state in range(3):
        for action in range(2):
            weights = [random.choice([0, 1, 3]) for _ in range(4)]
            weights[random.randrange(4)] += 1
            rows += [(state, action, to, weight / sum(weights)) for to, weight in enumerate(weights) if weight]
    rows += [(3, 0, 3, 1.0), (3, 1, 3, 1.0)]
    return MDP.from_transitions(states=4, actions=2, transitions=rows, labels={"ditch": [1], "home": [2]})


class Fleet:
    """Agents whose steps come in turns; `judged`: each verdict with the path it was given on."""

    def __init__(self, random: Random, agents: int, *, takeovers: bool = False) -> None:
        self.random, self.model = random, world(random)
        specs = [FormulaSpec(f"f{n}", text, causal_model="any", recourse="always") for n, text in enumerate(FORMULAS)]
        known = {sha256: name for name, sha256 in SHA.items()}
        self.monitor = Monitor(self.model, POLICIES, specs, StreamSettings(window=6, max_lag=1e9, policies=known))
        self.takeovers = takeovers
        self.where = {f"a{n}": (0, 0, 0) for n in range(agents)}
        self.now = 0.0
        self.judged: list[tuple[Judged, dict[str, Any]]] = []

    def step(self, agent: str) -> None:
        episode, seq, state = self.where[agent]
        by = "careful" if self.takeovers and self.random.random() < 0.3 else "nominal"
        action, ends = POLICIES[by][state], state == 3
        message = Observation(
            agent, str(episode), seq, state, None if ends else action, terminated=ends, policy=SHA[by]
        )
        self.now += 0.001
        now = Instant(self.now, self.now)
        self.monitor.observe(message, now)
        notices = self.monitor.evaluate(now)
        state_now = self.monitor.save().agents[agent]
        assert state_now is not None
        path = state_now.session.path
        about = {"path": tuple(path.held), "terminated": ends, "acted": tuple(path.acted)}
        about["start_observed"] = path.broken is None and not path.oldest_dropped
        self.judged += [(each, about) for each in notices if isinstance(each, Judged)]
        if ends:
            self.where[agent] = (episode + 1, 0, 0)
            return
        successors, probabilities = self.model.row(state, action)
        [to] = self.random.choices(successors.tolist(), probabilities.tolist())
        self.where[agent] = (episode, seq + 1, to)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            for agent in self.where:
                self.step(agent)

    def verdict(self, judged: Judged, about: dict[str, Any], known: dict[str, Verdict]) -> Verdict:
        """The same verdict, from scratch; asked once for each path, which `known` is for."""
        text = FORMULAS[int(judged.formula[1:])]
        asked = repr((text, about))
        if asked not in known:
            regret = text.startswith("regret")
            verdict = check(
                text, model=self.model, policies=POLICIES, causal_model="any", engine="exact", recourse=regret, **about
            )
            assert isinstance(verdict, Verdict)
            known[asked] = verdict
        return known[asked]


@scaled
@pytest.mark.parametrize("takeovers", first(1, [True, False]))
@pytest.mark.parametrize("seed", first(1, range(3)))
def test_each_verdict_of_a_fleet_is_that_of_a_check_from_scratch(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, takeovers: bool
) -> None:
    monkeypatch.setattr(shared_verdicts, "WORTHWHILE", 0.0)
    known: dict[str, Verdict] = {}  # both fleets have the same model and go the same ways
    for entries in (8192, 3):
        monkeypatch.setattr(shared_verdicts, "ENTRIES", entries)
        fleet = Fleet(Random(seed), examples(4, 5), takeovers=takeovers)
        fleet.run(examples(20, 25))
        assert len(fleet.judged) > 500
        for judged, about in fleet.judged:
            assert judged.verdict == fleet.verdict(judged, about, known), (entries, judged.formula, about)
        assert any(judged.verdict.recourse is not None for judged, _ in fleet.judged)


def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The formulas of the verdicts that are computed from now on."""
    calls: list[str] = []
    note_calls(monkeypatch, verdict_module, "Verdict", calls, lambda text, *_, **__: text)
    return calls


@scaled
def test_what_agents_ask_again_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = evaluated(monkeypatch)
    fleet = Fleet(Random(1), examples(12, 20))
    fleet.run(examples(16, 20))
    asked = [judged.verdict.formula for judged, _ in fleet.judged]
    paths = [(judged.verdict.formula, about["path"][-3:], about["terminated"]) for judged, about in fleet.judged]
    assert calls.count(FORMULAS[0]) == len({path for path in paths if path[0] == FORMULAS[0]})
    assert 2 * calls.count(FORMULAS[0]) < asked.count(FORMULAS[0])
    for from_elsewhere in (FORMULAS[3], FORMULAS[5]):  # they depend on pairs further back
        assert calls.count(from_elsewhere) == asked.count(from_elsewhere)


@pytest.mark.parametrize("limit", ["ENTRIES", "TRIAL"])
def test_a_fleet_that_never_asks_again_shares_nothing(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Nothing is kept any more, once the verdicts held were hardly asked for."""
    monkeypatch.setattr(shared_verdicts, limit, 2)
    monkeypatch.setattr(shared_verdicts, "WORTHWHILE", 1.0)
    fleet = Fleet(Random(1), 4)
    fleet.run(10)
    calls = evaluated(monkeypatch)
    before = len(fleet.judged)
    fleet.run(10)
    asked = [judged.verdict.formula for judged, _ in fleet.judged[before:]]
    assert sorted(calls) == sorted(asked)


def test_only_the_question_for_a_verdict_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recourse is looked up where a verdict was just kept: counted, it would make sharing look worthwhile."""
    monkeypatch.setattr(shared_verdicts, "TRIAL", 2)
    ring = MDP.from_transitions(
        states=9,
        actions=2,
        transitions=[(s, a, (s + 1) % 9, 1.0) for s in range(9) for a in (0, 1)],
        labels={"home": [8]},
    )
    watched = FormulaSpec("f", 'regret(careful@0, P>=0.5 [ F<=1 "home" ])', recourse="always")
    monitor = Monitor(ring, {"nominal": [0] * 9, "careful": [1] * 9}, [watched])
    calls = evaluated(monkeypatch)
    for agent in ("ada", "bob"):
        for seq in range(5):
            now = Instant(float(seq), float(seq))
            monitor.observe(Observation(agent, "e", seq, seq, 0), now)
            (judged,) = [each for each in monitor.evaluate(now) if isinstance(each, Judged)]
            assert judged.verdict.recourse is not None
    assert len(calls) == 10, "when three were kept and none was asked for again, sharing had ended"


def test_a_verdict_on_an_ended_path_is_not_that_on_an_open_one() -> None:
    """The same pairs, terminated or not: `terminated` is a part of what a verdict depends on."""
    model = MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 0, 0.5), (0, 0, 1, 0.5), (1, 0, 0, 1.0)], labels={"home": [1]}
    )
    text = 'nominal@0.P=? [ F<=2 "home" ]'
    monitor = Monitor(model, {"nominal": [0, 0]}, [text], StreamSettings(window=3, max_lag=1e9))
    values = []
    for n, (agent, ends) in enumerate([("ada", False), ("bob", True), ("cyd", False)]):
        now = Instant(float(n), float(n))
        monitor.observe(Observation(agent, "e", 0, 0, 0, terminated=ends), now)
        values += [each.verdict.value for each in monitor.evaluate(now) if isinstance(each, Judged)]
    assert values == [0.75, 0.0, 0.75]


def test_the_kept_verdict_has_no_recourse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recourse is kept beside it, because not every verdict on a path is examined: only while there is an alarm."""
    watched = FormulaSpec("f", 'regret(careful@0, P>=0.05 [ F<=3 "home" ])', alarm=AlarmSpec(for_=3))
    monitor = Monitor(road(), TWO_POLICIES, [watched])
    calls = evaluated(monkeypatch)
    examined = []
    for seq, (agent, state) in enumerate([("ada", DITCH), ("ada", ROAD), ("ada", DITCH), ("bob", DITCH)]):
        now = Instant(float(seq), float(seq))
        monitor.observe(Observation(agent, "e", seq if agent == "ada" else 0, state, RUSH), now)
        (judged,) = [each for each in monitor.evaluate(now) if isinstance(each, Judged)]
        examined.append(judged.verdict.recourse is not None)
    assert examined == [False, True, True, False], "ada's alarm is pending when she is in the ditch again, bob's is not"
    assert len(calls) == 2, "one verdict on the ditch"
