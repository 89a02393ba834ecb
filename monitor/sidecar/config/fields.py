"""Syntax of single settings (durations, sizes, counts, names, topics), with error messages."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from monitor.errors import ConfigError
from monitor.sidecar.mqtt.broker import parse_broker
from monitor.sidecar.mqtt.codec import Version
from monitor.stream.shard import parse_shard

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE = r"^[0-9]{1,9}(\.[0-9]+)?(kB|MB|GB|TB)$"
DURATION = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"
NAME = r"^[A-Za-z0-9_.-]{1,64}$"
IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
WORDS = r"^\S(.{0,78}\S)?$"
SHARD = r"^[0-9]{1,4}/[0-9]{1,4}$"
HOST = r"^[A-Za-z0-9._-]{1,253}$|^\[[0-9A-Fa-f:.]{2,64}\]$"


def parse_duration(value: object) -> float:
    """Return the seconds of a duration such as `500ms`, `5s`, `1h`; the unit is required.

    >>> parse_duration("500ms")
    0.5
    """
    if not isinstance(value, str) or not re.fullmatch(DURATION, value):
        raise ValueError("must be a duration with its unit, such as 500ms, 5s or 1h")
    number, unit = re.fullmatch(r"([0-9.]+)(ms|s|m|h|d)", value).groups()  # type: ignore[union-attr]  # matched above
    seconds = float(number) * _UNITS[unit]
    if not 0 < seconds <= 366 * 86400:
        raise ValueError("must be more than 0 and at most 366 days")
    return seconds


def parse_size(value: object) -> int:
    """Return the bytes of a size such as `500MB` or `1GB`; the unit is required.

    >>> parse_size("1.5GB")
    1500000000
    """
    if not isinstance(value, str) or not re.fullmatch(SIZE, value):
        raise ValueError("must be a size with its unit, such as 500MB or 1GB")
    number, unit = re.fullmatch(r"([0-9.]+)(kB|MB|GB|TB)", value).groups()  # type: ignore[union-attr]  # matched above
    return round(float(number) * _BYTES[unit])


def _parse_every(value: object) -> int | float:
    wrong = "must be a number of steps, or a duration such as 500ms"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(wrong)  # noqa: TRY004 - pydantic collects ValueErrors only
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if isinstance(value, str):
        return parse_duration(value)
    if not 1 <= value <= 1_000_000:
        raise ValueError("must be at least 1 step (and at most a million)")
    return value


def _parse_count(value: object) -> int:
    """Parse a whole number, or the text of one, which the environment gives. True and 2.0 are not whole numbers."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic collects ValueErrors only
    return value


def check_topic(topic: str) -> str:
    """Return a topic without wildcards, or raise ValueError."""
    if not topic or set("+#\0") & set(topic) or topic.startswith(("/", "$")) or topic.endswith("/"):
        raise ValueError("must be a topic without wildcards, not starting or ending with a slash")
    return topic


def check_pattern(pattern: str) -> str:
    """Return a pattern with one `+` in place of the agent, or raise ValueError."""
    levels = pattern.split("/")
    if levels.count("+") != 1 or any("+" in level for level in levels if level != "+") or "#" in pattern:
        raise ValueError("must contain exactly one + (the agent's name) and no #, such as agents/+/steps")
    if pattern.startswith("$") or "\0" in pattern:
        raise ValueError("must not start with $: a shared subscription would split an agent's steps")
    return pattern


def check_shard(shard: object) -> str:
    """Return a shard such as 3/8, or raise ValueError."""
    if not isinstance(shard, str):
        raise ValueError("must be a text such as 3/8")  # noqa: TRY004 - pydantic collects ValueErrors only
    try:
        return str(parse_shard(shard))
    except ConfigError as error:
        raise ValueError(str(error)) from None


def check_url(url: str) -> str:
    """Return the URL of a broker, or raise ValueError."""
    parse_broker(url)
    return url


def check_listen(listen: str) -> str:
    """Return an address to listen on, or raise ValueError."""
    parts = urlsplit(f"//{listen}")
    try:
        fine = parts.hostname is not None and parts.port is not None and parts.path == "" and parts.username is None
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("must be host:port, such as 127.0.0.1:9108 or [::1]:9108")
    return listen


Duration = Annotated[
    float, BeforeValidator(parse_duration), WithJsonSchema({"type": "string", "pattern": DURATION, "examples": ["5s"]})
]
Size = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "pattern": SIZE, "examples": ["1GB"]})
]
Every = Annotated[
    int | float,
    PlainValidator(_parse_every),
    WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": DURATION}]}),
]
Count = Annotated[int, BeforeValidator(_parse_count)]
Name = Annotated[str, Field(pattern=NAME)]
Identifier = Annotated[str, Field(pattern=IDENTIFIER)]
ActionKey = Annotated[str, BeforeValidator(str), Field(pattern=WORDS)]
"""Name or number of an action. YAML reads a number as `int`, so it is turned into text."""
LabelWords = Annotated[str, Field(pattern=WORDS)]
WebLink = Annotated[str, Field(max_length=2048, pattern=r"^https?://\S+$")]
Topic = Annotated[str, Field(max_length=512), AfterValidator(check_topic)]
Host = Annotated[str, Field(pattern=HOST)]
ShardText = Annotated[
    str, BeforeValidator(check_shard), WithJsonSchema({"type": "string", "pattern": SHARD, "examples": ["3/8"]})
]
Url = Annotated[str, AfterValidator(check_url)]
MqttVersion = Annotated[
    Version,
    BeforeValidator(lambda version: "5" if version == 5 and not isinstance(version, bool) else version),
    WithJsonSchema({"enum": [5, "5", "3.1.1"]}),
]
TopicPattern = Annotated[str, Field(max_length=512), AfterValidator(check_pattern)]
Listen = Annotated[str, AfterValidator(check_listen)]


def as_text(value: object, pattern: object) -> object:
    """Format a default with its unit if `pattern` is the pattern of a duration or a size: `50ms`, `1h`, `1GB`.

    >>> as_text(3600.0, DURATION), as_text(0.05, DURATION), as_text(1_000_000_000, SIZE), as_text(0.05, None)
    ('1h', '50ms', '1GB', 0.05)
    """
    match value, pattern:
        case (float(), str()) if pattern == DURATION:
            unit = max((u for u in _UNITS if value / _UNITS[u] >= 1), key=_UNITS.__getitem__, default="ms")
            return f"{value / _UNITS[unit]:g}{unit}"
        case (int(), str()) if pattern == SIZE:
            return f"{value / _BYTES['GB']:g}GB"
        case _:
            return value
