"""Write the tables of fields in `docs/messages/` from the types: `python -m docs.site.messages`.

The meaning of a field is the docstring below it in its class; for a step, which is read key by key, it is in `STEP`. A
test compares the pages with the types.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union

import msgspec
from pydantic import BaseModel

from monitor.alarm.message import AlertMessage
from monitor.evidence.document import Evidence
from monitor.policy.manifest import NetworkManifest, RecurrentManifest, SightedManifest
from monitor.sidecar.config.derived import meanings
from monitor.sidecar.pipeline import StatusMessage
from monitor.sidecar.webhooks.cloud_event import CloudEvent

__all__ = ["FOLDER", "PAGES", "STEP", "page"]

FOLDER: Final = Path(__file__).parents[1] / "messages"
BEGIN: Final = "<!-- fields of {}: written by `python -m docs.site.messages` -->\n"
END: Final = "<!-- end of fields -->\n"
GAP: Final = "\n"

STEP: Final[Mapping[str, tuple[str, str]]] = {
    "v": ("1", "Version of this schema."),
    "episode": ("text or whole number", "One run of the environment; a new value starts a new path."),
    "seq": ("whole number", "Number of the step in its episode; it starts at 0 and grows by 1 with each step."),
    "state": (
        "whole number, text, list or map",
        (
            "The state in the form that the `state_encoder` requires: a number, a name, values of variables, floats "
            "and texts to be binned, or the features of a world with numbers, in order or by name. Beside "
            "`observation`: the true state by number or name, if it is known; no verdict uses it, only "
            "[`cfmon report`](../semantics/hidden.md#168-is-the-belief-right)."
        ),
    ),
    "observation": (
        "whole number, text or `null`",
        (
            "In place of `state` if the model has hidden states: the observation by number or by name; `null` if "
            "the sensor gave no observation."
        ),
    ),
    "action": (
        "number, text, `true` or `false`",
        (
            "The action taken in that state, by index or name; if [names are numbers](#actions-named-by-numbers), a "
            "number is a name. Optional only in the last message of an episode, and beside an `observation`."
        ),
    ),
    "time": (
        "number, optional",
        "Seconds since the epoch on the agent's clock; if absent, the time of arrival is used.",
    ),
    "reward": ("number, optional", "Reward of the transition into this state."),
    "terminated": ("`true` or `false`, optional", "The episode ends in this state, which is absorbing."),
    "truncated": ("`true` or `false`, optional", "The episode is cut off here; the state is not absorbing."),
    "policy": (
        "text, optional",
        (
            "SHA-256 of the policy that acts; if this policy is not configured, formulas are blind. In a step without "
            "this field, the policy reported last in the episode acts, and before any report the nominal one. A report "
            "of a policy that is not configured stays in force, also across episodes, until the next report."
        ),
    ),
    "inputs": ("list or map, optional", "Recorded inputs of a world with numbers, in order or by name."),
    "extra": (
        "map, optional",
        "Any other data; kept in recordings and otherwise ignored, also in the comparison of duplicates.",
    ),
}
"""Key -> type and meaning."""

WORDS: Final[Mapping[object, str]] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    NoneType: "`null`",
    object: "anything",
    msgspec.UnsetType: "left out",
}
LISTED: Final = ("fired.alternative", "bands.alternative", "verdict.drawn.sampling")
"""Fields whose own fields are listed elsewhere: in the same table, or on the page of the configuration."""


def page(name: str) -> str:
    """Return a page of `FOLDER` with its table regenerated."""
    kind, rows = PAGES[name]
    before, begin, rest = (FOLDER / name).read_text(encoding="utf-8").partition(BEGIN.format(kind))
    _, end, after = rest.partition(END)
    return f"{before}{begin}{GAP}{_table(rows())}{GAP}{end}{after}"


def _table(rows: Iterator[tuple[str, str, str]]) -> str:
    lines = ["| field | type | meaning |", "|---|---|---|"]
    lines += [f"| {name} | {kind} | {meaning} |" for name, kind, meaning in rows]
    return "\n".join(lines) + "\n"


def _rows(kind: type, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield one row for each field, and below it those of its own fields, such as `threshold.bound`."""
    texts, hints = meanings(kind), typing.get_type_hints(kind, include_extras=True)
    for name, meaning in texts.items():
        place = f"{prefix}{name}"
        inner, many = _inner(hints[name])
        yield f"`{place}`", _words(hints[name]), meaning.replace("|", "\\|")
        if inner is not None and place not in LISTED:
            yield from _rows(inner, f"{place}{many}.")


def _inner(hint: Any) -> tuple[type | None, str]:  # noqa: ANN401 - any annotation
    """Return the type whose fields are listed below this one, and the suffix of its name."""
    match typing.get_origin(hint):
        case None:
            return (hint, "") if isinstance(hint, type) and issubclass(hint, msgspec.Struct | BaseModel) else (None, "")
        case origin if origin in (Union, UnionType):
            found = [_inner(part) for part in typing.get_args(hint) if part is not NoneType]
            return found[0] if len(found) == 1 else (None, "")
        case origin if origin is Annotated:
            return _inner(typing.get_args(hint)[0])
        case origin if origin is tuple:
            return _inner(typing.get_args(hint)[0])[0], "[]"
        case origin if isinstance(origin, type) and issubclass(origin, Mapping):
            return _inner(typing.get_args(hint)[1])[0], ".NAME"
        case _:
            return None, ""


def _words(hint: Any) -> str:  # noqa: ANN401 - any annotation
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _words(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return " or ".join(_words(part) for part in parts)
    if origin is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return f"list of {_plural(parts[0])}"
        return f"[{', '.join(_words(part) for part in parts)}]"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if parts[0] is int:  # JSON and msgpack maps here have texts for keys
            row = parts[0], *(typing.get_args(parts[1]) or parts[1:])
            return f"list of [{', '.join(map(_words, row))}]"
        return f"map of names to {_plural(parts[1])}"
    return WORDS.get(hint, "map")


def _plural(hint: Any) -> str:  # noqa: ANN401 - any annotation
    words = _words(hint)
    return {"map": "maps", "text": "texts", "number": "numbers", "whole number": "whole numbers"}.get(words, words)


def _of_networks() -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the manifests of networks; `sees` means the same in all of them."""
    yield from _rows(NetworkManifest)
    yield from _rows(SightedManifest)
    yield from (row for row in _rows(RecurrentManifest) if row[0] != "`sees`")


PAGES: Final[Mapping[str, tuple[str, Callable[[], Iterator[tuple[str, str, str]]]]]] = {
    "step.md": ("a step", lambda: ((f"`{key}`", *entry) for key, entry in STEP.items())),
    "alert.md": ("an alert", lambda: _rows(AlertMessage)),
    "status.md": ("a status", lambda: _rows(StatusMessage)),
    "manifest.md": ("a manifest", _of_networks),
    "evidence.md": ("evidence", lambda: _rows(Evidence)),
    "webhook-event.md": ("an event", lambda: _rows(CloudEvent)),
}
"""Page -> what its table is about, and the rows."""

if __name__ == "__main__":
    for each in PAGES:
        (FOLDER / each).write_text(page(each), encoding="utf-8")
