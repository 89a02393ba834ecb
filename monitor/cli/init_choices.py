"""Choices of a user's policies on recorded rows: before a table is learned, and in the states of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from monitor.cli.init_files import network_chances, network_content
from monitor.cli.output import progress

if TYPE_CHECKING:
    from monitor.arrays import Floats, Ints
    from monitor.authoring.learning.abstraction import Numbering
    from monitor.authoring.learning.batch import RowBatch
    from monitor.authoring.learning.columns import Roles
    from monitor.authoring.learning.left_out import RowLimit
    from monitor.authoring.learning.policy_choices import PolicyChoices
    from monitor.authoring.learning.row_files import RowFile
    from monitor.authoring.policy_export.given_policy import GivenPolicy
    from monitor.authoring.policy_export.original import Original
    from monitor.authoring.policy_export.policy_columns import PolicyRows
    from monitor.authoring.policy_export.row_functions import Answered
    from monitor.model.mdp import MDP

NO_STATES = ("terminal", "elsewhere")
"""Labels of states in which no row is recorded."""


def recorded_choices(
    sources: Sequence[RowFile], roles: Roles, given: Mapping[str, GivenPolicy], limit: RowLimit
) -> PolicyChoices | None:
    """Return the choices on recorded rows of all policies that see columns; None if there is no such policy.

    If the agent's policy is not given, it is represented by the recorded actions. Raises PolicyError.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.learning.abstraction import numbered_actions  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.batch import RowBatch  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.policy_choices import PolicyChoices  # noqa: PLC0415 - likewise
    from monitor.authoring.policy_export.policy_columns import policy_rows  # noqa: PLC0415 - likewise

    seeing = {name: policy for name, policy in given.items() if policy.sees_columns}
    if not seeing:
        return None
    numberings: list[Numbering] = []

    def action_of(batch: RowBatch) -> Ints:
        if not len(batch):
            return np.zeros(0, np.int64)
        if not numberings:
            numberings.append(numbered_actions(batch, roles.action))
        return numberings[0].encode(batch, (roles.action,))

    with progress("reading the rows, for what the given policies do on them"):
        rows = policy_rows(sources, roles, action_of, also=(roles.action,))
        if not len(rows):
            return None
        assert rows.of is not None
        model = _actions_alone(numberings[0], str(sources[0].path))
        actions = {} if "nominal" in seeing else {"nominal": numberings[0].places[rows.of]}
        for name, policy in seeing.items():
            answered = chosen_on(policy, rows, model, [], limit)
            actions[name] = np.full(len(rows), -1)
            actions[name][slice(None) if answered.kept is None else answered.kept] = chances_on(
                policy, answered, model
            ).argmax(axis=1)
    columns = {name: np.array(rows.columns[name]) for name in roles.state}
    return PolicyChoices(RowBatch(columns, 1, str(sources[0].path)), actions, frozenset(seeing))


def _actions_alone(numbering: Numbering, source: str) -> MDP:
    """Return a model of one state with the recorded actions."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.model.mdp import MDP  # noqa: PLC0415 - likewise

    size = max(numbering.size, 1)
    return MDP(
        1,
        size,
        indptr=np.arange(size + 1),
        successors=np.zeros(size, np.int64),
        probabilities=np.ones(size),
        rewards=np.zeros((1, size)),
        action_names=numbering.action_names,
        source=source,
    )


def chosen_on(given: GivenPolicy, rows: PolicyRows, model: MDP, notes: list[str], limit: RowLimit) -> Answered:
    """Return the choices on recorded rows of a policy that sees columns.

    `model`: gives the actions. `notes`: assumptions are appended. `limit`: number of rows on which a function may fail.
    Raises PolicyError.
    """
    from monitor.authoring.policy_export.convert import on_first  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.policy_export.row_functions import Answered  # noqa: PLC0415 - likewise

    if given.function is not None or given.classifier is not None:
        return given.chosen(rows, model, limit)
    where = f"policy {given.source}"
    seen = [rows.table(each, model, where) for each in given.seen]
    values = on_first(
        seen, lambda table: network_chances(*network_content(given.source, "policy.onnx", table, notes), table, where)
    )
    return Answered(rows, values.argmax(axis=1) if bool((values.max(axis=1) == 1.0).all()) else values)


def chances_on(given: GivenPolicy, answered: Answered, model: MDP) -> Floats:
    """Return the choices on rows as probabilities of actions, [k, A]. Raises PolicyError."""
    from monitor.authoring.policy_export.original import ExportRequest, chances_of  # noqa: PLC0415 - keep `cfmon --help` light

    return chances_of(answered.values, model, ExportRequest(given.source))


def row_policy(
    given: GivenPolicy, rows: PolicyRows, model: MDP, notes: list[str], limit: RowLimit
) -> tuple[Original, float]:
    """Return a policy that sees columns as a policy on states, and the fraction of rows in states with mixed choices.

    In each state, its probabilities are the policy's mean choice on the rows that were recorded in this state.
    Arguments and errors: as for `chosen_on`.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.learning.policy_choices import mixed  # noqa: PLC0415 - likewise
    from monitor.authoring.policy_export.original import ExportRequest, tabulated_inputs  # noqa: PLC0415 - likewise

    answered = chosen_on(given, rows, model, notes, limit)
    rows = answered.rows
    assert rows.of is not None
    share = mixed(rows.of, chances_on(given, answered, model).argmax(axis=1))
    live = ~np.logical_or.reduce([model.labels.get(name, ~np.ones(model.states, np.bool_)) for name in NO_STATES])
    without = int(live.sum()) - len(np.unique(rows.of))
    never = f"; {without:,} of {live.sum():,} states have none: there it takes the action that it takes most often"
    notes.append(
        f"{given.source}: called on {len(rows):,} recorded rows; "
        f"in each state it acts as often in each way as on the rows there{never if without else ''}"
        + (f"; {share:.1%} of the rows are in states with rows on which it acts differently" if share else "")
        + "".join(f"; {note}" for note in answered.notes)
    )
    return tabulated_inputs(answered.values, rows.of, model, ExportRequest(given.source), ()), share
