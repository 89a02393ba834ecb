"""Write the configuration reference from the JSON Schema: `python -m docs.site.configuration`.

The page is in the repository, so that it can be read without a build; a test compares it with the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from monitor.sidecar.config.reading import config_schema

__all__ = ["PAGE", "page"]

PAGE: Final = Path(__file__).parents[1] / "configuration.md"
HEAD: Final = """\
# Configuration

<!-- written by `python -m docs.site.configuration` from the JSON Schema; change the settings, not this page -->

One YAML file. `cfmon config check FILE` names every mistake with file and line; `cfmon config schema` prints the
JSON Schema, for editors and for checks in CI. Paths are relative to the file. An environment variable overrides a key:
`CFMON_MQTT__URL` is `mqtt.url`; lists and maps are written as JSON there. A duration has its unit (`500ms`, `5s`, `1h`,
`30d`), and so has a size (`500MB`). A key that is not listed here is a mistake. A complete file is in
[Messages and files](messages.md#a-configuration).
"""
KINDS: Final = {
    "^[0-9]+(\\.[0-9]+)?(ms|s|m|h|d)$": "duration, up to 366 days",
    "^[0-9]{1,9}(\\.[0-9]+)?(kB|MB|GB|TB)$": "size",
    "^[A-Za-z0-9_.-]{1,64}$": "name: letters, digits, `_ . -`, at most 64",
    "^[A-Za-z_][A-Za-z0-9_]{0,63}$": "name: letters, digits, `_`, not a digit first, at most 64",
    "^\\S(.{0,78}\\S)?$": "text on one line, at most 80 characters",
    "^https?://\\S+$": "http or https address",
    "^[A-Za-z0-9._-]{1,253}$|^\\[[0-9A-Fa-f:.]{2,64}\\]$": "host name or address",
}
WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
    "object": "mapping",
}
DASH: Final = "\N{EN DASH}"


def page() -> str:
    """Return the whole page, as Markdown."""
    schema = config_schema()
    sections = schema["$defs"]
    parts = [HEAD, "## At the top", *table(schema, sections)]
    for key, name in _sections(schema, sections):
        parts += [f"## `{key}`", _description(sections[name]), *table(sections[name], sections)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def table(section: dict[str, Any], sections: dict[str, Any]) -> list[str]:
    """Return the keys of one section as a table; nested sections have tables of their own."""
    required = section.get("required", [])
    rows = ["| key | type and range | default | meaning |", "|---|---|---|---|"]
    for key, setting in section["properties"].items():
        if "$ref" not in setting:
            default = "required" if key in required else _shown(setting.get("default"))
            kind = _kind(setting, sections).replace("|", "\\|")
            rows.append(f"| `{key}` | {kind} | {default} | {setting['description']} |")
    return ["\n".join(rows)]


def _sections(section: dict[str, Any], sections: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, setting in section["properties"].items():
        reference, mark = setting.get("$ref"), ""
        if setting.get("type") == "array" and "$ref" in setting["items"]:
            reference, mark = setting["items"]["$ref"], "[]"
        if reference is not None:
            name = reference.rpartition("/")[2]
            yield f"{prefix}{key}{mark}", name
            yield from _sections(sections[name], sections, f"{prefix}{key}{mark}.")


def _description(section: dict[str, Any]) -> str:
    return str(section["description"]).replace("\n", " ").replace("  ", "\n\n")


def _kind(setting: dict[str, Any], sections: dict[str, Any]) -> str:
    match setting:
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"anyOf": kinds} | {"oneOf": kinds}:
            return " or ".join("`null`" if kind == {"type": "null"} else _kind(kind, sections) for kind in kinds)
        case {"pattern": pattern}:
            return KINDS[pattern]
        case {"format": "path"}:
            return "path"
        case {"type": "object", "patternProperties": named}:
            ((pattern, kind),) = named.items()
            return f"map of {KINDS[pattern].partition(':')[0]} to {_kind(kind, sections)}"
        case {"type": "array", "items": items}:
            what = "sections, see below" if "$ref" in items else f"each a {_kind(items, sections)}"
            return f"list of {setting.get('minItems', 0)} {DASH} {setting['maxItems']}, {what}"
        case _:
            return WORDS[setting["type"]] + _range(setting)


def _range(setting: dict[str, Any]) -> str:
    low = setting.get("minimum", setting.get("exclusiveMinimum"))
    high = setting.get("maximum", setting.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    if high is None:
        return f", at least {low}"
    open_ends = [name for name, key in (("first", "exclusiveMinimum"), ("last", "exclusiveMaximum")) if key in setting]
    without = {0: "", 1: f", the {''.join(open_ends)} not included", 2: ", neither included"}[len(open_ends)]
    return f", {low} {DASH} {high}{without}"


def _shown(default: object) -> str:
    match default:
        case None:
            return ""
        case bool():
            return f"`{str(default).lower()}`"
        case [] | {}:
            return "none"
        case _:
            return f"`{default}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
