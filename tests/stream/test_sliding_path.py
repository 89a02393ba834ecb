"""The sliding path: what is held, what is forgotten, and why a formula is blind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.stream.path import SlidingPath
from monitor.types import BlindReason, Break, End, Episode, Step


def step(seq: int, episode: Episode = "e") -> Step:
    return Step(episode=episode, seq=seq, state=seq % 7, action=seq % 3, time=float(seq))


def filled(window: int, seqs: range) -> SlidingPath:
    path = SlidingPath(window)
    for seq in seqs:
        path.push(step(seq))
    return path


def apply(path: SlidingPath, event: Step | Break | End) -> None:
    match event:
        case Step():
            path.push(event)
        case Break():
            path.restart(event.reason, event.detail)
        case End():
            path.end(terminated=event.terminated)


def test_a_fresh_path_is_blind() -> None:
    path = SlidingPath(4)
    assert (path.pairs, path.first_seq, path.last, len(path)) == ((), None, None, 0)
    assert path.blind(0) == "warming_up"


def test_from_an_observed_start_offsets_are_clipped_not_blind() -> None:
    path = filled(4, range(1))
    assert path.start_observed
    assert path.blind(3) is None


def test_joined_in_mid_episode_it_is_blind_until_longer_than_the_reach() -> None:
    path = filled(8, range(5, 8))
    assert (path.start_observed, path.first_seq) == (False, 5)
    assert [path.blind(reach) for reach in range(4)] == [None, None, None, "warming_up"]


@given(st.integers(1, 6), st.integers(0, 20))
def test_it_holds_the_newest_pairs(window: int, count: int) -> None:
    path = filled(window, range(count))
    assert path.pairs == tuple((seq % 7, seq % 3) for seq in range(max(0, count - window), count))
    assert path.start_observed == (0 < count <= window)
    assert path.oldest_dropped == (count > window)
    assert path.first_seq == (max(0, count - window) if count else None)
    assert all(path.blind(reach) is None for reach in range(min(count, window)))


def test_a_break_empties_it_and_gives_the_reason() -> None:
    path = filled(4, range(3))
    apply(path, Break("gap", "seq 3 to 4 did not come"))
    assert (path.pairs, path.blind(0), path.detail) == ((), "gap", "seq 3 to 4 did not come")
    apply(path, step(5))
    assert (path.blind(0), path.blind(1)) == (None, "gap")
    apply(path, step(6))
    assert path.blind(1) is None


def test_after_a_conflict_seq_0_is_no_observed_start() -> None:
    reasons: dict[BlindReason, bool] = {"conflict": False, "dropped": True, "gap": True}
    for reason, observed in reasons.items():
        path = SlidingPath(4)
        path.restart(reason)
        path.push(step(0))
        assert path.start_observed is observed
        assert path.blind(1) == (None if observed else reason)


def test_pairs_stay_after_the_end_until_the_next_step() -> None:
    path = filled(4, range(3))
    apply(path, End("e", terminated=True))
    assert (len(path), path.ended, path.terminated, path.start_observed) == (3, True, True, True)
    apply(path, step(0, "f"))
    assert (path.pairs, path.ended, path.terminated) == (((0, 0),), False, False)
    assert path.start_observed


def test_a_break_before_the_end_does_not_reach_the_next_episode() -> None:
    path = filled(4, range(3))
    for event in (Break("unknown_state", ""), End("e", terminated=False), step(1, "f")):
        apply(path, event)
    assert path.blind(1) == "warming_up"


def test_steps_that_do_not_continue_it_are_never_glued_on() -> None:
    path = filled(4, range(3))
    path.push(step(7))
    assert (path.pairs, path.blind(1)) == (((0, 1),), "gap")
    path.push(step(0, "f"))
    assert (len(path), path.start_observed) == (1, True)


@given(st.integers(1, 4), st.lists(st.sampled_from(["next", "jump", "break", "end"]), max_size=20))
def test_who_has_seen_it_knows_what_is_new(window: int, moves: list[str]) -> None:
    path = SlidingPath(window)
    seq, begun, pushed = 0, path.begun, path.pushed
    seen: list[tuple[int, int | None]] = []
    others: dict[str, Break | End] = {"break": Break("gap", ""), "end": End("e", terminated=False)}
    for move in moves:
        seq += 2 if move == "jump" else 1
        apply(path, others.get(move) or step(seq))
        new = path.pushed - pushed if path.begun == begun else path.pushed
        seen = [*(seen if path.begun == begun else []), *path.pairs[len(path.pairs) - min(new, window) :]][-window:]
        begun, pushed = path.begun, path.pushed
        assert tuple(seen) == path.pairs


def test_dump_and_load_in_every_state() -> None:
    histories: list[list[Step | Break | End]] = [
        [],
        [step(3), step(4)],
        [step(0), Break("gap", "x")],
        [step(0), End("e", terminated=True)],
    ]
    for events in histories:
        path = SlidingPath(4)
        for event in events:
            apply(path, event)
        loaded = SlidingPath.load(4, path.dump())
        assert loaded.dump() == path.dump()
        assert (loaded.window, loaded.begun, loaded.pushed) == (4, 0, 0)  # nobody has seen it


def test_a_smaller_window_keeps_the_newest() -> None:
    path = SlidingPath.load(2, filled(4, range(4)).dump())
    assert (len(path), path.first_seq, path.oldest_dropped, path.start_observed) == (2, 2, True, False)


def test_the_next_number_continues_neither_an_ended_episode_nor_another_one() -> None:
    ended = filled(4, range(3))
    ended.end(terminated=True)
    ended.push(step(3))
    other = filled(4, range(3))
    other.push(step(3, "another"))
    assert ended.held == other.held == [(3, 0)]
    assert (ended.begun, other.begun) == (1, 1)
