"""Formats of models that `load_model` can read.

To add a format, write its reader in a module of `monitor.authoring.formats` and add a line to `FORMATS`. Readers are
pure:

- For files, `read(files, source)` gets the bytes of each file by suffix. These are the file itself, for example
  `files[".npz"]`, and the existing files beside it that have the same stem and a suffix in `beside`. If a file has a
  number after the stem (and a suffix in `numbered`), the key is number and suffix, for example `files["1.srew"]`.
- For a scheme, `read(source)` gets the whole text, such as `gymnasium:ID?argument=value`.

Both return an `MDP`. For malformed input they raise ModelError, with a message that begins with `model <source>:`. If a
format can hold several reward structures (`named_rewards`), its reader takes the name of one structure as a third
argument.

A format may also have a writer, `write(model)`, which returns the bytes of its files by suffix; `keeps` lists the
optional attributes of an `MDP` that it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from monitor.user_code import is_reference

if TYPE_CHECKING:
    from monitor.model.mdp import MDP


@dataclass(frozen=True)
class Format:
    """One format of models.

    Attributes:
        shown: name of the format in help and messages.
        reader: `module:function`, imported when first used.
        suffix: suffix of the file's name; "" for a scheme.
        scheme: beginning of the source, with its colon; "" for a file.
        beside: suffixes of the files beside the model's file that belong to the model.
        numbered: suffixes in `beside` for which several files may exist, numbered from 1.
        writer: `module:function`, imported when first used; "" if the format is only read.
        keeps: names in `OPTIONAL` that the writer writes.
        named_rewards: whether a file may hold several reward structures.
    """

    shown: str
    reader: str
    suffix: str = ""
    scheme: str = ""
    beside: tuple[str, ...] = ()
    numbered: tuple[str, ...] = ()
    writer: str = ""
    keeps: tuple[str, ...] = ()
    named_rewards: bool = False

    def read(self, *arguments: object) -> MDP:
        """Call the reader."""
        model: MDP = _function(self.reader)(*arguments)
        return model

    def write(self, model: MDP) -> dict[str, bytes]:
        """Return the files of a model by suffix."""
        files: dict[str, bytes] = _function(self.writer)(model)
        return files

    def left_out(self, model: MDP) -> list[str]:
        """Return the parts of the model that the writer leaves out, in words."""
        return [shown for name, shown in OPTIONAL.items() if name not in self.keeps and _has(model, name)]


OPTIONAL: Mapping[str, str] = {
    "state_names": "state names",
    "valuations": "valuations",
    "emissions": "what hidden states show: the states would count as seen",
    "signal_names": "names of what hidden states show",
    "observations": "observations",
    "samples": "recorded inputs of policies",
    "bin_edges": "bin edges",
    "bin_names": "names of bins",
    "centres": "centres",
    "ranges": "recorded ranges",
    "dimension_names": "names of the columns of a state",
    "ended_as": "copies of states for episodes that have terminated",
    "reward_spread": "how much observed rewards vary",
    "distribution": "the distribution of the first state (the states are kept)",
    "action_order": "the numbers of actions, which reading the file may change: refer to actions by name",
    "counts": "the counts behind the probabilities, which then no longer count as estimated",
}
"""Optional parts of a model, and their names in messages."""

_FORMATS = "monitor.authoring.formats"
FORMATS: tuple[Format, ...] = (
    Format(
        "a .npz file",
        "monitor.model.npz:read_files",
        suffix=".npz",
        writer="monitor.model.npz:npz_files",
        keeps=tuple(OPTIONAL),
    ),
    Format(
        "a .umb file (UMB)",
        f"{_FORMATS}.umb:read_files",
        suffix=".umb",
        writer=f"{_FORMATS}.umb_write:umb_files",
        keeps=("state_names", "valuations", "emissions", "ended_as", "distribution", "action_order"),
        named_rewards=True,
    ),
    Format(
        "a .tra file (PRISM)",
        f"{_FORMATS}.prism_explicit:read_files",
        suffix=".tra",
        beside=(".lab", ".srew", ".trew", ".sta", ".obs"),
        numbered=(".srew", ".trew"),
        writer=f"{_FORMATS}.prism_write:prism_files",
        keeps=("valuations", "emissions"),
        named_rewards=True,
    ),
    Format("a .pexp file", f"{_FORMATS}.prism_explicit:read_combined", suffix=".pexp", named_rewards=True),
    Format("a .drn file (Storm)", f"{_FORMATS}.drn:read_files", suffix=".drn", named_rewards=True),
    Format("a .pomdp file", f"{_FORMATS}.pomdp:read_files", suffix=".pomdp"),
    Format("gymnasium:ID?argument=value", f"{_FORMATS}.gymnasium_env:load_gymnasium", scheme="gymnasium:"),
)
"""A file with another suffix is read as the first format."""

PROGRAMS: tuple[str, ...] = (".prism", ".nm", ".pm", ".jani")
"""Suffixes of descriptions in the PRISM language and JANI, which Storm converts (`cfmon model convert`)."""


def format_of(source: str | PurePath) -> Format:
    """Return the format of a source: by the scheme of a text, otherwise by the suffix of a file."""
    text = str(source)
    schemes = (each for each in FORMATS if each.scheme and isinstance(source, str) and text.startswith(each.scheme))
    return next(schemes, None) or next((each for each in FORMATS if _is_file(text, each)), FORMATS[0])


def has_scheme(source: str) -> bool:
    """Return whether the source begins with a known scheme."""
    return bool(format_of(source).scheme)


WORLDS = "a manifest (.yaml), or module.py:name, which runs that file"
"""Possible sources of a world with numbers (not a table), in words for messages."""


def names_world(source: str | PurePath) -> bool:
    """Return whether the source names a world with numbers: a manifest, `.yaml`, or `module.py:name`.

    >>> names_world("tank.yaml"), names_world("tank.py:Tank"), names_world("tank.npz")
    (True, True, False)
    """
    return PurePath(source).suffix.lower() in (".yaml", ".yml") or is_reference(str(source))


def file_name(source: str) -> str:
    """Return the last part of the path if the source is a file of a known format, otherwise the source."""
    return PurePath(source).name if any(_is_file(source, each) for each in FORMATS) else source


def supported_forms() -> str:
    """Return the list of all formats as text.

    >>> supported_forms().split(", ")[-1]
    'a .pomdp file or gymnasium:ID?argument=value'
    """
    return _listed([each.shown for each in FORMATS])


def written_forms() -> str:
    """Return the list of the formats that can be written, as text.

    >>> written_forms()
    'a .npz file, a .umb file (UMB) or a .tra file (PRISM)'
    """
    return _listed([each.shown for each in FORMATS if each.writer])


def _listed(forms: list[str]) -> str:
    return f"{', '.join(forms[:-1])} or {forms[-1]}"


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _has(model: MDP, name: str) -> bool:
    if name == "distribution":
        return model.initial is not None and bool(((model.initial > 0) & (model.initial < 1)).any())
    if name == "action_order":
        keeps_order = _function(f"{_FORMATS}.choices:keeps_order")
        return (bool(model.action_names) or not model.availability.all()) and not keeps_order(model)
    if name == "counts" and model.emissions is not None and model.emissions.counts is not None:
        return True
    value = getattr(model, name)
    return value is not None and len(value if name not in ("counts", "centres", "emissions") else [value]) > 0


def _is_file(source: str, form: Format) -> bool:
    return form.suffix != "" and source.lower().endswith(form.suffix)
