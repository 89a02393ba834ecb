"""Roles of columns: the use of each column of a log, as the user says, or else guessed from its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, get_args

from monitor.authoring.learning.conditions import marker_condition
from monitor.errors import RecordingError

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Timing = Literal["step", "state"]
"""What a row's reward and end markers belong to.

`step`: the step that begins with the row's action, as returned by an environment's `step`. `state`: the arrival in the
row's state, as in the monitor's messages.
"""

Role = Literal["episode", "order", "state", "next_state", "input", "action", "reward", "terminated", "truncated"]
"""Role of a column."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)

EPISODE: Final = ("episode", "episode_id", "episode_index", "episode_idx", "ep", "traj", "traj_id", "trajectory",
                  "trajectory_id", "run", "run_id", "rollout")  # fmt: skip
ORDER: Final = ("seq", "frame_index", "step", "step_index", "timestep", "t", "time_step", "time", "timestamp")
ACTION: Final = ("action", "act", "a", "u", "control", "actions")
REWARD: Final = ("reward", "next.reward", "r", "rew", "rewards")
TERMINATED: Final = ("terminated", "next.terminated", "terminal", "done", "next.done", "is_terminal", "terminals")
TRUNCATED: Final = ("truncated", "next.truncated", "timeout", "timeouts", "is_truncated")
STATE: Final = ("state", "obs", "observation", "observation.state", "s", "observations")
SINGLE: Final[Mapping[Role, tuple[str, ...]]] = {"episode": EPISODE, "order": ORDER, "action": ACTION, "reward": REWARD,
                 "terminated": TERMINATED, "truncated": TRUNCATED}  # fmt: skip
"""The roles that at most one column has -> the names of columns, in small letters, that are known for the role."""
NEXT: Final = ("next_", "next.", "new_")
NOISE: Final = ("index", "task_index", "policy", "extra", "time", "timestamp", "ts", "date", "datetime", "info",
                 "agent", "wall", "", "unnamed: 0", "__index_level_0__")  # fmt: skip
"""Columns that are never part of a state. The last of these are pandas' names for the numbers of rows."""


@dataclass(frozen=True)
class Roles:
    """Names of the columns that have a role.

    Attributes:
        state: columns that together give the state.
        action, episode, order, reward, terminated, truncated: one column each; None: no column has this role. Without
            `episode`, a file is one sequence of rows. It is cut into episodes at end markers, where `order` falls, and
            where a counter restarts.
        next_state: columns of the state after the step; empty: the next row has this state.
        observation: columns of a policy's input, or empty.
        timing: see `Timing`.
        others: further columns that conditions of labels use.
        inputs: columns of the recorded inputs of a world with numbers; they are not among `state`.
        signal: column of what the sensor showed in the row's state, if agents do not see the state; None: they see it.
        time_limit: number of steps after which an end cuts an episode off instead of terminating it; 0: no such limit.
    """

    state: tuple[str, ...]
    action: str
    episode: str | None = None
    order: str | None = None
    reward: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    next_state: tuple[str, ...] = ()
    observation: tuple[str, ...] = ()
    timing: Timing = "step"
    others: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    signal: str | None = None
    time_limit: int = 0

    @property
    def used(self) -> tuple[str, ...]:
        """Names of all columns to read, without repetitions."""
        single = (self.action, self.episode, self.order, self.reward, self.terminated, self.truncated, self.signal)
        given = (name for name in single if name is not None)
        several = (*self.next_state, *self.observation, *self.others, *self.inputs)
        return tuple(dict.fromkeys((*self.state, *given, *several)))

    def lacking(self, names: Collection[str]) -> list[str]:
        """Return the columns to read that are neither in `names` nor end markers computed from columns in `names`."""
        computed = {name for name in (self.terminated, self.truncated) if name and marker_condition(names, name)}
        return [name for name in self.used if name not in names and name not in computed]

    @property
    def has_final_rows(self) -> bool:
        """True if a row without an action is the final state of its episode."""
        return self.episode is not None and self.timing == "step"

    @property
    def of_state(self) -> frozenset[str]:
        """Names of the columns of the state, before or after the step."""
        return frozenset((*self.state, *self.next_state))

    def lines(self) -> list[str]:
        """Return one line for each role, as shown before learning."""
        shown = {
            "state": ", ".join(self.state),
            "action": self.action,
            "episode": self.episode or "none: each file is one episode, cut at its end markers",
            "order": self.order or "none: rows are in order",
            "reward": self.reward or "none: all rewards are 0",
            "terminated": self.terminated or "none: no episode terminates",
            "truncated": self.truncated or "none",
            "next state": ", ".join(self.next_state) or "the state of the next row",
            "timing": TIMINGS[self.timing],
        }
        if self.inputs:
            shown["inputs"] = ", ".join(self.inputs)
        if self.signal:
            shown["signal"] = f"{self.signal}: what the sensor shows, while the state is hidden"
        if self.time_limit:
            shown["time limit"] = f"{self.time_limit:,} steps: an end after so many cuts an episode off"
        if self.observation:
            shown["observation"] = ", ".join(self.observation)
        return [f"{name:<12}{text}" for name, text in shown.items()]


TIMINGS: Final = {
    "step": "step: reward and end markers belong to the step from the row's state",
    "state": "state: reward and end markers belong to the arrival in the row's state",
}


def guessed(
    names: Sequence[str], given: Mapping[str, object], source: str, left_out: Mapping[str, str] = NOTHING
) -> Roles:
    """Return the roles of the columns `names`. `given` has the fields of `Roles` that the user has set.

    `left_out`: columns that cannot be read -> what they contain. Several columns are given as a tuple, or as a text
    with commas. Columns that came from one list or map (`x[0]`, `x[1]`) may be given by the name of the list or map.
    Inputs are guessed if they are given as None. Raises RecordingError if a given column does not exist, if a given or
    guessed column cannot be read, or if state or action cannot be guessed.
    """
    single: Mapping[Role, Sequence[str]] = {"action": ACTION, **SINGLE}  # errors about the action come first
    roles: dict[str, object] = {role: first_known(names, known) for role, known in single.items()}
    roles |= {role: value for role, value in given.items() if role in single and value is not None}
    roles = {role: None if value == "" else value for role, value in roles.items()}
    if roles["action"] is None and not any(name in left_out for name in ACTION):
        raise RecordingError(f"{source}: no column looks like the action; add --action NAME, one of {_list(names)}")
    _refuse_unreadable(roles, single, given, source, left_out)
    if roles["episode"] is None and given.get("episode") is None:
        _refuse_several(names, source)
    signal = None if given.get("signal") is None else str(given["signal"])
    taken = {str(value) for value in (*roles.values(), signal) if value is not None}
    inputs = _several(names, _inputs(names, given), source, left_out)
    state = _several(names, given.get("state"), source, left_out) or _state(names, taken)
    if inputs and not (state := tuple(name for name in state if name not in inputs)):
        raise RecordingError(f"{source}: every column of the state is an input; name others with --state")
    if not state:
        raise RecordingError(f"{source}: no column looks like the state; add --state NAME,NAME, of {_list(names)}")
    after = _several(names, given.get("next_state"), source, left_out)
    found = Roles(
        state=state,
        action=str(roles.pop("action")),
        inputs=inputs,
        next_state=after or (_next(names, state) if given.get("next_state") is None else ()),
        observation=_several(names, given.get("observation"), source, left_out),
        signal=signal,
        time_limit=int(str(given.get("time_limit") or 0)),
        timing="state" if are_messages(names) else "step",
        **{role: None if value is None else str(value) for role, value in roles.items()},  # type: ignore[arg-type]
    )
    if given.get("timing") is not None:
        found = replace(found, timing="state" if given["timing"] == "state" else "step")
    _check(found, names, source)
    return found


def are_messages(names: Iterable[str]) -> bool:
    """Return whether rows with these columns are messages of the monitor's format, as an agent sent them."""
    return {"v", "seq", "episode"} <= set(names)


def expanded(names: Iterable[str], name: str) -> tuple[str, ...]:
    """Return the columns for a name: the column itself, `name[0]`, `name[1]`, ... or `name.key`."""
    known = list(names)
    if name in known:
        return (name,)
    entries = [(int(match[1]), each) for each in known if (match := re.fullmatch(rf"{re.escape(name)}\[(\d+)\]", each))]
    return tuple(each for _, each in sorted(entries)) or tuple(each for each in known if each.startswith(f"{name}."))


def columns_named(names: Sequence[str], name: str, source: str) -> tuple[str, ...]:
    """Return the columns for a name, as `expanded` does. If the name is a condition on columns, return the condition.

    Raises RecordingError if there are none.
    """
    found = expanded(names, name) or ((name,) if marker_condition(names, name) else ())
    if not found:
        raise RecordingError(f"{source}: there is no column {name!r}; it has {', '.join(names[:30])}")
    return found


def first_known(names: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the column of the first `known` name that occurs, even if it is a list or structure of one entry."""
    lower = {name.lower(): name for name in reversed(names)}
    for name in known:
        if name in lower:
            return lower[name]
        if len(entries := _entries(names, name)) == 1:
            return entries[0]
    return None


def _entries(names: Sequence[str], name: str) -> list[str]:
    """Return the columns that were expanded from one column, a list or a structure."""
    return [each for each in names if each.lower().startswith((f"{name}[", f"{name}."))]


def _refuse_unreadable(
    roles: Mapping[str, object],
    known: Mapping[Role, Sequence[str]],
    given: Mapping[str, object],
    source: str,
    left_out: Mapping[str, str],
) -> None:
    """Refuse columns that cannot be read if their names would give them a role, or make them part of the state."""
    for role, usual in [*known.items(), ("state", STATE)]:
        wanted = [str(given[role])] if given.get(role) is not None else []
        if given.get(role) is None and roles.get(role) is None:
            wanted = [name for name in left_out if name.lower() in usual]
        for name in wanted:
            if name in left_out:
                option = f"--{role} NAME" if role in ("action", "state") else f"--{role} NAME, or '' for none"
                raise RecordingError(
                    f"{source}: column {name!r} cannot be read: it holds {left_out[name]}; give another one by {option}"
                )


def _refuse_several(names: Sequence[str], source: str) -> None:
    """Refuse a list or structure of several entries that is named like an episode. Ignoring it would join episodes."""
    for name in EPISODE:
        if entries := _entries(names, name):
            raise RecordingError(
                f"{source}: an episode has several columns ({_list(entries)}); name the one that differs between "
                "episodes by --episode NAME, or '' for none"
            )


def _several(names: Sequence[str], given: object, source: str, left_out: Mapping[str, str]) -> tuple[str, ...]:
    texts = given if isinstance(given, tuple) else str(given or "").split(",")
    wanted = [name.strip() for name in texts if name.strip()]
    found: list[str] = []
    for name in wanted:
        columns = expanded(names, name)
        if name in left_out:
            raise RecordingError(f"{source}: column {name!r} cannot be read: it holds {left_out[name]}")
        if not columns:
            raise RecordingError(f"{source}: there is no column {name!r}; it has {_list(names)}")
        found += columns
    return tuple(dict.fromkeys(found))


def _state(names: Sequence[str], taken: set[str]) -> tuple[str, ...]:
    """Return the columns named like a state, or else all columns that have no other role."""
    for name in STATE:
        for each in names:
            base = each.partition("[")[0]
            if base.lower() == name and (columns := expanded(names, base)):
                return columns
    version = {"v"} if are_messages(names) else set()
    bad = {*version, *NOISE, *EPISODE, *ORDER, *ACTION, *REWARD, *TERMINATED, *TRUNCATED}
    return tuple(
        n for n in names
        if n not in taken and n.partition("[")[0].lower() not in bad and not n.lower().startswith(NEXT)
    )  # fmt: skip


def _inputs(names: Sequence[str], given: Mapping[str, object]) -> object:
    """Return the columns of inputs that the user named. If they are to be guessed (None), return those of messages."""
    if given.get("inputs", "") is None:
        return "inputs" if expanded(names, "inputs") else ""
    return given.get("inputs")


def _next(names: Sequence[str], state: tuple[str, ...]) -> tuple[str, ...]:
    for before in NEXT:
        after = tuple(before + name for name in state)
        if set(after) <= set(names):
            return after
    return ()


def _check(roles: Roles, names: Sequence[str], source: str) -> None:
    if roles.action not in names and (entries := expanded(names, roles.action)):
        raise RecordingError(
            f"{source}: column {roles.action!r} is a list or a map; an action is one number or text. "
            f"Name one entry (--action {entries[0]!r}), or add a column that numbers the actions"
        )
    missing = roles.lacking(names)
    if missing:
        raise RecordingError(f"{source}: there is no column {missing[0]!r}; it has {_list(names)}")
    if roles.next_state and len(roles.next_state) != len(roles.state):
        raise RecordingError(
            f"--next-state names {len(roles.next_state)} columns for the {len(roles.state)} of the state"
        )
    if roles.next_state and roles.timing == "state":
        raise RecordingError("--next-state needs --timing step: a row then describes one whole step")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
