"""The callback of stable-baselines3, called as the library calls it; with the library itself where it is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from tests.client.listening import listening
from tests.client.test_watched import RUN, Corridor, messages_of
from tests.servers import Mosquitto


class StubCallback:
    """What stable-baselines3 2.x does with a callback: `BaseCallback` without its logging."""

    def __init__(self) -> None:
        self.model: Any = None
        self.locals: dict[str, Any] = {}

    @property
    def training_env(self) -> Any:  # noqa: ANN401 - any vector environment
        return self.model.env

    def on_training_start(self, local: dict[str, Any]) -> None:
        self.locals = local
        self._on_training_start()

    def on_step(self, local: dict[str, Any]) -> bool:
        self.locals.update(local)
        return self._on_step()

    def on_training_end(self) -> None:
        self._on_training_end()

    def _on_training_start(self) -> None: ...

    def _on_step(self) -> bool:
        raise NotImplementedError

    def _on_training_end(self) -> None: ...


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the stub as `stable_baselines3`."""
    callbacks = ModuleType("stable_baselines3.common.callbacks")
    callbacks.BaseCallback = StubCallback  # type: ignore[attr-defined]
    for name in ("stable_baselines3", "stable_baselines3.common"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, callbacks.__name__, callbacks)
    monkeypatch.delitem(sys.modules, "cfmon_client.stable_baselines", raising=False)
    yield
    sys.modules.pop("cfmon_client.stable_baselines", None)


def train(callback: Any, environments: list[Corridor], turns: int) -> None:  # noqa: ANN401 - of a stub
    """Collect rollouts as the library does: environments that end begin anew within the same step."""
    spaces = {"observation_space": Discrete(4), "action_space": Discrete(2)}
    first = np.array([env.reset()[0] for env in environments])
    callback.model = SimpleNamespace(env=SimpleNamespace(num_envs=len(environments), **spaces), _last_obs=first)
    callback.on_training_start({})
    for _ in range(turns):
        observations, rewards, dones, infos = [], [], [], []
        for env in environments:
            at, reward, terminated, truncated, _ = env.step(1)
            info: dict[str, Any] = {"TimeLimit.truncated": truncated and not terminated}
            if terminated or truncated:
                info["terminal_observation"] = at
                at = env.reset()[0]
            observations.append(at)
            rewards.append(reward)
            dones.append(terminated or truncated)
            infos.append(info)
        local = {"actions": np.ones(len(environments), np.int64), "new_obs": np.array(observations)}
        assert callback.on_step({**local, "rewards": np.array(rewards), "dones": np.array(dones), "infos": infos})
        callback.model = SimpleNamespace(env=callback.model.env, _last_obs=local["new_obs"])
    callback.on_training_end()


@pytest.mark.usefixtures("stub")
def test_each_environment_of_a_training_is_an_agent(broker: Mosquitto) -> None:
    from cfmon_client.stable_baselines import WatchedTraining  # noqa: PLC0415 - on top of the stub

    with listening(broker) as listener:
        callback = WatchedTraining(broker.url, "arm")
        train(callback, [Corridor(3), Corridor(3, limit=2)], 4)
        assert callback.status.refused == {}
        assert callback.close()
        listener.until(6 + 6)
    assert messages_of(listener, "arm-0") == [*RUN, (0, 0, 1, None, None), (1, 1, None, 1.0, "truncated")]
    cut = [(0, 0, 1, None, None), (1, 1, 1, 1.0, None), (2, 2, None, 2.0, "truncated")]
    assert messages_of(listener, "arm-1") == cut * 2


@pytest.mark.usefixtures("stub")
def test_a_wrong_argument_is_an_error_before_the_training() -> None:
    from cfmon_client import ClientError  # noqa: PLC0415 - on top of the stub
    from cfmon_client.stable_baselines import WatchedTraining  # noqa: PLC0415 - on top of the stub

    with pytest.raises(ClientError, match="the agent's name"):
        WatchedTraining("mqtt://127.0.0.1:9", "arm 7")


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_a_real_training_is_published(broker: Mosquitto, algorithm: str) -> None:
    baselines: Any = pytest.importorskip("stable_baselines3")
    from cfmon_client.stable_baselines import WatchedTraining  # noqa: PLC0415 - needs the library

    settings = {"PPO": {"n_steps": 16, "batch_size": 16}, "DQN": {"learning_starts": 8}}[algorithm]
    with listening(broker) as listener:
        callback = WatchedTraining(broker.url, "arm")
        env: gymnasium.Env[Any, Any] = Corridor(3, limit=5)
        getattr(baselines, algorithm)("MlpPolicy", env, seed=0, **settings).learn(32, callback=callback)
        assert callback.close()
        published = callback.status
        listener.until(published.published)
    assert not published.refused
    steps = messages_of(listener, "arm-0")
    assert len(steps) == published.published
    assert sum(action is not None for _, _, action, _, _ in steps) == 32
    for (seq, state, action, _, end), (following, reached, _, reward, _) in pairwise(steps):
        if end is None:
            assert (following, reached, reward) == (seq + 1, state + action, float(state + action))
