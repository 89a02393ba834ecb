"""Formats of models that `load_model` reads.

To add one, write its reader in a module of this package and add its line to `FORMATS`. Readers are pure:

- of a file: `read(files, source)` gets the bytes of the file by suffix, here `files[".npz"]`, and of those files beside
  it (same stem, suffixes `beside`) that exist.
- of a scheme: `read(source)` gets the whole text, `gymnasium:ID?argument=value`.

Both return an `MDP`, and raise ModelError, which begins with `model <source>:`, for anything malformed.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.model.mdp import MDP

__all__ = ["FORMATS", "Format", "file_name", "format_of", "has_scheme", "supported_forms"]


@dataclass(frozen=True)
class Format:
    """One format of model.

    Attributes:
        shown: the format in help and messages.
        reader: `module:function`, imported when first used.
        suffix: of the file's name; "" for a scheme.
        scheme: the beginning of the source, with its colon; "" for a file.
        beside: suffixes of the files beside it that belong to the model.
    """

    shown: str
    reader: str
    suffix: str = ""
    scheme: str = ""
    beside: tuple[str, ...] = ()

    def read(self, *arguments: object) -> MDP:
        """Call the reader."""
        module, _, function = self.reader.partition(":")
        model: MDP = getattr(import_module(module), function)(*arguments)
        return model


FORMATS: tuple[Format, ...] = (
    Format("a .npz file", "monitor.model.npz:read_files", suffix=".npz"),
    Format("gymnasium:ID?argument=value", "monitor.model.gymnasium_env:load_gymnasium", scheme="gymnasium:"),
)
"""A file with another suffix is read as the first format."""


def format_of(source: str | PurePath) -> Format:
    """Return the format of a source: text by its scheme, else a file by its suffix."""
    text = str(source)
    schemes = (each for each in FORMATS if each.scheme and isinstance(source, str) and text.startswith(each.scheme))
    return next(schemes, None) or next((each for each in FORMATS if _is_file(text, each)), FORMATS[0])


def has_scheme(source: str) -> bool:
    """Return whether the source begins with a known scheme."""
    return bool(format_of(source).scheme)


def file_name(source: str) -> str:
    """Return the last part of the path if the source is a file of a known format, else the source."""
    return PurePath(source).name if any(_is_file(source, each) for each in FORMATS) else source


def supported_forms() -> str:
    """Return the list of all formats as text.

    >>> supported_forms()
    'a .npz file or gymnasium:ID?argument=value'
    """
    *others, last = (each.shown for each in FORMATS)
    return f"{', '.join(others)} or {last}"


def _is_file(source: str, form: Format) -> bool:
    return form.suffix != "" and source.endswith(form.suffix)
