"""Find the columns that cut rows into steps and episodes: the episode, the order, the action and the end markers.

Their roles come from the names of the columns, and from the changes of their values from row to row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from monitor.arrays import Bools
from monitor.authoring.learning.assigned_roles import AssignedRoles, ColumnRole
from monitor.authoring.learning.batch import RowBatch, flags, is_missing
from monitor.authoring.learning.column_facts import Links, links_of, ranks
from monitor.authoring.learning.column_words import COMMANDS, CUTS, DELAYED, ENDS, IDS, SUBJECTS, is_time, words_of
from monitor.authoring.learning.columns import ACTION, NOISE, ORDER, Role, first_known
from monitor.authoring.learning.conditions import marker_condition

OPEN: Final = 0.05
"""Largest fraction of all episodes that may be open at once if episodes overlap."""

MOSTLY: Final = 0.95
"""A rule counts as true if it holds in at least this fraction of the rows, because a few rows may be wrong. An example
of a rule is that a column rises from row to row.
"""

LIMITED: Final = 0.2
"""A time limit is suspected if at least this fraction of the ends has the longest length.

Natural ends are spread over many lengths, so few of them have the longest one. If the fraction reaches `MOSTLY`, all
ends at this length are treated as cuts.
"""

FEW: Final = 5
"""A value that occurs only in last rows must occur at least this often. With fewer occurrences, it may be chance."""

MANY_OUTCOMES: Final = 20
"""Largest number of different texts in a column of outcomes."""

PAIRS: Final = 20
"""Smallest number of pairs of rows from which conclusions are drawn."""


class RowStructure:
    """Search for the columns that cut rows into steps and episodes; `roles` gets what it finds.

    Attributes:
        links: pairs of consecutive rows of an episode. Before `find`, pairs of consecutive rows of a file.
    """

    def __init__(
        self, roles: AssignedRoles, *, by_state: bool, unsafe: Collection[str], chosen: Collection[object]
    ) -> None:
        """Begin with the roles that the user gave. See `column_roles.proposed` for the arguments."""
        self._roles, self._by_state, self._unsafe, self._chosen = roles, by_state, set(unsafe), set(chosen)
        self._facts = roles.facts
        self._over = links_of(roles.head, None, None, ())
        """Pairs of consecutive rows of the files."""
        self.links: Links = self._over
        self._end_text = ""
        """The text from which end markers were read in place of a flag, if there is one."""

    def find(self) -> None:
        """Find the columns of the episode, the order and the action, and end markers and rewards with known names."""
        self._ends_and_rewards()
        self._episode_and_order()
        self._action()
        self._text_beside_flags()

    def _ends_and_rewards(self) -> None:
        if (name := self._roles.named("reward")) is not None and self._facts[name].kind not in ("text", "time"):
            self._roles.assign(name, "reward", "named so")
        for role in ("terminated", "truncated"):
            if (name := self._roles.named(role)) is not None and self._is_flag(name):
                self._roles.assign(name, role, "named so")

    def _is_flag(self, name: str) -> bool:
        return self._facts[name].kind in ("flag", "empty") or self._facts[name].distinct <= 2

    def _episode_and_order(self) -> None:
        subject: str | None = None
        if (name := self._roles.named("episode")) is not None:
            count = self._facts[name].distinct
            self._roles.assign(name, "episode", f"named so; {count:,} episode{'' if count == 1 else 's'}")
        elif (subject := self._subject()) is not None:
            self._roles.assign(
                subject, "episode", f"named as what rows belong to, and has {self._facts[subject].distinct:,} values"
            )
        ends = [
            name for name in (self._roles.having("terminated"), self._roles.having("truncated")) if name in self._facts
        ]
        self._order(ends)
        if (name := self._roles.named("order")) is not None and name.lower() in (
            "seq",
            "frame_index",
            "step",
            "timestep",
        ):
            self._roles.assign(name, "order", "named so, but it does not always rise", "state", "-", sure=False)
        if (name := self._blocks()) is not None:
            why = "its values come in blocks of rows, as those of runs do"
            if final := self._without_action(links_of(self._roles.head, name, self._known_order(), ends)):
                self._roles.assign(name, "episode", f"{why}; in the last row of each, {final[0]} is empty")
                self._order(ends)
            else:
                self._roles.assign(name, "episode", why, "state", "-", sure=False)
        if subject is not None and not self._is_blocks(subject):
            order = self._roles.having("order")
            if order not in self._facts or self._rises(order, self._over):
                why = "named as what rows belong to, but its rows are mixed, and no order shows it"
                self._roles.assign(subject, "episode", why, "state", "-", sure=False)
        episode = self._roles.having("episode")
        self.links = links_of(self._roles.head, episode if episode in self._facts else None, self._known_order(), ends)

    def _order(self, ends: Sequence[str]) -> None:
        """Find the column that orders the rows.

        A column that changes exactly where the order restarts is the column of the episode.
        """
        for candidate in self._orders():
            if self._roles.having("episode") is None and (block := self._block(candidate)) is not None:
                self._roles.assign(block, "episode", f"changes exactly where {candidate} begins again")
            episode = self._roles.having("episode")
            if episode not in (None, *self._facts):
                break  # the reader reports that it cannot be read
            links = links_of(self._roles.head, episode, candidate, ends)
            if not (self._begins_again(candidate) if episode is None else self._rises(candidate, links)):
                continue
            begins = int(self._falls(candidate).sum()) if episode is None else 0
            each = "from row to row" if episode is None else "in each episode"
            each = f"and begins again {begins:,} times" if begins else each
            by = " by 1" if links.counts(self._roles.columns[candidate]) else ""
            self._roles.assign(candidate, "order", f"rises{by} {each}")
            break

    def _known_order(self) -> str | None:
        """Return the column that orders the rows, if it can be read."""
        order = self._roles.having("order")
        return order if order in self._facts else None

    def _with_choices(self, names: Sequence[str]) -> str | None:
        """Return the column whose values include all choices of the user's policies and the fewest other values."""
        kinds = {name: np.unique(self._roles.columns[name]) for name in names}
        spare = {
            name: len(values) - len(self._chosen)
            for name, values in kinds.items()
            if self._chosen - {0, 1} and self._chosen <= set(values.tolist())
        }
        least = [name for name, more in spare.items() if more == min(spare.values())]
        return least[0] if len(least) == 1 else None

    def _without_action(self, links: Links) -> list[str]:
        """Return the free columns that are empty in final states, and hardly in other rows, as an action is."""
        if len(links.before) < PAIRS:
            return []
        found = []
        for name in self._roles.usable(self._roles.free("action")):
            lost = is_missing(self._roles.columns[name])
            if lost[links.last].mean() >= MOSTLY and lost[~links.last].mean() <= 1 - MOSTLY:
                found.append(name)
        return found

    def _orders(self) -> list[str]:
        """Return the free columns that may order the rows. Counters come first, then times."""
        free = [
            name for name in self._roles.free("order") if self._facts[name].kind in ("time", "whole", "decimal", "flag")
        ]
        known = [name for word in ORDER for name in free if name.lower() == word]
        whole = [name for name in free if self._facts[name].kind == "whole" and name.lower() not in NOISE]
        counters = [name for name in whole if not self._roles.is_calendar(name) and self._counts(name)]
        times = [name for name in free if self._facts[name].kind == "time" or is_time(name)]
        calendar = [
            name for name in free if self._roles.is_calendar(name) and self._roles.having("episode") is not None
        ]
        every = dict.fromkeys([*known, *counters, *times, *calendar])
        return [name for name in every if self._facts[name].distinct > 1]

    def _counts(self, name: str) -> bool:
        """Return whether a column rises by 1 from row to row of an episode.

        If no column names the episode, the column must also restart at least once.
        """
        episode = self._roles.having("episode")
        if episode is not None and episode not in self._facts:
            return False
        links = links_of(self._roles.head, episode, name if episode is None else None, ())
        again = episode is not None or (bool(self._falls(name).any()) and self._begins_again(name))
        return again and len(links.before) >= PAIRS and links.counts(self._roles.columns[name])

    def _rises(self, name: str, links: Links) -> bool:
        """Return whether a column rises within episodes; a few rows may be wrong."""
        return links.rising(self._roles.columns[name]) >= MOSTLY

    def _falls(self, name: str) -> Bools:
        """Return for each pair of rows of a file whether a column falls between them."""
        values = ranks(self._roles.columns[name])
        return np.asarray(values[self._over.after] < values[self._over.before])

    def _begins_again(self, name: str) -> bool:
        """Return whether a column rises over the whole file, except where it restarts with its first value."""
        values, over = ranks(self._roles.columns[name]), self._over
        if self._rises(name, over):
            return True
        fallen = values[over.after[self._falls(name)]]
        return bool((fallen == values[0]).all()) and self._rises(name, links_of(self._roles.head, None, name, ()))

    def _subject(self) -> str | None:
        """Return the free column that names the subject of a row, such as a patient, unless the rows contradict it."""
        for name in self._roles.free("episode"):
            words = set(words_of(name))
            if self._may_group(name) and (words & SUBJECTS or (words & IDS and self._is_blocks(name))):
                return name
        return None

    def _may_group(self, name: str) -> bool:
        facts = self._facts[name]
        some = facts.kind in ("whole", "text") and not facts.missing and not facts.unique
        return some and 2 <= facts.distinct <= len(self._roles.head) / 2

    def _is_blocks(self, name: str) -> bool:
        """Return whether the rows of each value of a column are consecutive."""
        over, values = self._over, self._roles.columns[name]
        changes = int((values[over.before] != values[over.after]).sum()) + len(self._roles.head) - len(over.before)
        return changes == self._facts[name].distinct

    def _is_overlapping(self, name: str) -> bool:
        """Return whether few values of a column overlap. A value is open from its first row to its last row."""
        kinds, first = np.unique(values := self._roles.columns[name], return_index=True)
        last = len(values) - 1 - np.unique(values[::-1], return_index=True)[1]
        steps = np.zeros(len(values) + 1, np.int64)
        np.add.at(steps, first, 1)
        np.add.at(steps, last + 1, -1)
        return int(steps.cumsum().max()) <= OPEN * len(kinds)

    def _block(self, order: str) -> str | None:
        """Return the free column that changes exactly where the order restarts."""
        if self._roles.is_calendar(order) or not (falls := self._falls(order)).any():
            return None
        over = self._over
        for name in self._roles.free("episode"):
            values = self._roles.columns[name]
            if (
                name != order
                and self._may_group(name)
                and np.array_equal(values[over.before] != values[over.after], falls)
            ):
                return name
        return None

    def _blocks(self) -> str | None:
        """Return the free column whose values look like numbers or names of runs."""
        for name in self._roles.free("episode"):
            facts = self._facts[name]
            if self._roles.is_calendar(name) or facts.distinct < 5 or 5 * facts.distinct > len(self._roles.head):
                continue
            rising = facts.kind == "text" or not self._falls(name).any()
            overlapping = facts.kind == "text" and self._is_overlapping(name)
            if self._may_group(name) and (overlapping or (rising and self._is_blocks(name))):
                return name
        return None

    def _action(self) -> None:
        free = self._roles.free("action")
        name = first_known(free, ACTION)
        if name is not None:
            self._roles.assign(name, "action", "named so")
        else:
            usable = self._roles.usable(free)
            likely = [n for n in usable if "action" in words_of(n) and not set(words_of(n)) & DELAYED]
            weak = [n for n in usable if set(words_of(n)) & COMMANDS and not set(words_of(n)) & DELAYED]
            if len(likely) == 1:
                self._roles.assign(likely[0], "action", "named so")
            elif (same := self._with_choices(usable)) is not None:
                self._roles.assign(same, "action", "its values are those that your policies choose")
            elif len(final := self._without_action(self.links)) == 1:
                self._roles.assign(final[0], "action", "empty in the last rows of episodes, and hardly anywhere else")
            elif len(likely or weak) == 1:
                self._roles.assign(
                    (likely or weak)[0], "action", "named as what is commanded", "state", "-", sure=False
                )
        name = self._roles.having("action")
        if name in self._facts and self._facts[name].continuous and not self._roles.found[name].settled:
            why = "named so, but it has decimals: an action is one of few; number its levels"
            self._roles.assign(name, "action", why, "-", sure=False)

    def time_limit(self) -> int:
        """Treat ends as cuts if nearly all of them come after the same number of steps.

        If only a suspicious part of the ends comes after this number, ask the user and return the number; otherwise
        return 0.
        """
        name = self._roles.having("terminated")
        if name not in self._facts or len(self.links.before) < PAIRS:
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
        action, column = self._roles.having("action"), self._roles.found[name]
        final = action in self._facts and 2 * is_missing(self._roles.columns[action])[cut].sum() > count
        steps = longest - bool(final or self._by_state)  # a final state has no step of its own
        said = f"{count:,} of {len(lengths):,} ends come after exactly {steps:,} steps, the longest"
        free = "truncated" not in self._roles.closed and self._roles.having("truncated") is None and not column.settled
        if count >= MOSTLY * len(lengths) and free:
            self._roles.assign(name, "truncated", f"{said}: taken for a time limit, after which nothing is known")
            return 0
        why = f"{column.why}; {said}: is that a TIME LIMIT? Then give time_limit: {steps}"
        self._roles.put(replace(column, why=why))
        return steps

    def _true(self, name: str) -> Bools:
        """Return the rows in which a flag holds, [n] bool."""
        return flags(RowBatch(self._roles.columns, 1, ""), name)[0]

    def end_marker(self, name: str) -> ColumnRole | None:
        """Return the role of a flag that holds only in last rows of episodes."""
        values, last = self._roles.columns[name], self.links.last
        if (found := self._outcome(name) or self._reason(name)) is not None:
            return found
        if self._facts[name].kind == "text":
            known_late = bool((values[~last] == "").all()) and len(self.links.before) >= PAIRS
            return ColumnRole(name, (), "in last rows of episodes only: it would leak the end") if known_late else None
        if self._facts[name].kind != "flag" or len(self.links.before) < PAIRS:
            return None
        holds = np.nan_to_num(values.astype(np.float64)) == 1
        if not holds.any() or holds[~last].any():
            return None
        every = bool(holds[last].all())
        if not set(words_of(name)) & ENDS:
            why = f"true in {'all' if every else 'some'} last rows of episodes, and nowhere else"
            if self._end_text and name in self._unsafe:
                return ColumnRole(name, (), f"{why}; {self._end_text} says how each episode ended")
            if (
                holds.sum() < FEW
                or self._roles.having("terminated") is not None
                or self._roles.having("truncated") is not None
            ):
                return None
            if name in self._unsafe:
                return ColumnRole(name, ("terminated",), f"{why}; what is unsafe ends an episode")
            if not every and holds.sum() >= PAIRS:  # too often to be chance
                role: Role = "truncated" if set(words_of(name)) & CUTS else "terminated"
                return ColumnRole(name, (role,), why)
            return ColumnRole(name, ("terminated",), f"{why}, so it may mark ends", sure=False, others=("state", "-"))
        for role in ("terminated", "truncated"):
            if role not in self._roles.closed and self._roles.having(role) is None:
                taken = self._roles.having("terminated") is not None
                why = f"true in {'all' if every else 'some'} last rows of episodes, and nowhere else"
                if taken:
                    return ColumnRole(name, (), f"{why}; {self._roles.having('terminated')} marks the ends")
                return ColumnRole(name, (role,), why, sure=not every, others=("truncated", "-") if every else ())
        return ColumnRole(name, (), "true in last rows of episodes only")

    def _outcome(self, name: str) -> ColumnRole | None:
        """Leave out an outcome: some of its values occur only in last rows, and an end marker shows the ends.

        This does not apply if last rows have no action. Such rows are final states, and the value is then part of the
        state.
        """
        marker = self._roles.having("terminated") or self._roles.having("truncated")
        action = self._roles.having("action")
        if marker not in self._facts or action not in self._facts or len(self.links.before) < PAIRS:
            return None
        values, last = self._roles.columns[name], self.links.last & self._true(marker)
        if 2 * is_missing(self._roles.columns[action])[last].sum() > last.sum():
            return None
        if self._facts[name].kind == "flag":
            there = np.nan_to_num(values.astype(np.float64)) == 1
        elif self._facts[name].kind == "text" and self._facts[name].distinct <= MANY_OUTCOMES:
            there = np.isin(values, np.setdiff1d(values[last], values[~last])) & (values != "")
        else:
            return None
        if int(there.sum()) < FEW or bool(there[~last].any()):
            return None
        example = name if self._facts[name].kind == "flag" else f"{name} == {str(values[there][0])!r}"
        why = f"in last rows of episodes only: what came of them, as for what is unsafe: '{marker} and {example}'"
        return ColumnRole(name, (), why)

    def _text_beside_flags(self) -> None:
        """Read end markers from a text instead of flags in the unsafe condition, if the text marks more rows.

        The text must have a reason in each row in which such a flag is true. Among several texts, the text with a
        reason in most rows is read.
        """
        names = [
            n for n in sorted(self._unsafe) if n in self._roles.free("terminated") and self._facts[n].kind == "flag"
        ]
        marks = [marks for marks in map(self._true, names) if marks.any() and not marks[~self.links.last].any()]
        texts = {
            name: np.isin(self._roles.columns[name], self._reasons(name)) for name in self._roles.free("terminated")
        }
        texts = {name: said for name, said in texts.items() if all(said[each].all() for each in marks)}
        name = max(texts, key=lambda name: int(texts[name].sum()), default="")
        if marks and name and texts[name].sum() > max(int(each.sum()) for each in marks):
            self._end_text = name
            self._roles.put(self._with_markers(name))

    def _reason(self, name: str) -> ColumnRole | None:
        """Read end markers from a text that says why an episode ended.

        Before the end, the text is empty or always the same.
        """
        meant = name in self._unsafe or set(words_of(name)) & ENDS
        return self._with_markers(name) if meant and self._reasons(name) else None

    def _reasons(self, name: str) -> list[str]:
        """Return the values of a text that occur only in last rows, if all other rows have no value or the same one.

        The result is empty if the column is no such text, or if columns have the roles of end markers already.
        """
        values, last = self._roles.columns[name], self.links.last
        free = all(
            role not in self._roles.closed and self._roles.having(role) is None for role in ("terminated", "truncated")
        )
        if not free or self._facts[name].kind != "text" or len(self.links.before) < PAIRS:
            return []
        kinds, counts = np.unique(values[last & ~is_missing(values)], return_counts=True)
        before = np.unique(values[~last & ~is_missing(values)])
        reasons = [str(kind) for kind in kinds[~np.isin(kinds, before)]]
        rare = len(reasons) > MANY_OUTCOMES or counts[np.isin(kinds, reasons)].sum() < FEW
        if rare or len(before) > 1 or marker_condition([name], f"{name} in {reasons}") is None:
            return []
        return reasons

    def _with_markers(self, name: str) -> ColumnRole:
        """Return the role of a text of reasons, and add the end markers that its words give."""
        values, reasons = self._roles.columns[name], self._reasons(name)
        cuts = [text for text in reasons if set(words_of(text)) & CUTS]
        ends = [text for text in reasons if text not in cuts]
        markers: tuple[tuple[Role, list[str]], ...] = (("terminated", ends), ("truncated", cuts))
        for role, texts in markers:
            if texts:
                marker = f"{name} in {texts}"
                self._roles.add_marker(marker, np.isin(values, texts))
                says = "that an episode ended" if role == "terminated" else "that an episode was cut off"
                self._roles.assign(marker, role, f"{says}, by the words of {name}")
        return ColumnRole(name, (), "why an episode ended: in last rows only, so it would leak the end")
