"""Rules by which an agent hands over, from a small file. The rules for failures (`when_...`) have no defaults."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

from cfmon_client.errors import ClientError

__all__ = ["Back", "OnFailure", "Rules", "read_rules"]

OnFailure = Literal["carry_on", "fallback"]
Back = Literal["resolved", "episode", "never"]

_LARGEST: Final = 65_536
"""Maximum bytes of a file of rules; a usual file has a few hundred bytes."""


@dataclass(frozen=True)
class Rules:
    """When to hand over, for how long, and what to do without the monitor.

    Attributes:
        when_blind: What to do while a formula to which the rules apply is blind: `carry_on` (the acting policy
            continues) or `fallback` (hand over).
        when_silent: What to do while the monitor is silent, with the same two values.
        severity: Hand over for alarms of these severities.
        formulas: Names of the formulas whose alarms count; None: all.
        only_if_helps: Hand over only if the alert says that handing over helps now (`handover.helps_now`).
        only_if_robust: Hand over only if no causal model of the requested class changes the answer (`robust`).
        hold: With `back: resolved`, a takeover lasts at least this number of steps. With 1 it ends as soon as the alarm
            resolves. The agent's own policy then only just meets the goal. `cfmon init` proposes a number.
        back: When to hand back: `resolved` (when no alarm to which the rules apply fires), `episode` (when the next
            episode begins), `never` (only by `Takeover.release`).
        silent_after: The monitor counts as silent this number of seconds after its last sign of life. Each heartbeat is
            a sign of life, by default every 10 seconds; choose at least twice this time.
        policy: The policy that takes over if the monitor is blind or silent; None: the only policy in `policies`.

    Raises:
        ClientError: A value is wrong.
    """

    when_blind: OnFailure
    when_silent: OnFailure
    severity: tuple[str, ...] = ("critical",)
    formulas: tuple[str, ...] | None = None
    only_if_helps: bool = True
    only_if_robust: bool = False
    hold: int = 1
    back: Back = "resolved"
    silent_after: float = 30.0
    policy: str | None = None

    def __post_init__(self) -> None:
        for name in ("when_blind", "when_silent"):
            _one_of(name, getattr(self, name), get_args(OnFailure))
        _one_of("back", self.back, get_args(Back))
        for name in ("only_if_helps", "only_if_robust"):
            if not isinstance(getattr(self, name), bool):
                raise ClientError(f"{name} is {getattr(self, name)!r}; give true or false")
        if type(self.hold) is not int or self.hold < 1:
            raise ClientError(f"hold is {self.hold!r}; give a number of steps, 1 or more")
        if type(self.silent_after) not in {int, float} or not 0 < self.silent_after < float("inf"):
            raise ClientError(f"silent_after is {self.silent_after!r}; give a number of seconds above 0")
        if self.policy is not None and not isinstance(self.policy, str):
            raise ClientError(f"policy is {self.policy!r}; give the name of a policy")
        object.__setattr__(self, "severity", _names("severity", self.severity))
        if self.formulas is not None:
            object.__setattr__(self, "formulas", _names("formulas", self.formulas))


def read_rules(rules: Rules | Mapping[str, Any] | str | os.PathLike[str] | None) -> Rules:
    """Return rules given as a value, a map, or a file: JSON, or YAML if its name ends in .yaml or .yml.

    Raises:
        ClientError: The rules are missing or wrong, the file cannot be read, or PyYAML is not installed.
    """
    if isinstance(rules, Rules):
        return rules
    if rules is None:
        raise ClientError(
            "rules are missing: what happens while the monitor is blind or silent must be chosen; give at least "
            'rules={"when_blind": "carry_on" or "fallback", "when_silent": "carry_on" or "fallback"}'
        )
    if isinstance(rules, Mapping):
        return _rules(rules)
    if not isinstance(rules, str | os.PathLike):
        raise ClientError(f"the rules are a {type(rules).__name__}; give a file, a map or Rules")
    path = Path(rules)
    try:
        return _rules(_content(path))
    except ClientError as error:
        raise ClientError(f"{path}: {error}") from None


def _rules(document: object) -> Rules:
    if not isinstance(document, Mapping):
        raise ClientError("the rules are not a map of names to values")
    known = {each.name for each in fields(Rules)}
    for name in document:
        if name not in known:
            raise ClientError(f"unknown rule {name!r}; there is {', '.join(sorted(known))}")
    for name in ("when_blind", "when_silent"):
        if name not in document:
            raise ClientError(f"{name} is missing: choose {' or '.join(get_args(OnFailure))}")
    return Rules(**document)


def _content(path: Path) -> object:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ClientError(f"cannot be read: {error.strerror or error}") from None
    if len(content) > _LARGEST:
        raise ClientError(f"longer than {_LARGEST} bytes")
    if path.suffix in {".yaml", ".yml"}:
        return _yaml(content)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"not JSON: {error}") from None


def _yaml(content: bytes) -> object:
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ImportError:
        raise ClientError("YAML needs PyYAML: pip install 'cfmon-client[yaml]', or write the rules as JSON") from None
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ClientError(f"not YAML: {' '.join(str(error).split())}") from None


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ClientError(f"{name} is {value!r}; choose {' or '.join(choices)}")


def _names(name: str, value: object) -> tuple[str, ...]:
    """Return names as a tuple. `value`: a list of names, or a single name."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(each, str) for each in names):
        raise ClientError(f"{name} is {value!r}; give a list of names")
    return tuple(names)
