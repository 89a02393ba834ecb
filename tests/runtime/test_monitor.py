"""The whole route without I/O: what is answered, when, and what happens to alarms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from monitor.errors import ConfigError, FormulaError, PolicyError
from monitor.evaluation import check
from monitor.exact import history
from monitor.model import MDP
from monitor.runtime.admission import ESTABLISHED
from monitor.runtime.monitor import Monitor
from monitor.types import (
    AlarmMoved,
    AlarmSpec,
    Alert,
    Blind,
    Ended,
    Forgotten,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    OffPolicy,
    Received,
    Skipped,
    StreamSettings,
)

REGRET = 'regret(careful@2, P>=0.8 [ G<=3 !"lost" ])'
RASH, CAREFUL = 0, 1
N = TypeVar("N")


@pytest.fixture
def corridor() -> MDP:
    """States 0..3 in a row, 4 lost, 5 home. Rash moves on fast and may be lost; careful waits or gets home."""
    transitions = [(s, RASH, min(s + 1, 3), 0.5) for s in range(4)]
    transitions += [(s, RASH, 4, 0.5) for s in range(4)]
    transitions += [(s, CAREFUL, s, 0.9) for s in range(4)] + [(s, CAREFUL, 5, 0.1) for s in range(4)]
    transitions += [(s, a, s, 1.0) for s in (4, 5) for a in (RASH, CAREFUL)]
    return MDP.from_transitions(states=6, actions=2, transitions=transitions, labels={"lost": [4], "home": [5]})


POLICIES = {"nominal": [RASH] * 6, "careful": [CAREFUL] * 6}


def spec(text: str = REGRET, *, every: float = 1, for_: int = 1, keep: int = 1) -> FormulaSpec:
    return FormulaSpec("watch", text, every=every, causal_model="any", alarm=AlarmSpec(for_=for_, keep=keep))


def step(
    seq: int,
    state: int,
    action: int | None = RASH,
    *,
    episode: int = 0,
    terminated: bool = False,
    truncated: bool = False,
) -> Observation:
    return Observation("ada", episode, seq, state, action, time=100.0 + seq, terminated=terminated, truncated=truncated)


class Stream:
    """Feeds observations one second apart and keeps every notice."""

    def __init__(
        self, model: MDP, formulas: Sequence[FormulaSpec | str], settings: StreamSettings | None = None
    ) -> None:
        self.monitor = Monitor(model, POLICIES, formulas, settings or StreamSettings(max_lag=1e9))
        self.ticks = 0.0
        self.notices: list[Notice] = []

    def send(self, *observations: Observation) -> list[Notice]:
        new: list[Notice] = []
        for observation in observations:
            self.ticks += 1.0
            now = Instant(1000.0 + self.ticks, self.ticks)
            new += self.monitor.observe(observation, now)
            new += self.monitor.evaluate(now)
        self.notices += new
        return new

    def wait(self, seconds: float) -> list[Notice]:
        self.ticks += seconds
        return self.monitor.evaluate(Instant(1000.0 + self.ticks, self.ticks))


def of(kind: type[N], notices: Iterable[Notice]) -> list[N]:
    return [notice for notice in notices if isinstance(notice, kind)]


def test_each_verdict_is_the_answer_check_gives_on_the_held_path(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()])
    path = [(0, RASH), (1, RASH), (2, CAREFUL), (2, RASH), (3, CAREFUL)]
    notices = stream.send(*(step(n, s, a) for n, (s, a) in enumerate(path)))
    verdicts = [judged.verdict for judged in of(Judged, notices)]
    assert len(verdicts) == len(path)
    for n, verdict in enumerate(verdicts, start=1):
        assert verdict == check(REGRET, model=corridor, path=path[:n], policies=POLICIES, causal_model="any")
    assert [v.clipped for v in verdicts] == [True, True, False, False, False]


def test_decisions_made_for_the_goal_are_answered_on_a_stream_as_alone(corridor: MDP) -> None:
    text = 'regret(best[<=1]@2, P>=0.8 [ G<=3 !"lost" ])'
    path = [(0, RASH), (1, RASH), (2, CAREFUL), (2, RASH), (3, None)]
    observations = [step(n, s, a, terminated=a is None) for n, (s, a) in enumerate(path)]
    stream = Stream(corridor, [msgspec.structs.replace(spec(text), recourse="always")])
    verdicts = [judged.verdict for judged in of(Judged, stream.send(*observations))]
    assert len(verdicts) == len(path)
    for n, verdict in enumerate(verdicts, start=1):
        alone = check(
            text, model=corridor, path=path[:n], policies=POLICIES, causal_model="any", terminated=n == len(path)
        )
        assert verdict == alone


def test_an_alarm_fires_resolves_and_tells_the_same_id(corridor: MDP) -> None:
    stream = Stream(corridor, [spec(keep=2)])
    fired = of(Alert, stream.send(step(0, 0)))
    assert [alert.state for alert in fired] == ["firing"]
    # Once home, nominal is as safe as anything: two safe verdicts resolve it.
    notices = stream.send(step(1, 1, CAREFUL), step(2, 5), step(3, 5), step(4, 5), step(5, 5))
    told = [*fired, *of(Alert, notices)]
    assert [(alert.state, alert.verdict.outcome) for alert in told] == [
        ("firing", "regret"),
        ("firing", "regret"),  # another value
        ("firing", "safe"),
        ("resolved", "safe"),
    ]
    assert {alert.id for alert in told} == {fired[0].id}
    assert [alert.revision for alert in told] == [1, 2, 3, 4]
    assert [moved.state for moved in of(AlarmMoved, stream.notices)] == ["firing", "clear"]


def test_for_counts_verdicts_and_starts_again_with_the_episode(corridor: MDP) -> None:
    stream = Stream(corridor, [spec(for_=2)])
    assert of(Alert, stream.send(step(0, 0))) == []
    assert of(Alert, stream.send(step(0, 0, episode=1))) == []
    assert [alert.state for alert in of(Alert, stream.send(step(1, 1, episode=1)))] == ["firing"]


def test_an_episode_that_ends_closes_its_alarm_as_ended_never_resolved(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()])
    notices = stream.send(step(0, 0), step(1, 4, None, terminated=True))
    assert [alert.state for alert in of(Alert, notices)] == ["firing", "ended"]
    assert of(Ended, notices) == [Ended("ada", 0)]
    assert len(of(Judged, notices)) == 2, "the last step is answered once, not twice"


def test_termination_makes_the_last_state_absorbing() -> None:
    moving = MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 0, 0.5), (0, 0, 1, 0.5), (1, 0, 1, 1.0)], labels={"far": [1]}
    )
    text = 'nominal@0.P>=0.5 [ F<=4 "far" ]'
    watch = Monitor(moving, {"nominal": [0, 0]}, [text])
    now = Instant(0.0, 0.0)
    last = Observation("ada", 0, 0, 0, 0, terminated=True)
    judged = of(Judged, [*watch.observe(last, now), *watch.evaluate(now)])
    assert [j.verdict.quantities[0].value for j in judged] == [0.0]
    truncated = Observation("ada", 1, 0, 0, 0, truncated=True)
    judged = of(Judged, [*watch.observe(truncated, now), *watch.evaluate(now)])
    assert [j.verdict.quantities[0].value for j in judged] == [pytest.approx(1 - 0.5**4)]


def test_after_a_gap_a_formula_is_blind_until_the_path_is_longer_than_its_offset(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(reorder_steps=0, max_lag=1e9))
    stream.send(step(0, 0), step(1, 1))
    notices = stream.send(step(3, 2, CAREFUL))
    assert [blind.reason for blind in of(Blind, notices)] == ["gap"]
    assert of(Judged, notices) == []
    assert of(Judged, stream.send(step(4, 2, CAREFUL))) == []
    seen = stream.send(step(5, 2, CAREFUL))
    assert [blind.reason for blind in of(Blind, seen)] == [None]
    assert [judged.verdict.clipped for judged in of(Judged, seen)] == [False]


def test_a_blind_firing_alarm_stays_and_says_so(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(reorder_steps=0, max_lag=1e9))
    fired = of(Alert, stream.send(step(0, 0)))
    blind = of(Alert, stream.send(step(2, 1)))
    assert [(a.state, a.blind, a.id, a.revision) for a in blind] == [("firing", "gap", fired[0].id, 2)]


def test_an_impossible_step_makes_blind_and_is_named(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()])
    stream.send(step(0, 0, CAREFUL))
    notices = stream.send(step(1, 3))
    assert [(b.reason, "no transition" in b.detail) for b in of(Blind, notices)] == [("impossible_step", True)]


def test_a_silent_agent_is_stale_then_forgotten(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(stale_after=5.0, forget_after=60.0, max_lag=1e9))
    stream.send(step(0, 0))
    assert [blind.reason for blind in of(Blind, stream.wait(6.0))] == ["stale"]
    forgotten = stream.wait(60.0)
    assert [alert.state for alert in of(Alert, forgotten)] == ["ended"]
    assert of(Forgotten, forgotten) == [Forgotten("ada", silent=66.0, open=True)]
    assert stream.monitor.agents() == ()


def test_a_lost_connection_blinds_everyone(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()])
    stream.send(step(0, 0, CAREFUL))
    told = [stream.monitor.connected(up, Instant(0.0, stream.ticks)) for up in (False, True)]
    assert [[blind.reason for blind in of(Blind, notices)] for notices in told] == [["disconnected"], [None]]


def test_another_policy_than_the_nominal_blinds(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(policies={"a" * 64: "nominal"}, max_lag=1e9))
    foreign = Observation("ada", 0, 0, 0, RASH, policy="b" * 64)
    assert [blind.reason for blind in of(Blind, stream.send(foreign))] == ["policy_mismatch"]


def test_each_step_is_judged_by_the_policy_of_its_own_time(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(policies={"a" * 64: "nominal"}))
    now = Instant(0.0, 0.0)
    for seq, policy in enumerate("abba"):
        stream.monitor.observe(Observation("ada", 0, seq, 0, CAREFUL, policy=policy * 64), now)
    notices = stream.monitor.evaluate(now)
    assert [judged.seq for judged in of(Judged, notices)] == [0, 3]
    assert [blind.reason for blind in of(Blind, notices)] == ["policy_mismatch", None]


def test_a_burst_is_not_lost_however_small_the_window(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(window=3, reorder_steps=1, max_lag=1e9))
    now = Instant(0.0, 0.0)
    for seq in range(32):  # as many as the sidecar takes over before it answers
        stream.monitor.observe(step(seq, 0, CAREFUL), now)
    notices = stream.monitor.evaluate(now)
    assert [judged.seq for judged in of(Judged, notices)] == list(range(32))
    assert of(Blind, notices) == []


def test_a_formula_that_is_not_due_goes_blind_and_sees_again_all_the_same(corridor: MDP) -> None:
    stream = Stream(corridor, [spec(every=9)], StreamSettings(policies={"a" * 64: "nominal"}, max_lag=1e9))
    now = Instant(0.0, 0.0)
    told = []
    for seq, policy in enumerate("aba"):  # at one instant, so that it is not the look every second that tells
        stream.monitor.observe(Observation("ada", 0, seq, 0, CAREFUL, policy=policy * 64), now)
        told.append([blind.reason for blind in of(Blind, stream.monitor.evaluate(now))])
    assert told == [[], ["policy_mismatch"], [None]]


def test_under_load_evaluations_are_skipped_and_counted_never_steps(corridor: MDP) -> None:
    every = Stream(corridor, [spec()])
    path = [(0, CAREFUL), (0, RASH), (1, CAREFUL), (1, RASH)]
    last = of(Judged, every.send(*(step(n, s, a) for n, (s, a) in enumerate(path))))[-1]
    loaded = Stream(corridor, [spec()])
    now = Instant(0.0, 0.0)
    for n, (s, a) in enumerate(path):
        loaded.monitor.observe(step(n, s, a), now)
    notices = loaded.monitor.evaluate(now, latest_only=True)
    assert [judged.verdict for judged in of(Judged, notices)] == [last.verdict]
    assert sum(skipped.count for skipped in of(Skipped, notices)) == 3
    assert [blind.reason for blind in of(Blind, notices)] == ["overload"]  # and it is said for which formula and agent
    later = Instant(0.0, 6.0)
    loaded.monitor.observe(step(4, 2, CAREFUL), later)
    assert [blind.reason for blind in of(Blind, loaded.monitor.evaluate(later))] == [None]


def test_under_load_no_answer_is_skipped_that_was_late_when_its_step_arrived(corridor: MDP) -> None:
    """Steps 0 and 1 are old when they arrive, 2 has no time and comes before the live ones, 3 and 4 are live."""
    loaded = Stream(corridor, [spec()], StreamSettings(max_lag=2.0))
    arrivals = [(90.0, 0.0), (97.0, 0.0), (None, 5.0), (104.0, 6.0), (106.0, 7.0)]
    for n, (time, ticks) in enumerate(arrivals):
        loaded.monitor.observe(replace(step(n, 0, CAREFUL), time=time), Instant(100.0 + ticks, ticks))
    now = Instant(108.0, 8.0)
    notices = loaded.monitor.evaluate(now, latest_only=True, live_since=5.0)
    assert [judged.seq for judged in of(Judged, notices)] == [0, 1, 2, 4]
    assert sum(skipped.count for skipped in of(Skipped, notices)) == 1
    assert loaded.monitor.spent == 4


def test_what_is_skipped_does_not_count_as_evaluated(corridor: MDP) -> None:
    loaded = Stream(corridor, [spec()], StreamSettings(max_lag=2.0))
    for n in range(40):
        ticks = 0.0 if n < 20 else 1.0
        loaded.monitor.observe(step(n, 0, CAREFUL), Instant(100.0 + ticks, ticks))
    now, seqs = Instant(102.0, 2.0), []
    for left, spent in ((30, 10), (20, 10), (0, 1)):
        notices = loaded.monitor.evaluate(now, latest_only=True, steps=10, live_since=0.5)
        seqs += [judged.seq for judged in of(Judged, notices)]
        assert (loaded.monitor.waiting.steps, loaded.monitor.spent) == (left, spent)
    assert seqs == [*range(20), 39]


@pytest.mark.parametrize(("every", "asked"), [(1, 7), (2, 3), (3, 2), (2.0, 4), (0.5, 7)])
def test_every_counts_steps_or_seconds(corridor: MDP, every: float, asked: int) -> None:
    stream = Stream(corridor, [spec(every=every)])
    assert len(of(Judged, stream.send(*(step(n, 0, CAREFUL) for n in range(7))))) == asked


def test_the_end_of_an_episode_answers_what_was_not_due(corridor: MDP) -> None:
    stream = Stream(corridor, [spec(every=5)])
    notices = stream.send(step(0, 0, CAREFUL), step(1, 0, CAREFUL, truncated=True))
    assert [judged.seq for judged in of(Judged, notices)] == [1]


def test_an_episode_cut_off_by_the_next_one_answers_what_was_not_due_too(corridor: MDP) -> None:
    stream = Stream(corridor, [spec(every=3), FormulaSpec("each", REGRET)])
    stream.send(step(0, 0), step(1, 1), step(0, 0, episode=1))
    judged = of(Judged, stream.wait(1.0) + stream.notices)
    ended = [(j.formula, j.seq) for j in judged if j.episode == 0]
    assert sorted(ended) == [("each", 0), ("each", 1), ("watch", 1)]


def test_a_path_reaches_the_largest_seq_there_is(corridor: MDP) -> None:
    stream = Stream(corridor, ['P>=0.5 [ G<=3 !"lost" ]'])
    seqs = [*range(2**63 - 31, 2**63 - 1), 2**63 - 2, 2**63 - 1]
    notices = stream.send(*(Observation("ada", 0, seq, 0, CAREFUL) for seq in seqs))
    assert len(of(Judged, notices)) == 30
    *accepted, again, beyond = of(Received, notices)
    assert {each.result for each in accepted} == {"accepted"}
    assert (again.result, beyond.reason) == ("duplicate", "out_of_range")


def test_what_is_no_observation_makes_no_agent(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(agents=1, max_lag=1e9))
    bad = [Observation("ada", "", 0, 0), Observation("bob", 0, -1, 0), Observation("a/b", 0, 0, 0, RASH)]
    assert [r.reason for r in of(Received, stream.send(*bad))] == ["out_of_range", "out_of_range", "bad_agent"]
    assert stream.monitor.agents() == ()
    assert [r.result for r in of(Received, stream.send(step(0, 0)))] == ["accepted"]


def test_agents_beyond_the_limit_are_refused_and_counted(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(agents=1))
    stream.send(step(0, 0))
    refused = stream.send(Observation("bob", 0, 0, 0, RASH))
    assert [(r.result, r.reason) for r in of(Received, refused)] == [("rejected", "too_many_agents")]
    assert stream.monitor.agents() == ("ada",)


def named(name: str, seq: int = 0) -> Observation:
    return Observation(name, 0, seq, 0, CAREFUL, time=0.0)


def test_made_up_names_keep_no_agent_out(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(agents=20, stale_after=5.0, max_lag=1e9))
    stream.send(*(named("ada", seq) for seq in range(ESTABLISHED)))
    monitor, ticks = stream.monitor, stream.ticks

    def say(*observations: Observation, later: float = 0.0) -> list[Notice]:
        now = Instant(1000.0 + ticks + later, ticks + later)
        return [notice for observation in observations for notice in monitor.observe(observation, now)]

    say(*(named(f"bogus{n}") for n in range(30)), named("bogus0", 1))
    assert len(monitor.agents()) == 20
    assert [r.reason for r in of(Received, say(named("bob")))] == ["too_many_agents"], "those just heard stay"
    told = say(named("bob"), later=6.0)
    assert of(Forgotten, told) == [Forgotten("bogus1", silent=6.0)], (
        "of those that said least, the one that is silent longest"
    )
    assert [r.result for r in of(Received, told)] == ["accepted"]
    again = Monitor(corridor, POLICIES, [spec()], monitor.settings)
    again.load(monitor.save(everything=True))
    for each in (monitor, again):
        monitor = each
        say(*(named(f"more{n}") for n in range(100)), later=6.0)
        assert len(monitor.agents()) == 20
        assert {"ada", "bob"} <= set(monitor.agents()), "neither who is established nor who was just heard"
        assert "bogus0" not in monitor.agents()


def test_off_policy_steps_are_counted(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()])
    assert of(OffPolicy, stream.send(step(0, 0, RASH))) == []
    assert of(OffPolicy, stream.send(step(1, 1, CAREFUL))) == [OffPolicy("ada")]


def test_two_agents_do_not_mix(corridor: MDP) -> None:
    alone = Stream(corridor, [spec()])
    alone.send(*(step(n, 0, CAREFUL) for n in range(4)))
    both = Stream(corridor, [spec()])
    for n in range(4):
        both.send(step(n, 0, CAREFUL), Observation("bob", 7, n, min(n, 3), RASH, time=0.0))
    mine = [j.verdict for j in of(Judged, both.notices) if j.agent == "ada"]
    assert mine == [j.verdict for j in of(Judged, alone.notices)]


@pytest.mark.parametrize(
    ("policies", "formulas", "error", "says"),
    [
        ({"careful": [1] * 6}, [REGRET], ConfigError, "nominal"),
        ({"nominal": [0] * 5}, ['P=? [ F<=1 "lost" ]'], PolicyError, "6 states"),
        (POLICIES, ['P=? [ F<=1 "lots" ]'], FormulaError, "did you mean 'lost'"),
        (POLICIES, ["regret(carefull@2, P>=0.8 [ true ])"], FormulaError, "did you mean 'careful'"),
        (POLICIES, ["careful@64.P=? [ true ]"], ConfigError, "window"),
        (POLICIES, ["P=? [ true ]", FormulaSpec("formula_0", "true")], ConfigError, "two formulas are called"),
    ],
)
def test_mistakes_are_reported_before_the_first_message(
    corridor: MDP, policies: dict[str, object], formulas: list[str | FormulaSpec], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Monitor(corridor, policies, formulas)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stale_after", math.nan),
        ("reorder_wait", -1.0),
        ("forget_after", "3"),
        ("max_lag", math.nan),
        ("window", 0),
        ("reorder_steps", 1.5),
        ("agents", 0),
    ],
)
def test_settings_of_the_stream_that_do_not_count_are_refused(name: str, value: object) -> None:
    model = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])
    with pytest.raises(ConfigError, match=f"{name} is {value!r}; it must be"):
        Monitor(model, {"nominal": [0]}, [], msgspec.structs.replace(StreamSettings(), **{name: value}))


@pytest.mark.parametrize(
    ("spec_", "says"),
    [
        (FormulaSpec("a/b", REGRET), "name"),
        (FormulaSpec("watch", REGRET, every=0), "every"),
        (FormulaSpec("watch", REGRET, alarm=AlarmSpec(for_=0)), "for and keep"),
        (FormulaSpec("watch", REGRET, alarm=AlarmSpec(keep=math.nan)), "for and keep"),  # type: ignore[arg-type]
        (FormulaSpec("watch", REGRET, every=math.nan), "every: is nan"),
        (FormulaSpec("watch", REGRET, every=math.inf), "every: is inf"),
        (FormulaSpec("watch", REGRET, every=np.int64(2)), "every: is 2"),  # type: ignore[arg-type]
        (FormulaSpec("watch", REGRET, causal_model="zzz"), "causal_model"),  # type: ignore[arg-type] # that is the test
        (FormulaSpec("watch", REGRET, alarm=AlarmSpec(when="fails")), "never happens"),
        (FormulaSpec("watch", 'P>=0.5 [ F<=1 "home" ]', alarm=AlarmSpec(when="regret")), "never happens"),
        (FormulaSpec("watch", 'handover(careful, P>=0.5 [ F<=1 "home" ], 2) >= 0.5'), "write when: holds"),
        (FormulaSpec("watch", 'handover(careful, P>=0.5 [ F<=1 "home" ], 2) > 0.5'), "write when: holds"),
    ],
)
def test_a_formula_built_in_python_is_held_to_the_rules_of_the_config(
    corridor: MDP, spec_: FormulaSpec, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Monitor(corridor, POLICIES, [spec_])


def test_a_query_too_large_is_undecided_with_a_reason_and_moves_no_alarm(
    corridor: MDP, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_HISTORIES", 0)
    stream = Stream(corridor, [FormulaSpec("deep", 'careful@0.P>=0.5 [ F<=3 nominal@1.P>0.5 [ X "home" ] ]')])
    notices = stream.send(step(0, 0), step(1, 1))
    verdicts = [judged.verdict for judged in of(Judged, notices)]
    assert [(v.holds, v.outcome) for v in verdicts] == [(None, None)] * 2
    assert all("MAX_HISTORIES" in v.reason for v in verdicts)
    assert of(AlarmMoved, notices) == []


@pytest.mark.parametrize("seq", [1, 2])
def test_a_mark_stops_no_answer_but_a_broken_path_does(corridor: MDP, seq: int) -> None:
    stream = Stream(corridor, [spec()], StreamSettings(reorder_steps=0, max_lag=1e9))
    stream.send(step(0, 0))
    stream.monitor.connected(up=False, now=Instant(0.0, stream.ticks))
    notices = stream.send(step(seq, 1))
    assert len(of(Judged, notices)) == (seq == 1)
    assert [blind.reason for blind in of(Blind, notices)] == ([] if seq == 1 else ["gap"])


def test_an_alarm_raised_while_marked_says_so(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()])
    stream.monitor.connected(up=False, now=Instant(0.0, 0.0))
    assert [(alert.state, alert.blind) for alert in of(Alert, stream.send(step(0, 0)))] == [("firing", "disconnected")]


def test_what_stands_is_reported_again_as_it_was(corridor: MDP) -> None:
    stream = Stream(corridor, [spec()])
    sent = stream.send(step(0, 0))
    standing = list(stream.monitor.current_state())
    assert of(Judged, standing) == of(Judged, sent)
    assert of(AlarmMoved, standing) == of(AlarmMoved, sent)
    assert [blind.reason for blind in of(Blind, standing)] == [None]


def test_other_words_for_a_formula_and_for_what_to_do_close_no_alarm(corridor: MDP) -> None:
    before = Stream(corridor, [spec()])
    fired = of(Alert, before.send(step(0, 0), step(1, 1), step(2, 2)))
    assert (fired[-1].state, fired[-1].instructions) == ("firing", None)
    alarm = replace(spec().alarm, runbook="https://example.org/other", instructions="Call 4711.")
    worded = replace(spec(), alarm=alarm, labels=(("lost", "it falls"),))
    after = Stream(corridor, [worded])
    told = after.monitor.load(before.monitor.save(everything=True))
    assert of(Alert, told) == []
    assert [moved.state for moved in of(AlarmMoved, after.monitor.current_state())] == ["firing"]
    severe = replace(spec(), alarm=replace(spec().alarm, severity="critical"))
    told = Stream(corridor, [severe]).monitor.load(before.monitor.save(everything=True))
    assert [alert.state for alert in of(Alert, told)] == ["removed"]


STATES = ("one", "two", "three", "four", "lost", "home")


@pytest.mark.parametrize(
    ("names", "kept"),
    [({}, True), ({"action_names": ("careful", "rash")}, False), ({"state_names": STATES[::-1]}, False)],
)
def test_a_path_whose_numbers_stand_for_something_else_begins_anew(
    corridor: MDP,
    names: dict[str, tuple[str, ...]],
    kept: bool,  # noqa: FBT001 - a case
) -> None:
    """Each of its steps is possible in the other model, too."""
    named = dataclasses.replace(corridor, state_names=STATES, action_names=("rash", "careful"))
    given: dict[str, Any] = {**names}
    before = Stream(named, [spec()])
    before.send(step(0, 0), step(1, 1))
    other = dataclasses.replace(named, rewards=corridor.rewards + 1.0, **given)
    after = Stream(other, [spec()])
    after.monitor.load(before.monitor.save(everything=True))
    assert len(of(Judged, after.send(step(2, 2)))) == kept
