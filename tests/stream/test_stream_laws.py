"""Laws of a session, on random message sequences: order, memory, snapshots, and never an exception."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.errors import InputError
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable, as_table
from monitor.stream.decode import is_plain, validate
from monitor.stream.deduplication import REMEMBERED
from monitor.stream.reorder_buffer import BufferedMessage, ReorderBuffer
from monitor.stream.session import Session, SessionState
from monitor.stream.snapshot import seal, unseal
from monitor.types import (
    UNKNOWN_POLICY,
    Break,
    End,
    Episode,
    Instant,
    Notice,
    Observation,
    Received,
    Step,
    StreamSettings,
)
from tests.stream.adapters import adapter, begun, drained
from tests.tiers import examples

# every action leads everywhere, but action 1 is unavailable in state 3 and state 0 is never returned to
MODEL = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[(s, a, s2, 1 / 3) for s in range(4) for a in range(2) for s2 in (1, 2, 3) if (s, a) != (3, 1)],
    labels={},
)

SETTINGS = StreamSettings(window=5, reorder_steps=6, reorder_wait=0.5, policies={"ab" * 32: "nominal"})
PATIENT = StreamSettings(window=5, reorder_steps=64)
NOON = Instant(wall=1000.0, ticks=50.0)

LAW = settings(max_examples=examples(25, 200))


def episodes(lengths: Sequence[int]) -> list[Observation]:
    """Whole episodes one after the other, each with its end."""
    return [
        Observation(
            agent="a",
            episode=number,
            seq=seq,
            state=1 + (seq + number) % 3 if seq else 0,
            action=0 if seq < length - 1 else None,
            terminated=seq == length - 1,
        )
        for number, length in enumerate(lengths)
        for seq in range(length)
    ]


def disturbed(messages: list[Observation], reach: int, copies: int, rng: random.Random) -> list[Observation]:
    """Every message up to `reach` places late, and some of them twice."""
    doubled = list(enumerate(messages))
    doubled += rng.choices(doubled, k=copies)
    return [message for _, message in sorted(doubled, key=lambda pair: pair[0] + rng.uniform(0, reach))]


def events_of(messages: Sequence[Observation]) -> list[Step | Break | End]:
    session = begun(MODEL, PATIENT)
    for message in messages:
        session.arrive(message, NOON)
    assert session.order.held == {}
    return list(session.pending)


@LAW
@given(st.integers(1, 60), st.integers(0, 30), st.integers(0, 20), st.randoms(use_true_random=False))
def test_one_episode_in_any_order_is_that_in_order(length: int, reach: int, copies: int, rng: random.Random) -> None:
    messages = episodes([length])
    assert events_of(disturbed(messages, reach, copies, rng)) == events_of(messages)
    assert len(events_of(messages)) == length + 1


@LAW
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 30), st.randoms(use_true_random=False))
def test_many_episodes_in_any_order_are_each_whole(lengths: list[int], reach: int, rng: random.Random) -> None:
    messages = episodes(lengths)
    seen, expected = events_of(disturbed(messages, reach, 10, rng)), events_of(messages)
    by_episode: dict[Episode, list[Step | Break | End]] = {}
    for event in seen:
        assert not isinstance(event, Break)
        by_episode.setdefault(event.episode, []).append(event)
    assert [event for number in range(len(lengths)) for event in by_episode[number]] == expected
    grouped = [event for group in by_episode.values() for event in group]
    assert grouped == seen, "an episode is never interrupted by another"


def test_a_step_65_places_early_costs_nothing() -> None:
    messages = episodes([6] * 30)
    early = [*messages[:20], messages[85], *messages[20:85], *messages[86:]]
    assert events_of(early) == events_of(messages)


@LAW
@given(st.integers(1, 60), st.integers(0, 30), st.randoms(use_true_random=False))
def test_the_path_is_that_in_order(length: int, reach: int, rng: random.Random) -> None:
    def path_of(messages: Sequence[Observation]) -> tuple[tuple[int, int | None], ...]:
        session = begun(MODEL, PATIENT)
        for message in messages:
            session.arrive(message, NOON)
            drained(session)
        return session.path.pairs

    messages = episodes([length])
    assert path_of(disturbed(messages, reach, 5, rng)) == path_of(messages)


# ---- chaos: anything an agent could send, well formed or not ----

RAW = st.integers(-1, 4) | st.sampled_from(["left", (1.5,), True, 10**5000])
OBSERVATIONS = st.builds(
    Observation,
    agent=st.just("a"),
    episode=st.sampled_from([1, 2, "1", ""]),
    seq=st.integers(-1, 9) | st.just(10**5000),
    state=st.integers(0, 3) | RAW,
    action=st.integers(0, 1) | st.none() | st.sampled_from([7, "left", -1]),
    time=st.none() | st.sampled_from([990.0, 1000.0, 1000, float("nan"), 10**400, "yesterday", (1,)]),
    reward=st.none() | st.just(float("inf")),
    terminated=st.sampled_from([False] * 6 + [True, None, 1]),
    truncated=st.sampled_from([False] * 6 + [True, None]),
    policy=st.sampled_from([None, "ab" * 32, "AB" * 32, "cd" * 32, "\ud800"]),
)
Deed = tuple[str, Observation, float]
DEEDS = st.lists(
    st.tuples(st.sampled_from(["arrive"] * 8 + ["tick", "lost", "drain"]), OBSERVATIONS, st.sampled_from([0, 0, 0.3])),
    max_size=60,
)


def do(session: Session, deeds: Sequence[Deed], start: float) -> tuple[list[Notice], list[Step | Break | End]]:
    """Play deeds from a clock reading on; the notices and the events taken, those still pending left."""
    notices: list[Notice] = []
    taken: list[Step | Break | End] = []
    ticks = start
    for what, observation, pause in deeds:
        ticks += pause
        now = Instant(wall=1000.0 + ticks, ticks=ticks)
        match what:
            case "arrive":
                notices += session.arrive(observation, now)
            case "tick":
                notices += session.tick(now)
            case "lost":
                notices += session.lost(now)
            case _:
                taken += drained(session)
    return notices, taken


@LAW
@given(DEEDS)
def test_whatever_comes_every_event_is_sound(deeds: list[Deed]) -> None:
    session = begun(MODEL, SETTINGS)
    notices, events = do(session, deeds, 0.0)
    events += drained(session)
    arrivals = sum(what == "arrive" for what, _, _ in deeds)
    assert sum(isinstance(notice, Received) for notice in notices) >= arrivals
    for before, after in pairwise(events):
        if isinstance(before, Step) and isinstance(after, Step):
            assert (before.episode, before.seq + 1) == (after.episode, after.seq)
            assert before.action is not None
            assert after.state in MODEL.row(before.state, before.action)[0]
        if isinstance(after, End) and isinstance(before, Step):
            assert before.episode == after.episode
    assert all(len(MODEL.row(e.state, e.action)[0]) for e in events if isinstance(e, Step) and e.action is not None)


@LAW
@given(DEEDS)
def test_whatever_comes_memory_is_bounded_and_waiting_ends(deeds: list[Deed]) -> None:
    session = begun(MODEL, SETTINGS)
    for deed in deeds:
        do(session, [deed], 0.0)
        assert len(session.order.held) <= SETTINGS.reorder_steps
        assert len(session.path) <= SETTINGS.window
    session.tick(Instant(wall=2000.0, ticks=1000.0))
    assert session.order.held == {}
    assert session.deadline is None


Place = tuple[Episode, int]
TWICE = st.builds(
    Observation,
    agent=st.just("a"),
    episode=st.sampled_from([1, 2]),
    seq=st.integers(0, 9),
    state=st.integers(1, 3),
    action=st.just(0),
    terminated=st.sampled_from([False] * 9 + [True]),
)


@LAW
@given(st.lists(st.tuples(TWICE, st.sampled_from([0.0, 0.0, 0.3])), max_size=40))
def test_no_gap_is_of_what_came_and_only_conflicts_cost_a_step(
    sent: list[tuple[Observation, float]],
) -> None:
    session = begun(MODEL, SETTINGS)
    came: set[Place] = set()
    conflicts: set[Place] = set()
    late: set[Place] = set()
    ticks = 0.0
    for observation, pause in [*sent, (None, 1000.0)]:
        ticks += pause
        now = Instant(wall=1000.0 + ticks, ticks=ticks)
        told = session.tick(now) if observation is None else session.arrive(observation, now)
        for notice in told:
            assert isinstance(notice, Received)
            if notice.result == "gap":
                assert not came & places_of(notice.detail)
            elif notice.result == "stale":
                late |= places_of(notice.detail)
            elif observation is not None and notice is told[0]:
                place = observation.episode, observation.seq
                came |= {place}
                conflicts |= {place} if notice.result == "conflict" else set()
    steps = {(event.episode, event.seq) for event in session.pending if isinstance(event, Step)}
    assert came - conflicts - late <= steps


def places_of(detail: str) -> set[Place]:
    """The seqs a sentence is about."""
    found = re.match(r"seq (\d+)(?: to (\d+))? of episode (\d+)", detail)
    assert found is not None
    first, last, episode = int(found[1]), int(found[2] or found[1]), int(found[3])
    return {(episode, seq) for seq in range(first, last + 1)}


def kept(session: Session, model: MDP = MODEL, settings: StreamSettings = SETTINGS) -> Session:
    """The session as it comes back from bytes."""
    pages = {n: page for n, page in session.order.past.pages(everything=True).items() if page is not None}
    return Session.load(unseal(seal(session.dump()), SessionState), adapter(model, settings), settings, pages=pages)


@LAW
@given(DEEDS, DEEDS)
def test_a_restored_session_has_the_same_future(past: list[Deed], future: list[Deed]) -> None:
    session = begun(MODEL, SETTINGS)
    do(session, past, 0.0)
    again = kept(session)
    assert again.dump() == session.dump()
    assert do(again, future, 5.0) == do(session, future, 5.0)
    assert drained(again) == drained(session)
    assert again.dump() == session.dump()
    assert again.path.pairs == session.path.pairs


def test_what_a_library_user_leaves_open_is_kept_as_decoding_would_fill_it_in() -> None:
    """Flags of None, an integer time, and a digest in capitals, of a step that waits for the one before it."""
    session = begun(MODEL, SETTINGS)
    careless: dict[str, Any] = {"terminated": None, "truncated": None, "time": 1000, "policy": "AB" * 32}
    session.arrive(Observation(agent="a", episode=1, seq=0, state=0, action=0), NOON)
    session.arrive(Observation(agent="a", episode=1, seq=2, state=2, action=0, **careless), NOON)
    assert len(session.order.held) == 1
    again = kept(session)
    assert again.dump() == session.dump()
    again.arrive(Observation(agent="a", episode=1, seq=1, state=1, action=0), NOON)
    assert [type(event) for event in drained(again)] == [Step] * 3
    assert not again.mismatch
    assert validate(Observation(agent="a", episode=1, seq=2, state=2, **careless)) == Observation(
        agent="a", episode=1, seq=2, state=2, time=1000.0, policy="ab" * 32
    )


def test_a_snapshot_is_small() -> None:
    session = begun(MODEL, StreamSettings())
    for seq in range(10_000):
        session.arrive(Observation(agent="a", episode="e", seq=seq, state=1, action=0), NOON)
        drained(session)
    assert len(seal(session.dump())) < REMEMBERED * 8 + 1000


@LAW
@given(DEEDS, st.data())
def test_other_bytes_are_no_snapshot(past: list[Deed], data: st.DataObject) -> None:
    session = begun(MODEL, SETTINGS)
    do(session, past, 0.0)
    good = seal(session.dump())
    place = data.draw(st.integers(0, len(good) - 1))
    changed = bytearray(good)
    changed[place] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(changed), good[:place], b"", good + b"\0"):
        with pytest.raises(InputError, match="bad_snapshot"):
            unseal(bad, SessionState)


def test_a_snapshot_of_something_else_is_told_from_one() -> None:
    with pytest.raises(InputError, match="bad_snapshot: the snapshot has another content"):
        unseal(seal(Step(episode="e", seq=0, state=0, action=0, time=0.0)), SessionState)


# ---- another model than the one a session was kept with ----

NO_WAY = MDP.from_transitions(states=4, actions=2, transitions=[(s, a, s, 1.0) for s in range(4) for a in range(2)])
SMALLER = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])


@LAW
@given(DEEDS, st.sampled_from([NO_WAY, SMALLER]))
def test_on_another_model_all_that_is_held_is_possible(past: list[Deed], model: MDP) -> None:
    session = begun(MODEL, SETTINGS)
    do(session, past, 0.0)
    ends = [event for event in session.pending if isinstance(event, End)]
    again = kept(session, model)
    again.adapt()
    before: tuple[int, int] | None = None
    assert [event for event in again.pending if isinstance(event, End)] in (ends, ends[-1:])
    assert (again.order.episode, again.order.next_seq) == (session.order.episode, session.order.next_seq)
    for state, action in [*again.path.pairs]:
        assert state < model.states
        assert before is None or state in model.row(*before)[0]
        before = None if action is None else (state, action)
    events = drained(again)
    again.tick(Instant(2000.0, 1000.0))
    steps = [event for event in [*events, *drained(again)] if isinstance(event, Step)]
    assert all(step.state < model.states and (step.action or 0) < model.actions for step in steps)


@LAW
@given(DEEDS)
def test_on_the_same_model_nothing_is_let_go(past: list[Deed]) -> None:
    session = begun(MODEL, SETTINGS)
    do(session, past, 0.0)
    again = kept(session)
    again.adapt()
    assert again.path.pairs == session.path.pairs
    assert len(again.pending) == len(session.pending)


def test_a_new_nominal_policy_is_held_against_the_one_last_named() -> None:
    session = begun(MODEL, SETTINGS)
    session.arrive(Observation("a", "e", 0, 0, 0, policy="ab" * 32), NOON)
    drained(session)
    changed = replace(SETTINGS, policies={"cd" * 32: "nominal"})
    again = kept(session, settings=changed)
    again.adapt()
    assert (session.mismatch, again.mismatch) == (False, True)
    again.arrive(Observation("a", "e", 1, 1, 0), NOON)
    assert [step.foreign for step in drained(again) if isinstance(step, Step)] == [True]


@pytest.mark.parametrize("still_known", [True, False])
def test_who_acted_is_kept_while_the_policy_is_configured(*, still_known: bool) -> None:
    both = replace(SETTINGS, policies={"ab" * 32: "nominal", "cd" * 32: "careful"})
    session = begun(MODEL, both)
    for seq, policy in enumerate(["ab", "cd", "cd"]):
        session.arrive(Observation("a", "e", seq, seq, 0, policy=policy * 32), NOON)
    session.advance()
    session.advance()
    changed = {"ab" * 32: "nominal", **({"cd" * 32: "careful"} if still_known else {})}
    again = kept(session, settings=replace(both, policies=changed))
    assert again.path.acted == ["nominal", "careful"]
    again.adapt()
    name = "careful" if still_known else UNKNOWN_POLICY
    assert (again.path.acted, again.mismatch) == (["nominal", name], not still_known)
    steps = [step for step in drained(again) if isinstance(step, Step)]
    assert [(step.policy, step.foreign) for step in steps] == [(name, not still_known)]


@pytest.mark.parametrize("advanced", [0, 1, 3])
@pytest.mark.parametrize(
    ("acted", "changed", "then"),
    [
        (["ab", "cd", "cd"], {"careful"}, ["nominal", UNKNOWN_POLICY, UNKNOWN_POLICY]),
        (["ab", "cd", "cd"], {"nominal"}, [UNKNOWN_POLICY, "careful", "careful"]),
        (["ab", "cd", "cd"], {"other"}, ["nominal", "careful", "careful"]),
        (["ab", "ab", "ab"], {"other", "careful"}, []),
        (["ab", "ab", "ab"], {"nominal"}, [UNKNOWN_POLICY] * 3),
    ],
)
def test_steps_are_not_attributed_to_another_file_of_the_same_name(
    acted: list[str], changed: set[str], advanced: int, then: list[str]
) -> None:
    all_of = replace(SETTINGS, policies={"ab" * 32: "nominal", "cd" * 32: "careful", "ef" * 32: "other"})
    session = begun(MODEL, all_of)
    for seq, policy in enumerate(acted):
        session.arrive(Observation("a", "e", seq, seq, 0, policy=policy * 32), NOON)
    for _ in range(advanced):
        session.advance()
    again = kept(session, settings=all_of)
    again.adapt(changed)
    assert not any(isinstance(event, Break) for event in drained(again))
    assert (len(again.path), again.path.acted) == (3, then)


def test_a_smaller_window_keeps_the_newest_of_those_who_acted() -> None:
    both = replace(SETTINGS, policies={"ab" * 32: "nominal", "cd" * 32: "careful"})
    session = begun(MODEL, both)
    for seq, policy in enumerate(["ab", "cd", "cd"]):
        session.arrive(Observation("a", "e", seq, seq, 0, policy=policy * 32), NOON)
    drained(session)
    again = kept(session, settings=replace(both, window=2))
    assert (len(again.path), again.path.acted) == (2, ["careful", "careful"])


# ---- the short cut of a step that comes in order ----


class Thorough(Session):
    """Validates every observation, and sorts it."""

    def _is_known(self, observation: Observation) -> bool:
        del observation
        return False


@LAW
@given(DEEDS, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 4), st.randoms(use_true_random=False))
def test_the_short_cut_of_the_next_step_changes_nothing(
    chaos: list[Deed], lengths: list[int], reach: int, rng: random.Random
) -> None:
    orderly: list[Deed] = [("arrive", message, 0.0) for message in disturbed(episodes(lengths), reach, 2, rng)]
    short, thorough = begun(MODEL, SETTINGS), begun(MODEL, SETTINGS, kind=Thorough)
    for deed in [*orderly, *chaos, *orderly]:
        assert do(short, [deed], 0.0) == do(thorough, [deed], 0.0)
        assert short.deadline == thorough.deadline
    assert short.dump() == thorough.dump()


REWARDED = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[(s, a, s2, 1 / 3) for s in range(4) for a in range(2) for s2 in (1, 2, 3) if (s, a) != (3, 1)],
    labels={},
    rewards=[(s, a, float(s + a)) for s in range(4) for a in range(2)],
)
KNOWN = replace(SETTINGS, policies={"ab" * 32: "nominal", "cd" * 32: "careful"}, max_lag=5.0)
CERTAIN = as_table([0, 0, 1, 0], REWARDED)
DRAWN = as_table(np.array([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0], [1.0, 0.0]]), REWARDED)


@LAW
@pytest.mark.parametrize("nominal", [CERTAIN, DRAWN])
@given(length=st.integers(1, 140), reach=st.integers(0, 2), rng=st.randoms(use_true_random=False))
def test_nor_does_it_with_rewards_times_and_policies(
    nominal: PolicyTable, length: int, reach: int, rng: random.Random
) -> None:
    """The agent takes any action, goes wherever it likes and says anything about it."""
    calm, cut = rng.random() < 0.5, rng.random() < 0.5
    messages = [
        replace(
            message,
            state=rng.randrange(4) if rng.random() < 0.05 else message.state,
            action=(None if rng.random() < 0.5 else 0) if message.terminated else 0 if calm else rng.randrange(2),
            reward=rng.choice([None, None, 0.0, 1.0, 2.0, 3.0]),
            time=rng.choice([None, 990.0, 998.5, 1000.0, 1003.0]),
            policy=rng.choice([None, "ab" * 32]) if calm or rng.random() < 0.8 else rng.choice(["cd" * 32, "ef" * 32]),
            truncated=cut and message.terminated,
            terminated=message.terminated and not cut,
        )
        for message in episodes([length])
    ]
    short, thorough = (begun(REWARDED, KNOWN, nominal, kind=kind) for kind in (Session, Thorough))
    for n, message in enumerate(disturbed(messages, reach, 2, rng)):
        arrives: list[Deed] = [("arrive", message, 0.01 * n)]
        assert do(short, arrives, 0.0) == do(thorough, arrives, 0.0)
    assert short.dump() == thorough.dump()


class Counting(ReorderBuffer):
    """Counts the entries that had to be sorted."""

    count = 0

    def sort(self, entry: BufferedMessage) -> Literal["accepted", "duplicate", "stale", "conflict"]:
        """As ever."""
        self.count += 1
        return super().sort(entry)


@LAW
@given(st.lists(st.integers(1, 9), max_size=4))
def test_in_order_only_the_ends_of_an_episode_are_sorted(lengths: list[int]) -> None:
    session = begun(MODEL, SETTINGS)
    session.order = counting = Counting(SETTINGS.reorder_steps, SETTINGS.reorder_wait)
    for message in episodes(lengths):
        session.arrive(message, NOON)
    assert counting.count == sum(min(length, 2) for length in lengths)


@LAW
@given(OBSERVATIONS)
def test_what_looks_plain_is_valid(observation: Observation) -> None:
    if is_plain(observation) and observation.episode:
        validate(observation)
