"""The belief along an observed path, against Storm's tracker of beliefs, on models whose actions Storm does not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.model import MDP, load_model, save_model
from tests.model.verification_models import stormpy

TUNNEL = """\
pomdp
observables lamp, wet endobservables
module train
  x : [0..5] init 0;
  wet : bool init false;
  lamp : bool init true;
  [slow] x<5 -> 0.6 : (x'=x+1)&(wet'=mod(x,2)=0)&(lamp'=false) + 0.3 : (wet'=!wet)&(lamp'=false) + 0.1 : (lamp'=x>2);
  [fast] x<5 -> 0.5 : (x'=min(5,x+2))&(lamp'=x>2) + 0.3 : (x'=x+1)&(wet'=true) + 0.2 : (wet'=mod(x,3)=1)&(lamp'=false);
  [slow] x=5 -> true;
  [fast] x=5 -> 0.5 : (x'=0) + 0.5 : (lamp'=!lamp);
endmodule
label "deep" = x>=3;
"""
TOLERANCE = 1e-12
"""Both multiply the same doubles; each step divides by a sum."""


def built(folder: Path) -> tuple[Any, MDP]:
    """The model as Storm builds it, and as we read what Storm writes of it."""
    module = stormpy()
    from stormpy import io  # noqa: PLC0415 - optional

    file = folder / "tunnel.prism"
    file.write_text(TUNNEL)
    options = module.BuilderOptions(build_full=True)
    options.set_build_choice_labels(True)
    options.set_build_all_labels(True)
    pomdp = module.build_model(module.parse_prism_program(str(file)), options=options)
    io.export_to_umb(pomdp, str(folder / "tunnel.umb"))
    return pomdp, load_model(folder / "tunnel.umb")


def walk(model: MDP, rng: np.random.Generator, steps: int) -> list[tuple[int, int | None]]:
    """Return a random path of observations and actions."""
    assert model.initial is not None
    state, path = int(np.argmax(model.initial)), list[tuple[int, int | None]]()
    for _ in range(steps):
        action = int(rng.integers(model.actions))
        path.append((model.shown(state)[0][0], action))
        after, chances = model.row(state, action)
        state = int(rng.choice(after, p=chances))
    return path


def compare(pomdp: Any, model: MDP, path: list[tuple[int, int | None]]) -> None:  # noqa: ANN401 - it ships no types
    """Assert that after each pair our belief is one of those that Storm tracks."""
    assert model.emissions is not None
    uniform = {"nominal": np.full((model.emissions.signals, model.actions), 1 / model.actions)}
    tracker = pytest.importorskip("stormpy.pomdp").create_nondeterministic_belief_tracker(pomdp)
    tracker.set_risk(model.labels["deep"].astype(np.float64).tolist())  # before `reset`
    assert tracker.reset(path[0][0])
    for length in range(1, len(path) + 1):
        assert length == 1 or tracker.track(path[length - 1][0])
        seen = [*path[: length - 1], (path[length - 1][0], None)]
        verdict = monitor.check('P=? [ "deep" ]', model=model, path=seen, policies=uniform)
        assert verdict.value is not None
        assert verdict.belief is not None
        ours = {**verdict.belief, -1: verdict.value}
        theirs = [
            {state: each.risk if state == -1 else chance_of(each, state) for state in ours}
            for each in tracker.get_current_beliefs()
        ]
        assert min(max(abs(each[state] - ours[state]) for state in ours) for each in theirs) < TOLERANCE


def chance_of(belief: Any, state: int) -> float:  # noqa: ANN401 - likewise
    try:
        return float(belief.get(state))
    except IndexError:  # not among the states that are possible
        return 0.0


@pytest.mark.parametrize("seed", range(4))
def test_the_belief_is_one_of_storms(seed: int, tmp_path: Path) -> None:
    """Storm tracks a belief for each way to act, which grow fast in number; ours must be one of them."""
    pomdp, model = built(tmp_path)
    compare(pomdp, model, walk(model, np.random.default_rng(seed), 4))


@pytest.mark.parametrize("seed", range(2))
def test_the_belief_without_known_actions_is_that_of_the_chain(seed: int, tmp_path: Path) -> None:
    """The chain that the policy makes of the model has one belief, at any length."""
    _, model = built(tmp_path)
    rows = [
        (state, 0, int(after), float(chance) / model.actions)
        for state in range(model.states)
        for action in range(model.actions)
        for after, chance in zip(*model.row(state, action), strict=True)
    ]
    chain = MDP.from_transitions(states=model.states, actions=1, transitions=rows)
    save_model(replace(chain, initial=model.initial, emissions=model.emissions), tmp_path / "chain.umb")
    pomdp = stormpy().build_model_from_umb(str(tmp_path / "chain.umb"))
    compare(pomdp, model, [(seen, None) for seen, _ in walk(model, np.random.default_rng(seed), 12)])
