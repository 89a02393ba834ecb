"""Wrapped environments: what is published is what happened in them, and they behave as they are."""

from __future__ import annotations

from typing import Any

import cfmon_client
import gymnasium
import numpy as np
import pytest
from cfmon_client.watched import Watched, WatchedVector
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.client.listening import Listener, listening
from tests.servers import Mosquitto


class Corridor(gymnasium.Env[Any, Any]):
    """States 0, 1, 2, ...: action 1 goes on, action 0 stays. It ends at `length`, or after `limit` steps.

    The info of a state is its name; the reward of a transition is the number of the state it reaches.
    """

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 3, limit: int = 100) -> None:
        self.observation_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(4)
        self.length, self.limit = length, limit

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at = self.steps = 0
        return 0, {"name": "s0"}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:  # noqa: ANN401 - as Gymnasium's
        self.at += int(action)
        self.steps += 1
        return self.at, float(self.at), self.at == self.length, self.steps == self.limit, {"name": f"s{self.at}"}


def messages_of(listener: Listener, agent: str) -> list[tuple[Any, ...]]:
    """Return (seq, state, action, reward, end) of an agent's messages."""
    ends = {(True, None): "terminated", (None, True): "truncated", (None, None): None, (True, True): "both"}
    return [
        (
            message["seq"],
            message["state"],
            message.get("action"),
            message.get("reward"),
            ends[message.get("terminated"), message.get("truncated")],
        )
        for name, message in listener.steps
        if name == agent
    ]


RUN = [(0, 0, 1, None, None), (1, 1, 1, 1.0, None), (2, 2, 1, 2.0, None), (3, 3, None, 3.0, "terminated")]
"""The messages of a corridor that is walked through."""


def test_an_environment_is_published_as_it_happened(broker: Mosquitto) -> None:
    with listening(broker) as listener:
        env = Watched(Corridor(), broker.url, "arm-7")
        assert env.reset(seed=1) == (0, {"name": "s0"})
        for at in (1, 2, 3):
            assert env.step(1) == (at, float(at), at == 3, False, {"name": f"s{at}"})
        env.reset()
        env.step(0)
        env.reset()
        env.step(1)
        assert env.flush()
        assert env.status.published == 4 + 2 + 1
        env.close()
        listener.until(4 + 2 + 2)
    assert messages_of(listener, "arm-7") == [
        *RUN,
        *[(0, 0, 0, None, None), (1, 0, None, 0.0, "truncated")],
        *[(0, 0, 1, None, None), (1, 1, None, 1.0, "truncated")],
    ]
    assert len({message["episode"] for _, message in listener.steps}) == 3


def test_a_time_limit_truncates_and_both_ends_may_come_at_once(broker: Mosquitto) -> None:
    with listening(broker) as listener:
        for limit in (1, 3):
            env = Watched(Corridor(limit=limit), broker.url, f"limit-{limit}")
            env.reset()
            for _ in range(limit):
                env.step(1)
            env.close()
        listener.until(2 + 4)
    assert messages_of(listener, "limit-1")[-1] == (1, 1, None, 1.0, "truncated")
    assert messages_of(listener, "limit-3")[-1] == (3, 3, None, 3.0, "both")


def test_state_action_and_inputs_are_what_the_users_functions_return(broker: Mosquitto) -> None:
    with listening(broker) as listener:
        env = Watched(
            Corridor(),
            broker.url,
            "arm-7",
            state=lambda _, info: info["name"],
            action=lambda action: ("stay", "go")[action],
            inputs=lambda observation, _: {"wind": np.float32(observation)},
        )
        env.reset()
        env.step(1)
        env.close()
        messages = listener.until(2)
    assert [message["inputs"] for message in messages] == [{"wind": 0.0}, {"wind": 1.0}]
    assert messages_of(listener, "arm-7") == [(0, "s0", "go", None, None), (1, "s1", None, 1.0, "truncated")]


def test_a_function_that_raises_is_counted_and_the_environment_goes_on(
    broker: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    env = Watched(Corridor(), broker.url, "arm-7", state=lambda observation, _: 1 // observation)
    env.reset()
    env.step(1)
    env.step(1)
    assert env.flush()
    assert env.status.refused == {"error": 1}
    assert env.status.published == 1
    env.close()
    assert "ZeroDivisionError" in caplog.text


def test_arrays_are_published_as_lists_of_numbers(broker: Mosquitto) -> None:
    with listening(broker) as listener:
        env = Watched(gymnasium.make("CartPole-v1"), broker.url, "pole")
        first, _ = env.reset(seed=3)
        env.step(1)
        env.close()
        listener.until(2)
    assert listener.steps[0][1]["state"] == first.tolist()


def test_spaces_without_a_default_need_a_function() -> None:
    pendulum, taxi = gymnasium.make("Pendulum-v1"), Corridor()
    taxi.observation_space = gymnasium.spaces.Dict({"at": gymnasium.spaces.Discrete(2)})
    with pytest.raises(cfmon_client.ClientError, match="actions are of Box; give action="):
        Watched(pendulum, "mqtt://127.0.0.1:9", "a")
    with pytest.raises(cfmon_client.ClientError, match="observations are of Dict; give state="):
        Watched(taxi, "mqtt://127.0.0.1:9", "a")


LENGTHS = (3, 2)
ACTIONS = np.array([1, 1])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_each_environment_of_a_vector_is_an_agent(broker: Mosquitto, mode: AutoresetMode) -> None:
    made = [lambda length=length: Corridor(length) for length in LENGTHS]
    with listening(broker) as listener:
        env = WatchedVector(SyncVectorEnv(made, autoreset_mode=mode), broker.url, "arm")
        env.reset(seed=1)
        turns = 7
        for _ in range(turns):
            env.step(ACTIONS)
        env.close()
        assert not env.status.refused
        listener.until(env.status.published)
    second = [(0, 0, 1, None, None), (1, 1, 1, 1.0, None), (2, 2, None, 2.0, "terminated")]
    repeats = [message for message in messages_of(listener, "arm-0") if message[4] != "truncated"]
    assert repeats == (RUN * 3)[: len(repeats)]
    assert len(repeats) >= 2 * len(RUN) - 1
    assert messages_of(listener, "arm-1")[:6] == second * 2
    steps_taken = turns - (1 if mode is AutoresetMode.NEXT_STEP else 0)  # one call only resets
    assert sum(message[2] is not None for message in messages_of(listener, "arm-0")) == steps_taken


def test_without_autoreset_the_environments_of_the_mask_begin_anew(broker: Mosquitto) -> None:
    made = [lambda length=length: Corridor(length) for length in LENGTHS]
    with listening(broker) as listener:
        env = WatchedVector(SyncVectorEnv(made, autoreset_mode=AutoresetMode.DISABLED), broker.url, ["left", "right"])
        env.reset()
        env.step(ACTIONS)
        env.step(ACTIONS)
        env.reset(options={"reset_mask": np.array([False, True])})
        env.step(ACTIONS)
        env.close()
        listener.until(4 + 3 + 2)
    assert messages_of(listener, "left") == RUN
    assert messages_of(listener, "right") == [
        *[(0, 0, 1, None, None), (1, 1, 1, 1.0, None), (2, 2, None, 2.0, "terminated")],
        *[(0, 0, 1, None, None), (1, 1, None, 1.0, "truncated")],
    ]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_infos_of_a_vector_are_taken_apart(broker: Mosquitto, mode: AutoresetMode) -> None:
    made = [lambda length=length: Corridor(length) for length in LENGTHS]
    with listening(broker) as listener:
        env = WatchedVector(
            SyncVectorEnv(made, autoreset_mode=mode), broker.url, "arm", state=lambda _, info: str(info["name"])
        )
        env.reset()
        for _ in range(4):
            env.step(ACTIONS)
        env.close()
        assert not env.status.refused
        listener.until(env.status.published)
    assert [message[1] for message in messages_of(listener, "arm-0")[:4]] == ["s0", "s1", "s2", "s3"]
    assert [message[1] for message in messages_of(listener, "arm-1")[:5]] == ["s0", "s1", "s2", "s0", "s1"]


def test_agents_of_a_vector_have_names_of_their_own() -> None:
    env = SyncVectorEnv([Corridor, Corridor])
    for names in (["a"], ["a", "a"]):
        with pytest.raises(cfmon_client.ClientError, match="there are 2 environments; give as many agents"):
            WatchedVector(env, "mqtt://127.0.0.1:9", names)
