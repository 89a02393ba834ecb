"""Models of more states than tables are made for: each step is answered or says why not, and the stream goes on."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from monitor.evaluation import check
from monitor.exact import lazy_values, value_table
from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.types import AlarmMoved, AlarmSpec, Ended, FormulaSpec, Instant, Judged, Notice, Observation, Verdict

SIZE = 5_000
ON, BACK = 0, 1
POLICIES = {"nominal": [ON] * SIZE, "back": [BACK] * SIZE}
PLAIN = 'back@2.P>=0.5 [ G<=4 !"far" ]'
REGRET = 'regret(back@2, P>=0.9 [ G<=4 !"far" ])'


@pytest.fixture(scope="module")
def road() -> MDP:
    """A walker that goes on or back, and slips to where it stands; from the tenth state on it is far away."""
    moves = [(s, a, min(max(s + (1 if a == ON else -1), 0), SIZE - 1), 0.8) for s in range(SIZE) for a in (ON, BACK)]
    slips = [(s, a, s, 0.2) for s in range(SIZE) for a in (ON, BACK)]
    return MDP.from_transitions(states=SIZE, actions=2, transitions=moves + slips, labels={"far": range(10, SIZE)})


class Walker:
    """One agent that goes on, a step a second, from the start of an episode."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor, self.path, self.episode, self.ticks = monitor, list[tuple[int, int]](), 0, 0.0

    def step(self, *, terminated: bool = False) -> list[Notice]:
        self.path.append((6 + len(self.path), ON))
        self.ticks += 1.0
        now, seq = Instant(self.ticks, self.ticks), len(self.path) - 1
        self.monitor.observe(Observation("ada", self.episode, seq, *self.path[-1], terminated=terminated), now)
        notices = self.monitor.evaluate(now)
        if terminated:
            self.episode, self.path = self.episode + 1, []
        return notices


def verdicts(notices: Iterable[Notice]) -> list[Verdict]:
    return [notice.verdict for notice in notices if isinstance(notice, Judged)]


@pytest.mark.parametrize(("text", "outcome"), [(PLAIN, None), (REGRET, "undecided")])
def test_what_reaches_too_far_without_a_table_is_undecided_and_the_next_step_is_answered(
    road: MDP, text: str, outcome: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_table, "MAX_TABLE_NUMBERS", 0)
    monkeypatch.setattr(value_table, "numbers", lambda _: 0)
    spec = FormulaSpec("watched", text, alarm=AlarmSpec(for_=1, keep=1), engine="exact")
    walker = Walker(Monitor(road, POLICIES, [spec]))
    walker.step()
    with monkeypatch.context() as patch:
        patch.setattr(lazy_values, "MAX_KEPT", -1)  # nor is anything known from the step before
        patch.setattr(lazy_values, "MAX_REACHED", 0)
        notices = walker.step()
    (told,) = verdicts(notices)
    assert (told.holds, told.outcome) == (None, outcome)
    assert "MAX_REACHED" in told.reason
    assert not [notice for notice in notices if isinstance(notice, AlarmMoved)]
    (found,) = verdicts(walker.step())
    assert found == check(text, model=road, path=walker.path, policies=POLICIES)


def test_an_end_that_reaches_too_far_is_undecided_and_the_next_episode_is_answered(
    road: MDP, monkeypatch: pytest.MonkeyPatch
) -> None:
    walker = Walker(Monitor(road, POLICIES, [FormulaSpec("watched", PLAIN, engine="exact")]))
    walker.step()
    with monkeypatch.context() as patch:
        patch.setattr(lazy_values, "MAX_REACHED", 0)
        notices = walker.step(terminated=True)
    (told,) = verdicts(notices)
    assert told.holds is None
    assert "MAX_REACHED" in told.reason
    assert isinstance(notices[-1], Ended)
    (found,) = verdicts(walker.step())
    assert found == check(PLAIN, model=road, path=walker.path, policies=POLICIES)


def test_an_end_is_told_as_check_tells_it(road: MDP) -> None:
    ahead = 'nominal@2.P<0.5 [ F<=4 "far" ]'
    walker = Walker(Monitor(road, POLICIES, [ahead]))
    walker.step()
    walker.step()
    (before,) = verdicts(walker.step())
    path = [*walker.path, (9, ON)]
    (found,) = verdicts(walker.step(terminated=True))
    assert found == check(ahead, model=road, path=path, policies=POLICIES, terminated=True)
    assert (before.holds, found.holds) == (False, True)
    assert found.quantities[0].value == 0.0  # where it has ended it stays, one step short of far
