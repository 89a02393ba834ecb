"""Base class of the sections of a configuration, and settings taken from the fields of a struct in `monitor.types`.

The texts that document fields are read from the source only when a schema is requested. Reading them at each start
would take a tenth of the start's time.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from functools import cache
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

RANGE = ("ge", "gt", "le", "lt")


def setting(struct: type[msgspec.Struct], name: str, **limits: float | str) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Return the pydantic field for the field `name` of `struct`; `limits`: further arguments, for example `le=100`."""
    field = next(field for field in msgspec.structs.fields(struct) if field.name == name)
    hint = typing.get_type_hints(struct, include_extras=True)[name]
    metas = [meta for meta in typing.get_args(hint) if isinstance(meta, msgspec.Meta)]
    ranges = {key: bound for meta in metas for key in RANGE if (bound := getattr(meta, key)) is not None}
    default: dict[str, Any] = {"default": ... if field.default is msgspec.NODEFAULT else field.default}
    if field.default_factory is not msgspec.NODEFAULT:
        default = {"default_factory": field.default_factory}

    def described(schema: dict[str, Any]) -> None:
        schema["description"] = meanings(struct)[name]

    return Field(json_schema_extra=described, **{**default, **ranges, **limits})


def describe(schema: dict[str, Any], section: type[BaseModel]) -> None:
    """Add the text below each field of a section to the section's JSON schema."""
    texts = meanings(section, besides=("setting",))
    for name, field in section.model_fields.items():
        if name in texts:
            schema["properties"][field.alias or name]["description"] = texts[name]


class Section(BaseModel):
    """A section of the configuration. The text below a field documents the field.

    Errors do not repeat the values given.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=False,
        hide_input_in_errors=True,
        strict=False,
        json_schema_extra=describe,
    )


@cache
def meanings(kind: type, besides: tuple[str, ...] = ()) -> dict[str, str]:
    """Return name -> text for each public field of a class: the text below the field in the source, on one line.

    Raises KeyError if a field has no text, unless the field is made by a function named in `besides`.
    """
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(made, ast.ClassDef)
    found: dict[str, str] = {}
    named = [node for node in made.body if isinstance(node, ast.AnnAssign | ast.Expr)]
    for node, below in zip(named, [*named[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            match below:
                case ast.Expr(ast.Constant(str(text))):
                    found[node.target.id] = " ".join(text.split())
                case _ if _maker(node) in besides or node.target.id.startswith("_"):
                    pass
                case _:
                    raise KeyError(f"{kind.__name__}.{node.target.id} has no text below it")
    return found


def _maker(node: ast.AnnAssign) -> str | None:
    """Return the name of the function that makes a field; None if no function does."""
    match node.value:
        case ast.Call(func=ast.Name(name)):
            return name
        case _:
            return None
