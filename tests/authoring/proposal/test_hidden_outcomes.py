"""Outcomes of conditions on hidden states, beside plain loops over the same steps."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.authoring.learning.outcomes import HiddenOutcomes
from monitor.authoring.proposal.replayed import shown_in
from monitor.model.emissions import Emissions


def drawn(rng: np.random.Generator) -> HiddenOutcomes:
    """Paths of all lengths, with unknown steps; of an episode, only the last step can end it."""
    lengths = rng.integers(1, 8, 12)
    path = np.repeat(np.arange(12), lengths)
    ended = np.zeros(len(path), np.bool_)
    ended[np.cumsum(lengths) - 1] = rng.random(12) < 0.5
    known, holds = rng.random(len(path)) < 0.8, rng.random(len(path)) < 0.3
    return HiddenOutcomes(holds & known, known, holds & known & (rng.random(len(path)) < 0.5), ended, path, path // 2)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("horizon", [1, 3, 9])
def test_a_forecast_is_judged_if_all_of_its_steps_are_known(seed: int, horizon: int) -> None:
    found = drawn(np.random.default_rng(seed))
    judged, happened = found.events(horizon)
    ends = found.ends(horizon)
    for n, path in enumerate(found.path):
        mine = np.flatnonzero(found.path == path)
        steps = [m for m in mine if n <= m <= n + horizon]
        whole = n + horizon in mine or bool(found.ended[mine[-1]])
        expected = whole and not found.ended[n] and not found.shown[n] and all(found.known[steps])
        assert judged[n, 0] == expected
        assert happened[n, 0] == any(found.holds[steps])
        assert ends[n] == (bool(found.ended[mine[-1]]) and mine[-1] <= n + horizon)


@pytest.mark.parametrize("seed", range(20))
def test_true_states_do_not_choose_what_is_judged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = drawn(rng)
    other = HiddenOutcomes(
        found.known & (rng.random(len(found.path)) < 0.5), found.known, found.shown, found.ended, found.path, found.path
    )
    assert (found.holds != other.holds).any()
    assert np.array_equal(found.events(3)[0], other.events(3)[0])


def test_observations_decide_what_all_of_their_states_share() -> None:
    shows = [(0, 0, 0.5), (0, 1, 0.5), (1, 1, 0.2), (1, 2, 0.8), (2, 2, 0.5), (2, 3, 0.5)]
    emissions = Emissions.from_tuples(3, 5, shows)
    condition = np.array([False, True, True])
    # true state, observation -> holds, known, shown alone
    cases = {
        (None, 0): (False, True, False),
        (None, 1): (False, False, False),
        (None, 2): (True, True, True),
        (None, 3): (True, True, True),
        (None, 4): (False, False, False),  # no state shows it
        (None, None): (False, False, False),
        (0, 1): (False, True, False),
        (1, 1): (True, True, False),
        (1, 2): (True, True, True),
        (2, None): (True, True, False),
        (0, None): (False, True, False),
    }
    holds, shown = shown_in([*cases], condition, emissions)
    assert list(zip(holds.tolist(), shown.known.tolist(), shown.alone.tolist(), strict=True)) == [*cases.values()]
