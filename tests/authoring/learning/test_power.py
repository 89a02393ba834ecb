"""The stated power of the Markov test, against simulation: an effect of that size is found nine times in ten."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.arrays import Floats
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.holdout import Holdout
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.model_report import Gain, detectable, reported
from tests.tiers import examples, slow

ROLES = Roles(("x",), "a", "ep", "t")
STATES = 3


def information(lean: float) -> float:
    """Nats that the state before the last one holds: it leans the choice between two successors by so much."""
    up = np.array([0.5 + lean, 0.5 - lean])
    return float(np.log(2) + (up * np.log(up)).sum())


def histories(rng: np.random.Generator, episodes: int, length: int, lean: float) -> tuple[Gain, ...]:
    """The Markov test on walks round a ring, whose direction leans towards that of the step before."""
    x = np.zeros((episodes, length), np.int64)
    x[:, 0] = rng.integers(STATES, size=episodes)
    x[:, 1] = (x[:, 0] + rng.choice([-1, 1], episodes)) % STATES
    for t in range(2, length):
        sign = np.where((x[:, t - 1] - x[:, t - 2]) % STATES == 1, 1.0, -1.0)
        up = rng.random(episodes) < 0.5 + lean * sign
        x[:, t] = (x[:, t - 1] + np.where(up, 1, -1)) % STATES
    columns = {
        "x": x.ravel(), "a": np.zeros(x.size, np.int64), "ep": np.repeat(np.arange(episodes), length),
        "t": np.tile(np.arange(length), episodes),
    }  # fmt: skip
    learner, holdout = Learner.new(ROLES, None, [], 1.0), Holdout(int(rng.integers(1000)))
    holdout.add(learner.read(RowBatch(columns, 1, "walk")))
    rest = learner.end_file()
    assert rest is not None
    holdout.add(rest)
    return reported(learner.model("walk"), learner.where(), holdout, [], []).histories


@slow
@pytest.mark.parametrize(("episodes", "length"), [(100, 20), (60, 100)])
def test_an_effect_of_the_stated_size_is_found_nine_times_in_ten(episodes: int, length: int) -> None:
    rng = np.random.default_rng(episodes)
    stated = np.median([histories(rng, episodes, length, 0.0)[1].detects for _ in range(20)])
    lean = next(lean for lean in np.linspace(0, 0.4999, 2000) if information(lean) >= stated)
    tries = examples(60, 400)
    found = sum(histories(rng, episodes, length, lean)[1].real for _ in range(tries))
    assert abs(found / tries - 0.9) < 3 * np.sqrt(0.09 / tries) + 0.03, "the formula is for small effects"
    quiet = sum(histories(rng, episodes, length, 0.0)[1].real for _ in range(tries))
    assert quiet / tries < 0.03
    weak = next(lean for lean in np.linspace(0, 0.4999, 2000) if information(lean) >= stated / 3)
    assert sum(histories(rng, episodes, length, weak)[1].real for _ in range(tries)) / tries < 0.6


def test_more_data_find_less_and_none_finds_nothing() -> None:
    def found(error: float, draws: float, steps: int = 1000) -> float:
        each: Floats = np.full(steps, draws)
        return detectable(error, each, np.full(steps, 3.0))

    assert found(0.001, 1000.0) < found(0.01, 1000.0) < found(0.01, 10.0)
    assert found(0.001, 1e6, 10**6) == pytest.approx(0.01 + 1.2816 * np.sqrt(0.001**2 + 2 * 0.0115 / 1e6), rel=0.01)
    assert found(0.01, 0.0) == np.inf, "no history was seen twice"
    assert detectable(0.01, np.zeros(0), np.zeros(0)) == np.inf
