"""Parse YAML that a person wrote: safely, within limits, to plain values with the line of every key.

Anchors, aliases, tags and repeated keys are refused: the first two make small files huge, the last two hide mistakes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from monitor.errors import ConfigError

Location = tuple[str | int, ...]
"""Location in the document: keys and list positions from the top."""

MAX_BYTES = 1 << 20
"""Maximum size of a document, in bytes. A larger configuration is a mistake or an attack."""

MAX_DEPTH = 20
"""Maximum nesting: far more than a configuration needs, and far less than the parser's recursion allows."""

LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's loader in C, ten times as fast as its loader in Python; its wheels contain both."""

MAX_EVENTS = 30_000
"""Maximum number of values, keys and brackets together; a formula takes about twenty."""

MAX_NUMBER = 64
"""Maximum length of a number, in characters; parsing a much longer number can take minutes."""

_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))
_NUMBERS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float"))
_SURPRISING: Final = re.compile(r"[-+]?[0-9_]+:.*|[-+]?0[0-9_]+")
"""Numbers that YAML 1.1 reads in base 60 (`1:1` is 61) or base 8 (`010` is 8). Nobody intends this; they stay text."""


@dataclass(frozen=True)
class YamlFile:
    """A document as plain Python values, and the line (from 1) of each key or list item."""

    name: str
    content: dict[str, Any]
    lines: dict[Location, int]

    def line_of(self, location: Location) -> int | None:
        """Return the line of `location`, or else of the nearest enclosing location; None if neither has a line."""
        for size in range(len(location), 0, -1):
            if (line := self.lines.get(location[:size])) is not None:
                return line
        return None

    def where(self, location: Location) -> str:
        """Return a place for messages, such as `config.yaml, line 12, formulas[0].alarm.for`."""
        line = self.line_of(location)
        return ", ".join([self.name, *([f"line {line}"] if line else []), *([dotted(location)] if location else [])])


def dotted(location: Location) -> str:
    """Return the usual notation of a location.

    >>> dotted(("formulas", 0, "alarm", "for"))
    'formulas[0].alarm.for'
    """
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def parse_yaml(content: bytes, name: str, *, limit: int = MAX_BYTES) -> YamlFile:
    """Return the document in `content`. Raises ConfigError, which has `name` and, if known, the line."""
    if len(content) > limit:
        raise ConfigError(f"{name}: larger than the limit of {limit} bytes; write a smaller file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    return _Reader(name).read(text)


class _Reader:
    """Conversion of one document to values and lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Location, int] = {}
        self.constructor = yaml.constructor.SafeConstructor()

    def read(self, text: str) -> YamlFile:
        try:
            self._check_events(text)
            node = yaml.compose(text, Loader=LOADER)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            if "nesting depth" in (error.problem or ""):  # a limit of PyYAML's own, reached before it gives any event
                raise ConfigError(self._too_deep(line)) from None
            raise ConfigError(f"{self.name}, line {line}: not valid YAML: {_without_content(error.problem)}") from None
        except yaml.YAMLError as error:
            raise ConfigError(f"{self.name}: not valid YAML ({type(error).__name__})") from None
        if node is None:
            raise ConfigError(f"{self.name}: empty; it must hold `key: value` lines")
        content = self._value(node, ())
        if not isinstance(content, dict):
            raise ConfigError(f"{self.name}: the top of the file must be `key: value` lines")
        return YamlFile(self.name, content, self.lines)

    def _check_events(self, text: str) -> None:
        """Refuse documents that could grow or recurse, before anything is built from them."""
        depth = 0
        for count, event in enumerate(yaml.parse(text, Loader=LOADER)):
            line = event.start_mark.line + 1 if event.start_mark else 1
            if count > MAX_EVENTS:
                raise ConfigError(f"{self.name}, line {line}: more than {MAX_EVENTS:,} values; write fewer")
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise ConfigError(
                    f"{self.name}, line {line}: anchors and aliases (& and *) are not allowed; write it out"
                )
            if getattr(event, "tag", None) is not None:  # not shown: `!word` may be a password without quotes
                raise ConfigError(f"{self.name}, line {line}: the tag (!) here is not allowed; write a plain value")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ConfigError(self._too_deep(line))

    def _too_deep(self, line: int) -> str:
        return f"{self.name}, line {line}: nested deeper than {MAX_DEPTH} levels"

    def _value(self, node: yaml.Node, location: Location) -> Any:  # noqa: ANN401 - a document holds anything
        self.lines.setdefault(location, node.start_mark.line + 1)
        match node:
            case yaml.MappingNode():
                return self._mapping(node, location)
            case yaml.SequenceNode():
                return [self._value(item, (*location, index)) for index, item in enumerate(node.value)]
            case _:
                return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise ConfigError(f"{self.name}, line {line}: a key must be a plain name")
            key = str(key_node.value)
            if key in mapping:
                raise ConfigError(f"{self.name}, line {line}: the key {key!r} is there twice; keep one")
            self.lines[(*location, key)] = line
            mapping[key] = self._value(value_node, (*location, key))
        return mapping

    def _scalar(self, node: yaml.Node) -> Any:  # noqa: ANN401 - a scalar may be text, a number, a truth or nothing
        line = node.start_mark.line + 1
        if node.tag == "tag:yaml.org,2002:timestamp":  # dates are kept as text
            return node.value
        if node.tag not in _PLAIN_TAGS:  # `=` alone has a tag of its own
            raise ConfigError(f"{self.name}, line {line}: the tag (!) here is not allowed; write a plain value")
        unreadable = f"{self.name}, line {line}: the value here cannot be read; put it in quotes"
        if node.tag != "tag:yaml.org,2002:str" and len(node.value) > MAX_NUMBER:
            raise ConfigError(unreadable)
        if node.tag in _NUMBERS and _SURPRISING.fullmatch(node.value):
            return node.value
        try:
            return self.constructor.construct_object(node)
        except (ValueError, OverflowError):
            raise ConfigError(unreadable) from None  # not the value: it may be a password without quotes


def _without_content(problem: str | None) -> str:
    """Return the parser's message without the name it could not resolve: `!word` may be a password."""
    return re.sub(r"(tag handle|alias|anchor) .*", r"\1", problem or "", flags=re.DOTALL)
