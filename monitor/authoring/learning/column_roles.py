"""Proposes a role for each column, with a reason in words. Roles come from names, and are checked against the values.

No role is proposed that the rows contradict. If the rows do not decide between roles, the role is not `sure`, and a
person decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

import numpy as np

from monitor.arrays import Bools
from monitor.authoring.learning.batch import RowBatch, flags, is_missing
from monitor.authoring.learning.column_facts import ColumnFacts, Head, Links, depends_on, facts_of, links_of, ranks
from monitor.authoring.learning.column_words import (
    COMMANDS,
    COSTS,
    CUTS,
    DELAYED,
    ENDS,
    IDS,
    NOTES,
    OUTCOMES,
    OUTSIDE,
    RESULTS,
    RETURNS,
    SUBJECTS,
    is_calendar,
    is_time,
    words_of,
)
from monitor.authoring.learning.columns import (
    ACTION,
    EPISODE,
    NEXT,
    NOISE,
    ORDER,
    REWARD,
    STATE,
    TERMINATED,
    TRUNCATED,
    Role,
    are_messages,
    expanded,
    first_known,
)
from monitor.authoring.learning.conditions import marker_condition

SINGLE: Final[Mapping[Role, tuple[str, ...]]] = {"episode": EPISODE, "order": ORDER, "action": ACTION, "reward": REWARD,
                 "terminated": TERMINATED, "truncated": TRUNCATED}  # fmt: skip

ROLES: Final[tuple[Role, ...]] = get_args(Role)

STRUCTURE: Final[frozenset[Role]] = frozenset(SINGLE) - {"reward"}
"""The roles that cut rows into steps and episodes."""

INSTEAD: Final = "another column instead"

OPEN: Final = 0.05
"""Episodes may overlap if at most this fraction of them is open at once."""

MANY_LOST: Final = 0.05
"""A column is not proposed for the state if more than this fraction of its values is missing."""

MOSTLY: Final = 0.95
"""A rule about rows, such as that a column rises from row to row, holds in at least this fraction of them.

A few rows may be wrong.
"""

LIMITED: Final = 0.2
"""A time limit is suspected if at least this fraction of the ends has the longest length.

Natural ends are spread over many lengths, so few of them have the longest one. From the fraction `MOSTLY`, all ends at
this length are treated as cuts.
"""

FEW: Final = 5
"""A value that occurs only in last rows must occur at least this often. Otherwise it may be chance."""

MANY_OUTCOMES: Final = 20
"""Largest number of different texts in a column of outcomes."""

PAIRS: Final = 20
"""Smallest number of pairs of rows from which conclusions are drawn."""


@dataclass(frozen=True)
class ColumnRole:
    """A column and its roles.

    Attributes:
        name: name of the column.
        roles: roles of the column; empty: the column is left out.
        why: the reason.
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


@dataclass(frozen=True)
class Proposal:
    """Roles of all columns, in the order of the file.

    `ordered`: names of the columns; those that the user settled come first, in the user's order. `problems`: necessary
    role that no column has -> columns that might have it. `time_limit`: if a suspicious number of episodes ends after
    this number of steps, they may be cut off; 0: no such number.
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
        """Columns for which a person must decide: if their role is wrong, the rows are read as other steps.

        Of other unsure columns, a wrong role costs accuracy, which held-out episodes measure.
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
        closed: roles that no other column can have.
        computed: columns from which a function computes the states, so that no column is a state by itself; None: there
            is no function.
        time_limit: number of steps after which ends are cuts, as the user said; 0: no ends are cuts; None: not known.
        by_state: True if end markers are about the state of their row, as in messages, and not about its step.
        unsafe: columns in the user's condition for unsafe states.
        chosen: actions that the user's policies chose in some rows.
    """
    found = _Proposing(head, settled, {*closed, *(() if computed is None else ("state",))}, computed=computed)
    found.by_state = by_state or found.messages
    found.unsafe, found.chosen = set(unsafe), set(chosen)
    return found.proposal(time_limit)


class _Proposing:
    def __init__(
        self,
        head: Head,
        settled: Mapping[str, tuple[Role, ...]],
        closed: set[Role],
        *,
        computed: Collection[str] | None,
    ) -> None:
        self.head, self.settled, self.closed = head, settled, closed
        self.computed, self.read = computed is not None, set(computed or ())
        self.names = [*head.columns, *head.unreadable]
        self.messages = self.by_state = are_messages(self.names)
        self.unsafe: set[str] = set()
        self.chosen: set[object] = set()
        self.facts: dict[str, ColumnFacts] = {name: facts_of(values) for name, values in head.columns.items()}
        self.found: dict[str, ColumnRole] = {}
        self.by_role: dict[Role, list[str]] = {}
        for name, roles in settled.items():
            self._put(ColumnRole(name, roles, "you said so", settled=True))
        self.over = links_of(head, None, None, ())
        """Pairs of consecutive rows of the files."""
        self.links: Links = self.over
        self.later: dict[bytes, str] = {}
        """Values in the next rows, as float64 -> the column that has them."""

    def proposal(self, time_limit: int | None) -> Proposal:
        self._ends_and_rewards()
        self._episode_and_order()
        self._action()
        for name in self.head.unreadable:
            self._unreadable(name)
        self._named_state()
        for name in self.names:
            if name not in self.found:
                self._put(self._other(name))
        if not self.computed:
            self._texts_among_numbers()
            self._next_states()
        suspected = self._time_limit() if time_limit is None else 0
        names = dict.fromkeys([*self.names, *self.head.columns])
        columns = [self._with_values(self.found[name]) for name in names]
        return Proposal(columns, tuple(self.found), self._problems(), suspected)

    def _with_values(self, column: ColumnRole) -> ColumnRole:
        values = self.facts[column.name].values if column.name in self.facts else "cannot be read"
        return ColumnRole(column.name, column.roles, column.why, column.sure, column.others, column.settled, values)

    def _problems(self) -> dict[Role, tuple[str, ...]]:
        found: dict[Role, tuple[str, ...]] = {}
        if self._having("action") is None:
            few = self._usable(list(self.head.columns))
            found["action"] = tuple(name for name in few if not set(self.found[name].roles) - {"state"})
        if self._having("state") is None and not self.computed:
            found["state"] = ()
        return found

    # ---- roles by the names of columns ----

    def _having(self, role: Role) -> str | None:
        return next(iter(self._all(role)), None)

    def _all(self, role: Role) -> list[str]:
        return [name for name in self.by_role.get(role, ()) if role in self.found[name].roles]

    def _put(self, column: ColumnRole) -> None:
        self.found[column.name] = column
        for role in column.roles:
            known = self.by_role.setdefault(role, [])
            if column.name not in known[-1:]:
                known.append(column.name)

    def _set(self, name: str, role: Role | None, why: str, *others: Role | str, sure: bool = True) -> None:
        self._put(ColumnRole(name, () if role is None else (role,), why, sure, others))

    def _free(self, role: Role) -> list[str]:
        """Return the columns that may get this role; none if another column has it or the user closed it."""
        if role in self.closed or self._having(role) is not None:
            return []
        return [name for name in self.head.columns if name not in self.found]

    def _named(self, role: Role) -> str | None:
        """Return the free column whose name is known for this role, if there is one."""
        return first_known(self._free(role), SINGLE[role])

    def _ends_and_rewards(self) -> None:
        if (name := self._named("reward")) is not None and self.facts[name].kind not in ("text", "time"):
            self._set(name, "reward", "named so")
        for role in ("terminated", "truncated"):
            if (name := self._named(role)) is not None and self._is_flag(name):
                self._set(name, role, "named so")

    def _is_calendar(self, name: str) -> bool:
        """Return whether a column is a part of the calendar. A month has no more than 31 names of days."""
        facts = self.facts[name]
        return is_calendar(name) and (facts.kind != "text" or facts.distinct <= 31)

    def _is_flag(self, name: str) -> bool:
        return self.facts[name].kind in ("flag", "empty") or self.facts[name].distinct <= 2

    def _episode_and_order(self) -> None:
        subject: str | None = None
        if (name := self._named("episode")) is not None:
            count = self.facts[name].distinct
            self._set(name, "episode", f"named so; {count:,} episode{'' if count == 1 else 's'}")
        elif (subject := self._subject()) is not None:
            self._set(
                subject, "episode", f"named as what rows belong to, and has {self.facts[subject].distinct:,} values"
            )
        ends = [name for name in (self._having("terminated"), self._having("truncated")) if name in self.facts]
        self._order(ends)
        if (name := self._named("order")) is not None and name.lower() in ("seq", "frame_index", "step", "timestep"):
            self._set(name, "order", "named so, but it does not always rise", "state", "-", sure=False)
        if (name := self._blocks()) is not None:
            why = "its values come in blocks of rows, as those of runs do"
            if final := self._without_action(links_of(self.head, name, self._known_order(), ends)):
                self._set(name, "episode", f"{why}; in the last row of each, {final[0]} is empty")
                self._order(ends)
            else:
                self._set(name, "episode", why, "state", "-", sure=False)
        if subject is not None and not self._is_blocks(subject):
            order = self._having("order")
            if order not in self.facts or self._rises(order, self.over):
                why = "named as what rows belong to, but its rows are mixed, and no order shows it"
                self._set(subject, "episode", why, "state", "-", sure=False)
        episode = self._having("episode")
        self.links = links_of(self.head, episode if episode in self.facts else None, self._known_order(), ends)

    def _order(self, ends: Sequence[str]) -> None:
        """Find the column that orders the rows.

        A column that changes exactly where the order restarts is that of the episode.
        """
        for candidate in self._orders():
            if self._having("episode") is None and (block := self._block(candidate)) is not None:
                self._set(block, "episode", f"changes exactly where {candidate} begins again")
            episode = self._having("episode")
            if episode not in (None, *self.facts):
                break  # the reader reports that it cannot be read
            links = links_of(self.head, episode, candidate, ends)
            if not (self._begins_again(candidate) if episode is None else self._rises(candidate, links)):
                continue
            begins = int(self._falls(candidate).sum()) if episode is None else 0
            each = "from row to row" if episode is None else "in each episode"
            each = f"and begins again {begins:,} times" if begins else each
            by = " by 1" if links.counts(self.head.columns[candidate]) else ""
            self._set(candidate, "order", f"rises{by} {each}")
            break

    def _known_order(self) -> str | None:
        """Return the column that orders the rows, if it can be read."""
        order = self._having("order")
        return order if order in self.facts else None

    def _with_choices(self, names: Sequence[str]) -> str | None:
        """Return the column that has all choices of the user's policies, and the fewest other values."""
        kinds = {name: np.unique(self.head.columns[name]) for name in names}
        spare = {
            name: len(values) - len(self.chosen)
            for name, values in kinds.items()
            if self.chosen - {0, 1} and self.chosen <= set(values.tolist())
        }
        least = [name for name, more in spare.items() if more == min(spare.values())]
        return least[0] if len(least) == 1 else None

    def _without_action(self, links: Links) -> list[str]:
        """Return the free columns that are empty where an action is: in final states, and hardly anywhere else."""
        if len(links.before) < PAIRS:
            return []
        found = []
        for name in self._usable(self._free("action")):
            lost = is_missing(self.head.columns[name])
            if lost[links.last].mean() >= MOSTLY and lost[~links.last].mean() <= 1 - MOSTLY:
                found.append(name)
        return found

    def _orders(self) -> list[str]:
        """Return the free columns that may order the rows. Counters come first, then times."""
        free = [name for name in self._free("order") if self.facts[name].kind in ("time", "whole", "decimal", "flag")]
        known = [name for word in ORDER for name in free if name.lower() == word]
        whole = [name for name in free if self.facts[name].kind == "whole" and name.lower() not in NOISE]
        counters = [name for name in whole if not self._is_calendar(name) and self._counts(name)]
        times = [name for name in free if self.facts[name].kind == "time" or is_time(name)]
        calendar = [name for name in free if self._is_calendar(name) and self._having("episode") is not None]
        every = dict.fromkeys([*known, *counters, *times, *calendar])
        return [name for name in every if self.facts[name].distinct > 1]

    def _counts(self, name: str) -> bool:
        """Return whether a column rises by 1 within episodes. Without a column of the episode, it must restart."""
        episode = self._having("episode")
        if episode is not None and episode not in self.facts:
            return False
        links = links_of(self.head, episode, name if episode is None else None, ())
        again = episode is not None or (bool(self._falls(name).any()) and self._begins_again(name))
        return again and len(links.before) >= PAIRS and links.counts(self.head.columns[name])

    def _rises(self, name: str, links: Links) -> bool:
        """Return whether a column rises within episodes; a few rows may be wrong."""
        return links.rising(self.head.columns[name]) >= MOSTLY

    def _falls(self, name: str) -> Bools:
        """Return for each pair of rows of a file whether a column falls between them."""
        values = ranks(self.head.columns[name])
        return np.asarray(values[self.over.after] < values[self.over.before])

    def _begins_again(self, name: str) -> bool:
        """Return whether a column rises over the whole file, except where it restarts with its first value."""
        values, over = ranks(self.head.columns[name]), self.over
        if self._rises(name, over):
            return True
        fallen = values[over.after[self._falls(name)]]
        return bool((fallen == values[0]).all()) and self._rises(name, links_of(self.head, None, name, ()))

    def _subject(self) -> str | None:
        """Return the free column that names the subject of a row, such as a patient, unless the rows contradict it."""
        for name in self._free("episode"):
            words = set(words_of(name))
            if self._may_group(name) and (words & SUBJECTS or (words & IDS and self._is_blocks(name))):
                return name
        return None

    def _may_group(self, name: str) -> bool:
        facts = self.facts[name]
        some = facts.kind in ("whole", "text") and not facts.missing and not facts.unique
        return some and 2 <= facts.distinct <= len(self.head) / 2

    def _is_blocks(self, name: str) -> bool:
        """Return whether the rows of each value of a column are consecutive."""
        over, values = self.over, self.head.columns[name]
        changes = int((values[over.before] != values[over.after]).sum()) + len(self.head) - len(over.before)
        return changes == self.facts[name].distinct

    def _is_overlapping(self, name: str) -> bool:
        """Return whether each value of a column has its own stretch of the rows, and few stretches overlap."""
        kinds, first = np.unique(values := self.head.columns[name], return_index=True)
        last = len(values) - 1 - np.unique(values[::-1], return_index=True)[1]
        steps = np.zeros(len(values) + 1, np.int64)
        np.add.at(steps, first, 1)
        np.add.at(steps, last + 1, -1)
        return int(steps.cumsum().max()) <= OPEN * len(kinds)

    def _block(self, order: str) -> str | None:
        """Return the free column that changes exactly where the order restarts."""
        if self._is_calendar(order) or not (falls := self._falls(order)).any():
            return None
        over = self.over
        for name in self._free("episode"):
            values = self.head.columns[name]
            if (
                name != order
                and self._may_group(name)
                and np.array_equal(values[over.before] != values[over.after], falls)
            ):
                return name
        return None

    def _blocks(self) -> str | None:
        """Return the free column whose values look like numbers or names of runs."""
        for name in self._free("episode"):
            facts = self.facts[name]
            if self._is_calendar(name) or facts.distinct < 5 or 5 * facts.distinct > len(self.head):
                continue
            rising = facts.kind == "text" or not self._falls(name).any()
            overlapping = facts.kind == "text" and self._is_overlapping(name)
            if self._may_group(name) and (overlapping or (rising and self._is_blocks(name))):
                return name
        return None

    def _action(self) -> None:
        free = self._free("action")
        name = first_known(free, ACTION)
        if name is not None:
            self._set(name, "action", "named so")
        else:
            usable = self._usable(free)
            likely = [n for n in usable if "action" in words_of(n) and not set(words_of(n)) & DELAYED]
            weak = [n for n in usable if set(words_of(n)) & COMMANDS and not set(words_of(n)) & DELAYED]
            if len(likely) == 1:
                self._set(likely[0], "action", "named so")
            elif (same := self._with_choices(usable)) is not None:
                self._set(same, "action", "its values are those that your policies choose")
            elif len(final := self._without_action(self.links)) == 1:
                self._set(final[0], "action", "empty in the last rows of episodes, and hardly anywhere else")
            elif len(likely or weak) == 1:
                self._set((likely or weak)[0], "action", "named as what is commanded", "state", "-", sure=False)
        name = self._having("action")
        if name in self.facts and self.facts[name].continuous and not self.found[name].settled:
            why = "named so, but it has decimals: an action is one of few; number its levels"
            self._set(name, "action", why, "-", sure=False)

    def _time_limit(self) -> int:
        """Treat ends as cuts if all of them come after the same number of steps.

        If only some of them do, note it and return that number of steps.
        """
        name = self._having("terminated")
        if name not in self.facts or len(self.links.before) < PAIRS:
            return 0
        ends = self.links.last & self._true(name)
        lengths = self.links.lengths[ends]
        if len(lengths) < PAIRS:
            return 0
        longest = int(lengths.max())
        cut = ends & (self.links.lengths == longest)
        count = int(cut.sum())
        if longest < 2 or count < LIMITED * len(lengths):
            return 0
        action, column = self._having("action"), self.found[name]
        final = action in self.facts and 2 * is_missing(self.head.columns[action])[cut].sum() > count
        steps = longest - bool(final or self.by_state)  # a final state has no step of its own
        said = f"{count:,} of {len(lengths):,} ends come after exactly {steps:,} steps, the longest"
        free = "truncated" not in self.closed and self._having("truncated") is None and not column.settled
        if count >= MOSTLY * len(lengths) and free:
            self._set(name, "truncated", f"{said}: taken for a time limit, after which nothing is known")
            return 0
        why = f"{column.why}; {said}: is that a TIME LIMIT? Then give time_limit: {steps}"
        self._put(replace(column, why=why))
        return steps

    def _true(self, name: str) -> Bools:
        """Return the rows in which a flag holds, [n] bool."""
        return flags(RowBatch(self.head.columns, 1, ""), name)[0]

    def _usable(self, names: Sequence[str]) -> list[str]:
        """Return the columns that have few enough values to be an action."""
        facts = {name: self.facts[name] for name in names}
        few = {name for name, each in facts.items() if 1 < each.distinct <= 50 and not each.continuous}
        return [name for name in names if name in few and facts[name].kind != "time"]

    def _unreadable(self, name: str) -> None:
        if name in self.found:
            return
        why = self.head.unreadable[name]
        if row := re.search(r", row (\d+): column", why):
            why = f"row {row[1]} holds text, and the others numbers or nothing"
        else:
            why = f"holds {why}"
        known = {*STATE, *(word for words in SINGLE.values() for word in words)}
        taken = [role for role, words in (*SINGLE.items(), ("state", STATE)) if name.lower() in words]
        needed = name.lower() in known and all(self._having(role) is None for role in taken)
        self._set(name, None, why, *([INSTEAD] if needed else []), sure=not needed)

    def _named_state(self) -> None:
        """Give the role of the state to columns named like a state. Then no other column gets it."""
        if self.computed or "state" in self.closed or self._having("state") is not None:
            return
        names = list(self.head.columns)
        for word in STATE:
            for each in names:
                base = each.partition("[")[0]
                if base.lower() != word:
                    continue
                for name in expanded(names, base):
                    if name not in self.found:
                        self._set(name, "state", "named so")
                if self._having("state") is not None:
                    self.closed.add("state")
                    return

    # ---- roles by the values of a column ----

    def _other(self, name: str) -> ColumnRole:
        """Return the role of a column whose name does not give it a role that only one column has."""
        for rule in (
            self._nothing,
            self._future,
            self._clock,
            self._of_the_action,
            self._end,
            self._result,
            self._number_of_rows,
        ):
            if (found := rule(name)) is not None:
                return found
        if self.computed:
            return self._of_function(name)
        if self.messages and name.partition("[")[0].partition(".")[0] == "inputs":
            return ColumnRole(name, ("input",), "named so")
        if "state" in self.closed:
            return ColumnRole(name, (), "not among the columns of the state")
        for rule in (self._outside, self._gaps, self._context):
            if (found := rule(name)) is not None:
                return found
        kind = {"flag": "a flag", "text": "a category"}.get(self.facts[name].kind, "a quantity")
        return ColumnRole(name, ("state",), f"{kind} that changes within episodes")

    def _nothing(self, name: str) -> ColumnRole | None:
        """Leave a column out if it says nothing about the world."""
        facts, words = self.facts[name], set(words_of(name))
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
                other = self._having(role)
                which = (
                    f"which is {other}"
                    if other is not None
                    else "and it is not one number or text"
                    if base != name
                    else "not used"
                )
                return ColumnRole(name, (), f"named as the {role}, {which}")
        if self.messages and name == "v":
            return ColumnRole(name, (), "version of the message")
        if (
            facts.unique
            and len(self.head) >= PAIRS
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
            if facts.distinct > max(50, len(self.head) // 10):
                return ColumnRole(name, (), f"text of {facts.distinct:,} different values")
        return None

    def _future(self, name: str) -> ColumnRole | None:
        """Leave a column out if its value is known only after the time of its row."""
        lower, words = name.lower(), set(words_of(name))
        if lower.startswith((*NEXT, "future_")):
            return ColumnRole(name, (), "of a later row by its name: it would leak the future")
        if lower in RETURNS:
            why = "a return by its name, the sum of later rewards: it would leak the future"
            known = self._having("reward") is not None or lower not in ("return", "returns")
            return ColumnRole(name, (), why, known, () if known else ("state",))
        if words & OUTCOMES and self.links.constant(self.head.columns[name]):
            return ColumnRole(name, (), "what came of the whole episode: it would leak the future")
        if (other := self._leads(name)) is not None:
            sure = bool(words & {"new", "after", "future", "tomorrow"})
            why = f"equals {other} of the next row: it would leak the future"
            return ColumnRole(name, (), why, sure, () if sure else ("state",))
        return None

    def _of_function(self, name: str) -> ColumnRole:
        """Return no role, for a column of rows whose state a function computes."""
        why = "states are computed from it" if name in self.read else "not used by the function of the state"
        return ColumnRole(name, (), why)

    def _leads(self, name: str) -> str | None:
        """Return the column whose value in the next row is this column's value in the row, if there is one."""
        values = self.head.columns[name]
        if len(self.links.before) < PAIRS or self.facts[name].distinct < 3 or values.dtype.kind not in "if":
            return None
        if not self.later:
            for other, theirs in self.head.columns.items():
                taken = set(self.found[other].roles if other in self.found else ()) & {"order", "episode"}
                if not taken and theirs.dtype.kind in "if" and not set(words_of(other)) & DELAYED:
                    self.later.setdefault(theirs.astype(np.float64)[self.links.after].tobytes(), other)
        other = self.later.get(values.astype(np.float64)[self.links.before].tobytes(), name)
        return None if other == name or self.links.constant(values) else other

    def _clock(self, name: str) -> ColumnRole | None:
        """Return the role of a column of times. It is never the state."""
        facts, order = self.facts[name], self._having("order")
        instead = f"; {order} orders the rows" if order is not None else ", and it does not order the rows"
        if facts.kind == "time":
            return ColumnRole(name, (), f"a time{instead}")
        if is_time(name) and (name.lower() in NOISE or self.links.rising(self.head.columns[name]) >= 0.5):
            return ColumnRole(name, (), f"a time by its name{instead}")
        if self._is_calendar(name):
            return self._given("the calendar: no action changes it", name)
        return None

    def _given(self, why: str, name: str) -> ColumnRole:
        """Return the proposal for a column that no action influences: an input if inputs are possible, else no role."""
        if self.computed:
            return self._of_function(name)
        may = "input" not in self.closed and self.facts[name].kind in ("flag", "whole", "decimal")
        if may:
            return ColumnRole(name, ("input",), why, sure=False, others=("-", "state"))
        sure = "state" in self.closed
        return ColumnRole(name, (), f"{why}; a table has no inputs", sure=sure, others=() if sure else ("state",))

    def _outside(self, name: str) -> ColumnRole | None:
        if set(words_of(name)) & OUTSIDE:
            return self._given("by its name, no action changes it", name)
        return None

    def _of_the_action(self, name: str) -> ColumnRole | None:
        action = self._having("action")
        if action is None or action not in self.facts:
            return None
        if name.lower().startswith((f"{action.lower()}_", "action_")):
            return ColumnRole(name, (), f"about the action {action} by its name")
        if self.facts[name].distinct > 1 and depends_on(self.head.columns[name], self.head.columns[action]):
            return ColumnRole(name, (), f"a function of {action} in all rows", sure=False, others=("state",))
        return None

    def _end(self, name: str) -> ColumnRole | None:
        """Return the role of a flag that holds only in last rows of episodes."""
        values, last = self.head.columns[name], self.links.last
        if (found := self._outcome(name) or self._reason(name)) is not None:
            return found
        if self.facts[name].kind == "text":
            known_late = bool((values[~last] == "").all()) and len(self.links.before) >= PAIRS
            return ColumnRole(name, (), "in last rows of episodes only: it would leak the end") if known_late else None
        if self.facts[name].kind != "flag" or len(self.links.before) < PAIRS:
            return None
        holds = np.nan_to_num(values.astype(np.float64)) == 1
        if not holds.any() or holds[~last].any():
            return None
        every = bool(holds[last].all())
        if not set(words_of(name)) & ENDS:
            if holds.sum() < FEW or self._having("terminated") is not None or self._having("truncated") is not None:
                return None
            why = f"true in {'all' if every else 'some'} last rows of episodes, and nowhere else"
            if name in self.unsafe:
                return ColumnRole(name, ("terminated",), f"{why}; what is unsafe ends an episode")
            if not every and holds.sum() >= PAIRS:  # that is no chance
                role: Role = "truncated" if set(words_of(name)) & CUTS else "terminated"
                return ColumnRole(name, (role,), why)
            return ColumnRole(name, ("terminated",), f"{why}, so it may mark ends", sure=False, others=("state", "-"))
        for role in ("terminated", "truncated"):
            if role not in self.closed and self._having(role) is None:
                taken = self._having("terminated") is not None
                why = f"true in {'all' if every else 'some'} last rows of episodes, and nowhere else"
                if taken:
                    return ColumnRole(name, (), f"{why}; {self._having('terminated')} marks the ends")
                return ColumnRole(name, (role,), why, sure=not every, others=("truncated", "-") if every else ())
        return ColumnRole(name, (), "true in last rows of episodes only")

    def _outcome(self, name: str) -> ColumnRole | None:
        """Leave out an outcome: some of its values occur only in last rows, and an end marker shows the ends.

        This does not apply if last rows have no action. Then they are final states, and such a value is part of the
        state.
        """
        marker = self._having("terminated") or self._having("truncated")
        action = self._having("action")
        if marker not in self.facts or action not in self.facts or len(self.links.before) < PAIRS:
            return None
        values, last = self.head.columns[name], self.links.last & self._true(marker)
        if 2 * is_missing(self.head.columns[action])[last].sum() > last.sum():
            return None
        if self.facts[name].kind == "flag":
            there = np.nan_to_num(values.astype(np.float64)) == 1
        elif self.facts[name].kind == "text" and self.facts[name].distinct <= MANY_OUTCOMES:
            there = np.isin(values, np.setdiff1d(values[last], values[~last])) & (values != "")
        else:
            return None
        if int(there.sum()) < FEW or bool(there[~last].any()):
            return None
        example = name if self.facts[name].kind == "flag" else f"{name} == {str(values[there][0])!r}"
        why = f"in last rows of episodes only: what came of them, as for what is unsafe: '{marker} and {example}'"
        return ColumnRole(name, (), why)

    def _reason(self, name: str) -> ColumnRole | None:
        """Read end markers from a text that says why an episode ended, and is empty or always the same before."""
        values, last = self.head.columns[name], self.links.last
        free = all(role not in self.closed and self._having(role) is None for role in ("terminated", "truncated"))
        if not free or self.facts[name].kind != "text" or len(self.links.before) < PAIRS:
            return None
        kinds, counts = np.unique(values[last & ~is_missing(values)], return_counts=True)
        before = np.unique(values[~last & ~is_missing(values)])
        reasons = [str(kind) for kind in kinds[~np.isin(kinds, before)]]
        rare = len(reasons) > MANY_OUTCOMES or counts[np.isin(kinds, reasons)].sum() < FEW
        meant = name in self.unsafe or set(words_of(name)) & ENDS
        if rare or len(before) > 1 or not meant or marker_condition([name], f"{name} in {reasons}") is None:
            return None
        cuts = [text for text in reasons if set(words_of(text)) & CUTS]
        ends = [text for text in reasons if text not in cuts]
        markers: tuple[tuple[Role, list[str]], ...] = (("terminated", ends), ("truncated", cuts))
        for role, texts in markers:
            if texts:
                marker = f"{name} in {texts}"
                flag = np.isin(values, texts)
                self.head = replace(self.head, columns={**self.head.columns, marker: flag})
                self.facts[marker] = facts_of(flag)
                says = "that an episode ended" if role == "terminated" else "that an episode was cut off"
                self._set(marker, role, f"{says}, by the words of {name}")
        return ColumnRole(name, (), "why an episode ended: in last rows only, so it would leak the end")

    def _result(self, name: str) -> ColumnRole | None:
        """Ask about a column with the result of each step. A policy does not know the result when it acts."""
        if self.computed or not set(words_of(name)) & RESULTS:
            return None
        why = "named as what came of a step: then it is known only after the action; conditions may use it"
        return ColumnRole(name, (), why, sure=False, others=("state",))

    def _number_of_rows(self, name: str) -> ColumnRole | None:
        values = self.head.columns[name]
        if len(self.links.before) < PAIRS or self.facts[name].kind not in ("whole", "decimal"):
            return None
        if self.links.counts(values):
            return ColumnRole(name, (), "rises by 1 from row to row: it counts rows")
        if self.links.rising(values) == 1.0:
            return ColumnRole(
                name, (), "rises in each row: a clock or a meter, whose values do not return", sure=False,
                others=("state",),
            )  # fmt: skip
        return None

    def _gaps(self, name: str) -> ColumnRole | None:
        if self.facts[name].missing > MANY_LOST:
            why = f"{self.facts[name].missing:.0%} of its values are missing, and a state needs all"
            return ColumnRole(name, (), why, sure=False, others=("state",))
        return None

    def _context(self, name: str) -> ColumnRole | None:
        """Return the proposal for a column that never changes within an episode."""
        if self._having("episode") is not None and self.links.constant(self.head.columns[name]):
            if set(words_of(name)) & {"seed", "version", "worker", "split"}:
                return ColumnRole(name, (), "about the log by its name; the same within each episode")
            why = "the same within each episode: a kind of episode, or an identifier"
            return ColumnRole(name, (), why, sure=False, others=("state",))
        if set(words_of(name)) & COSTS and self._having("reward") is None and "reward" not in self.closed:
            return ColumnRole(
                name, ("reward",), "by its name what a step earns or costs", sure=False, others=("state", "-")
            )
        return None

    # ---- rules on all columns together ----

    def _texts_among_numbers(self) -> None:
        """Leave texts out of a state if there are inputs, because a world with inputs takes only numbers."""
        state = [each for each in self.found.values() if "state" in each.roles and each.name in self.facts]
        inputs = any("input" in each.roles for each in self.found.values())
        if not inputs:
            return
        for each in state:
            if self.facts[each.name].kind == "text" and not each.settled:
                why = "a category, and a world with inputs needs numbers"
                self._set(each.name, None, why, "a number for each value, made by you", sure=False)

    def _next_states(self) -> None:
        """Pair `next_x` with `x`, if each column of the state has such a partner."""
        state = self._all("state")
        if not state or "next_state" in self.closed or self._having("next_state") is not None:
            return
        for before in NEXT:
            after = [before + name for name in state]
            if all(name in self.facts and not self.found[name].settled for name in after):
                for name, of in zip(after, state, strict=True):
                    self._set(name, "next_state", f"by its name {of} after the step")
                return
