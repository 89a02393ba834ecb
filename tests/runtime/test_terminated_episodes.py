"""Episodes of real Gymnasium environments that end in a state which does not stay, published with its own number.

The model has a copy of such a state for the end of an episode; the environment has one number for both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from monitor.model import MDP, load_model, save_model
from monitor.runtime.monitor import Monitor
from monitor.stream import decode
from monitor.types import Blind, Instant, Judged, Notice, Received, RewardMismatch, StreamSettings, Trust

ENVIRONMENTS = ("CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4")
EPISODES = 5
REACHED = 'P=? [ F<=5 "terminal" ]'

Message = dict[str, Any]


@dataclass
class Watched:
    """What a monitor said of some episodes, and how many transitions there were."""

    notices: list[Notice] = field(default_factory=list)
    transitions: int = 0
    ends: list[tuple[int, int, int]] = field(default_factory=list)  # episode, seq and state of each last message

    def of(self, kind: type[Any]) -> list[Any]:
        return [notice for notice in self.notices if isinstance(notice, kind)]


@pytest.mark.parametrize("identifier", ENVIRONMENTS)
def test_the_environments_own_last_state_ends_the_episode(identifier: str, tmp_path: Path) -> None:
    model = load_model(f"gymnasium:{identifier}")
    save_model(model, tmp_path / "model.npz")  # the way from `cfmon model convert` to `cfmon run`
    watched = watch(load_model(tmp_path / "model.npz"), identifier)
    assert [end for *_, end in watched.ends if model.ended(end) == end] == [], "every end has a copy"
    assert_followed(watched)


def test_the_copys_number_is_accepted_as_well() -> None:
    model = load_model("gymnasium:CliffWalking-v1")
    watched = watch(model, "CliffWalking-v1", copies=model)
    assert {end for *_, end in watched.ends} == {48}
    assert_followed(watched)


def assert_followed(watched: Watched) -> None:
    """No step was impossible, every one was answered and tested, and the last one of each episode knows that it ended.

    The probability that a correct model is ever doubted is at most `trust.alpha` = 0.001; the seeds are fixed.
    """
    assert {received.result for received in watched.of(Received)} == {"accepted"}
    assert [blind for blind in watched.of(Blind) if blind.reason is not None] == []
    assert watched.of(RewardMismatch) == []
    last = watched.of(Trust)[-1]
    assert (last.doubted, last.transitions) == (False, watched.transitions)
    judged = {(judged.episode, judged.seq): judged.verdict for judged in watched.of(Judged)}
    assert len(judged) == watched.transitions + EPISODES
    assert [judged[episode, seq].value for episode, seq, _ in watched.ends] == [1.0] * EPISODES


def watch(model: MDP, identifier: str, copies: MDP | None = None) -> Watched:
    """Run episodes by a good policy. `copies`: the agent itself publishes this model's state for the end."""
    policy, watched = best(model), Watched()
    # The test of the model reports when silence is looked for: at every step.
    settings = StreamSettings(max_lag=1e9, stale_after=4.0)
    monitor = Monitor(model, {"nominal": policy}, [REACHED], settings)
    for message in episodes(identifier, policy):
        if message.get("terminated") and copies is not None:
            message["state"] = copies.ended(message["state"])
        now = Instant(1000.0 + len(watched.notices), float(len(watched.notices)))
        watched.notices += monitor.observe(decode("ada", json.dumps(message).encode()), now)
        watched.notices += monitor.evaluate(now)
        watched.transitions += message["seq"] > 0
        if "action" not in message:
            watched.ends.append((message["episode"], message["seq"], message["state"]))
    return watched


def episodes(identifier: str, policy: npt.NDArray[np.int64]) -> Iterator[Message]:
    """What an agent publishes that knows nothing of the model: the environment's own numbers."""
    environment = pytest.importorskip("gymnasium").make(identifier)
    for number in range(EPISODES):
        state, _ = environment.reset(seed=number)
        seq, over = 0, False
        earned: Message = {}
        while not over:
            action = int(policy[state])
            yield {"v": 1, "episode": number, "seq": seq, "state": int(state), "action": action, **earned}
            state, reward, terminated, truncated, _ = environment.step(action)
            seq, earned, over = seq + 1, {"reward": float(reward)}, terminated or truncated
        assert terminated
        yield {"v": 1, "episode": number, "seq": seq, "state": int(state), "terminated": True, **earned}
    environment.close()


def best(model: MDP) -> npt.NDArray[np.int64]:
    """The action [S] of most reward within 200 steps; in these models every action is available everywhere."""
    values = np.zeros(model.states)
    for _ in range(200):
        ahead = np.add.reduceat(model.probabilities * values[model.successors], model.indptr[:-1])
        scores = model.expected_rewards + ahead.reshape(model.states, model.actions)
        values = scores.max(axis=1)
    actions: npt.NDArray[np.int64] = scores.argmax(axis=1)
    return actions
