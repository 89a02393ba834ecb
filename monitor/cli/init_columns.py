"""Columns of recordings in `cfmon init`: their probable roles, corrections on a terminal, and the unsafe condition."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import typer

from monitor.arrays import AnyArray
from monitor.authoring.learning.assigned_roles import ColumnRole
from monitor.authoring.learning.batch import RowBatch, flags
from monitor.authoring.learning.column_facts import Head, head_of
from monitor.authoring.learning.column_roles import Proposal, proposed
from monitor.authoring.learning.columns import ROLES, SINGLE, Role, Roles, columns_named, guessed
from monitor.authoring.learning.conditions import Condition, marker_condition, parsed
from monitor.authoring.learning.learner import ALIASES, labels_of
from monitor.authoring.learning.sentinels import (
    FarValue,
    codes_of,
    decoded,
    doubtful_values,
    far_values,
    missing_texts,
    number_text,
)
from monitor.authoring.learning.state_functions import columns_read
from monitor.cli.abstractions import function_of
from monitor.cli.init_settings import InitSettings, codes_text, key_text, role_text, roles_of
from monitor.cli.output import say
from monitor.cli.recorded_inputs import many, open_recording, recorded_files
from monitor.errors import ConfigError, ModelError, MonitorError, printable
from monitor.user_code import is_reference

SEVERAL: Final = ("state", "next_state", "inputs")
"""Options that name several columns."""

LIMIT: Final = ("time_limit", "time limit")

CODED: Final[tuple[Role, ...]] = ("episode", "order", "action")
"""Roles whose values are codes. A number far outside the others is then another code, not a missing value."""

BELIEVED: Final[tuple[Role, ...]] = (*CODED, "reward")
"""Roles whose far values are read as missing only if a person says so. Far values are far outside the others, such as
-999. With these roles, they may be real, such as a penalty."""

FAR: Final = 3
"""Number of far values of a column that are shown."""

MISSING: Final = "missing: # values that stand for missing ones; [] for none"
DOUBTFUL: Final = "# Far outside the others or rare, and read as they are; if they are errors, add them under missing:"

WIDTH: Final = 120
"""Largest width of the table, in characters, on a terminal of any width."""

LINES: Final = 60
"""Number of columns, or lists of columns, that are shown. Unclear ones are shown in any case."""

CORRECT: Final = (
    "Correct what is wrong, such as `{name}: {role}`; the roles are {roles} and left out. Values that stand for "
    "missing ones: `COLUMN: missing -999, 9999`, or `COLUMN: missing none`."
)
UNSAFE: Final = "What must not happen? A name and a condition on the columns, such as `{example}`."


@dataclass(frozen=True)
class ColumnOptions:
    """Options of columns, as for `cfmon model learn`. `given`: name of the option -> its text."""

    given: Mapping[str, str]

    def applied(
        self, columns: Mapping[str, str], names: Sequence[str], source: str
    ) -> tuple[dict[str, tuple[Role, ...]], set[Role]]:
        """Return the settled columns with their roles, and the roles that no other column can have.

        `columns`: columns settled by a file. Raises ConfigError or RecordingError if there is no such column.
        """
        settled: dict[str, tuple[Role, ...]] = {}
        for text, words in columns.items():
            settled |= dict.fromkeys(columns_named(names, text, source), roles_of(words))
        closed: set[Role] = set()
        for option, text in self.given.items():
            (role,) = roles_of(option)
            settled = {name: tuple(each for each in roles if each != role) for name, roles in settled.items()}
            for part in text.split(",") if option in SEVERAL else [text]:
                for name in columns_named(names, part.strip(), source) if part.strip() else ():
                    settled[name] = (*settled.pop(name, ()), role)
            closed.add(role)
        for single in SINGLE:
            if len(several := [name for name, roles in settled.items() if single in roles]) > 1:
                raise ConfigError(
                    f"columns: {' and '.join(several[:2])} both have the role {single}; one column has it"
                )
        return settled, closed


class RecordedColumns:
    """The columns of recordings, with methods that show and correct their roles."""

    def __init__(self, settings: InitSettings, options: ColumnOptions) -> None:
        self.sources = [open_recording(p, settings.topic) for p in recorded_files(map(Path, settings.recordings))]
        self._read: Head = head_of(self.sources)
        self.settings, self.options = settings, options
        self.names = [*self._read.columns, *self._read.unreadable]
        self.settled, self.closed = options.applied(settings.columns, self.names, self.source)
        self.codes: dict[str, tuple[float | str, ...]] = {}
        """Values that stand for missing values, as the user gave them."""
        for text, codes in settings.missing.items():
            self.codes |= dict.fromkeys(columns_named(self.names, text, self.source), codes)
        self.time_limit = settings.time_limit
        self.far = {name: far for name, values in self._read.columns.items() if (far := _doubted(values))}
        said = {"bins": settings.bins, "abstraction": settings.abstraction}
        self.function = function_of(said)
        self.without_inputs: list[str] = []
        """Columns that are inputs in the file of settings, and are left out because a table has no inputs."""
        if settings.dynamics is False or any(said.values()):
            self.closed.add("input")
            if "inputs" not in options.given:
                self.without_inputs = [name for name, roles in self.settled.items() if "input" in roles]
                self.settled |= dict.fromkeys(self.without_inputs, ())
        if settings.bins is not None and "state" not in self.closed:
            self._binned(settings.bins)
        self.unsafe = _columns_of(settings.unsafe, self.names)
        self.chosen = _chosen((settings.nominal, settings.fallback), self._read)
        self.proposal: Proposal = self._proposed()

    @property
    def source(self) -> str:
        """The name of the first file."""
        return str(self.sources[0].path)

    def _binned(self, bins: str) -> None:
        """Give the role of the state to the columns for which bins are given."""
        from monitor.authoring.learning.bins import parsed_bins  # noqa: PLC0415 - keep `cfmon --help` light

        named = [name for name in parsed_bins(bins) if name]
        if named and all(name in self.names for name in named):
            for name in named:
                roles = self.settled.get(name, ())
                self.settled[name] = roles if "state" in roles else (*roles, "state")
            self.closed.add("state")

    def _proposed(self) -> Proposal:
        """Return the proposed roles. Far values of columns with a role in `BELIEVED` are not read as missing values."""
        believed: set[str] = set()
        while True:
            likely: dict[str, tuple[float | str, ...]] = {
                name: tuple(one.value for one in far if one.sentinel) for name, far in self.far.items()
            }
            likely |= {name: texts for name, values in self._read.columns.items() if (texts := missing_texts(values))}
            taken = {name: codes for name, codes in likely.items() if codes and name not in believed} | self.codes
            batch = decoded(RowBatch(self._read.columns, 1, self.source), taken)
            head = replace(self._read, columns={**batch.columns, **self._markers(batch, self.settled)})
            found = proposed(
                head, self.settled, self.closed,
                computed=columns_read(self.function, batch.columns) if self.function else None,
                time_limit=self.time_limit, by_state=self.settings.timing == "state", unsafe=self.unsafe,
                chosen=self.chosen,
            )  # fmt: skip
            more = {name for role in BELIEVED for name in found.having(role) if name in taken} - {*self.codes}
            if not more:
                break
            believed |= more
        self.missing = taken
        self.head = replace(head, columns={**head.columns, **self._markers(batch, found.ordered)})
        self.coded = {name for role in CODED for name in found.having(role)}
        return replace(found, columns=[self._with_far(each) for each in found.columns])

    def _markers(self, batch: RowBatch, names: Iterable[str]) -> dict[str, AnyArray]:
        """Return name -> the rows in which it holds, for names that are conditions in place of end markers."""
        given = {name: found for name in names if (found := marker_condition(self.names, name)) is not None}
        return {name: condition.holds(batch.columns, len(batch)) for name, condition in given.items()}

    def _with_far(self, column: ColumnRole) -> ColumnRole:
        """Return a column that also shows its codes for missing values and, if it is used, its other far values."""
        codes = self.missing.get(column.name, ())
        said = [f"{', '.join(map(number_text, codes))}: missing"] if codes else []
        if column.roles or not column.sure:
            said += [f"{number_text(one.value)} ({one.count:,}): {one.why}" for one in self._others(column.name)]
            if odd := self.head.odd.get(column.name, 0):
                said.append(f"no number in {many(odd, 'row')}: missing")
        return replace(column, values="; ".join([column.values, *said]))

    def _others(self, name: str) -> list[FarValue]:
        """Return the first far values of a column that are read as ordinary values."""
        codes = self.missing.get(name, ())
        far = () if name in self.coded else self.far.get(name, ())
        return [one for one in far if one.value not in codes][:FAR]

    def reading_lines(self) -> list[str]:
        """Return lines of YAML on the time limit, and on values that stand, or might stand, for missing values."""
        used = {each.name for each in self.proposal.columns if each.roles or not each.sure}
        taken, doubtful = [], []
        for name in self.names:
            codes = self.missing.get(name, ())
            if name in self.missing:
                said = "read as empty cells" if codes else "all values are read as they are"
                range_ = "".join(map(_range, self.far.get(name, ())[:1]))
                taken.append(f"  {key_text(name)}: {codes_text(codes)} # {said}{range_}")
            for one in self._others(name) if name in used else ():
                rows = many(one.count, "row")
                doubtful.append(f"#   {key_text(name)}: {codes_text((*codes, one.value))} # {rows}{_range(one)}")
        limit = self.proposal.time_limit
        lines = [] if self.time_limit is None else [f"time_limit: {self.time_limit}"]
        lines += [f"# time_limit: {limit} # if ends after so many steps are cuts; 0: they are ends"] if limit else []
        return [*lines, *([MISSING, *taken] if taken else []), *([DOUBTFUL, *doubtful] if doubtful else [])]

    def show(self) -> None:
        """Print the table of the columns."""
        more = "" if len(self.sources) == 1 else f" and {many(len(self.sources) - 1, 'more file')}"
        say(f"{self.source}{more}: {self.head.looked_at}{'' if self.head.whole else ' were looked at'}")
        for line in table_of(self.proposal.columns):
            say(line)
        if self.without_inputs:
            say(printable(f"  left out: {', '.join(self.without_inputs)}: inputs are for a world, and this is a table"))
        undecided, unsure = self.proposal.undecided, self.proposal.unsure
        if undecided:
            say(f"  ?: not clear; a person has to decide on {', '.join(each.name for each in undecided)}")
        elif unsure:
            say("  ?: not clear; the role shown is assumed. To change it, write NAME: ROLE under columns: in init.yaml")
        if any(codes for name, codes in self.missing.items() if name not in self.codes):
            say("  missing: such values repeat far outside all others; they are read as empty cells")

    def show_missing(self, roles: Roles) -> None:
        """Print the consequences of roles that no column has."""
        for line in roles.lines():
            role, _, text = line.partition(" ")
            if text.strip().startswith("none: "):
                say(f"  no {role}: {text.strip().removeprefix('none: ')}")

    def correct(self) -> None:
        """Ask for corrections until the user enters none and each necessary role is given."""
        example = next((each for each in self.proposal.columns if not each.sure), self.proposal.columns[-1])
        role = role_text(()) if example.others[:1] in ((), ("-",)) else example.others[0]
        for line in textwrap.wrap(CORRECT.format(name=example.name, role=role, roles=", ".join(ROLES)), _width()):
            say(printable(line))
        while True:
            for problem in self.proposal.problems.items():
                say(f"  {printable(_lacking(*problem))}")
            answer = typer.prompt("COLUMN: ROLE, or Enter to go on", default="", show_default=False).strip()
            if not answer and not self.proposal.problems:
                return
            try:
                self._change([part for part in answer.split(";") if part.strip()])
            except MonitorError as error:
                say(f"  {error}")

    def _change(self, lines: Sequence[str]) -> None:
        """Apply corrections, each a text `NAME: ROLE`, and print the columns that they change."""
        before = {each.name: (each.roles, each.sure, each.values) for each in self.proposal.columns}
        settled, given, limit = dict(self.settled), dict(self.codes), self.time_limit
        for line in lines:
            name, colon, role = line.rpartition(":")
            if not (colon and name.strip()):
                raise ConfigError(f"{line.strip()!r}: write NAME: ROLE, such as  {self.names[-1]}: left out")
            if name.strip() in LIMIT and name.strip() not in self.names:
                if not role.strip().isdecimal():
                    raise ConfigError(f"{line.strip()!r:.80}: write time_limit: STEPS, or time_limit: 0 for none")
                limit = int(role)
                continue
            if (codes := role.strip()).startswith("missing "):
                named = columns_named(self.names, name.strip(), self.source)
                given |= dict.fromkeys(named, codes_of(codes.removeprefix("missing ")))
                continue
            roles = roles_of(role)
            for each in roles:
                if each in SINGLE:  # then no other column has this role
                    settled = {name: theirs for name, theirs in settled.items() if each not in theirs}
            settled |= dict.fromkeys(columns_named(self.names, name.strip(), self.source), roles)
        before_all = self.settled, self.codes, self.time_limit
        self.settled, self.codes, self.time_limit = settled, given, limit
        try:
            self.proposal = self._proposed()
        except MonitorError:
            self.settled, self.codes, self.time_limit = before_all
            raise
        changed = [e for e in self.proposal.columns if before[e.name] != (e.roles, e.sure, e.values)]
        for line in table_of(changed)[1:]:
            say(line)

    def refuse_unsure(self, file: Path | None) -> None:
        """Raise ConfigError if a person must decide, with the lines of YAML that settle all that is unclear.

        `file`: the file of settings.
        """
        undecided, unsure, problems = self.proposal.undecided, self.proposal.unsure, self.proposal.problems
        if not (undecided or problems):
            return
        lines = ["columns:"]
        for role, perhaps in problems.items():
            lines += [f"  # {_lacking(role, ())}", *(f"  # {key_text(name)}: {role}" for name in perhaps)]
        lines += [
            f"  {key_text(each.name)}: {role_text(each.roles)} # or {_others(each)}: {each.why}" for each in unsure
        ]
        lines += self.reading_lines()
        lines += [] if self.settings.unsafe else ["unsafe: 'NAME: CONDITION'"]
        where = f"{self.source}: {many(len(undecided) + len(problems), 'column')} to decide on"
        way = "Write these lines to a file, correct them, and give it with --from FILE"
        way = way if file is None else f"Add these lines to {file}, and correct them"
        raise ConfigError(f"{where}. {way}:\n" + "\n".join(lines))

    def settled_roles(self) -> tuple[dict[str, Any], Roles]:
        """Return the roles as options of a learner, and as `Roles`. Raises RecordingError."""
        having = self.proposal.having
        found: dict[str, Any] = {role: (having(role) or ("",))[0] for role in SINGLE}
        found |= {"state": having("state") or None, "next_state": having("next_state") or ""}
        found |= {"observation": self.settings.observation, "timing": self.settings.timing}
        found |= {"time_limit": self.time_limit}
        computed = ["state"] if self.function else []
        given = found | {"inputs": having("input")} | dict.fromkeys(computed, "state")
        return found, guessed([*computed, *self.names], given, self.source, self.sources[0].left_out)

    def holds(self, text: str, roles: Roles) -> tuple[int, str]:
        """Return the number of rows in which a condition holds, and a sentence that says so. Raises ModelError."""
        condition, columns = self._condition(text, roles)
        count = int(np.count_nonzero(condition.holds(columns, len(self.head))))
        share = "none" if not count else "all" if count == len(self.head) else _percent(count / len(self.head))
        cut = self.time_limit and roles.terminated in {self._column(name, roles) for name in columns}
        counted = ", ends by the time limit included" if cut else ""
        said = f"{condition.name}: {condition.text} holds in {share} of {self.head.looked_at}{counted}"
        return count, said + self._by_far_values(condition, columns)

    def _by_far_values(self, condition: Condition, columns: Mapping[str, AnyArray]) -> str:
        """Return a clause if the condition holds in some rows only because of values far outside the others."""
        found = ""
        holds = condition.holds(columns, len(self.head))
        for name in columns:
            for one in self._others(name):
                there = holds & (columns[name] == one.value)
                known = {other: values[there] for other, values in columns.items() if other != name}
                count = int((~condition.holds(known, int(there.sum()))).sum())
                if count:
                    code = number_text(one.value)
                    where = "far outside its other values" if one.why == "far outside" else one.why
                    found += f"; in {many(count, 'row')} because {name} is {code}, {where}. "
                    found += f"If that is no reading, give --missing '{name}: {code}'"
        return found

    def at_ends(self, text: str, roles: Roles) -> str:
        """Return a condition, with `done and` before it if it describes the ends of episodes but names no end marker.

        The result is a condition on the step that ends the episode, not on a state. It is false in all rows without an
        end. Their text is empty, so the given condition might hold there. Raises ModelError.
        """
        condition, columns = self._condition(text, roles)
        about_states = not {*condition.columns}.isdisjoint(roles.of_state | {*ALIASES, roles.terminated})
        if about_states or roles.terminated not in self.head.columns or roles.timing == "state":
            return text
        holds = condition.holds(columns, len(self.head))
        ended = flags(RowBatch(self.head.columns, 1, self.source), roles.terminated)[0]
        if not holds.any() or (holds & ~ended).any():
            return text
        return f"{condition.name}: done and ({condition.text})"

    def _column(self, name: str, roles: Roles) -> str:
        """Return the column of a name in a condition. `done` is the end marker, under any name of its column."""
        return name if name in self.names else str(getattr(roles, ALIASES[name]))

    def _condition(self, text: str, roles: Roles) -> tuple[Condition, dict[str, AnyArray]]:
        """Return a condition, and the values of its columns in the first rows. Raises ModelError."""
        ((condition, _),) = labels_of([], [text], roles, self.names)
        columns = {}
        for name in condition.columns:
            column = self._column(name, roles)
            if column in self.head.unreadable:
                raise ModelError(f"label {condition.name!r}: column {column!r}: {self.head.unreadable[column]}")
            columns[name] = self.head.columns[column]
        return condition, columns

    def ask_unsafe(self, roles: Roles) -> str:
        """Ask for the unsafe condition until it holds in some rows but not in all, or until an answer is repeated."""
        before = ""
        columns = self.head.columns
        number = next((name for name in roles.state if name in columns and columns[name].dtype.kind in "if"), "")
        for line in textwrap.wrap(UNSAFE.format(example=f"high: {number or 'temperature'} >= LIMIT"), _width()):
            say(printable(line))
        while True:
            answer = typer.prompt("NAME: CONDITION").strip()
            try:
                count, words = self.holds(answer, roles)
            except MonitorError as error:
                say(f"  {error}")
                continue
            say(f"  {printable(words)}")
            if 0 < count < len(self.head) or answer == before:
                return str(answer)
            say("  nothing can be learned from that; give another condition, or the same again to go on with it")
            before = answer


def _columns_of(unsafe: str | None, names: Sequence[str]) -> set[str]:
    """Return the columns in a condition `NAME: CONDITION`; none if the condition is unreadable (reported later)."""
    try:
        return set(parsed(unsafe or "").columns) & set(names)
    except ModelError:
        return set()


def _chosen(policies: Iterable[str | None], head: Head) -> set[object]:
    """Return the actions that the policies choose in some of the rows. Only policies that are functions are called."""
    found: set[object] = set()
    for source in policies:
        if source is not None and is_reference(source):
            from monitor.authoring.policy_export.given_policy import choices_of  # noqa: PLC0415 - keep `cfmon --help` light

            found |= choices_of(source, head.columns)
    return found


def _range(one: FarValue) -> str:
    """Return a clause such as "; the others are 1 to 9" on the other values of the column; "" for texts."""
    return "" if isinstance(one.value, str) else f"; the others are {one.low:.6g} to {one.high:.6g}"


def _doubted(values: AnyArray) -> list[FarValue]:
    """Return the far and the doubtful values of a column, each once."""
    far = far_values(values)
    others = values[~np.isin(values, [one.value for one in far])] if far else values
    return [*far, *doubtful_values(others)]


def _lacking(role: Role, perhaps: Sequence[str]) -> str:
    """Return a sentence that says that a role is needed. `perhaps`: columns that might have this role."""
    article = "it" if role == "action" else "at least one"
    known = f", perhaps {', '.join(perhaps[:4])}" if perhaps else ""
    return f"no column looks like the {role}: give {article} the role {role}{known}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 else f"{100 * share:.2g} %"


def _others(each: ColumnRole) -> str:
    return ", ".join("left out" if other == "-" else other for other in each.others) or "left out"


def table_of(columns: Sequence[ColumnRole]) -> list[str]:
    """Return lines that show columns with their values, roles and reasons, as wide as the terminal."""
    width = _width()
    every = _groups(columns)
    groups = [group for i, group in enumerate(every) if i < LINES or not group[0].sure]
    rows = [("column", "role", "values", "why"), *(_row(group) for group in groups)]
    widest = [max(len(row[i]) for row in rows) for i in range(3)]
    limits = (max(width // 4, 12), 12, max(width // 4, 12))
    widths = [min(have, limit) for have, limit in zip(widest, limits, strict=True)]
    widths.append(max(width - 2 - sum(widths) - 2 * 3, 20))
    lines = []
    for row, mark in zip(rows, [" ", *(" " if group[0].sure else "?" for group in groups)], strict=True):
        cells = [
            textwrap.wrap(cell, size, break_on_hyphens=False) or [""] for cell, size in zip(row, widths, strict=True)
        ]
        for i in range(max(map(len, cells))):
            parts = [(cell[i] if i < len(cell) else "").ljust(size) for cell, size in zip(cells, widths, strict=True)]
            lines.append(f"{mark if not i else ' '} {'  '.join(parts)}".rstrip())
    more = len(columns) - sum(map(len, groups))
    return [*lines, f"  and {many(more, 'more column')}"] if more else lines


def _width() -> int:
    return min(shutil.get_terminal_size((80, 24)).columns, WIDTH)


def _row(group: Sequence[ColumnRole]) -> tuple[str, str, str, str]:
    first, last = group[0], group[-1]
    name = first.name if len(group) == 1 else f"{first.name} to [{last.name.rpartition('[')[2]}"
    why = first.why + ("" if first.sure else f"; or {_others(first)}?")
    return printable(name), role_text(first.roles), printable(first.values), printable(why)


def _groups(columns: Sequence[ColumnRole]) -> list[list[ColumnRole]]:
    """Return groups of columns. Entries of one list that have the same role form one group."""
    found: list[list[ColumnRole]] = []
    for each in columns:
        base = each.name.partition("[")[0]
        alike = found and base != each.name and found[-1][0].name.startswith(f"{base}[")
        if alike and (found[-1][0].roles, found[-1][0].sure) == (each.roles, each.sure):
            found[-1].append(each)
        else:
            found.append([each])
    return found
