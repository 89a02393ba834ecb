"""Propose a role for each column, with a reason in words. Roles come from names, and are checked against the values.

The columns that cut rows into steps and episodes come first, because the other rules need to know which rows follow
each other. A role that the rows contradict is not proposed. If the rows do not decide between roles, the role is not
`sure`, and a person decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from monitor.authoring.learning.assigned_roles import AssignedRoles, ColumnRole
from monitor.authoring.learning.column_facts import Head, depends_on
from monitor.authoring.learning.column_words import (
    COSTS,
    DELAYED,
    IDS,
    NOTES,
    OUTCOMES,
    OUTSIDE,
    RESULTS,
    RETURNS,
    is_time,
    words_of,
)
from monitor.authoring.learning.columns import NEXT, NOISE, SINGLE, STATE, Role, are_messages, expanded
from monitor.authoring.learning.row_structure import PAIRS, RowStructure

STRUCTURE: Final[frozenset[Role]] = frozenset(SINGLE) - {"reward"}
"""The roles that cut rows into steps and episodes."""

INSTEAD: Final = "another column instead"

MANY_LOST: Final = 0.05
"""A column is not proposed for the state if more than this fraction of its values is missing."""


@dataclass(frozen=True)
class Proposal:
    """Roles of all columns, in the order of the file.

    `ordered`: names of the columns; those that the user settled come first, in the user's order. `problems`: necessary
    role that no column has -> columns that might have it. `time_limit`: number of steps after which suspiciously many
    episodes end, so that a time limit may cut them off; 0: there is none.
    """

    columns: Sequence[ColumnRole]
    ordered: Sequence[str]
    problems: Mapping[Role, Sequence[str]]
    time_limit: int = 0

    def having(self, role: Role) -> tuple[str, ...]:
        """Return the columns with this role, in the order of `ordered`."""
        roles = {each.name: each.roles for each in self.columns}
        return tuple(name for name in self.ordered if role in roles[name])

    @property
    def guessed(self) -> bool:
        """Whether any role was not settled by the user, or is still open."""
        return bool(self.problems) or any(not each.settled and (each.roles or not each.sure) for each in self.columns)

    @property
    def unsure(self) -> list[ColumnRole]:
        """Columns with other plausible roles."""
        return [each for each in self.columns if not each.sure]

    @property
    def undecided(self) -> list[ColumnRole]:
        """Columns for which a person must decide, because with a wrong role the rows would be read as wrong steps.

        For other unsure columns, a wrong role only makes the model less accurate. Held-out episodes measure this.
        """
        return [each for each in self.unsure if set(each.roles) & STRUCTURE or INSTEAD in each.others]


def proposed(
    head: Head,
    settled: Mapping[str, tuple[Role, ...]],
    closed: Collection[Role] = (),
    *,
    computed: Collection[str] | None = None,
    time_limit: int | None = None,
    by_state: bool = False,
    unsafe: Collection[str] = (),
    chosen: Collection[object] = (),
) -> Proposal:
    """Return a role for each column, with the reason.

    Args:
        head: the first rows.
        settled: column -> roles that the user gave; no roles: the column is left out.
        closed: roles that no further column may get.
        computed: columns from which a function computes the states; None: there is no function. With a function, no
            column is a state by itself.
        time_limit: number of steps after which ends are cuts, as the user said; 0: no ends are cuts; None: not known.
        by_state: True if end markers are about the state of their row, as in messages; False if they are about its
            step.
        unsafe: columns in the user's condition for unsafe states.
        chosen: actions that the user's policies chose in some rows.
    """
    roles = AssignedRoles(head, settled, {*closed, *(() if computed is None else ("state",))})
    by_state = by_state or are_messages([*head.columns, *head.unreadable])
    structure = RowStructure(roles, by_state=by_state, unsafe=unsafe, chosen=chosen)
    return _Proposing(roles, structure, computed=computed).proposal(time_limit)


class _Proposing:
    def __init__(self, roles: AssignedRoles, structure: RowStructure, *, computed: Collection[str] | None) -> None:
        self._roles, self._structure = roles, structure
        self._computed, self._read = computed is not None, set(computed or ())
        self._facts = roles.facts
        self._names = [*roles.head.columns, *roles.head.unreadable]
        self._messages = are_messages(self._names)
        self._later: dict[bytes, str] = {}
        """Bytes of a column's values in the next rows, as float64 -> the name of this column."""

    def proposal(self, time_limit: int | None) -> Proposal:
        self._structure.find()
        for name in self._roles.head.unreadable:
            self._unreadable(name)
        self._named_state()
        for name in self._names:
            if name not in self._roles.found:
                self._roles.put(self._other(name))
        if not self._computed:
            self._texts_among_numbers()
            self._next_states()
        suspected = self._structure.time_limit() if time_limit is None else 0
        names = dict.fromkeys([*self._names, *self._roles.columns])
        columns = [self._with_values(self._roles.found[name]) for name in names]
        return Proposal(columns, tuple(self._roles.found), self._problems(), suspected)

    def _with_values(self, column: ColumnRole) -> ColumnRole:
        facts = self._facts.get(column.name)
        return replace(column, values="cannot be read" if facts is None else facts.values)

    def _problems(self) -> dict[Role, tuple[str, ...]]:
        found: dict[Role, tuple[str, ...]] = {}
        if self._roles.having("action") is None:
            few = self._roles.usable(list(self._roles.columns))
            found["action"] = tuple(name for name in few if not set(self._roles.found[name].roles) - {"state"})
        if self._roles.having("state") is None and not self._computed:
            found["state"] = ()
        return found

    def _unreadable(self, name: str) -> None:
        if name in self._roles.found:
            return
        why = self._roles.head.unreadable[name]
        if row := re.search(r", row (\d+): column", why):
            why = f"row {row[1]} holds text, and the others numbers or nothing"
        else:
            why = f"holds {why}"
        known = {*STATE, *(word for words in SINGLE.values() for word in words)}
        taken = [role for role, words in (*SINGLE.items(), ("state", STATE)) if name.lower() in words]
        needed = name.lower() in known and all(self._roles.having(role) is None for role in taken)
        self._roles.assign(name, None, why, *([INSTEAD] if needed else []), sure=not needed)

    def _named_state(self) -> None:
        """Give the role of the state to columns named like a state. Then no other column gets this role."""
        if self._computed or "state" in self._roles.closed or self._roles.having("state") is not None:
            return
        names = list(self._roles.columns)
        for word in STATE:
            for each in names:
                base = each.partition("[")[0]
                if base.lower() != word:
                    continue
                for name in expanded(names, base):
                    if name not in self._roles.found:
                        self._roles.assign(name, "state", "named so")
                if self._roles.having("state") is not None:
                    self._roles.closed.add("state")
                    return

    def _other(self, name: str) -> ColumnRole:
        """Return the role of a column that has no role yet, by its name and values."""
        for rule in (
            self._nothing,
            self._future,
            self._clock,
            self._of_the_action,
            self._structure.end_marker,
            self._result,
            self._number_of_rows,
        ):
            if (found := rule(name)) is not None:
                return found
        if self._computed:
            return self._of_function(name)
        if self._messages and name.partition("[")[0].partition(".")[0] == "inputs":
            return ColumnRole(name, ("input",), "named so")
        if "state" in self._roles.closed:
            return ColumnRole(name, (), "not among the columns of the state")
        for rule in (self._outside, self._gaps, self._context):
            if (found := rule(name)) is not None:
                return found
        kind = {"flag": "a flag", "text": "a category"}.get(self._facts[name].kind, "a quantity")
        return ColumnRole(name, ("state",), f"{kind} that changes within episodes")

    def _nothing(self, name: str) -> ColumnRole | None:
        """Leave a column out if it says nothing about the world."""
        facts, words = self._facts[name], set(words_of(name))
        if facts.kind == "empty" or facts.missing == 1:
            return ColumnRole(name, (), "empty")
        if facts.distinct == 1:
            return ColumnRole(
                name, (), "the same in all rows that have it" if facts.missing else "the same in all rows"
            )
        if name.lower() in NOISE and not is_time(name):
            return ColumnRole(name, (), "about the log or the agent by its name, not about the world")
        base = name.partition("[")[0].lower()
        for role, known in SINGLE.items():
            if role != "order" and base in known:  # `t` may be a temperature
                other = self._roles.having(role)
                which = (
                    f"which is {other}"
                    if other is not None
                    else "and it is not one number or text"
                    if base != name
                    else "not used"
                )
                return ColumnRole(name, (), f"named as the {role}, {which}")
        if self._messages and name == "v":
            return ColumnRole(name, (), "version of the message")
        if (
            facts.unique
            and len(self._roles.head) >= PAIRS
            and (facts.kind == "text" or (facts.kind == "whole" and words & IDS))
        ):
            return ColumnRole(name, (), "a different one in each row: it identifies the row")
        if words & IDS and facts.kind in ("text", "whole"):
            return ColumnRole(name, (), "an identifier by its name")
        if facts.kind == "text":
            if words & NOTES and (facts.words or facts.missing > 0 or facts.distinct > 10):
                return ColumnRole(name, (), "free text by its name")
            if facts.words and facts.distinct > 5:
                return ColumnRole(name, (), "free text")
            if facts.distinct > max(50, len(self._roles.head) // 10):
                return ColumnRole(name, (), f"text of {facts.distinct:,} different values")
        return None

    def _future(self, name: str) -> ColumnRole | None:
        """Leave a column out if its value is known only after the time of its row."""
        lower, words = name.lower(), set(words_of(name))
        if lower.startswith((*NEXT, "future_")):
            return ColumnRole(name, (), "of a later row by its name: it would leak the future")
        if lower in RETURNS:
            why = "a return by its name, the sum of later rewards: it would leak the future"
            known = self._roles.having("reward") is not None or lower not in ("return", "returns")
            return ColumnRole(name, (), why, known, () if known else ("state",))
        if words & OUTCOMES and self._structure.links.constant(self._roles.columns[name]):
            return ColumnRole(name, (), "what came of the whole episode: it would leak the future")
        if (other := self._leads(name)) is not None:
            sure = bool(words & {"new", "after", "future", "tomorrow"})
            why = f"equals {other} of the next row: it would leak the future"
            return ColumnRole(name, (), why, sure, () if sure else ("state",))
        return None

    def _of_function(self, name: str) -> ColumnRole:
        """Return the column without a role, because a function computes the states."""
        why = "states are computed from it" if name in self._read else "not used by the function of the state"
        return ColumnRole(name, (), why)

    def _leads(self, name: str) -> str | None:
        """Return the column whose value in the next row is always this column's value in the row, if there is one."""
        values = self._roles.columns[name]
        if len(self._structure.links.before) < PAIRS or self._facts[name].distinct < 3 or values.dtype.kind not in "if":
            return None
        if not self._later:
            for other, theirs in self._roles.columns.items():
                taken = set(self._roles.found[other].roles if other in self._roles.found else ()) & {"order", "episode"}
                if not taken and theirs.dtype.kind in "if" and not set(words_of(other)) & DELAYED:
                    self._later.setdefault(theirs.astype(np.float64)[self._structure.links.after].tobytes(), other)
        other = self._later.get(values.astype(np.float64)[self._structure.links.before].tobytes(), name)
        return None if other == name or self._structure.links.constant(values) else other

    def _clock(self, name: str) -> ColumnRole | None:
        """Return the role of a column of times. It is never the state."""
        facts, order = self._facts[name], self._roles.having("order")
        instead = f"; {order} orders the rows" if order is not None else ", and it does not order the rows"
        if facts.kind == "time":
            return ColumnRole(name, (), f"a time{instead}")
        if is_time(name) and (name.lower() in NOISE or self._structure.links.rising(self._roles.columns[name]) >= 0.5):
            return ColumnRole(name, (), f"a time by its name{instead}")
        if self._roles.is_calendar(name):
            return self._given("the calendar: no action changes it", name)
        return None

    def _given(self, why: str, name: str) -> ColumnRole:
        """Return the proposal for a column that no action influences: an input if inputs are possible, else no role."""
        if self._computed:
            return self._of_function(name)
        may = "input" not in self._roles.closed and self._facts[name].kind in ("flag", "whole", "decimal")
        if may:
            return ColumnRole(name, ("input",), why, sure=False, others=("-", "state"))
        sure = "state" in self._roles.closed
        return ColumnRole(name, (), f"{why}; a table has no inputs", sure=sure, others=() if sure else ("state",))

    def _outside(self, name: str) -> ColumnRole | None:
        if set(words_of(name)) & OUTSIDE:
            return self._given("by its name, no action changes it", name)
        return None

    def _of_the_action(self, name: str) -> ColumnRole | None:
        action = self._roles.having("action")
        if action is None or action not in self._facts:
            return None
        if name.lower().startswith((f"{action.lower()}_", "action_")):
            return ColumnRole(name, (), f"about the action {action} by its name")
        if self._facts[name].distinct > 1 and depends_on(self._roles.columns[name], self._roles.columns[action]):
            return ColumnRole(name, (), f"a function of {action} in all rows", sure=False, others=("state",))
        return None

    def _result(self, name: str) -> ColumnRole | None:
        """Ask a person about a column with results of steps, as a policy does not know these results when it acts."""
        if self._computed or not set(words_of(name)) & RESULTS:
            return None
        why = "named as what came of a step: then it is known only after the action; conditions may use it"
        return ColumnRole(name, (), why, sure=False, others=("state",))

    def _number_of_rows(self, name: str) -> ColumnRole | None:
        values = self._roles.columns[name]
        if len(self._structure.links.before) < PAIRS or self._facts[name].kind not in ("whole", "decimal"):
            return None
        if self._structure.links.counts(values):
            return ColumnRole(name, (), "rises by 1 from row to row: it counts rows")
        if self._structure.links.rising(values) == 1.0:
            return ColumnRole(
                name, (), "rises in each row: a clock or a meter, whose values do not return", sure=False,
                others=("state",),
            )  # fmt: skip
        return None

    def _gaps(self, name: str) -> ColumnRole | None:
        if self._facts[name].missing > MANY_LOST:
            why = f"{self._facts[name].missing:.0%} of its values are missing, and a state needs all"
            return ColumnRole(name, (), why, sure=False, others=("state",))
        return None

    def _context(self, name: str) -> ColumnRole | None:
        """Return the proposal for a column that never changes within an episode."""
        if self._roles.having("episode") is not None and self._structure.links.constant(self._roles.columns[name]):
            if set(words_of(name)) & {"seed", "version", "worker", "split"}:
                return ColumnRole(name, (), "about the log by its name; the same within each episode")
            why = "the same within each episode: a kind of episode, or an identifier"
            return ColumnRole(name, (), why, sure=False, others=("state",))
        if set(words_of(name)) & COSTS and self._roles.having("reward") is None and "reward" not in self._roles.closed:
            return ColumnRole(
                name, ("reward",), "by its name what a step earns or costs", sure=False, others=("state", "-")
            )
        return None

    def _texts_among_numbers(self) -> None:
        """Leave texts out of a state if there are inputs, because a world with inputs takes only numbers."""
        state = [each for each in self._roles.found.values() if "state" in each.roles and each.name in self._facts]
        inputs = any("input" in each.roles for each in self._roles.found.values())
        if not inputs:
            return
        for each in state:
            if self._facts[each.name].kind == "text" and not each.settled:
                why = "a category, and a world with inputs needs numbers"
                self._roles.assign(each.name, None, why, "a number for each value, made by you", sure=False)

    def _next_states(self) -> None:
        """Pair `next_x` with `x`, if each column of the state has such a partner."""
        state = self._roles.all_having("state")
        if not state or "next_state" in self._roles.closed or self._roles.having("next_state") is not None:
            return
        for before in NEXT:
            after = [before + name for name in state]
            if all(name in self._facts and not self._roles.found[name].settled for name in after):
                for name, of in zip(after, state, strict=True):
                    self._roles.assign(name, "next_state", f"by its name {of} after the step")
                return
