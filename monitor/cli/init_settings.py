"""The settings of `cfmon init` as one YAML file that the user can keep and use again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from monitor.authoring.learning.column_roles import Proposal
from monitor.authoring.learning.columns import ROLES, Role, expanded
from monitor.authoring.learning.left_out import DEFAULT
from monitor.authoring.learning.sentinels import codes_of, number_text
from monitor.cli.learn_dynamics import FITS
from monitor.errors import ConfigError, printable
from monitor.sidecar.config.yamlfile import read_yaml

LEFT_OUT: Final = "left out"

ALSO: Final[Mapping[str, Role]] = {"time": "order", "end": "terminated", "inputs": "input"}
"""Further words for roles."""

HEAD: Final = """\
# What `cfmon init` was asked for, and how it takes each column. To repeat it without a question:
#   cfmon init FOLDER --from THIS-FILE
# Paths are relative to the folder in which it runs, as on the command line.
"""

PLAIN: Final = re.compile(r"[A-Za-z_][\w.\[\]]*(?: [\w.\[\]]+)*", re.ASCII)
"""Names of columns that need no quotes in YAML."""


class InitSettings(BaseModel):
    """The settings of a run. A key that is left out has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)

    recordings: tuple[str, ...] = ()
    """Files or folders of recorded steps."""
    simulator: str | None = None
    """A simulator in place of recordings, as for `--simulator`."""
    columns: dict[str, str] = {}
    """Column -> its role, several roles separated by commas, or `left out`. A list or a map may be named as a whole."""
    missing: dict[str, tuple[float | str, ...]] = {}
    """Column -> values that stand for missing values, such as -999; default: values far outside the others."""
    time_limit: Annotated[int, Field(ge=0)] | None = None
    """Number of steps after which an end cuts an episode off instead of terminating it; 0: there is no such limit."""
    observation: str | None = None
    """Columns of a policy's input, separated by commas."""
    timing: Literal["step", "state"] | None = None
    """Whether a row's reward and end markers belong to its step or to its state; default: by the columns' names."""
    unsafe: str | None = None
    """The label of unsafe states, as `NAME: CONDITION`."""
    label: tuple[str, ...] = ()
    """Further labels, as `NAME: CONDITION`."""
    nominal: str | None = None
    """The agent's policy; default: estimated from the recordings."""
    fallback: str | None = None
    """The fallback policy; default: the safest policy of the model is suggested."""
    bins: str | None = None
    """Bins of the state, for a table."""
    abstraction: str | None = None
    """Another abstraction of the states, for a table."""
    dynamics: bool | None = None
    """True: a world with numbers. False: a table. Default: the better of the two."""
    fits: int = FITS
    """Number of fits of a world to resampled episodes, for the credible band; 0: none."""
    topic: str = "agents/+/steps"
    """Topic pattern of the agent's steps."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Number of steps for measuring the candidate formulas; default: until 100 unsafe events, within limits of work."""
    skip_bad: str = DEFAULT
    """Bad rows that may be left out: a number, or a fraction such as `1%`."""
    step_seconds: Annotated[float, Field(gt=0)] | None = None
    """Seconds between two steps, for the number of alarms in a day; default: from the recorded times."""
    seed: int = 0
    """Seed of the held-out episodes, and of simulated episodes."""
    offset: Annotated[int, Field(ge=0, le=63)] = 2
    """The formula lets the fallback take over this many steps ago."""
    for_: Annotated[int, Field(ge=1, alias="for")] = 1
    """Number of bad verdicts that fire the alarm."""
    keep: Annotated[int, Field(ge=1)] = 2
    """Number of good verdicts that resolve the alarm."""
    accept_model: bool = False
    """Continue even if the model forecasts unsafe states no better than chance."""

    @field_validator("recordings", "label", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        return [given] if isinstance(given, str) else given

    @field_validator("missing", mode="before")
    @classmethod
    def _codes(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {
            name: codes_of(codes) if isinstance(codes, str) else codes if isinstance(codes, list | tuple) else [codes]
            for name, codes in given.items()
        }

    @field_validator("columns")
    @classmethod
    def _known(cls, columns: dict[str, str]) -> dict[str, str]:
        for name, text in columns.items():
            try:
                roles_of(text)
            except ConfigError as error:
                raise ValueError(f"{name}: {error}") from None
        return columns


KEYS: Final = tuple(field.alias or name for name, field in InitSettings.model_fields.items())


def read_settings(path: Path) -> InitSettings:
    """Return the settings in a YAML file. Raises ConfigError with one line for each mistake, with file and line."""
    file = read_yaml(path)
    try:
        return InitSettings.model_validate(file.content)
    except ValidationError as error:
        known = ", ".join(KEYS)
        raise ConfigError(
            "\n".join(
                f"{file.where(each['loc'])}: "
                + (f"unknown key; there are {known}" if each["type"] == "extra_forbidden" else _said(each))
                for each in error.errors(include_url=False)
            )
        ) from None


def _said(mistake: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    text = str(mistake["msg"]).removeprefix("Value error, ")
    return text if "ctx" in mistake and "error" in mistake["ctx"] else text[0].lower() + text[1:]


def roles_of(text: str) -> tuple[Role, ...]:
    """Return the roles in a text such as `input`, `order, state` or `left out`. Raises ConfigError for another word."""
    words = [" ".join(word.lower().split()) for word in text.split(",")]
    if words in ([LEFT_OUT], ["-"]):
        return ()
    found: list[Role] = []
    for word in words:
        role = next((each for each in ROLES if each == word.replace(" ", "_")), ALSO.get(word))
        if role is None:
            raise ConfigError(f"{word!r} is no role; the roles are {', '.join(ROLES)} and {LEFT_OUT}")
        found.append(role)
    return tuple(dict.fromkeys(found))


def role_text(roles: Sequence[Role]) -> str:
    """Return roles as a text that `roles_of` reads."""
    return ", ".join(roles) or LEFT_OUT


def settings_text(settings: InitSettings, proposal: Proposal | None, read: Sequence[str] = ()) -> str:
    """Return the settings as a YAML file.

    `proposal`: the columns of recordings, with the reasons for their roles. `read`: lines on how rows are read.
    """
    lines = [HEAD]
    given = settings.model_dump(by_alias=True, exclude_defaults=True)
    for key in KEYS:
        if key == "columns":
            lines += [] if proposal is None else ["columns:\n", *column_lines(proposal)]
        elif key in ("missing", "time_limit"):
            lines += [f"{line}\n" for line in read] if key == "missing" else []
        elif key in ("nominal", "fallback") and key not in given:
            lines.append(f"# {key}: FILE # {DEFAULTS[key]}\n")
        elif key in given:
            value = given[key]
            lines.append(
                f"{key}: {json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}\n"
            )
    return "".join(lines)


DEFAULTS: Final = {
    "nominal": "the agent's own policy; without it, estimated from the recordings",
    "fallback": "a policy that you trust; without it, the safest one of the model",
}


def column_lines(proposal: Proposal) -> list[str]:
    """Return a line of YAML for each column, with the reason for its roles.

    The columns of the state keep their order.
    """
    known = {each.name: each for each in proposal.columns}
    rank = {role: place for place, role in enumerate(ROLES)}

    def place(name: str) -> int:
        roles = known[name].roles
        return rank["state"] if "state" in roles else min([len(rank), *(rank[role] for role in roles)])

    names = sorted(proposal.ordered, key=place)  # a stable sort keeps the order of the state's columns
    lists = {name.partition("[")[0] for name in names if "[" in name}
    entries = {base: list(expanded(known, base)) for base in lists}
    lines: list[str] = []
    at = 0
    while at < len(names):
        each, base = known[names[at]], names[at].partition("[")[0]
        name, alike = each.name, entries.get(base, [])
        whole = names[at : at + len(alike)] == alike and len({known[one].roles for one in alike}) == 1
        at += len(alike) if whole else 1
        lines.append(f"  {key_text(base if whole else name)}: {role_text(each.roles)} # {printable(each.why)}\n")
    return lines


def codes_text(codes: Sequence[float | str]) -> str:
    """Return the values that stand for missing values as a list in YAML."""
    shown = [json.dumps(code, ensure_ascii=False) if isinstance(code, str) else number_text(code) for code in codes]
    return f"[{', '.join(shown)}]"


def key_text(name: str) -> str:
    """Return the name of a column as a key in YAML."""
    return name if PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)
