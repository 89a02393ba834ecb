"""Read and write model files. Only this module of the package uses files; `monitor.model.formats` lists the formats."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container
from pathlib import Path
from typing import Final

from monitor.atomic import write_file, write_files
from monitor.errors import ModelError, ModelWarning
from monitor.model.formats import PROGRAMS, Format, format_of, names_world, supported_forms, written_forms
from monitor.model.mdp import MDP
from monitor.model.npz import MAX_UNPACKED_BYTES, canonical_bytes, model_sha256, read_model

__all__ = ["canonical_bytes", "load_model", "model_sha256", "read_model", "save_model"]

_PACKED: Final = r"\.(?:gz|xz|bz2|zst)"
"""Suffixes of compressed files."""


def load_model(source: str | Path, rewards: str | None = None) -> MDP:
    """Return the model of a source, which is a file or text such as `gymnasium:ID?argument=value`.

    `monitor.model.formats` lists the formats. A `Path` is always a file. A file whose suffix is unknown is read as
    `.npz`. `rewards`: name of one of several reward structures that a file has, or `none`.

    Raises:
        ModelError: the file or environment does not exist or is malformed; the message says what and where.
    """
    form = format_of(source)
    named = (rewards,) if form.named_rewards else ()
    if rewards is not None and not named:
        raise ModelError(f"model {source}: it is of a format with one unnamed reward structure; leave out {rewards!r}")
    if form.scheme:
        return form.read(source)
    _refuse_program(source)
    return form.read(_contents(source, form), str(source), *named)


def _refuse_program(source: str | Path) -> None:
    if str(source).endswith(PROGRAMS):
        raise ModelError(
            f"model {source}: descriptions in the PRISM language and JANI are converted first: "
            f"cfmon model convert {source} model.npz"
        )
    if names_world(source):
        raise ModelError(f"model {source}: this is a world with numbers, and a table of states is needed here")


def _contents(source: str | Path, form: Format) -> dict[str, bytes]:
    """Return the bytes of the file, and of the files beside it that belong to it."""
    try:
        paths = {form.suffix: Path(source)} | _beside(source, form)
        if sum(path.stat().st_size for path in paths.values()) > MAX_UNPACKED_BYTES:
            raise ModelError(f"model {source}: its files are larger than the limit of {MAX_UNPACKED_BYTES:,} bytes")
        for path in paths.values():
            if not path.is_file():
                raise ModelError(f"model {path}: cannot be read (it is not a file); give {supported_forms()}")
        return {key: path.read_bytes() for key, path in paths.items()}
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ModelError(f"model {source}: cannot be read ({error}); give {supported_forms()}") from error


def _beside(source: str | Path, form: Format) -> dict[str, Path]:
    """Return the files beside a model file that belong to it. Keys are names without the stem, such as .lab or 1.srew.

    The file m1.srew belongs to m1.tra if this file exists, otherwise to m.tra. A `ModelWarning` lists the files that
    belong to another model in this way. Raises ModelError for a compressed file.
    """
    if not form.beside:
        return {}
    stem, folder = _stem(source), Path(source).parent
    alone, counted = ("|".join(map(re.escape, suffixes)) for suffixes in (form.beside, form.numbered or ("\0",)))
    name = re.compile(rf"{re.escape(stem)}((?:{alone})|([1-9][0-9]{{0,3}})(?:{counted}))({_PACKED})?\Z")
    found, foreign = {}, []
    for path in sorted(folder.iterdir()):
        if (match := name.match(path.name)) is None:
            continue
        if match[2] and (folder / f"{stem}{match[2]}{form.suffix}{match[3] or ''}").exists():
            foreign.append(path.name)
        elif match[3]:
            raise ModelError(f"model {source}: {path.name}, beside it, is compressed: unpack it, or move it away")
        else:
            found[match[1]] = path
    if foreign:
        warnings.warn(
            f"model {source}: not read, because they belong to other models beside it: {', '.join(foreign[:3])}",
            ModelWarning,
            stacklevel=4,
        )
    return found


def save_model(model: MDP, path: str | Path) -> None:
    """Write the model in the format of the file's suffix (`monitor.model.formats`), or as `.npz` if it is unknown.

    After writing `.npz`, `load_model` returns the same model, bit by bit. The parts that another format cannot hold are
    left out, and a `ModelWarning` lists them.

    Raises:
        ModelError: the model is not a table; the format cannot be written or cannot hold a name; a file beside it would
            be read as a part of the model; the file cannot be written.
    """
    if not isinstance(model, MDP):
        raise ModelError(
            f"model {path}: what is written is a table (an MDP), not {model!s:.80}; a world with numbers is kept as "
            "its manifest with the files beside it, or as its Python file"
        )
    form = format_of(Path(path))
    if not form.writer or str(path).endswith(PROGRAMS):
        raise ModelError(f"model {path}: cannot be written in this format; write {written_forms()}")
    try:
        files = {_place(path, form, suffix): content for suffix, content in form.write(model).items()}
        _refuse_old(form, path, files)
        if len(files) == 1:
            write_file(Path(path), *files.values())
        else:
            write_files(Path(path).parent, {file.name: content for file, content in files.items()})
    except ModelError as error:
        raise ModelError(f"model {path}: {error}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"model {path}: cannot be written ({reason})") from error
    if lost := form.left_out(model):
        warnings.warn(f"model {path}: {form.suffix} cannot hold: {', '.join(lost)}", ModelWarning, stacklevel=2)


def _refuse_old(form: Format, path: str | Path, files: Container[Path]) -> None:
    for old in _beside(path, form).values():
        if old not in files:
            raise ModelError(f"{old} exists and would be read as part of the model: remove it, or use another name")


def _place(path: str | Path, form: Format, suffix: str) -> Path:
    return Path(path) if suffix == form.suffix else Path(path).parent / f"{_stem(path)}{suffix}"


def _stem(path: str | Path) -> str:
    return Path(path).with_suffix("").name
