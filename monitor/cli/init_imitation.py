"""Functions and classifiers that a user gives for a world with numbers: written exactly, or imitated by a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from monitor.cli.output import progress
from monitor.errors import PolicyError

if TYPE_CHECKING:
    from monitor.arrays import Floats
    from monitor.authoring.learning.left_out import RowLimit
    from monitor.authoring.policy_export.given_policy import GivenPolicy
    from monitor.authoring.policy_export.original import Original
    from monitor.authoring.policy_export.policy_columns import PolicyRows
    from monitor.model.mdp import MDP

DIFFERS: Final = 0.05
"""Largest allowed fraction of held-out rows on which an imitation takes another action than the policy."""
FITTED: Final = 20_000
"""Largest number of rows that imitations are fitted to. The held-out rows judge the imitations."""
LEAST: Final = 10
"""Smallest number of rows to fit to. With fewer rows, the held-out rows are too few to judge the fit."""
BLOCKS: Final = 50
"""Number of blocks of rows. Whole blocks are held out, one in `JUDGING`, because neighbouring rows are alike."""

JUDGING: Final = 5

NAMES: Final = {"linear": "a linear fit", "network": "a small network", "tree": "a decision tree"}


def written_again(
    given: GivenPolicy, rows: PolicyRows, model: MDP, seed: int, limit: RowLimit
) -> tuple[Original, int, str]:
    """Return a function or classifier as a network of numbers, the network's width, and a note on how it was made.

    `rows`: recorded rows, on which the network is compared with the policy. `model`: gives the actions. `limit`: number
    of rows on which a function may fail. Raises PolicyError if the best imitation differs from the policy on too many
    rows.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.policy_export.original import ExportRequest, Original, chances_of  # noqa: PLC0415 - likewise

    where = f"policy {given.source}"
    order = _observed(given, rows)
    with progress(f"calling {given.source} on recorded rows"):
        answered = given.chosen(rows, model, limit)
        wanted, rows = chances_of(answered.values, model, ExportRequest(given.source)), answered.rows
    left_out = "".join(f"; {note}" for note in answered.notes)
    numbers = rows.numbers(order, where)
    known = np.isfinite(numbers).all(axis=1)
    numbers, wanted = numbers[known], wanted[known]
    certain = bool((wanted.max(axis=1) == 1.0).all())
    exact = _exactly(given, order, model)
    if exact is not None:
        differs = _differs(wanted, _chances(exact, numbers, model), certain=certain)
        if differs == 0.0:
            note = f"{given.source}: written as it is; it chooses the same on {len(numbers):,} recorded rows{left_out}"
            return Original(exact, "q_values", stochastic=False, actions=None, scores=None), len(order), note
    with progress(f"imitating {given.source}"):
        content, kind, differs, held = _imitation(numbers, wanted, model, seed)
    seen = ", ".join(order)
    if differs > DIFFERS:
        raise PolicyError(
            f"{where}: it must be a network of numbers here, and the best imitation of it by {seen} takes another "
            f"action on {differs:.1%} of recorded rows (at most {DIFFERS:.0%}). Name further columns that it decides "
            "by with --state or --inputs; or give it as a torch module or ONNX (docs/worlds/reference.md#policies), or "
            "as a tree or forest of scikit-learn, which is written as it is"
        )
    note = (
        f"{given.source}: IMITATED by {NAMES[kind]} of {seen}; it takes another action on {differs:.2%} of "
        f"{held:,} recorded rows that it was not fitted to{left_out}"
    )
    return Original(content, "probabilities", stochastic=not certain, actions=None, scores=None), len(order), note


def _observed(given: GivenPolicy, rows: PolicyRows) -> tuple[str, ...]:
    """Return the columns that the network observes: the state, and also the inputs if the policy may see an input."""
    taken = set(given.function.columns or rows.inputs) if given.function is not None else set(given.seen[0])
    return (*rows.state, *rows.inputs) if taken & set(rows.inputs) else rows.state


def _exactly(given: GivenPolicy, order: Sequence[str], model: MDP) -> bytes | None:
    """Return a tree or a forest as ONNX bytes, or None if the policy is of another kind or sees other columns."""
    from monitor.authoring.dynamics.fitted_policy import written_classifier  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.policy_export.original import action_numbers  # noqa: PLC0415 - likewise

    if given.classifier is None or not set(given.seen[0]) <= set(order):
        return None
    if not hasattr(given.classifier, "classes_"):
        return None
    actions = action_numbers(given.classifier.classes_, model, f"policy {given.source}").tolist()
    places = [order.index(name) for name in given.seen[0]]
    return written_classifier(given.classifier, (places, len(order)), (actions, model.actions))


def _imitation(numbers: Floats, wanted: Floats, model: MDP, seed: int) -> tuple[bytes, str, float, int]:
    """Return the fit that differs least from a policy on held-out rows.

    Returns its ONNX bytes, its kind, the fraction by which it differs, and the number of held-out rows.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.dynamics.fitted_policy import IMITATED, KINDS, fitted_policy  # noqa: PLC0415 - likewise

    held = np.arange(len(numbers)) * BLOCKS // len(numbers) % JUDGING == 0
    fit = np.flatnonzero(~held)
    if len(fit) < LEAST or not held.any():
        raise PolicyError(
            f"there are {len(numbers)} recorded rows, too few to imitate a policy by; record more, or give a network"
        )
    fit = np.sort(np.random.default_rng(seed).permutation(fit)[:FITTED])
    parts = (numbers[fit], wanted[fit]), (numbers[held], wanted[held])
    certain = bool((wanted.max(axis=1) == 1.0).all())
    found = []
    for kind in IMITATED if bool((wanted != wanted[0]).any()) else KINDS[:1]:
        content = fitted_policy(*parts, seed, [kind]).content(model.actions)
        found.append((_differs(parts[1][1], _chances(content, parts[1][0], model), certain=certain), kind, content))
    differs, kind, content = min(found, key=lambda each: each[0])
    return content, kind, differs, int(held.sum())


def _chances(content: bytes, numbers: Floats, model: MDP) -> Floats:
    """Return a network's probabilities or values of the actions, [n, A]."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.policy.network import open_session  # noqa: PLC0415 - likewise

    session = open_session(content, "policy")
    parts = np.array_split(numbers, max(len(numbers) // 1024, 1))
    found = np.concatenate([session.run(None, {"state": part})[0] for part in parts])
    assert found.shape[1] == model.actions
    return np.asarray(found, np.float64)


def _differs(wanted: Floats, found: Floats, *, certain: bool) -> float:
    """Return the fraction of rows on which another action is taken.

    For a stochastic policy (not `certain`), return the mean total variation distance between the two distributions.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    if certain:
        return float((wanted.argmax(axis=1) != found.argmax(axis=1)).mean())
    return float(np.abs(wanted - found).sum(axis=1).mean() / 2)
