"""Recurrent agents of sb3-contrib (RecurrentPPO) as ONNX networks with named states.

An agent with memory cannot be compared in every state, so it is compared on random sequences of observations over
several episodes. At the start of an episode, the agent's own `predict` must have forgotten the previous episode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.policy_export.agreement import TOLERANCE, Agreement
from monitor.authoring.policy_export.original import Anything, ExportRequest
from monitor.authoring.policy_export.stable_baselines import (
    RECURRENT,
    algorithm_of,
    as_trained,
    check_spaces,
    loaded_agent,
    module_of,
    seeing,
    unflattened,
)
from monitor.authoring.policy_export.torch_modules import network_onnx, torch_or_error
from monitor.errors import PolicyError
from monitor.evaluation.models import policy_of, readable
from monitor.model.mdp import MDP
from monitor.policy.manifest import Input, MemoryTensor, Output, RecurrentManifest
from monitor.policy.recurrent import RecurrentReader
from monitor.user_code import explained

STATES: Final = (MemoryTensor(input="h_in", output="h_out"), MemoryTensor(input="c_in", output="c_out"))
"""Hidden state and cell state of the LSTM."""
EPISODES, LONGEST = 20, 30
"""Number of random episodes that are compared, and their largest number of steps."""


class RecurrentExport(NamedTuple):
    """A recurrent agent as ONNX.

    Attributes:
        content: the ONNX bytes.
        manifest: manifest of the policy.
        agreement: result of the comparison with the agent.
        assumed: the assumptions, in sentences.
    """

    content: bytes
    manifest: RecurrentManifest
    agreement: Agreement
    assumed: list[str]


def is_recurrent(source: str) -> bool:
    """Return whether a source is the file of a recurrent agent, judged by its settings.

    Raises PolicyError for a bad file. No pickle is opened.
    """
    return source.lower().endswith(".zip") and Path(source).is_file() and algorithm_of(source) == RECURRENT


def export_recurrent(model: MDP, request: ExportRequest, target: Path) -> RecurrentExport:
    """Return the agent in a file as ONNX, compared with its own `predict`.

    If the model's states are hidden, the agent sees the observations. `target`: the file to be written. Raises
    PolicyError as `of_agent`.
    """
    shown = readable(model, "observation")
    where = f"policy {request.source}"
    torch = torch_or_error(request.source)
    agent = loaded_agent(RECURRENT, request.source)
    seen = seeing(agent, shown.without_samples())
    check_spaces(agent, seen, where)
    lstm = agent.policy.lstm_actor
    zeros = torch.zeros(lstm.num_layers, 1, lstm.hidden_size)
    module = module_of(torch, agent.policy, _scores(agent.policy))
    exported = network_onnx(torch, module, seen, request, "logits", remembered=dict.fromkeys(STATES, zeros))
    assumed = [f"the algorithm is {RECURRENT}, by the content of the file"]
    assumed += [*seen.named_actions.order, *as_trained(agent, seen, exported.normalisation, request)]
    taken = "draws its actions" if request.stochastic else "takes the action with the highest score"
    assumed.append(f"the agent {taken}")
    manifest = RecurrentManifest(
        kind="recurrent",
        file=target.name,
        sha256=hashlib.sha256(exported.content).hexdigest(),
        input=Input(name="observation", kind="one_hot" if shown.observations is None else "observation"),
        output=Output(name="logits", kind="logits"),
        states=STATES,
        mode="stochastic" if request.stochastic else "greedy",
        name=target.stem[:64],
    )
    assert seen.observations is not None, "it was checked"
    flat = seen.observations.astype(np.float64)
    if exported.normalisation is not None:
        flat = exported.normalisation.apply(flat)
    given = unflattened(agent.observation_space, flat, where)
    everything = np.ones((shown.states, shown.actions), dtype=np.bool_)
    drawn = manifest.model_copy(update={"mode": "stochastic"})
    reader = RecurrentReader(exported.content, drawn, shown.without_samples(), everything, str(target))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with one observation at a time, more threads are not faster
    try:
        differences = list(_differences(torch, agent, given, reader, shown.states))
    except PolicyError:
        raise
    except Exception as error:
        raise PolicyError(f"{where}: it cannot be evaluated ({explained(error)})") from error
    finally:
        torch.set_num_threads(threads)
    steps = sum(len(each) for each in _episodes(shown.states))
    agreement = Agreement(steps, 0, differences, f"steps of {EPISODES} random episodes")
    try:
        policy_of(manifest, exported.content, model, str(target))
    except PolicyError as error:
        if "unavailable" not in str(error):
            raise
        manifest = manifest.model_copy(update={"mask": True})
        policy_of(manifest, exported.content, model, str(target))
        assumed.append("the agent rules out unavailable actions (mask: true): without that it would choose some")
    return RecurrentExport(exported.content, manifest, agreement, assumed)


def _scores(policy: Anything) -> Anything:
    """Return a function from an observation and the two memory states to logits and the next memory states."""

    def actor(seen: Anything, hidden: Anything, cell: Anything) -> Anything:
        features = policy.pi_features_extractor(seen)
        latent, (hidden, cell) = policy.lstm_actor(features.unsqueeze(0), (hidden, cell))
        return policy.action_net(policy.mlp_extractor.forward_actor(latent.squeeze(0))), hidden, cell

    return actor


def _episodes(count: int) -> Iterator[list[int]]:
    """Yield random sequences of observations, which are the same at each call."""
    rng = np.random.default_rng(1)
    for _ in range(EPISODES):
        yield rng.integers(count, size=rng.integers(1, LONGEST + 1)).tolist()


def _differences(
    torch: Anything, agent: Anything, given: Anything, reader: RecurrentReader, count: int
) -> Iterator[tuple[int, str]]:
    """Yield an observation and a sentence for each step where the network differs from the agent."""
    state: Anything = None
    for number, episode in enumerate(_episodes(count)):
        memory = 0
        for step, read in enumerate(episode):
            place = f"step {step} of episode {number}"
            batch = {k: v[[read]] for k, v in given.items()} if isinstance(given, dict) else given[[read]]
            begins = np.array([step == 0])
            before = state
            actions, state = agent.predict(batch, state=before, episode_start=begins, deterministic=True)
            expected = _chances(torch, agent.policy, batch, before, begins)
            memory, found = reader.read(memory, read)
            if (far := float(np.abs(found - expected).max())) > TOLERANCE:
                shown = np.round(expected, 4).tolist()
                yield read, f"{place}: a probability differs by {far:.2g}: the original has {shown}"
            elif found[(action := int(actions[0]))] < found.max() - TOLERANCE:
                yield read, f"{place}: the original takes {action}, the export {int(found.argmax())}"


def _chances(torch: Anything, policy: Anything, batch: Anything, before: Anything, begins: Anything) -> Floats:
    """Return the probabilities [A] of the agent's actions, computed by its own methods."""
    lstm = policy.lstm_actor
    zeros = np.zeros((lstm.num_layers, 1, lstm.hidden_size), np.float32)
    pair = tuple(torch.as_tensor(each) for each in (before or (zeros, zeros)))
    given, _ = policy.obs_to_tensor(batch)
    with torch.no_grad():
        distribution, _ = policy.get_distribution(given, pair, torch.as_tensor(begins, dtype=torch.float32))
    return np.asarray(distribution.distribution.probs[0].cpu().numpy().astype(np.float64))
