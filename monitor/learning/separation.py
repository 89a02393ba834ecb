"""Labels that states do not separate, or that were not recorded.

Not separated: the condition holds in visits of states that do not have the label. Not recorded: it is about the state
in which an episode ended, and the recordings do not hold that state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from monitor.arrays import Ints
from monitor.learning.build import LabelSpec
from monitor.learning.episodes import is_end, unknown_at
from monitor.learning.tally import Tally

__all__ = ["missed", "never_held", "unrecorded", "unseparated"]

MISSED: Final = 0.02
"""Fraction of a label's visits in states without the label from which it is reported."""


def missed(tally: Tally, labels: Sequence[LabelSpec]) -> dict[str, float | None]:
    """Return for each label the fraction of the visits where its condition holds that are in states without it.

    None if the condition holds nowhere.
    """
    table = tally.visited
    return {label.name: _part(table["true"][:, i], table["seen"]) for i, label in enumerate(labels)}


def unseparated(parts: Mapping[str, float | None]) -> list[str]:
    """Return a sentence for each label that the states do not separate."""
    return [
        f"{name}: {part:.0%} of the visits where its condition holds are in states that do not "
        "have the label, because it does not hold in most of their visits; use other bins or columns"
        for name, part in parts.items()
        if part is not None and part > MISSED
    ]


def never_held(tally: Tally, labels: Sequence[LabelSpec], cut: Collection[str] = ()) -> list[str]:
    """Return a sentence for each label whose condition holds in no row; `cut`: labels on ends that cut episodes off."""
    return [
        f"{name}: its condition holds in no row"
        + (
            "; an episode that is cut off goes on unrecorded, so its end is no state: name a column of what ends an "
            "episode with --terminated"
            if name in cut
            else ""
        )
        for name, part in missed(tally, labels).items()
        if part is None
    ]


def unrecorded(tally: Tally, labels: Sequence[LabelSpec]) -> list[str]:
    """Return a sentence for each label that may hold at ends of episodes whose state was not recorded."""
    table = tally.visited
    ends = int(table["seen"][is_end(table.keys)].sum())
    counts = table["seen"] @ unknown_at(table.keys, len(labels))
    return [
        f"{label.name}: UNKNOWN at {count:,} of {ends:,} ends of episodes: its condition is about the last state, "
        f"which is not recorded; it counts as {'' if label.unsafe else 'not '}holding there. Record that state (a "
        "row without an action after the last step, or --next-state), or use a condition on what is recorded of the "
        f"last step: '{label.name}: done', or on the reward"
        for label, count in zip(labels, counts.tolist(), strict=True)
        if count
    ]


def _part(true: Ints, seen: Ints) -> float | None:
    total = int(true.sum())
    return float(true[2 * true <= seen].sum()) / total if total else None
