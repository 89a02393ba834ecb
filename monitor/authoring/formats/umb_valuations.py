"""Values of variables in UMB files. Each state has a few bytes of packed bits, least significant bit first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Ints
from monitor.authoring.formats.choices import CELL_BYTES, STATE_BYTES, require_memory
from monitor.authoring.formats.umb_archive import UmbArchive
from monitor.errors import ModelError

Valuations = list[tuple[float | str | bool, ...]]

_WORD: Final = 64
_FOLDER: Final = "valuations/states"
_MOST_VARIABLES: Final = 10_000
_MOST_WHOLE: Final = 1 << 53
"""Valuations hold floats, which represent whole numbers up to this one exactly."""


def read_valuations(
    archive: UmbArchive, index: dict[str, Any], states: int, limit: int
) -> tuple[tuple[str, ...], Valuations]:
    """Return the names of the variables and the valuation of each state; both are empty if states have no valuations.

    Raises:
        ModelError: the valuations are malformed, or of an unsupported kind.
    """
    described = (index.get("valuations") or {}).get("states")
    if described is None:
        return (), []
    variables = _variables(described)
    bits = sum(width for *_, width in variables)
    named = [part for part in variables if part[0] is not None]
    size = STATE_BYTES + 2 * CELL_BYTES * len(named) + bits // 8
    require_memory(size * states, limit, f"{len(named):,} variables of {states:,} states")
    if bits % 8 or not named:
        raise ModelError("the valuations of states take no whole number of bytes, or hold no variable")
    content = archive.array(f"{_FOLDER}/valuations.bin", "u1", states * (bits // 8)).reshape(states, bits // 8)
    columns, at = [], 0
    for name, described, width in variables:
        if name is not None:
            columns.append(_column(archive, content, at, (name, described, width)))
        at += width
    return tuple(str(name) for name, *_ in named), list(zip(*columns, strict=True))


def _variables(described: Any) -> list[tuple[str | None, dict[str, Any], int]]:  # noqa: ANN401 - JSON
    """Return the name (None: padding), the description and the width in bits of each part."""
    match described:
        case {"classes": [{"variables": [*parts]}]} if len(parts) <= _MOST_VARIABLES:
            return [_part(part) for part in parts]
        case _:
            raise ModelError("the valuations of states are not described by one class of variables")


def _part(part: Any) -> tuple[str | None, dict[str, Any], int]:  # noqa: ANN401 - JSON
    width: Any
    match part:
        case {"padding": int(width)} if 0 < width <= 1 << 16:
            return None, {}, width
        case {"name": str(name), "type": {"type": "bool" | "int" | "uint" | "double" | "string" as kind, **more}}:
            width = more.get("size", 1 if kind == "bool" else _WORD)
            whole = kind in ("double", "string") and width != _WORD
            # Optional variables are refused: the specification's example and umbi disagree on where the extra bit is.
            if isinstance(width, int) and 0 < width <= _WORD and not whole and not part.get("is-optional"):
                return name, {**part, "kind": kind}, width
    raise ModelError(f"a variable of a kind that is not supported: {json.dumps(part)[:120]}")


def _column(archive: UmbArchive, content: AnyArray, at: int, part: tuple[str, dict[str, Any], int]) -> Sequence[Any]:
    """Return the values of one variable, [S]. `at`: first bit of the variable."""
    name, described, width = part
    raw, kind = _bits(content, at, width), described["kind"]
    match kind:
        case "bool":
            values: list[Any] = (raw != 0).tolist()
        case "double":
            values = raw.view(np.float64).tolist()
        case "string":
            values = _texts(archive, raw, name)
        case _:
            values = _whole(raw, width, described, name)
    return values


def _bits(content: AnyArray, at: int, width: int) -> AnyArray:
    """Return for each state the `width` bits that begin at bit `at`, as uint64 [S]."""
    found = np.zeros(len(content), np.uint64)
    shift = at % 8
    for place, byte in enumerate(range(at // 8, (at + width + 7) // 8)):
        moved = 8 * place - shift
        part = content[:, byte].astype(np.uint64)
        found |= part << np.uint64(moved) if moved >= 0 else part >> np.uint64(-moved)
    return found & np.uint64((1 << width) - 1)


def _whole(raw: AnyArray, width: int, described: dict[str, Any], name: str) -> list[int]:
    offset = described.get("offset") or 0
    if not isinstance(offset, int) or abs(offset) > 1 << _WORD:
        raise ModelError(f"variable {name!r}: its offset {str(offset)[:40]} is not a whole number of at most 2^64")
    raws: list[int] = raw.tolist()
    top = 1 << (width - 1) if described["kind"] == "int" else 1 << width
    values = [value + offset - (2 * top if value >= top else 0) for value in raws]
    if large := next((value for value in values if abs(value) > _MOST_WHOLE), None):
        raise ModelError(f"variable {name!r} has the value {large}, which is beyond 2^53 and so not exact")
    return values


def _texts(archive: UmbArchive, raw: AnyArray, name: str) -> list[str]:
    mapping = f"{_FOLDER}/string-mapping.bin"
    if not archive.has(mapping):
        raise ModelError(f"{mapping} is missing, and variable {name!r} is text")
    texts = archive.texts(mapping, f"{_FOLDER}/strings.bin", len(archive.members[mapping]) // 8 - 1)
    if len(raw) and int(raw.max()) >= len(texts):
        raise ModelError(f"variable {name!r} refers to text {int(raw.max())} of {len(texts)}")
    return [texts[place] for place in raw.tolist()]


def packed_valuations(
    names: Sequence[str], valuations: Sequence[Sequence[Any]]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the description for the index, and the members. Every variable takes whole bytes."""
    columns = list(zip(*valuations, strict=True))
    texts = sorted({value for column in columns for value in column if isinstance(value, str)})
    places = {text: place for place, text in enumerate(texts)}
    parts = [_packed(column, places) for column in columns]
    variables: list[dict[str, Any]] = []
    for name, (kind, array) in zip(names, parts, strict=True):
        variables.append({"name": name, "type": {"type": kind, "size": 1 if kind == "bool" else 8 * array.itemsize}})
        variables += [{"padding": 7}] if kind == "bool" else []
    content = np.concatenate([array.view(np.uint8).reshape(len(valuations), -1) for _, array in parts], axis=1)
    members = {f"{_FOLDER}/valuations.bin": content.tobytes()}
    described: dict[str, Any] = {"unique": True, "classes": [{"variables": variables}]}
    if texts:
        described["#strings"] = len(texts)
        encoded = [text.encode() for text in texts]
        members[f"{_FOLDER}/string-mapping.bin"] = ends_of(encoded)
        members[f"{_FOLDER}/strings.bin"] = b"".join(encoded)
    return {"states": described}, members


def _packed(column: Sequence[Any], places: dict[str, int]) -> tuple[str, AnyArray]:
    kinds = {type(value) for value in column}
    if kinds == {bool}:
        return "bool", np.array(column, "u1")
    if kinds == {str}:
        return "string", np.array([places[value] for value in column], "<u8")
    if str in kinds or bool in kinds:
        raise ModelError(
            "a variable of the valuations is a number in one state and text or a Boolean in another, "
            "which .umb files cannot hold"
        )
    if all(float(value).is_integer() for value in column):
        return "int", np.array(column, "<i8")
    return "double", np.array(column, "<f8")


def ends_of(parts: Sequence[bytes]) -> bytes:
    """Return the ends of consecutive texts, as the content of a member."""
    ends: Ints = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return ends.astype("<u8").tobytes()
