"""One agent's session, case by case: every row of the message rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.stream.session import Session
from monitor.types import (
    Break,
    Deviates,
    End,
    Episode,
    Instant,
    Notice,
    Observation,
    OffPolicy,
    Received,
    RewardMismatch,
    Step,
    StreamSettings,
)
from tests.stream.adapters import adapter, begun, drained

# a ring: action 0 goes on by one state, action 1 stays; action 1 is unavailable in state 3
RING = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[(s, 0, (s + 1) % 4, 1.0) for s in range(4)] + [(s, 1, s, 1.0) for s in range(3)],
    labels={},
)

SETTINGS = StreamSettings(window=8, reorder_steps=4, reorder_wait=0.5, max_lag=2.0)


def at(ticks: float) -> Instant:
    return Instant(wall=1000.0 + ticks, ticks=ticks)


def message(number: int, run_of: Episode = "e", /, **changes: object) -> Observation:
    base = Observation(agent="a", episode=run_of, seq=number, state=number % 4, action=0)
    return replace(base, **changes)


class Told:
    """A session, and all it told."""

    def __init__(
        self, settings: StreamSettings = SETTINGS, nominal: PolicyTable | None = None, model: MDP = RING
    ) -> None:
        self.session = begun(model, settings, nominal)
        self.notices: list[Notice] = []

    def send(self, *messages: Observation, ticks: float = 0.0) -> Told:
        for each in messages:
            self.notices += self.session.arrive(each, at(ticks))
        return self

    def tick(self, ticks: float) -> Told:
        self.notices += self.session.tick(at(ticks))
        return self

    @property
    def results(self) -> list[str]:
        return [n.result if not n.reason else n.reason for n in self.notices if isinstance(n, Received)]

    @property
    def events(self) -> list[object]:
        """What is pending, briefly: the seq of a step, the reason of a break, the episode and kind of an end."""
        return [brief(event) for event in self.session.pending]


def brief(event: Step | Break | End) -> object:
    match event:
        case Step(seq=seq):
            return seq
        case Break(reason=reason):
            return reason
        case End(episode=episode, terminated=terminated):
            return (episode, "terminated" if terminated else "over")


def run(*messages: Observation, ticks: float = 0.0) -> Told:
    return Told().send(*messages, ticks=ticks)


def test_in_order_messages_become_steps_at_once() -> None:
    told = run(*(message(seq) for seq in range(3)))
    assert told.events == [0, 1, 2]
    assert told.results == ["accepted"] * 3
    assert told.session.order.held == {}
    assert told.session.deadline is None


def test_advance_moves_events_to_the_path() -> None:
    told = run(message(0), message(1, terminated=True))
    assert [brief(event) for event in drained(told.session)] == [0, 1, ("e", "terminated")]
    assert told.session.path.pairs == ((0, 0), (1, 0))
    assert told.session.path.terminated
    assert told.session.advance() is None


def test_an_early_step_waits_for_the_missing_one() -> None:
    told = run(message(0), message(2))
    assert (told.events, told.session.order.next_seq, len(told.session.order.held)) == ([0], 1, 1)
    told.send(message(1))
    assert (told.events, told.results) == ([0, 1, 2], ["accepted"] * 3)


def test_a_gap_after_the_wait_told_by_tick() -> None:
    told = run(message(0)).send(message(3), ticks=1.0).send(message(2), ticks=1.25)
    assert told.session.deadline == 1.5
    assert told.tick(1.49).events == [0]
    assert told.tick(1.5).events == [0, "gap", 2, 3]
    assert told.results[-1] == "gap"


def test_a_gap_after_the_wait_told_by_the_next_message() -> None:
    told = run(message(0), message(2)).send(message(3), ticks=0.5)
    assert told.events == [0, "gap", 2, 3]


def test_each_held_step_waits_its_own_time() -> None:
    told = run(message(0), message(2)).send(message(4), ticks=0.3).tick(0.5)
    assert told.events == [0, "gap", 2]
    assert told.tick(0.8).events == [0, "gap", 2, "gap", 4]


def test_a_gap_beyond_the_held_steps() -> None:
    told = run(message(0), *(message(seq) for seq in range(2, 6)))
    assert told.events == [0]
    told.send(message(6))
    assert told.events == [0, "gap", 2, 3, 4, 5, 6]


def test_a_step_after_its_gap_is_stale() -> None:
    told = run(message(0), message(2)).tick(0.5).send(message(1))
    assert told.results == ["accepted", "accepted", "gap", "stale"]
    assert told.events == [0, "gap", 2]


def test_joining_in_mid_episode() -> None:
    told = run(message(5), message(6))
    assert told.events == []
    assert told.tick(0.5).events == ["warming_up", 5, 6]
    assert "gap" not in told.results


def test_a_reordered_start_is_no_joining() -> None:
    told = run(message(1), message(0))
    assert told.events == [0, 1]


def test_a_later_episode_without_its_start_is_a_gap() -> None:
    told = run(message(0, terminated=True), message(2, "f")).tick(0.5)
    assert told.events == [0, ("e", "terminated"), "gap", 2]
    assert told.results == ["accepted", "accepted", "gap"]


def test_duplicates_are_dropped_also_among_the_held() -> None:
    told = run(message(0), message(0), message(2), message(2), message(1), message(2))
    assert told.results == ["accepted", "duplicate", "accepted", "duplicate", "accepted", "duplicate"]
    assert told.events == [0, 1, 2]


def test_a_conflict_restarts_the_path_after_it() -> None:
    told = run(*(message(seq) for seq in range(3)), message(1, time=999.5), message(2, time=999.6))
    assert told.results == ["accepted"] * 3 + ["conflict", "accepted"]
    assert told.events == [0, 1, 2, "conflict", 2]


def test_an_agent_that_starts_over_under_the_same_episode_is_seen_however_late() -> None:
    told = run(*(message(seq) for seq in range(3000)))
    told.session.pending.clear()
    told.send(message(0, time=999.0), message(1, time=999.5))
    assert told.results[3000:] == ["conflict", "accepted"]
    assert told.events == ["conflict", 1]


def test_a_conflict_among_the_held_leaves_its_own_place_unknown_and_the_others_as_they_are() -> None:
    told = run(message(0), message(4), message(3), message(2), message(3, time=999.0))
    assert (told.results[-1], told.events) == ("conflict", [0])
    assert told.send(message(1)).events == [0, 1, 2, "conflict", 4]
    assert told.session.order.held == {}


def test_a_conflict_among_the_held_is_no_gap() -> None:
    """Steps that came are never said to be missing."""
    told = run(message(0), *(message(seq, "f") for seq in range(4)), message(2, "f", time=999.0))
    told.send(message(1, terminated=True))
    assert told.events == [0, 1, ("e", "terminated"), 0, 1, "conflict", 3]
    assert told.results == ["accepted"] * 5 + ["conflict", "accepted"]


def test_a_conflict_in_an_episode_that_waits_for_its_turn() -> None:
    told = run(message(0), message(0, "f"), message(0, "f", time=999.0), message(1, "f"), message(1, terminated=True))
    assert told.results == ["accepted", "accepted", "conflict", "accepted", "accepted"]
    assert told.events == [0, 1, ("e", "terminated"), "conflict", 1]
    drained(told.session)
    assert not told.session.path.start_observed
    assert told.session.path.broken == "conflict"


def test_where_an_episode_begins_again_what_was_held_belongs_to_the_time_before() -> None:
    told = run(message(0), message(2), message(0, time=999.0), message(1, time=999.5))
    assert told.events == [0, "conflict", 2, "conflict", 1]
    assert told.results == ["accepted", "accepted", "conflict", "accepted"]


def test_what_came_before_a_conflict_and_not_after_it_is_no_gap() -> None:
    told = run(*(message(seq) for seq in range(4)), message(0, time=999.0), message(2, time=999.0))
    told.send(message(7)).tick(0.5)
    assert told.events == [0, 1, 2, 3, "conflict", "conflict", 2, "conflict", "gap", 7]
    gap = next(notice for notice in told.notices if isinstance(notice, Received) and notice.result == "gap")
    assert gap.detail == "seq 4 to 6 of episode 'e' did not arrive"
    assert isinstance(lost := told.session.pending[7], Break)
    assert lost.detail == "a conflict leaves seq 3 to 3 of episode 'e' unknown"
    told.send(message(8, terminated=True), message(1, "f"), ticks=1.0).tick(1.5)
    assert told.events[-2:] == ["gap", 1]  # another episode knows nothing of it


def test_an_end_is_one_only_where_both_contents_say_so() -> None:
    ended = {"terminated": True}
    for first, second, ends in ((ended, {}, False), ({}, ended, False), (ended, ended, True)):
        told = run(message(0), message(2, **first), message(2, time=999.0, **second), message(1))
        assert told.events == [0, 1, "conflict", *([("e", "terminated")] if ends else [])]


def test_a_conflict_before_an_end_that_waits_is_one_of_an_ended_episode() -> None:
    told = run(message(0), message(2, terminated=True), message(0, time=999.0), message(1, time=999.5))
    assert told.events == [0, "conflict", 2, ("e", "terminated")]
    assert told.results == ["accepted", "accepted", "conflict", "stale"]
    told.send(message(0, "f"))
    drained(told.session)
    assert told.session.path.start_observed


def test_a_policy_that_only_one_content_names_is_not_known() -> None:
    told = Told(replace(SETTINGS, policies={"ab" * 32: "nominal"}))
    told.send(message(0, policy="ab" * 32), message(2, policy="cd" * 32), message(2), message(1), message(3))
    assert [step.foreign for step in drained(told.session) if isinstance(step, Step)] == [False] * 3


def test_the_end_of_an_episode() -> None:
    told = run(message(0), message(1, terminated=True), message(2), message(1, terminated=True), message(0, "f"))
    assert told.events == [0, 1, ("e", "terminated"), 0]
    assert told.results == ["accepted", "accepted", "stale", "duplicate", "accepted"]


def test_what_is_delivered_again_after_its_episode_is_a_duplicate_and_something_else_is_stale() -> None:
    again = run(message(0), message(1, terminated=True), message(0, "f"), message(0), message(1, terminated=True))
    assert again.results[3:] == ["duplicate", "duplicate"]
    other = run(message(0), message(1, terminated=True), message(0, "f"), message(1, state=2), message(7))
    assert other.results[3:] == ["stale", "stale"]


def test_of_ended_episodes_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.stream.reorder_buffer.ENDED_BYTES", 16)
    lives = [message(seq, name, terminated=seq == 1) for name in "efg" for seq in (0, 1)]
    told = run(*lives, message(1, "g", terminated=True), message(1, "f", terminated=True))
    assert told.results[6:] == ["duplicate", "duplicate"]
    told.send(message(2, "g"), message(2, "f"))  # of `f` nobody knows any more what it had
    assert told.results[8:] == ["stale", "duplicate"]


def test_truncation_and_a_last_message_without_action() -> None:
    told = run(message(0), message(1, truncated=True, action=None))
    assert told.events == [0, 1, ("e", "over")]
    both = run(message(0, truncated=True, terminated=True))
    assert both.events == [0, ("e", "terminated")]


def test_held_steps_after_the_end_are_discarded() -> None:
    told = run(message(0), message(2), message(1, terminated=True))
    assert told.events == [0, 1, ("e", "terminated")]
    assert told.results == ["accepted", "accepted", "accepted", "stale"]
    assert told.session.order.held == {}


def test_what_an_episode_had_is_known_for_64_episodes_and_that_it_is_over_for_thousands() -> None:
    told = run(*(message(0, episode, terminated=True) for episode in range(66)))
    told.send(message(1, 2))
    assert told.results[-1] == "stale"
    told.send(message(1, 1), message(0, 1, terminated=True), message(0, "1", terminated=True))
    assert told.results[-3:] == ["duplicate", "duplicate", "accepted"]
    assert len(told.session.order.ended) == 64


def test_a_step_as_old_as_what_is_forgotten_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.stream.past_episodes.PAGE", 4)
    monkeypatch.setattr("monitor.stream.past_episodes.PAGES", 3)
    told = Told()
    for episode in range(64 + 3 * 4 - 1):
        told.send(message(0, episode, terminated=True, time=float(episode)))
    assert told.session.order.past.horizon == -math.inf  # nothing is forgotten yet
    told.send(message(0, 75, terminated=True, time=75.0), message(0, 76, time=76.0))
    horizon = told.session.order.past.horizon
    assert horizon == 67.0  # when the episodes 0 to 3 were put on their page
    told.send(message(0, 0, terminated=True, time=0.0), message(1, "lost", time=horizon))
    assert told.results[-2:] == ["stale", "stale"]
    assert told.events[-1] == 0  # and nothing of them is on the path
    told.send(message(0, 4, terminated=True, time=4.0), message(1, 76, time=0.0))
    assert told.results[-2:] == ["duplicate", "accepted"]  # one that is remembered, and the open one
    assert "may be a duplicate" in next(n.detail for n in told.notices if isinstance(n, Received) and n.detail)


def test_an_unfinished_episode_is_over_when_another_has_begun_and_the_wait_is_over() -> None:
    told = run(message(0), message(1), message(0, "f")).send(message(1, "f"), ticks=0.1)
    assert told.events == [0, 1]
    assert told.tick(0.5).events == [0, 1, ("e", "over"), 0, 1]
    assert told.send(message(2)).results[-1] == "stale"


def test_held_steps_of_an_unfinished_episode_come_before_its_end() -> None:
    told = run(message(0), message(2), message(0, "f")).tick(0.5)
    assert told.events == [0, "gap", 2, ("e", "over"), 0]


def test_a_step_of_a_later_episode_does_not_cut_off_the_running_one() -> None:
    told = run(message(0), message(1, "g"))
    for seq in range(1, 40):
        told.send(message(seq), ticks=seq * 0.4)
    assert told.events == list(range(40))
    told.send(message(40, terminated=True), message(0, "f", terminated=True), message(0, "g"), ticks=16.0)
    assert told.events[40:] == [40, ("e", "terminated"), 0, ("f", "terminated"), 0, 1]


def test_no_waiting_where_none_is_wanted() -> None:
    for settings in (replace(SETTINGS, reorder_wait=0.0), replace(SETTINGS, reorder_steps=0)):
        told = Told(settings).send(message(0), message(2), message(0, "f"))
        assert told.events == [0, "gap", 2, ("e", "over"), 0]


def test_an_impossible_transition_is_accepted_and_restarts_the_path() -> None:
    told = run(message(0), message(1, state=3), message(2, state=0))
    assert told.events == [0, "impossible_step", 1, 2]
    assert told.results == ["accepted"] * 3
    assert [type(event) for event in drained(told.session)] == [Step, Break, Step, Step]
    assert told.session.path.pairs == ((3, 0), (0, 0))


def test_an_unavailable_action_is_no_step() -> None:
    told = run(*(message(seq) for seq in range(3)), message(3, action=1), message(4))
    assert told.events == [0, 1, 2, "impossible_step", 4]
    assert told.results == ["accepted"] * 5


@pytest.mark.parametrize(
    ("changes", "reason", "blind"),
    [
        ({"state": 99}, "unknown_state", "unknown_state"),
        ({"state": (0.5,)}, "unknown_state", "unknown_state"),
        ({"action": 9}, "unknown_action", "unknown_state"),
        ({"action": "left"}, "unknown_action", "unknown_state"),
        ({"action": None}, "missing_action", "gap"),
    ],
)
def test_unusable_content_is_rejected_and_the_order_goes_on(
    changes: dict[str, object], reason: str, blind: str
) -> None:
    told = run(message(0), message(1, **changes), message(1, **changes), message(2), message(3))
    assert told.results == ["accepted", reason, "duplicate", "accepted", "accepted"]
    assert told.events == [0, blind, 2, 3]


def test_an_unknown_last_state_still_ends_the_episode() -> None:
    told = run(message(0), message(1, state=99, terminated=True), message(0, "f"))
    assert told.events == [0, "unknown_state", ("e", "terminated"), 0]


@pytest.mark.parametrize(
    "changes",
    [{"seq": -1}, {"seq": 2**63}, {"time": float("nan")}, {"episode": 1.5}, {"state": True}, {"terminated": 1}],
)
def test_ill_formed_observations_are_rejected_not_raised(changes: dict[str, object]) -> None:
    told = run(message(0, **changes))
    (notice,) = told.notices
    assert isinstance(notice, Received)
    assert notice.result == "rejected"
    assert notice.reason
    assert told.session.last_heard is None


def test_the_clocks() -> None:
    told = run(message(0), message(1, time=997.9), message(2, time=998.5), message(3, time=1001.0))
    steps = [event for event in told.session.pending if isinstance(event, Step)]
    assert [(step.time, step.late) for step in steps] == [
        (1000.0, False),
        (997.9, True),
        (998.5, False),
        (1001.0, False),
    ]
    lags = [notice.lag for notice in told.notices if isinstance(notice, Received)]
    assert lags[0] is None
    assert lags[1:] == pytest.approx([2.1, 1.5, -1.0])


def test_only_new_messages_count_as_heard() -> None:
    told = run(message(0)).send(message(0), ticks=1.0)
    assert told.session.last_heard == 0.0
    assert told.send(message(1), ticks=2.0).session.last_heard == 2.0


def test_steps_whose_action_nominal_never_takes_are_reported() -> None:
    told = Told(nominal=PolicyTable(actions=np.zeros(4, dtype=np.int64)))
    told.send(message(0), message(1, action=1), message(2, state=1, action=None, truncated=True))
    assert [n for n in told.notices if isinstance(n, OffPolicy)] == [OffPolicy("a")]
    draws = PolicyTable(probabilities=np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5], [1.0, 0.0]]))
    stochastic = Told(nominal=draws).send(message(0, action=1), message(1, state=0))
    assert OffPolicy("a") not in stochastic.notices
    assert OffPolicy("a") in stochastic.send(message(2, state=1, action=1)).notices


def deviations(told: Told) -> list[Deviates]:
    return [notice for notice in told.notices if isinstance(notice, Deviates)]


def test_how_far_the_actions_depart_from_nominal_is_reported_where_it_changes() -> None:
    nominal = PolicyTable(actions=np.zeros(4, dtype=np.int64))
    told = Told(nominal=nominal)
    told.send(*(message(seq) for seq in range(40)))
    assert deviations(told) == [], "of an agent that follows it nothing is told"
    told.send(message(40, action=1), message(41, state=0, action=1))
    assert deviations(told) == [Deviates("a", round(1 / 41, 2), 41), Deviates("a", round(2 / 42, 2), 42)]
    again = Session.load(told.session.dump(), adapter(RING, SETTINGS, nominal), SETTINGS, pages={})
    assert again.deviation.fraction == told.session.deviation.fraction == 2 / 42
    again.adapt()
    assert again.deviation.fraction == 0.0, "it was the deviation from another policy"


def test_a_number_is_no_name_also_in_the_middle_of_an_episode() -> None:
    rows = [(s, 0, (s + 1) % 4, 1.0) for s in range(4)]
    named = MDP.from_transitions(states=4, actions=1, transitions=rows, labels={}, state_names=["n", "e", "s", "w"])
    told = Told(replace(SETTINGS, encoder="name"), model=named)
    told.send(message(0, state="n"), message(1, state="e"), message(2, state=2), message(3, state="w"))
    assert told.results == ["accepted", "accepted", "unknown_state", "accepted"]


def test_what_the_next_row_leads_to_is_not_possible_in_this_one() -> None:
    """Rows are stored one after the other: that of state 0 and action 1 leads to 0, the next one to 2."""
    told = run(message(0, state=3), message(1, state=0, action=1), message(2, state=2))
    assert told.events == [0, 1, "impossible_step", 2]


def test_an_agent_that_follows_nominal_again_is_reported_until_nothing_is_left() -> None:
    told = Told(nominal=PolicyTable(actions=np.zeros(4, dtype=np.int64)))
    told.send(*(message(seq, state=0) for seq in range(40)), message(40, state=0, action=1))
    told.send(*(message(seq, state=0) for seq in range(41, 142)))
    assert [notice.share for notice in deviations(told)] == [0.02, 0.01, 0.0]


def test_actions_of_a_policy_that_took_over_are_not_compared_with_nominal() -> None:
    settings = replace(SETTINGS, policies={"ab" * 32: "nominal", "cd" * 32: "careful"})
    told = Told(settings, PolicyTable(actions=np.zeros(4, dtype=np.int64)))
    told.send(*(message(seq, state=0, action=min(seq, 1), policy="cd" * 32) for seq in range(40)))
    assert OffPolicy("a") not in told.notices
    assert told.session.deviation.steps == 0
    told.send(message(40, state=0, action=1, policy="ab" * 32), message(41, state=0, action=1, policy="ab" * 32))
    assert told.notices.count(OffPolicy("a")) == told.session.deviation.steps == 2


def test_a_new_step_ends_the_time_in_which_only_old_ones_came() -> None:
    told = run(message(0, episode="past", truncated=True), message(0), message(1))
    told.send(message(0, episode="past", truncated=True), ticks=1.0)
    assert told.session.old == (1.0, 1.0)
    assert told.send(message(2), ticks=2.0).session.old is None


def test_what_a_stochastic_nominal_leaves_to_chance_is_no_deviation() -> None:
    draws = PolicyTable(probabilities=np.tile([0.5, 0.5], (4, 1)))
    told = Told(nominal=draws).send(*(message(seq, state=0, action=1) for seq in range(60)))
    assert deviations(told) == []
    seldom = Told(nominal=PolicyTable(probabilities=np.tile([0.99, 0.01], (4, 1))))
    seldom.send(*(message(seq, state=0, action=1) for seq in range(60)))
    assert deviations(seldom)[-1].share > 0.9


PAYING = MDP.from_rows(
    states=3,
    actions=1,
    indptr=np.array([0, 4, 5, 6]),
    successors=np.array([0, 1, 1, 2, 0, 2]),
    probabilities=np.array([0.25, 0.25, 0.25, 0.25, 1.0, 1.0]),
    rewards=np.array([[1.0], [-4.0], [0.0]]),
    transition_rewards=np.array([0.0, 2.0, 6.0, -1.0, 0.0, 0.0]),
)
"""From 0: staying earns 1, to 1 earns 3 or 7 (mean 5), to 2 nothing. From 1 back: -4."""


@pytest.mark.parametrize(
    ("states", "rewards", "wrong"),
    [
        ([0, 0, 1, 0, 2], [99.0, 1.0, 3.0, -4.0, 0.0], []),
        ([0, 1, 0, 1], [None, 7.0, None, 5.0], []),
        ([0, 0, 1], [0.0, 1.0000005, 7.000001], []),
        ([0, 0, 0, 2], [0.0, 1.1, 1.0, 1e-6], ["(0, 0) -> 0 earned 1.1, the model says 1", "(0, 0) -> 2 earned 1e-06"]),
        ([0, 1, 0], [0.0, 7.1, 4.0], ["(0, 0) -> 1 earned 7.1, the model says 5 +- 2", "(1, 0) -> 0 earned 4"]),
    ],
)
def test_a_reward_that_contradicts_the_model_is_reported_and_changes_nothing(
    states: list[int], rewards: list[float | None], wrong: list[str]
) -> None:
    told = Told(model=PAYING)
    for seq, (state, reward) in enumerate(zip(states, rewards, strict=True)):
        told.send(message(seq, state=state, reward=reward))
    found = [notice.detail for notice in told.notices if isinstance(notice, RewardMismatch)]
    assert len(found) == len(wrong)
    assert all(words in detail for words, detail in zip(wrong, found, strict=True))
    assert all(detail.startswith("seq ") for detail in found)
    assert told.events == list(range(len(states)))


def test_a_reward_says_nothing_where_the_step_before_is_not_known() -> None:
    told = Told(model=PAYING).send(message(0, state=0), message(2, state=0, reward=9.0)).tick(0.5)
    told.send(
        message(3, state=1, reward=9.0, time=1.0), message(3, state=1, reward=8.0), message(4, state=0, reward=9.0)
    )
    assert [type(notice) for notice in told.notices] == [Received] * 3 + [Received, RewardMismatch, Received, Received]
    silent = run(message(0), message(1, reward=9.0))  # the ring pays nothing, and says nothing of rewards
    assert [type(notice) for notice in silent.notices] == [Received] * 2


def test_the_reward_of_a_held_step_is_kept_with_it() -> None:
    told = Told(model=PAYING).send(message(0, state=0), message(2, state=0, reward=9.0), message(1, state=0))
    assert [n.detail for n in told.notices if isinstance(n, RewardMismatch)] == [
        "seq 2 of episode 'e': (0, 0) -> 0 earned 9, the model says 1"
    ]


def test_a_policy_that_is_not_the_nominal_one() -> None:
    told = Told(replace(SETTINGS, policies={"ab" * 32: "nominal"}))
    seen = []
    for seq, policy in enumerate([None, "AB" * 32, "cd" * 32, None, "ab" * 32]):
        told.send(message(seq, policy=policy))
    for _ in range(5):
        told.session.advance()
        seen.append(told.session.mismatch)
    assert seen == [False, False, True, True, False]
    assert told.session.path.pairs == tuple((n % 4, 0) for n in range(5))
    unasked = run(message(0, policy="cd" * 32))
    assert [step.foreign for step in drained(unasked.session) if isinstance(step, Step)] == [False]


@pytest.mark.parametrize("end", [{"terminated": True}, {"truncated": True}, {}])
@pytest.mark.parametrize(
    ("reported", "then"),
    [("ab", ("nominal", False)), ("cd", ("nominal", False)), ("ef", ("", True))],
)
def test_an_episode_without_a_policy_does_not_inherit_the_takeover_of_the_last_one(
    reported: str, then: tuple[str, bool], end: dict[str, bool]
) -> None:
    told = Told(replace(SETTINGS, policies={"ab" * 32: "nominal", "cd" * 32: "careful"}))
    told.send(message(0, policy=reported * 32), message(1, **end), message(0, "f"), message(1, "f")).tick(9.0)
    steps = [step for step in drained(told.session) if isinstance(step, Step)]
    acted = {"ab": "nominal", "cd": "careful", "ef": ""}[reported], reported == "ef"
    assert [(step.policy, step.foreign) for step in steps] == [acted, acted, then, then]


def test_lost_messages_break_the_path_and_explain_the_gap() -> None:
    told = run(message(0))
    told.notices += told.session.lost(at(0.0))
    told.send(message(2)).tick(0.5)
    assert told.events == [0, "dropped", "dropped", 2]
    told.send(message(4), ticks=1.0).tick(1.5)
    assert told.events[4:] == ["gap", 4]


def test_lost_messages_do_not_explain_the_gaps_of_a_later_episode() -> None:
    told = run(message(0, terminated=True))
    told.notices += told.session.lost(at(0.0))
    told.send(message(0, "f"), message(2, "f")).tick(0.5)
    assert told.events == [0, ("e", "terminated"), "dropped", 0, "gap", 2]


def test_events_nobody_takes_are_dropped_together_and_said_so() -> None:
    def lengths(messages: Sequence[Observation]) -> tuple[int, Told]:
        told, longest = Told(replace(SETTINGS, pending=176)), 0
        for each in messages:
            longest = max(longest, len(told.send(each).session.pending))
        return longest, told

    longest, told = lengths([message(seq) for seq in range(177)])
    assert (longest, told.events) == (176, ["dropped", 176])
    short_episodes = [message(seq, n, terminated=seq == 1) for n in range(13) for seq in (0, 1)]
    longest, told = lengths(short_episodes)
    assert told.events == [*[e for n in range(13) for e in (0, 1, (n, "terminated"))]]
    longest, told = lengths([message(seq, n, terminated=seq == 1) for n in range(60) for seq in (0, 1)])
    assert longest <= 178
    last = [(58, "terminated"), 0, 1, (59, "terminated")]
    assert told.events == ["dropped", (57, "terminated"), "dropped", *last]
    assert len(told.session.since) == len(told.session.pending)


@pytest.mark.parametrize(
    ("names", "sent"), [(("0", "40"), (0, 40.0)), (("1", "0"), (1, 0)), (("-1", "0.5"), (-1, 0.5))]
)
def test_a_number_means_the_action_of_that_name(names: tuple[str, str], sent: tuple[float, float]) -> None:
    named = MDP.from_transitions(
        states=4,
        actions=2,
        transitions=[(s, 0, (s + 1) % 4, 1.0) for s in range(4)] + [(s, 1, s, 1.0) for s in range(3)],
        labels={},
        action_names=names,
    )
    stay, index = Told(model=named), Told(model=named)
    stay.send(*(message(seq, state=0, action=sent[1]) for seq in range(3)), message(3, state=0, action=sent[0]))
    assert [step.action for step in drained(stay.session) if isinstance(step, Step)] == [1, 1, 1, 0]
    index.send(message(0, action=sent[0]), message(1, action=7))
    assert index.notices[-1] == Received(
        "a", "rejected", "unknown_action", f"7 is not an action of the model (one of {', '.join(names)})", None
    )


def test_the_index_of_a_level_is_refused_where_steps_go_on() -> None:
    levels = MDP.from_transitions(
        states=1, actions=3, transitions=[(0, a, 0, 1.0) for a in range(3)], labels={}, action_names=("0", "40", "100")
    )
    told = Told(model=levels).send(
        *(message(seq, state=0, action=0) for seq in range(3)), message(3, state=0, action=1)
    )
    assert [notice.result for notice in told.notices if isinstance(notice, Received)] == ["accepted"] * 3 + ["rejected"]
