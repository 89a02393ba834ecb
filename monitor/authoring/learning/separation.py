"""Labels that the states do not separate, or that were not recorded.

A label is not separated if its condition holds in visits of states that do not have the label. A label is not recorded
if its condition uses a value that some rows lack. It is also not recorded if its condition uses the last state of an
episode, and the recordings do not have this state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from monitor.arrays import Ints
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import Condition
from monitor.authoring.learning.learned_model import LabelSpec
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.model_problem import ModelProblem
from monitor.authoring.learning.state_codes import base_of, is_end, unknown_at
from monitor.authoring.learning.tally import ACTION_BITS, Tally

MISSED: Final = 0.02
"""A label is reported if more than this fraction of its visits is in states without the label."""

ENDING: Final = 0.1
FEW_ENDS: Final = 5
"""Ends in states that were never left are reported if their number is at least this large, and at least `ENDING` times
the number of episodes."""


def missed(tally: Tally, labels: Sequence[LabelSpec]) -> dict[str, float | None]:
    """Return for each label: of the visits in which its condition holds, the fraction in states without the label.

    The fraction is None if the condition holds nowhere.
    """
    table = tally.visited
    return {label.name: _part(table["true"][:, i], table["known"][:, i]) for i, label in enumerate(labels)}


def unseparated(parts: Mapping[str, float | None]) -> list[ModelProblem]:
    """Return a problem for each label that the states do not separate."""
    return [
        ModelProblem(
            f"{name}: {part:.0%} of the visits where its condition holds are in states that do not have the label",
            ", because it does not hold in most of their visits; use other bins or columns",
        )
        for name, part in parts.items()
        if part is not None and part > MISSED
    ]


def never_held(learner: Learner, *, unsafe: bool = False) -> list[str]:
    """Return a sentence for each label whose condition holds in no row. `unsafe`: only for unsafe labels."""
    table, labels = learner.tally.visited, learner.labels
    parts, visits = missed(learner.tally, labels), int(table["seen"].sum())
    known = table["known"].sum(axis=0).tolist()
    ends = {"truncated", learner.roles.truncated}
    cut = {condition.name for condition in learner.conditions if ends & set(condition.columns)}
    return [
        f"{label.name}: its condition holds in no row"
        + (" in which it is known" if count < visits else "")
        + (
            "; an episode that is cut off goes on unrecorded, so its end is no state: name a column of what ends an "
            "episode with --terminated"
            if label.name in cut
            else ""
            if count < visits
            else ", so on this model it never happens, whoever acts: check it, or record episodes in which it does"
        )
        for label, count in zip(labels, known, strict=True)
        if parts[label.name] is None and (label.unsafe or not unsafe)
    ]


def lacking(learner: Learner) -> list[str]:
    """Return sentences on what the recordings lack for the labels. With such a lack, no abstraction is good enough."""
    return [*unrecorded(learner), *never_left(learner), *never_held(learner, unsafe=True)]


def never_left(learner: Learner) -> list[str]:
    """Return a sentence if many episodes end in states from which no step was recorded, and no column marks ends."""
    if learner.roles.terminated is not None or learner.roles.truncated is not None:
        return []
    table = learner.tally.visited
    left = np.unique(learner.tally.rows.keys >> ACTION_BITS)
    alone = ~is_end(table.keys) & ~np.isin(base_of(table.keys), left)
    ends, episodes = int(table["seen"][alone].sum()), int((table["starts"] + table["late"]).sum())
    if ends < FEW_ENDS or ends < ENDING * episodes:
        return []
    said = (
        f"{ends:,} recorded paths, in {episodes:,} episodes, end in one of {int(alone.sum()):,} states from which "
        "nothing was recorded, and no column marks ends: what follows is UNKNOWN, and labels of --unsafe count as "
        "holding there. If episodes end there, add a column that is 1 in their last rows, and name it with --terminated"
    )
    return [said]


def unrecorded(learner: Learner) -> list[str]:
    """Return a sentence for each label that may hold although its condition was not fully recorded.

    This concerns ends of episodes whose state was not recorded, and visits whose row lacks a value.
    """
    table, labels = learner.tally.visited, learner.labels
    ends = int(table["seen"][is_end(table.keys)].sum())
    unseen = unknown_at(table.keys, len(labels))
    counts = table["seen"] @ unseen
    return [
        f"{label.name}: UNKNOWN at {count:,} of {ends:,} ends of episodes: its condition is about the last state, "
        f"which is not recorded; it counts as {'' if label.unsafe else 'not '}holding there. Record that state (a "
        "row without an action after the last step, or --next-state), or use a condition on what is recorded of the "
        f"last step: '{label.name}: {_of_the_step(condition, learner.roles)}', or on the reward"
        for label, condition, count in zip(labels, learner.conditions, counts.tolist(), strict=True)
        if count
    ] + [
        sentence
        for label, known, elsewhere in zip(labels, table["known"].T, unseen.T, strict=True)
        if (sentence := _unmeasured(label, np.where(elsewhere, 0, table["seen"] - known), table["seen"], known))
    ]


def _of_the_step(condition: Condition, roles: Roles) -> str:
    """Return a condition on the last step that replaces the given condition.

    The new condition is the end marker and, if the given condition uses no column of the state, the given condition.
    """
    marker = roles.terminated or "done"
    if not roles.of_state.isdisjoint(condition.columns):
        return marker
    return f"{marker} and {f'({condition.text})' if ' or ' in condition.text else condition.text}"


def _unmeasured(label: LabelSpec, lacking: Ints, seen: Ints, known: Ints) -> str:
    """Return a sentence on the visits in which a value for a label is missing, or "" if there are none."""
    if not lacking.any():
        return ""
    never = lacking[known == 0]
    there = (
        f"it counts as {'' if label.unsafe else 'not '}holding in states in which it is never known "
        f"({int(never.sum()):,} of these visits), and elsewhere the other visits decide"
        if never.any()
        else "the other visits of these states decide"
    )
    return (
        f"{label.name}: UNKNOWN in {int(lacking.sum()):,} of {int(seen.sum()):,} visits of states, because a value "
        f"that its condition uses is empty there; {there}. Fill these values in; or, where an empty text means "
        "something, say so in the condition: cause != '' and cause == 'leak'"
    )


def _part(true: Ints, known: Ints) -> float | None:
    total = int(true.sum())
    return float(true[2 * true <= known].sum()) / total if total else None
