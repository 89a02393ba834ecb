"""Agents of stable-baselines3 and sb3-contrib as ONNX; skipped without these packages (extra `train`, a gigabyte).

Agents that were not trained act as well as any: their networks have random weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("gymnasium")

from monitor.authoring.exploration.enumeration import ExplorationSettings, explore
from monitor.authoring.policy_export.agreement import compare
from monitor.authoring.policy_export.convert import convert
from monitor.authoring.policy_export.original import ExportRequest, Original
from monitor.authoring.policy_export.recurrent_agents import export_recurrent, is_recurrent
from monitor.errors import PolicyError
from monitor.evaluation.models import policy_of
from monitor.model import MDP, load_model
from monitor.policy.controller import Reader
from monitor.policy.draft import draft_manifest
from monitor.policy.onnx_policy import table_from_onnx
from monitor.policy.recurrent import RecurrentReader
from tests.authoring.exploration import corridors
from tests.tiers import slow

torch: Any = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    baselines: Any = pytest.importorskip("stable_baselines3")
    contrib: Any = pytest.importorskip("sb3_contrib")
    vectors: Any = pytest.importorskip("stable_baselines3.common.vec_env")

FILE = str(Path(corridors.__file__))
FAST = {"DQN": {"buffer_size": 64, "learning_starts": 4}, "QRDQN": {"buffer_size": 64, "learning_starts": 4}}
STEPS: dict[str, Any] = {"n_steps": 8}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and stable-baselines3
        yield


@cache
def explored(name: str) -> MDP:
    return explore(f"{FILE}:{name}", ExplorationSettings(walk=20)).model


def agent(algorithm: str, environment: Any, policy: str = "MlpPolicy", **more: Any) -> Any:  # noqa: ANN401
    made = getattr(contrib if hasattr(contrib, algorithm) else baselines, algorithm)
    network = {"net_arch": [8]} | ({"n_quantiles": 5} if algorithm == "QRDQN" else {})
    settings = FAST.get(algorithm, {"n_delta": 1, "n_top": 1} if algorithm == "ARS" else STEPS)
    if algorithm in ("PPO", "MaskablePPO", "TRPO"):
        settings = settings | {"batch_size": 8}
    return made(policy, environment, seed=2, device="cpu", policy_kwargs=network, **settings, **more)


def saved(made: Any, tmp_path: Path, **more: Any) -> ExportRequest:  # noqa: ANN401
    made.save(tmp_path / "agent.zip")
    return ExportRequest(str(tmp_path / "agent.zip"), **more)


def table(request: ExportRequest, model: MDP) -> tuple[Any, Original]:
    """The table that the monitor gets, after the comparison that the command makes."""
    original = convert(model, request)
    manifest, _ = draft_manifest(
        original.content, Path("p.onnx"), model, kind=original.kind, stochastic=original.stochastic, mask=original.mask
    )
    found = compare(original, manifest, model, "here")
    assert (found.states, found.left_out, found.differences) == (model.states, 0, [])
    return table_from_onnx(original.content, manifest, model, "here"), original


def decided(made: Any, name: str, seen: Any = lambda each: each, **more: Any) -> list[int]:  # noqa: ANN401
    """What the agent decides in each room, one by one, from the observation of the environment itself."""
    environment, taken = corridors.Corridor(name), []
    for room in range(corridors.ROOMS):
        environment.room = room
        taken.append(int(made.predict(seen(environment.seen()), deterministic=True, **more)[0]))
    return taken


def spread(made: Any) -> Any:  # noqa: ANN401
    """The agent with larger weights, so that it does not decide alike everywhere."""
    with torch.no_grad():
        for parameter in made.policy.parameters():
            parameter.mul_(4.0)
    return made


@pytest.mark.parametrize("name", ["bits", "table", "number", "pair", "named", "grid", "thirds", "metres", "wide"])
def test_a_policy_decides_as_the_original_however_it_sees_a_room(tmp_path: Path, name: str) -> None:
    policy = "MultiInputPolicy" if name == "named" else "MlpPolicy"
    made = spread(agent("PPO", corridors.Corridor(name), policy))
    found, original = table(saved(made, tmp_path), explored(name))
    assert found.actions.tolist() == decided(made, name)
    assert original.assumed[0] == "the algorithm is PPO, by the content of the file"
    boxes = name in ("named", "grid", "thirds", "metres", "wide")
    assert len(original.assumed) == (2 if boxes else 1)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (algorithm, name)
        for algorithm in ("A2C", "TRPO", "MaskablePPO", "DQN", "QRDQN", "ARS")
        for name in ("box", "pair", "named")
        if (algorithm, name) != ("ARS", "named")  # it has no policy for dictionaries
    ],
)
def test_every_algorithm_decides_as_the_original(tmp_path: Path, algorithm: str, name: str) -> None:
    policy = "MultiInputPolicy" if name == "named" else "MlpPolicy"
    made = spread(agent(algorithm, corridors.Corridor(name), policy))
    found, original = table(saved(made, tmp_path), explored(name))
    assert found.actions.tolist() == decided(made, name)
    assert original.assumed[0] == f"the algorithm is {algorithm}, by the content of the file"
    if algorithm in ("DQN", "QRDQN", "ARS"):
        with pytest.raises(PolicyError, match=f"{algorithm} has no probabilities"):
            convert(explored(name), ExportRequest(str(tmp_path / "agent.zip"), stochastic=True))


def test_a_model_of_numbered_states_needs_no_observations(tmp_path: Path) -> None:
    import gymnasium  # noqa: PLC0415 - skipped without it

    made = spread(agent("PPO", gymnasium.make("FrozenLake-v1")))
    model = load_model("gymnasium:FrozenLake-v1")
    assert model.observations is None
    found, _ = table(saved(made, tmp_path), model)
    assert found.actions.tolist() == [int(made.predict(state, deterministic=True)[0]) for state in range(16)]
    assert len(set(found.actions.tolist())) > 1
    with pytest.raises(PolicyError, match="a network sees observations, and the model has none"):
        convert(
            MDP.from_transitions(states=1, actions=4, transitions=[(0, a, 0, 1.0) for a in range(4)]),
            saved(made, tmp_path),
        )


def test_a_masked_policy_does_what_the_masks_leave(tmp_path: Path) -> None:
    made = agent("MaskablePPO", corridors.Masked("bits"))
    with torch.no_grad():
        made.policy.action_net.bias.copy_(torch.tensor([5.0, 0.0]))  # it would always go back
    model = replace(explored("Masked"), observations=np.eye(4, dtype=np.float32))
    found, original = table(saved(made, tmp_path), model)
    assert found.actions.tolist() == [1, 0, 0, 0]
    assert original.mask
    assert "its action masks rule out what is unavailable in the model (mask: true)" in original.assumed
    drawn, _ = table(replace(saved(made, tmp_path), stochastic=True), model)
    assert drawn.probabilities[0].tolist() == [0, 1]
    assert drawn.probabilities[1, 0] > 0.9
    _, free = table(saved(made, tmp_path), replace(explored("bits")))
    assert any(each.endswith("(mask: true), and none is unavailable in this model") for each in free.assumed)


def test_an_agent_that_a_function_returns(tmp_path: Path) -> None:
    made = spread(agent("PPO", corridors.Corridor("pair")))
    saved(made, tmp_path)
    (tmp_path / "my_agent.py").write_text(
        "from pathlib import Path\nfrom stable_baselines3 import PPO\n"
        "def load():\n    return PPO.load(Path(__file__).with_name('agent.zip'), device='cpu')\n"
        "def policy():\n    return load().policy\n"
    )
    found, _ = table(ExportRequest(f"{tmp_path}/my_agent.py:load"), explored("pair"))
    assert found.actions.tolist() == decided(made, "pair")
    with pytest.raises(PolicyError, match=r"torch cannot export it|forward returns tuple, not one tensor of scores"):
        convert(explored("pair"), ExportRequest(f"{tmp_path}/my_agent.py:policy"))


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
@pytest.mark.parametrize("name", ["box", "metres", "named"])
def test_a_policy_trained_under_normalisation_needs_its_statistics(tmp_path: Path, algorithm: str, name: str) -> None:
    keys = {"norm_obs_keys": ["depth"]} if name == "named" else {}
    venv = vectors.VecNormalize(vectors.DummyVecEnv([lambda: corridors.Corridor(name)]), clip_obs=1.5, **keys)
    policy = "MultiInputPolicy" if name == "named" else "MlpPolicy"
    made = spread(agent(algorithm, venv, policy).learn(24))
    venv.save(str(tmp_path / "seen.pkl"))
    request = saved(made, tmp_path)
    with pytest.raises(PolicyError, match=r"trained under VecNormalize; give its file .*--normalise vecnormalize\.pkl"):
        convert(explored(name), request)
    found, original = table(replace(request, normalise=str(tmp_path / "seen.pkl")), explored(name))
    assert found.actions.tolist() == decided(made, name, venv.normalize_obs)
    assert [each for each in original.assumed if "statistics" in each] == []  # the agent's last observation shows it
    if name == "named":
        return
    wrong = tmp_path / "wrong.npz"
    width = explored(name).observations.shape[1]  # type: ignore[union-attr]
    np.savez(wrong, mean=np.full(width, 3.0), var=np.full(width, 7.0))
    _, doubtful = table(replace(request, normalise=str(wrong)), explored(name))
    assert any("its last observation" in each and "is no state's, normalised" in each for each in doubtful.assumed)


def test_rewards_alone_may_be_normalised(tmp_path: Path) -> None:
    venv = vectors.VecNormalize(vectors.DummyVecEnv([corridors.Corridor]), norm_obs=False)
    made = spread(agent("PPO", venv).learn(24))
    venv.save(str(tmp_path / "rewards.pkl"))
    request = saved(made, tmp_path)
    found, original = table(request, explored("box"))
    assert found.actions.tolist() == decided(made, "box")
    (said,) = original.assumed[1:]
    assert said.startswith("under VecNormalize the agent saw observations as they are (the last one, [")
    with pytest.raises(PolicyError, match=r"norm_obs is False\): give --normalise none"):
        convert(explored("box"), replace(request, normalise=str(tmp_path / "rewards.pkl")))
    elsewhere = replace(explored("box"), observations=np.array([[7.0], [8.0], [9.0], [10.0]], np.float32))
    with pytest.raises(PolicyError, match="trained under VecNormalize"):
        convert(elsewhere, request)
    assert len(table(replace(request, normalise="none"), elsewhere)[1].assumed) == 1


def test_what_the_file_does_not_show_is_assumed(tmp_path: Path) -> None:
    model = explored("box")
    _, untrained = table(saved(agent("PPO", corridors.Corridor("box")), tmp_path), model)
    assert untrained.assumed[1:] == [
        "the agent saw observations as they are (the file does not say); if not, give --normalise"
    ]
    _, trained = table(saved(agent("PPO", corridors.Corridor("box")).learn(8), tmp_path), model)
    assert trained.assumed[1:] == []
    np.savez(tmp_path / "seen.npz", mean=[30.0], var=[7.0])
    with pytest.raises(PolicyError, match=r"trained on observations as they are: .* leave --normalise out"):
        convert(model, ExportRequest(str(tmp_path / "agent.zip"), normalise=str(tmp_path / "seen.npz")))
    elsewhere = replace(model, observations=np.array([[7.0], [8.0], [9.0], [10.0]], np.float32))
    _, strange = table(ExportRequest(str(tmp_path / "agent.zip")), elsewhere)
    assert "although the last one of its training, [" in strange.assumed[1]
    assert "is no state's in the model; if they were normalised, give --normalise" in strange.assumed[1]


@pytest.mark.parametrize(
    ("algorithm", "environment", "model", "why"),
    [
        ("PPO", corridors.Corridor("picture"), "picture", "it sees images, whose channels stable-baselines3 moves"),
        (
            "PPO",
            corridors.Switches("box"),
            "box",
            r"its action space is MultiBinary\(2\), the model has 2 actions",
        ),
        ("PPO", corridors.Corridor("box"), "pair", r"flattened 1 numbers; an observation of the model has 6 numbers"),
        (
            "PPO",
            corridors.Corridor("bits"),
            "wrong",
            r"state 1: the numbers .* are none of MultiBinary",
        ),
        ("PPO", corridors.Corridor("number"), "wrong", r"state 1: the numbers \[0\.5.* are none of Discrete\(4\)"),
        ("PPO", corridors.Corridor("number"), "zero", r"state 0: the numbers \[0\.0.* are none of Discrete\(4\)"),
    ],
)
def test_an_agent_of_other_spaces_is_refused(
    tmp_path: Path,
    algorithm: str,
    environment: Any,  # noqa: ANN401
    model: str,
    why: str,
) -> None:
    request = saved(agent(algorithm, environment), tmp_path)
    wrong = np.eye(4, dtype=np.float32)
    wrong[1] = 0.5
    models = {
        "wrong": lambda: replace(explored("bits"), observations=wrong),
        "zero": lambda: replace(explored("bits"), observations=np.zeros((4, 4), np.float32)),
    }
    made = models.get(model, lambda: explored(model))()
    with pytest.raises(PolicyError, match=why):
        convert(made, request)


def recurrent(name: str, tmp_path: Path, environment: Any = None, **more: Any) -> ExportRequest:  # noqa: ANN401
    network = {"net_arch": [8], "lstm_hidden_size": 6, "n_lstm_layers": 2, **more.pop("network", {})}
    environment = corridors.Corridor(name) if environment is None else environment
    made = contrib.RecurrentPPO(
        "MultiInputLstmPolicy" if name == "named" else "MlpLstmPolicy",
        environment,
        seed=3,
        device="cpu",
        policy_kwargs=network,
        **STEPS,
        batch_size=8,
    )
    with torch.no_grad():  # those of a new agent are so small that memory would hardly matter
        for each in made.policy.parameters():
            each.mul_(4.0)
    return saved(made, tmp_path, **more)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("box", {}),
        ("box", {"stochastic": True, "network": {"shared_lstm": True, "enable_critic_lstm": False}}),
        pytest.param("named", {}, marks=slow),
        pytest.param("bits", {"network": {"share_features_extractor": False}}, marks=slow),
    ],
)
def test_a_recurrent_agent_is_its_network_with_named_states(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    request = recurrent(name, tmp_path, **more)
    assert is_recurrent(request.source)
    found = export_recurrent(explored(name), request, tmp_path / "p.onnx")
    assert (found.agreement.differences, found.agreement.states > 200) == ([], True)
    assert [(each.input, each.output) for each in found.manifest.states] == [("h_in", "h_out"), ("c_in", "c_out")]
    assert found.manifest.mode == ("stochastic" if request.stochastic else "greedy")
    reader = policy_of(found.manifest, found.content, explored(name), "p.yaml")
    assert isinstance(reader, Reader)
    assert reader.width == 2 * 2 * 6


def test_a_network_that_forgets_less_than_the_agent_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = recurrent("box", tmp_path)
    read = RecurrentReader.read

    def going_on(self: RecurrentReader, memory: int, seen: int) -> Any:  # noqa: ANN401
        after, _ = read(self, 0, 0)
        return read(self, memory or after, seen)

    monkeypatch.setattr(RecurrentReader, "read", going_on)
    found = export_recurrent(explored("box"), request, tmp_path / "p.onnx")
    assert any(sentence.startswith("step 0 of episode") for _, sentence in found.agreement.differences)


def test_a_recurrent_agent_sees_observations_where_states_are_hidden(tmp_path: Path) -> None:
    import gymnasium  # noqa: PLC0415 - skipped without it

    hidden = MDP.from_transitions(
        states=2,
        actions=3,
        transitions=[(s, a, 1 - s if a else s, 1.0) for s in range(2) for a in range(3) if (s, a) != (1, 2)],
        labels={"far": [1]},
        initial={0: 1.0},
        signals=4,
        emissions=[(0, 0, 0.5), (0, 1, 0.5), (1, 1, 0.25), (1, 2, 0.25), (1, 3, 0.5)],
    )

    class Shown(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Discrete(4)
        action_space = gymnasium.spaces.Discrete(3)

    found = export_recurrent(hidden, recurrent("", tmp_path, Shown(), stochastic=True), tmp_path / "p.onnx")
    assert found.agreement.differences == []
    assert found.manifest.mask  # an action is not available in one of the states
    assert found.manifest.input.kind == "one_hot"


@pytest.mark.parametrize("algorithm", ["SAC", "TD3", "TQC", "CrossQ", "RecurrentPPO"])
def test_an_algorithm_of_continuous_actions_or_memory_is_refused(tmp_path: Path, algorithm: str) -> None:
    import gymnasium  # noqa: PLC0415 - skipped without it

    made = getattr(contrib if hasattr(contrib, algorithm) else baselines, algorithm)
    recurrent = algorithm == "RecurrentPPO"
    settings: dict[str, Any] = {"n_steps": 8} if recurrent else {"buffer_size": 10}
    environment = corridors.Corridor("box") if recurrent else gymnasium.make("Pendulum-v1")
    policy = "MlpLstmPolicy" if recurrent else "MlpPolicy"
    request = saved(made(policy, environment, device="cpu", **settings), tmp_path)
    why = "it is recurrent, so it has memory" if recurrent else "a policy of continuous actions fits no model"
    with pytest.raises(PolicyError, match=why):
        convert(explored("box"), request)


OWN = '''
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


class Squared(BaseFeaturesExtractor):
    def __init__(self, space):
        super().__init__(space, features_dim=2)

    def forward(self, seen):
        return torch.cat([seen, seen**2], dim=1)


class Own(ActorCriticPolicy):
    pass


class Sharper(ActorCriticPolicy):
    """Decides otherwise than its layers alone."""

    def _get_action_dist_from_latent(self, latent_pi):
        return self.action_dist.proba_distribution(action_logits=3.0 * self.action_net(latent_pi))
'''


def test_parts_of_the_users_own_are_exported_or_found_to_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    import my_parts  # type: ignore[import-not-found]  # noqa: PLC0415 - it was just written

    room = corridors.Corridor("box")
    kwargs = {"net_arch": [8], "features_extractor_class": my_parts.Squared, "share_features_extractor": False}
    made = spread(
        baselines.PPO(my_parts.Own, room, n_steps=8, batch_size=8, seed=3, device="cpu", policy_kwargs=kwargs)
    )
    found, _ = table(saved(made, tmp_path), explored("box"))
    assert found.actions.tolist() == decided(made, "box")
    other = spread(baselines.PPO(my_parts.Sharper, room, n_steps=8, batch_size=8, seed=3, device="cpu"))
    request = replace(saved(other, tmp_path), stochastic=True)
    original = convert(explored("box"), request)
    manifest, _ = draft_manifest(original.content, Path("p.onnx"), explored("box"), kind=original.kind, stochastic=True)
    assert compare(original, manifest, explored("box"), "here").differences
