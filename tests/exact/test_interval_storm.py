"""Guaranteed bounds of reachability against Storm's interval Markov decision processes.

Both get the same intervals. The monitor's formulas are bounded, so its horizon is long enough that nothing more happens
after it; Storm's are not. Storm needs a positive probability for each transition. `elsewhere` is the only successor
without one here, and in a bound it always takes as much as it may, so a tiny lower end changes nothing.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.model import MDP
from monitor.model.confidence import IntervalRows, confidence_rows
from tests.exact.learned import Draws, learned_model
from tests.tiers import first, heavy

stormpy = pytest.importorskip("stormpy", reason="stormpy is not installed: pip install '.[bench]' in a clone")

STATES, ACTIONS, ELSEWHERE, GOAL = 5, 2, 4, 3
STARTS = range(ELSEWHERE)
QUERY = 'P=? [ F<=1500 "x" ]'
TOLERANCE = 1e-7
"""Of values near 1, by iteration: Storm stops when they change by less than 1e-12."""
TINY = 1e-12
DELTA = 0.05
Policies = list[tuple[int, ...]]


def learned(chance: Random) -> MDP:
    """Return a model of which each transition was drawn often enough to be certainly possible."""
    draws: Draws = []
    for state, action in product(STARTS, range(ACTIONS)):
        successors = chance.sample(STARTS, chance.randint(1, 3))
        draws += [(state, action, successor) for successor in successors for _ in range(chance.randint(60, 400))]
    chance.shuffle(draws)
    return learned_model(STATES, ACTIONS, draws, {"x": frozenset({GOAL})})[0]


def by_monitor(model: MDP, policies: Policies) -> np.ndarray:
    """Return the bounds [policies, 4, 2] from each state; a policy has an action for each state but `elsewhere`."""
    named = {f"p{number}": [*policy, 0] for number, policy in enumerate(policies)}
    checker = Checker(model, tables({"nominal": named["p0"], **named}, model), delta=DELTA)
    bounds = [
        [checker.check(parse(f"{name}@0.{QUERY}"), [(state, None)], causal_model="any").guaranteed for state in STARTS]
        for name in named
    ]
    return np.array(bounds)


def by_storm(rows: IntervalRows, policies: Policies, text: str, mode: str, folder: Path) -> np.ndarray:
    """Return Storm's values [4]; `elsewhere` is in the goal where the rows are chosen for it.

    `policies`: for each action of the model that Storm gets, what it stands for in each state.
    """
    lines = ["@type: MDP", "@value_type: double-interval", "@parameters", "", "@reward_models", ""]
    lines += ["@nr_states", str(STATES), "@nr_choices", str(ELSEWHERE * len(policies) + 1), "@model"]
    for state in STARTS:
        lines.append(f"state {state}{' x' * (state == GOAL)}{' init' * (state == 0)}")
        for number, policy in enumerate(policies):
            entries = slice(*rows.indptr[state * ACTIONS + policy[state] :][:2])
            lines.append(f"\taction {number}")
            ends = zip(rows.successors[entries], rows.lower[entries], rows.upper[entries], strict=True)
            lines += [f"\t\t{to} : [{max(float(low), TINY)!r}, {float(high)!r}]" for to, low, high in ends]
    lines += [f"state {ELSEWHERE}{' x' * (mode == 'MAXIMIZE')}", "\taction 0", f"\t\t{ELSEWHERE} : [1, 1]"]
    file = folder / "intervals.drn"
    file.write_text("\n".join(lines) + "\n")
    storm = stormpy.build_model_from_drn[stormpy.Interval](str(file))
    (asked,) = stormpy.parse_properties(text)
    resolution = getattr(stormpy.UncertaintyResolutionMode, mode)
    result = stormpy.model_checking(storm, asked, uncertainty_resolution_mode=resolution, environment=precise(storm))
    return np.array([result.get_value(state) for state in STARTS])


def precise(model: Any) -> Any:  # noqa: ANN401 - Storm's types are not known here
    """Return an environment in which value iteration goes on until nothing changes."""
    environment = stormpy.environments.default(model)
    environment.solver().min_max().precision = stormpy.Rational(TINY)
    return environment


@heavy
@pytest.mark.parametrize("seed", first(1, range(6)))
def test_bounds_over_rows_and_policies_are_storms(seed: int, tmp_path: Path) -> None:
    model = learned(Random(seed))
    rows = confidence_rows(model, DELTA)
    learned_entries = (rows.successors != ELSEWHERE) & (np.arange(len(rows.lower)) < rows.indptr[ELSEWHERE * ACTIONS])
    assert (rows.lower[learned_entries] > 0.0).all()
    policies = list(product(range(ACTIONS), repeat=ELSEWHERE))
    bounds = by_monitor(model, policies)
    for number in (0, 5, 10):
        for side, mode in enumerate(("MINIMIZE", "MAXIMIZE")):
            expected = by_storm(rows, [policies[number]], 'Pmax=? [ F "x" ]', mode, tmp_path)
            np.testing.assert_allclose(bounds[number, :, side], expected, atol=TOLERANCE)
    actions: Policies = [(action,) * ELSEWHERE for action in range(ACTIONS)]
    for side, mode in enumerate(("MINIMIZE", "MAXIMIZE")):
        for text, extreme in (('Pmin=? [ F "x" ]', np.min), ('Pmax=? [ F "x" ]', np.max)):
            expected = by_storm(rows, actions, text, mode, tmp_path)
            np.testing.assert_allclose(extreme(bounds[:, :, side], axis=0), expected, atol=TOLERANCE)
