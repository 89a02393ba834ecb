"""The roles that were found so far for the columns of a recording."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from monitor.arrays import AnyArray, Bools
from monitor.authoring.learning.column_facts import ColumnFacts, Head, facts_of
from monitor.authoring.learning.column_words import is_calendar
from monitor.authoring.learning.columns import SINGLE, Role, first_known


@dataclass(frozen=True)
class ColumnRole:
    """A column and its roles.

    Attributes:
        name: name of the column.
        roles: roles of the column; empty: the column is left out.
        why: the reason for the roles.
        sure: True if no other role is plausible.
        others: other plausible roles.
        settled: True if the user has decided the roles.
        values: description of the values.
    """

    name: str
    roles: tuple[Role, ...]
    why: str
    sure: bool = True
    others: tuple[Role | str, ...] = ()
    settled: bool = False
    values: str = ""


class AssignedRoles:
    """Columns of a recording: their first rows, the facts on their values, and the roles that some of them have.

    Attributes:
        head: the first rows, with the end markers that were computed from them.
        facts: column -> facts on its values, for the columns that can be read.
        found: column -> its roles, in the order in which they were found; the roles that the user gave come first.
        closed: roles that no further column may get.
    """

    def __init__(self, head: Head, settled: Mapping[str, tuple[Role, ...]], closed: Collection[Role]) -> None:
        self.head, self.closed = head, set(closed)
        self.facts: dict[str, ColumnFacts] = {name: facts_of(values) for name, values in head.columns.items()}
        self.found: dict[str, ColumnRole] = {}
        self._by_role: dict[Role, list[str]] = {}
        for name, roles in settled.items():
            self.put(ColumnRole(name, roles, "you said so", settled=True))

    @property
    def columns(self) -> Mapping[str, AnyArray]:
        """Columns that can be read -> their values [n]."""
        return self.head.columns

    def having(self, role: Role) -> str | None:
        """Return the first column with this role, if there is one."""
        return next(iter(self.all_having(role)), None)

    def all_having(self, role: Role) -> list[str]:
        """Return the columns with this role, in the order in which they got it."""
        return [name for name in self._by_role.get(role, ()) if role in self.found[name].roles]

    def put(self, column: ColumnRole) -> None:
        """Set the roles of a column, in place of those that it has."""
        self.found[column.name] = column
        for role in column.roles:
            known = self._by_role.setdefault(role, [])
            if column.name not in known[-1:]:
                known.append(column.name)

    def assign(self, name: str, role: Role | None, why: str, *others: Role | str, sure: bool = True) -> None:
        """Set the only role of a column, or none, with the reason and other plausible roles."""
        self.put(ColumnRole(name, () if role is None else (role,), why, sure, others))

    def free(self, role: Role) -> list[str]:
        """Return the columns that may get this role; none if another column has it or the user closed it."""
        if role in self.closed or self.having(role) is not None:
            return []
        return [name for name in self.columns if name not in self.found]

    def named(self, role: Role) -> str | None:
        """Return the free column whose name is known for this role, if there is one."""
        return first_known(self.free(role), SINGLE[role])

    def is_calendar(self, name: str) -> bool:
        """Return whether a column is a part of the calendar.

        A column with over 31 different texts does not name days.
        """
        facts = self.facts[name]
        return is_calendar(name) and (facts.kind != "text" or facts.distinct <= 31)

    def usable(self, names: Sequence[str]) -> list[str]:
        """Return the columns that have few enough different values for an action."""
        facts = {name: self.facts[name] for name in names}
        few = {name for name, each in facts.items() if 1 < each.distinct <= 50 and not each.continuous}
        return [name for name in names if name in few and facts[name].kind != "time"]

    def add_marker(self, name: str, holds: Bools) -> None:
        """Add a column that was computed from others: an end marker, [n] bool."""
        self.head = replace(self.head, columns={**self.head.columns, name: holds})
        self.facts[name] = facts_of(holds)
