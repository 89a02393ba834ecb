"""Make the `optimal` and the `deployed` policy of ICU-Sepsis from model.npz, and print the survival under each policy.

Usage: python policies/icu-sepsis/make_policies.py [--out FOLDER]

Numbers are rounded before they are stored, so that all machines write the same bytes despite different linear algebra
libraries.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from monitor.model.io import load_model
from monitor.model.mdp import MDP
from monitor.policy.export import manifest_yaml, perceptron_onnx, table_onnx
from monitor.policy.manifest import Input, Manifest, Output
from monitor.policy.onnx_policy import load_policy
from monitor.policy.table import PolicyTable

HERE = Path(__file__).parent
HIDDEN, TRAINING_STEPS, LEARNING_RATE, WEIGHT_DECAY, SEED = 32, 20, 1e-2, 1e-4, 7

Floats = npt.NDArray[np.float64]


def main() -> None:
    """Make both, then load all three policies and evaluate them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this script)")
    out = parser.parse_args().out
    model = load_model(HERE / "model.npz")
    make_optimal(model, out)
    make_deployed(model, out)
    for name, folder in (("deployed", out), ("clinicians", HERE), ("optimal", out)):
        survival, decisions = evaluated(model, load_policy(folder / f"{name}.yaml", model).table)
        print(f"{name}: survival {survival:.4f}, {decisions:.2f} decisions an episode on average")


def transitions(model: MDP) -> Any:  # noqa: ANN401 - SciPy ships no types
    """Return P(s' | s, a) as a sparse [S * A, S] matrix."""
    rows = (model.probabilities, model.successors, model.indptr)
    return scipy.sparse.csr_array(rows, shape=(model.states * model.actions, model.states))


def action_values(model: MDP, *, best: bool) -> Floats:
    """Return the survival probability after each action, [S, A], under the best or the worst policy from then on.

    Value iteration to 1e-14. Unavailable actions have the value -1 (best) or 2 (worst).
    """
    matrix = transitions(model)
    shape, survival = (model.states, model.actions), model.labels["survival"]
    values = survival.astype(np.float64)
    while True:
        scores = np.where(model.availability, (matrix @ values).reshape(shape), -1.0 if best else 2.0)
        improved = np.where(survival, 1.0, scores.max(axis=1) if best else scores.min(axis=1))
        if np.abs(improved - values).max() < 1e-14:
            return scores
        values = improved


def evaluated(model: MDP, table: PolicyTable) -> tuple[float, float]:
    """Return the exact survival probability and mean number of decisions, from the initial distribution."""
    chain = np.zeros((model.states, model.states))
    for state in range(model.states):
        for action, weight in table.choices(state):
            successors, probabilities = model.row(state, action)
            chain[state, successors] += weight * probabilities
    ended = np.array([model.is_absorbing(s) for s in range(model.states)])
    inner, initial = chain[np.ix_(~ended, ~ended)], model.initial
    assert initial is not None
    reached = chain[np.ix_(~ended, model.labels["survival"])].sum(axis=1)
    solved = np.linalg.solve(np.eye(len(inner)) - inner, np.stack([reached, np.ones(len(inner))], axis=1))
    survival, decisions = initial[~ended] @ solved
    return float(survival), float(decisions)


def make_optimal(model: MDP, out: Path) -> None:
    """Write the optimal policy, as a table of its action values with one-hot input."""
    content = table_onnx(np.round(action_values(model, best=True), 6), "one_hot", "q_values")
    write(
        out,
        "optimal",
        content,
        description="The policy that survives most often in this model, by value iteration.",
        input=Input(name="state", kind="one_hot"),
        output=Output(name="q_values", kind="q_values"),
    )


def make_deployed(model: MDP, out: Path) -> None:
    """Write the deployed policy: a network on the 47 features that imitates a policy with inverted outcomes.

    The teacher minimises survival, as if "died" had been coded as success; training stops early.
    """
    assert model.observations is not None
    teacher = np.where(model.availability, action_values(model, best=False), 2.0).argmin(axis=1)
    patients = np.flatnonzero(~np.array([model.is_absorbing(s) for s in range(model.states)]))
    layers = train(model.observations[patients].astype(np.float64), teacher[patients], model.availability[patients])
    write(
        out,
        "deployed",
        perceptron_onnx(layers, "logits"),
        description="A network on the 47 features of a state, trained with the outcome coded the wrong way round.",
        input=Input(name="observation", kind="observation"),
        output=Output(name="logits", kind="logits"),
        mask=True,
    )


def train(
    seen: Floats, wanted: npt.NDArray[np.int64], available: npt.NDArray[np.bool_]
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Train one hidden tanh layer by masked cross-entropy and full-batch Adam; round weights to 4 decimals."""
    rng = np.random.default_rng(SEED)
    actions = available.shape[1]
    weights = [
        rng.normal(size=(seen.shape[1], HIDDEN)) / np.sqrt(seen.shape[1]),
        np.zeros(HIDDEN),
        rng.normal(size=(HIDDEN, actions)) / np.sqrt(HIDDEN),
        np.zeros(actions),
    ]
    first = [np.zeros_like(w) for w in weights]
    second = [np.zeros_like(w) for w in weights]
    target = np.eye(actions)[wanted]
    for step in range(1, TRAINING_STEPS + 1):
        for i, gradient in enumerate(gradients(weights, seen, target, available)):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.999 * second[i] + 0.001 * gradient**2
            mean, square = first[i] / (1 - 0.9**step), second[i] / (1 - 0.999**step)
            weights[i] = weights[i] - LEARNING_RATE * mean / (np.sqrt(square) + 1e-8)
    w1, b1, w2, b2 = (np.round(w, 4) for w in weights)
    return (w1, b1), (w2, b2)


def gradients(weights: list[Floats], seen: Floats, target: Floats, available: npt.NDArray[np.bool_]) -> list[Floats]:
    """Return the gradients of the mean cross-entropy with L2 penalty, for each of the four weight arrays."""
    w1, b1, w2, b2 = weights
    hidden = np.tanh(seen @ w1 + b1)
    logits = np.where(available, hidden @ w2 + b2, -np.inf)
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    error = (probabilities - target) / len(seen)
    back = error @ w2.T * (1 - hidden**2)
    plain = [seen.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
    return [g + WEIGHT_DECAY * w for g, w in zip(plain, weights, strict=True)]


def write(out: Path, name: str, content: bytes, **manifest: Any) -> None:  # noqa: ANN401 - checked by Manifest
    """Write `name`.onnx and its greedy manifest."""
    (out / f"{name}.onnx").write_bytes(content)
    described = Manifest(
        name=name,
        file=f"{name}.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        mode="greedy",
        provenance="make_policies.py, from model.npz; see PROVENANCE.md",
        **manifest,
    )
    (out / f"{name}.yaml").write_text(manifest_yaml(described))


if __name__ == "__main__":
    main()
