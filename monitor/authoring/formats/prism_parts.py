"""Parts of a model in PRISM's explicit form: the files beside a `.tra` file, or sections of a `.pexp` file.

`monitor.authoring.formats.prism_explicit` describes their content and reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from monitor.authoring.formats.textfile import Line, lines, shown
from monitor.errors import ModelError
from monitor.model.rewards import chosen_structure

_TYPE: Final = re.compile(r"# Transitions \((.{1,40})\)\Z")
_STRUCTURE: Final = re.compile(r'# Reward structure(?: "([^"]*)")?\Z')
_HEADINGS: Final = {
    "# Transitions": ".tra",
    "# States": ".sta",
    "# Observations": ".obs",
    "# Labels": ".lab",
    "# State rewards": ".srew",
    "# Transition rewards": ".trew",
}
"""First words of a file or of a part of a `.pexp` file -> the suffix of a file with this content."""
_LONGEST_HEADING: Final = 200
_MOST_STRUCTURES: Final = 1000


@dataclass(frozen=True)
class FilePart:
    """A file, or a part of a `.pexp` file. `first`: number of its first line."""

    file: str
    content: bytes
    first: int = 1

    def lines(self, comment: str = "#") -> Iterator[Line]:
        """Yield the lines that hold anything but white space and a comment."""
        return lines(self.content, self.file, comment, self.first)

    def headings(self) -> Iterator[Line]:
        """Yield the comments at the beginning."""
        at, number = 0, self.first
        while self.content[at : at + 1] == b"#":
            end = self.content.find(b"\n", at, at + _LONGEST_HEADING)
            end = len(self.content) if end < 0 else end
            text = self.content[at : min(end, at + _LONGEST_HEADING)].decode("utf-8", "replace").strip()
            yield Line(PurePath(self.file).name, number, text)
            at, number = end + 1, number + 1


@dataclass(frozen=True)
class Structure:
    """A reward structure. `name`: its name in the files, or its number, or empty."""

    name: str
    number: str
    of_states: FilePart | None = None
    of_transitions: FilePart | None = None


def check_headings(part: FilePart, suffix: str) -> None:
    """Raise ModelError if the comments at the beginning name another type of file or an unsupported kind of model."""
    for row in part.headings():
        if (found := _TYPE.match(row.text)) and found[1] not in ("DTMC", "MDP", "POMDP"):
            raise row.error(f"{found[1][:40]} models are not supported; DTMC, MDP and POMDP are")
        if (other := _suffix_of(row.text)) not in (None, suffix):
            raise row.error(f"{shown(row.text)} belongs into a {other} file, and this is a {suffix} file")


def _suffix_of(heading: str) -> str | None:
    return next(
        (suffix for name, suffix in _HEADINGS.items() if heading == name or heading.startswith(f"{name} (")), None
    )


def divided(whole: FilePart) -> dict[str, FilePart]:
    """Return the parts of a `.pexp` file as if they were separate files."""
    found: dict[str, FilePart] = {}
    start, number, kind, count = 0, 1, ".tra", {".srew": 0, ".trew": 0}
    at = 0

    def end_part(end: int) -> None:
        content = whole.content[start:end]
        key = kind
        if kind in count:
            count[kind] += 1
            key = f"{count[kind]}{kind}"
        if key in found or count[".srew"] + count[".trew"] > 2 * _MOST_STRUCTURES:
            raise Line(PurePath(whole.file).name, number, "").error(f"a second part of the kind {kind}, or too many")
        if content.strip() or kind != ".tra":
            found[key] = FilePart(whole.file, content, number)

    line = 1
    while at < len(whole.content):
        end = whole.content.find(b"\n", at) + 1 or len(whole.content)
        heading = whole.content[at : min(end, at + _LONGEST_HEADING)]
        if heading[:1] == b"#" and (new := _kind_of(heading, whole.content[end : end + _LONGEST_HEADING])):
            end_part(at)
            start, number, kind = at, line, new
        at, line = end, line + 1
    end_part(len(whole.content))
    return found


def _kind_of(heading: bytes, after: bytes) -> str | None:
    """Return the suffix of the part that begins with this line of a `.pexp` file. `after`: the text after the line."""
    first, second = (text.decode("utf-8", "replace").partition("\n")[0].strip() for text in (heading, after))
    if _STRUCTURE.match(first):
        return _HEADINGS.get(second) if second.endswith(" rewards") else None
    if first.endswith(" rewards"):
        return None  # the second line of a part's heading
    return _suffix_of(first)


def chosen(parts: Mapping[str, FilePart], wanted: str | None) -> Structure:
    """Return the reward structure to read, or an empty one if no rewards are wanted."""
    structures = _structures(parts)
    names = [each.name for each in structures]
    for each in structures:
        if names.count(each.name) > 1:
            raise ModelError(f"two reward structures have the name {each.name!r}: rename one in its files")
    numbers = {each.number: each.name for each in structures if each.name != each.number and each.number not in names}
    place = chosen_structure(names, numbers.get(wanted or "", wanted))
    return Structure("", "") if place is None else structures[place]


def _structures(parts: Mapping[str, FilePart]) -> list[Structure]:
    found: dict[str, Structure] = {}
    for key, part in parts.items():
        number, suffix = key.removesuffix(PurePath(f"m{key}").suffix), PurePath(f"m{key}").suffix
        if suffix not in (".srew", ".trew"):
            continue
        name = next((match[1] for row in part.headings() if (match := _STRUCTURE.match(row.text))), None) or number
        known = found.get(number, Structure(name, number))
        if known.name not in (name, number) and name != number:
            raise ModelError(
                f"{PurePath(part.file).name} holds the rewards {name!r}, and the other file of the same number "
                f"{known.name!r}: export them again"
            )
        if name != number:
            known = replace(known, name=name)
        found[number] = replace(known, of_states=part) if suffix == ".srew" else replace(known, of_transitions=part)
    if "" in found and len(found) > 1:
        raise ModelError(
            "there are files of rewards with a number and without one, such as m.srew and m1.srew: remove those that "
            "are not of this model"
        )
    return [found[number] for number in sorted(found, key=lambda text: (len(text), text))]
