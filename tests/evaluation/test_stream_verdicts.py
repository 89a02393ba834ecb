"""Sampled verdicts on a stream: a false-alarm rate for the whole of it, the same bytes again, and proof."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from monitor.alarm.message import Identity, alert_payload, identity_of
from monitor.errors import ConfigError, LimitError
from monitor.evaluation import check, on_stream
from monitor.evidence.canonical import plain
from monitor.evidence.document import read_evidence
from monitor.exact import lazy_values, tables, value_table
from monitor.model import MDP
from monitor.runtime import query
from monitor.runtime.monitor import Monitor
from monitor.statistics.alpha_spending import fraction
from monitor.types import (
    AlarmMoved,
    AlarmSpec,
    Alert,
    Drawn,
    Engine,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    Sampling,
    TestName,
    Verdict,
)
from tests.evidence.rederived import make_evidence, rederive
from tests.tiers import heavy, slow

RASH, CAREFUL = 0, 1
POLICIES = {"nominal": [RASH] * 6, "careful": [CAREFUL] * 6}
PLAIN = 'careful@1.P>=0.5 [ G<=3 !"lost" ]'  # true
BREACH = 'P>=0.8 [ G<=3 !"lost" ]'  # false until the agent is home
REGRET = 'regret(careful@2, P>=0.8 [ G<=3 !"lost" ])'
FIGURE = 'careful@1.P=? [ F<=3 "home" ]'
SAMPLING = Sampling(seed=7, alpha=0.05, beta=0.02)


@pytest.fixture(scope="module")
def corridor() -> MDP:
    """States 0..3 in a row, 4 lost, 5 home. Rash moves on fast and may be lost; careful waits or gets home."""
    transitions = [(s, RASH, min(s + 1, 3), 0.5) for s in range(4)]
    transitions += [(s, RASH, 4, 0.5) for s in range(4)]
    transitions += [(s, CAREFUL, s, 0.9) for s in range(4)] + [(s, CAREFUL, 5, 0.1) for s in range(4)]
    transitions += [(s, a, s, 1.0) for s in (4, 5) for a in (RASH, CAREFUL)]
    return MDP.from_transitions(states=6, actions=2, transitions=transitions, labels={"lost": [4], "home": [5]})


def spec(text: str, engine: Engine = "sampled", **more: Any) -> FormulaSpec:  # noqa: ANN401 - fields of the struct
    return FormulaSpec("watch", text, engine=engine, **more)


def watch(
    corridor: MDP,
    formula: FormulaSpec,
    *,
    episodes: int = 1,
    agents: Sequence[str] = ("ada",),
    sampling: Sampling = SAMPLING,
) -> list[Notice]:
    """All that is told of agents that go 0, 1, 2, 3 in each episode."""
    monitor = Monitor(corridor, POLICIES, [formula], sampling=sampling)
    told: list[Notice] = []
    ticks = 0.0
    for episode in range(episodes):
        for seq in range(4):
            ticks += 1.0
            now = Instant(1000.0 + ticks, ticks)
            for agent in agents:
                told += monitor.observe(
                    Observation(agent, episode, seq, seq, RASH, time=1000.0 + ticks, truncated=seq == 3), now
                )
            told += monitor.evaluate(now)
    return told


def verdicts(notices: Sequence[Notice], agent: str = "ada") -> list[Verdict]:
    return [notice.verdict for notice in notices if isinstance(notice, Judged) and notice.agent == agent]


def test_each_verdict_spends_its_fraction_of_the_streams_alpha_over_all_episodes(corridor: MDP) -> None:
    told = verdicts(watch(corridor, spec(PLAIN), episodes=3))
    assert len(told) == 12
    for n, verdict in enumerate(told, start=1):
        assert verdict.method == "sampled"
        assert verdict.drawn is not None
        assert verdict.drawn.test == n
        assert verdict.drawn.alpha == pytest.approx(0.05 * fraction(n) * 0.98, rel=1e-12)
        assert verdict.drawn.beta == 0.02
        assert verdict.drawn.sampling == SAMPLING


def test_each_agent_has_a_stream_and_noise_of_its_own(corridor: MDP) -> None:
    told = watch(corridor, spec(FIGURE), agents=("ada", "bob"), episodes=2)
    ada, bob = verdicts(told), verdicts(told, "bob")
    assert [v.drawn.test for v in ada if v.drawn] == [v.drawn.test for v in bob if v.drawn] == list(range(1, 9))
    seeds = {v.drawn.seed for v in ada + bob if v.drawn}
    assert len(seeds) == 16
    assert all(0 <= seed < 1 << 53 for seed in seeds)


def test_an_alarm_on_holds_has_the_rate_on_holds(corridor: MDP) -> None:
    (told, *_) = verdicts(watch(corridor, spec(PLAIN, alarm=AlarmSpec(when="holds"))))
    assert told.drawn is not None
    assert told.drawn.alpha == 0.02
    assert told.drawn.beta == pytest.approx(0.05 * fraction(1) * 0.98)


@heavy
@pytest.mark.parametrize(
    "text", [PLAIN, BREACH, REGRET, FIGURE, "careful@1.R>=0 [ C[0,2] ]", f"({PLAIN}) & ({BREACH})"]
)
def test_the_same_messages_give_the_same_notices(corridor: MDP, text: str) -> None:
    told = watch(corridor, spec(text), episodes=2)
    assert watch(corridor, spec(text), episodes=2) == told
    other = watch(corridor, spec(text), episodes=2, sampling=replace(SAMPLING, seed=8))
    assert [v.drawn for v in verdicts(other)] != [v.drawn for v in verdicts(told)]


@pytest.mark.parametrize("text", [PLAIN, BREACH, REGRET])
def test_decided_verdicts_are_correct(corridor: MDP, text: str) -> None:
    """Every bound is at least a tenth away here."""
    strong = replace(SAMPLING, alpha=1e-7, beta=1e-7)
    sampled = verdicts(watch(corridor, spec(text), episodes=3, sampling=strong))
    exact = verdicts(watch(corridor, spec(text, "exact"), episodes=3))
    assert [(v.holds, v.outcome) for v in sampled] == [(v.holds, v.outcome) for v in exact]
    assert {v.method for v in exact} == {"exact"}


@heavy
@pytest.mark.parametrize("text", [PLAIN, BREACH, REGRET, "careful@1.R>=-1 [ C[0,2] ]"])
def test_the_papers_tests_decide_a_stream_where_they_are_chosen(corridor: MDP, text: str) -> None:
    """Every bound is at least a tenth away, five times the width of the region."""
    strong = Sampling(alpha=1e-7, beta=1e-7, test="paper")
    paper = verdicts(watch(corridor, spec(text), episodes=2, sampling=strong))
    bets = verdicts(watch(corridor, spec(text), episodes=2, sampling=replace(strong, test="betting")))
    exact = verdicts(watch(corridor, spec(text, "exact"), episodes=2))
    assert [(v.holds, v.outcome) for v in paper] == [(v.holds, v.outcome) for v in exact]
    if text == PLAIN:  # where the goal is missed both draw on
        assert [v.quantities for v in paper] != [v.quantities for v in bets]


@slow
def test_false_alarms_of_many_streams_stay_within_alpha(corridor: MDP, monkeypatch: pytest.MonkeyPatch) -> None:
    """The true value is the bound itself. Of 100 streams at alpha .1, more than 21 alarm with a probability < .001."""
    assert check('P=? [ X !"lost" ]', model=corridor, path=[(0, RASH)], policies=POLICIES).value == 0.5

    def alarmed() -> int:
        told = watch(
            corridor,
            spec('P>=0.5 [ X !"lost" ]'),
            episodes=10,
            agents=[f"agent{n}" for n in range(100)],
            sampling=Sampling(alpha=0.1, beta=0.1, limit=400),
        )
        assert len([notice for notice in told if isinstance(notice, Judged)]) == 4000
        return len({notice.agent for notice in told if isinstance(notice, Alert)})

    assert alarmed() <= 21
    shared = on_stream

    def unshared(sampling: Sampling, *arguments: Any, **more: Any) -> Drawn:  # noqa: ANN401 - whatever it is given
        return replace(shared(sampling, *arguments, **more), alpha=sampling.alpha)

    monkeypatch.setattr(query, "on_stream", unshared)
    assert alarmed() > 50  # each verdict at alpha: what the rule is there for


def test_undecided_is_a_verdict_and_changes_no_alarm(corridor: MDP) -> None:
    notices = watch(corridor, spec('P>=0.5 [ X !"lost" ]'), sampling=replace(SAMPLING, limit=20))
    assert [v.holds for v in verdicts(notices)] == [None] * 4
    assert all("open after 20 samples" in v.reason for v in verdicts(notices))
    assert not [notice for notice in notices if isinstance(notice, AlarmMoved)]


def test_an_alert_reports_that_it_was_sampled_and_its_confidence(corridor: MDP) -> None:
    identity = Identity("corridor", "0" * 64, {}, {})
    told = [n for n in watch(corridor, spec(BREACH)) if isinstance(n, Alert) and n.state == "firing"]
    alert = told[0]
    samples = alert.verdict.quantities[0].samples
    assert f"Sampled: {samples:,} samples, confidence 0.95." in alert.details
    payload = json.loads(alert_payload(alert, identity, sent=0.0, evidence=None))
    assert payload["method"] == "sampled"
    assert payload["bounds"] == list(alert.verdict.bounds or ())


def evidence(corridor: MDP, formula: FormulaSpec, sampling: Sampling = SAMPLING) -> bytes:
    given = tables(POLICIES, corridor)
    identity = identity_of(corridor, given, {})
    told = watch(corridor, formula, sampling=sampling)
    alert = next(n for n in told if isinstance(n, Alert) and n.state == "firing")
    return make_evidence(alert, identity, given, {})


@pytest.mark.parametrize("text", [BREACH, REGRET])
@pytest.mark.parametrize("when", [None, "other"])
def test_evidence_of_a_sampled_alarm_is_sampled_again(corridor: MDP, text: str, when: str | None) -> None:
    if when is not None:
        text, alarm = 'P<0.8 [ G<=3 !"lost" ]', AlarmSpec(when="holds")
    else:
        alarm = AlarmSpec()
    document = read_evidence(evidence(corridor, spec(text, alarm=alarm)))
    given = tables(POLICIES, corridor)
    assert document.verdict.method == "sampled"
    assert rederive(document, corridor, given) == []
    drawn = document.verdict.drawn
    assert drawn is not None
    other_seed = replace(document, verdict=replace(document.verdict, drawn=replace(drawn, seed=drawn.seed + 1)))
    assert any("verdict.drawn.seed" in problem for problem in rederive(other_seed, corridor, given))
    easier = replace(document, verdict=replace(document.verdict, drawn=replace(drawn, alpha=0.4, beta=0.4)))
    assert any("verdict.drawn.alpha" in problem for problem in rederive(easier, corridor, given))
    quantity = replace(document.verdict.quantities[0], samples=document.verdict.quantities[0].samples + 1)
    counted = replace(document.verdict, quantities=(quantity, *document.verdict.quantities[1:]))
    assert any("samples" in problem for problem in rederive(replace(document, verdict=counted), corridor, given))
    nonsense = replace(document.verdict, drawn=replace(drawn, test=-1))
    assert rederive(replace(document, verdict=nonsense), corridor, given)


def test_evidence_names_the_test_and_is_sampled_again_with_it(corridor: MDP) -> None:
    given = tables(POLICIES, corridor)
    for test in get_args(TestName):
        document = read_evidence(evidence(corridor, spec(BREACH), replace(SAMPLING, test=test)))
        assert rederive(document, corridor, given) == []
        assert document.verdict.drawn is not None
        assert document.verdict.drawn.sampling.test == test


def test_exact_evidence_contains_no_samples(corridor: MDP) -> None:
    document = plain(read_evidence(evidence(corridor, spec(BREACH, "exact"))))
    assert "drawn" not in document["verdict"]
    assert "samples" not in document["verdict"]["quantities"][0]


def test_auto_samples_where_the_exact_engine_refuses_at_start(corridor: MDP, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_table, "MAX_TABLE_NUMBERS", 0)
    monkeypatch.setattr(value_table, "numbers", lambda _: 0)
    told = verdicts(watch(corridor, spec(PLAIN, "auto")))
    assert {v.method for v in told} == {"sampled"}
    assert [v.holds for v in told] == [True] * 4
    begins = "sampled, because the exact engine refused: "
    assert all(v.reason.startswith(begins) and "MAX_TABLE_NUMBERS" in v.reason for v in told)
    with pytest.raises(LimitError, match="MAX_TABLE_NUMBERS"):
        watch(corridor, spec(PLAIN, "exact"))
    with pytest.raises(LimitError, match="MAX_TABLE_NUMBERS"):
        watch(corridor, spec(PLAIN, "auto", causal_model="any"))


def test_auto_samples_the_steps_with_too_many_states_on_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 5_000
    moves = [(s, a, (s + 1) % size, 0.8) for s in range(size) for a in (0, 1)]
    model = MDP.from_transitions(
        states=size,
        actions=2,
        transitions=moves + [(s, a, s, 0.2) for s in range(size) for a in (0, 1)],
        labels={"far": range(10, size)},
    )
    monkeypatch.setattr(value_table, "MAX_TABLE_NUMBERS", 0)
    monkeypatch.setattr(value_table, "numbers", lambda _: 0)
    formula = FormulaSpec("watch", 'P>=0.5 [ G<=4 !"far" ]')
    monitor = Monitor(model, {"nominal": [0] * size}, [formula], sampling=SAMPLING)
    told = []
    for seq in range(4):
        now = Instant(float(seq), float(seq))
        monitor.observe(Observation("ada", 0, seq, seq, 0), now)
        with monkeypatch.context() as patch:
            if seq in (1, 2):
                patch.setattr(lazy_values, "MAX_KEPT", -1)
                patch.setattr(lazy_values, "MAX_REACHED", 0)
            told += verdicts(monitor.evaluate(now))
    assert [v.method for v in told] == ["exact", "sampled", "sampled", "exact"]
    assert [v.drawn.test for v in told if v.drawn] == [1, 2]
    assert all(v.holds for v in told)
    assert "MAX_REACHED" in told[1].reason
    assert told[3].reason == ""


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        (spec(PLAIN, causal_model="any"), "sampling draws from the Gumbel-Max causal model alone"),
        (spec(PLAIN, "fast"), "engine: 'fast' does not exist; use auto, exact, sampled"),  # type: ignore[arg-type]
    ],
)
def test_an_engine_that_does_not_fit_is_refused_at_start(corridor: MDP, formula: FormulaSpec, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        watch(corridor, formula)


def test_settings_that_cannot_be_are_refused_at_start(corridor: MDP) -> None:
    with pytest.raises(ConfigError, match=r"sampling\.limit"):
        watch(corridor, spec(PLAIN), sampling=replace(SAMPLING, limit=0))


def test_a_query_that_sampling_cannot_answer_is_refused_at_start(corridor: MDP) -> None:
    with pytest.raises(LimitError, match="looks back"):
        watch(corridor, spec('careful@0.P>=0.5 [ F<=3 nominal@1.P>0.5 [ X "home" ] ]'))
