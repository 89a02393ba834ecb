"""How many visits of which pairs a guaranteed band needs: held against the referee on the model they would give."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import referee
from monitor.errors import ConfigError, LimitError
from monitor.evaluation.visits import raised, visits_needed
from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.model import MDP
from tests.exact.learned import learned_model

START, LEDGE, HOME, FALLEN, ELSEWHERE = range(5)
WALK, CRAWL = range(2)
PATH, POLICIES = [(START, WALK), (LEDGE, WALK)], {"nominal": [WALK] * 5, "careful": [CRAWL] * 5}
CAREFUL = 'careful@0.P>=0.6 [ G<=3 !"unsafe" ]'


def road() -> MDP:
    """Return a model in which nobody crawled on the ledge."""
    draws = [(START, WALK, LEDGE)] * 8 + [(START, WALK, FALLEN)] * 2 + [(START, CRAWL, LEDGE)] * 9
    draws += [(LEDGE, WALK, HOME)] * 5 + [(LEDGE, WALK, FALLEN)] * 5
    draws += [(state, action, state) for state in (HOME, FALLEN) for action in (WALK, CRAWL)] * 200
    labels = {"unsafe": frozenset({FALLEN, ELSEWHERE})}
    return learned_model(5, 2, draws, labels)[0]


def width(model: MDP, text: str) -> float:
    """Return the width of the referee's guaranteed band."""
    verdict = referee.derive(text, model=model, path=PATH, policies=POLICIES, causal_model="any")
    return max(q.guaranteed[1] - q.guaranteed[0] for q in verdict.quantities if q.guaranteed is not None)


@pytest.mark.parametrize("target", [0.5, 0.2])
@pytest.mark.parametrize("text", ['P>=0.6 [ G<=3 !"unsafe" ]', CAREFUL, 'regret(careful@1, P>=0.6 [ G<=3 !"unsafe" ])'])
def test_so_many_visits_of_these_pairs_suffice_and_half_of_them_do_not(text: str, target: float) -> None:
    model = road()
    found = visits_needed(Checker(model, tables(POLICIES, model)), parse(text), PATH, target)
    assert found.now == pytest.approx(width(model, text))
    assert found.now > target
    assert found.visits is not None
    rows = [state * model.actions + action for state, action, _ in found.pairs]
    assert width(raised(model, rows, found.visits), text) <= target
    assert width(raised(model, rows, found.visits // 2), text) > target
    assert width(raised(model, rows[:-1], found.visits), text) > target, "the last pair is needed too"
    assert all(have < found.visits for _, _, have in found.pairs)
    if "careful" in text:
        assert (LEDGE, CRAWL, 0) in found.pairs


def test_what_the_causal_models_leave_open_no_recording_narrows() -> None:
    model = road()
    checker, text = Checker(model, tables(POLICIES, model)), parse('careful@1.P>=0.6 [ G<=3 !"unsafe" ]')
    found = visits_needed(checker, text, PATH, 1e-9)
    assert (found.visits, found.pairs) == (None, ())
    assert 1e-9 < found.limit < found.now
    assert visits_needed(checker, text, PATH, 1.0).visits == 0


def test_visits_are_added_after_those_recorded() -> None:
    model = road()
    more = raised(model, [START * 2 + WALK, LEDGE * 2 + CRAWL], 100)
    assert model.counts is not None
    assert more.counts is not None
    draws = more.counts.draws(more.indptr)
    assert draws[:4].tolist() == [100, 9, 10, 100]
    assert more.row(LEDGE, CRAWL)[0].tolist() == more.row(LEDGE, WALK)[0].tolist() == [HOME, FALLEN]
    assert more.counts.since[:2].tolist() == (model.counts.since[:2] + 90).tolist()
    assert np.array_equal(more.counts.visits[:2], [80, 20])


def test_what_has_no_guaranteed_band_or_no_recordings_says_so() -> None:
    model = road()
    checker = Checker(model, tables(POLICIES, model))
    with pytest.raises(LimitError, match="no visits can be estimated: no guaranteed band: quantities are nested"):
        visits_needed(checker, parse('P>=0.5 [ F<=2 P>=0.5 [ X "unsafe" ] ]'), PATH, 0.2)
    with pytest.raises(ConfigError, match="a width must be above 0, not 0"):
        visits_needed(checker, parse(CAREFUL), PATH, 0.0)
    given = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])
    with pytest.raises(ConfigError, match="not learned from recordings"):
        visits_needed(Checker(given, tables({"nominal": [0]}, given)), parse("P>=0.5 [ X true ]"), [(0, 0)], 0.2)
