"""Reading and writing of model files: the impure module of this package. `monitor.model.formats` lists the formats."""

from __future__ import annotations

import warnings
from collections.abc import Container
from pathlib import Path

from monitor.errors import ModelError, ModelWarning
from monitor.model.formats import FORMATS, PROGRAMS, Format, format_of, supported_forms, written_forms
from monitor.model.mdp import MDP
from monitor.model.npz import MAX_UNPACKED_BYTES, canonical_bytes, model_sha256, read_model

__all__ = ["canonical_bytes", "load_model", "model_sha256", "read_model", "save_model"]


def load_model(source: str | Path, rewards: str | None = None) -> MDP:
    """Return the model of a source: a file, or text such as `gymnasium:ID?argument=value` (`monitor.model.formats`).

    A `Path` is always a file. A file whose suffix is unknown is read as `.npz`. `rewards`: the name of one of several
    reward structures that a file holds, or `none`.

    Raises:
        ModelError: the file or environment does not exist or is malformed; says what and where.
    """
    form = format_of(source)
    named = (rewards,) if form.named_rewards else ()
    if rewards is not None and not named:
        raise ModelError(f"model {source}: it is of a format with one unnamed reward structure; leave out {rewards!r}")
    if form.scheme:
        return form.read(source)
    _refuse_program(source)
    files = {form.suffix: _content(source)}
    beside = {suffix: Path(source).with_suffix(suffix) for suffix in form.beside}
    files |= {suffix: _content(path) for suffix, path in beside.items() if path.exists()}
    return form.read(files, str(source), *named)


def _refuse_program(source: str | Path) -> None:
    if str(source).endswith(PROGRAMS):
        raise ModelError(
            f"model {source}: descriptions in the PRISM language and JANI are converted first: "
            f"cfmon model convert {source} model.npz"
        )


def _content(source: str | Path) -> bytes:
    path = Path(source)
    try:
        if path.stat().st_size > MAX_UNPACKED_BYTES:
            raise ModelError(f"model {source}: the file is larger than the limit of {MAX_UNPACKED_BYTES:,} bytes")
        if not path.is_file():
            raise ModelError(f"model {source}: cannot be read (it is not a file); give {supported_forms()}")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ModelError(f"model {source}: cannot be read ({error}); give {supported_forms()}") from error


def save_model(model: MDP, path: str | Path) -> None:
    """Write the model in the format of the file's suffix (`monitor.model.formats`), `.npz` if it is of none.

    From `.npz`, `load_model` returns the same model, bit by bit. What another format cannot hold is left out, with a
    `ModelWarning` that lists it.

    Raises:
        ModelError: the format cannot be written or cannot hold a name; a file beside it would be read as a part of the
            model; the file cannot be written.
    """
    form = next((each for each in FORMATS if each.suffix and str(path).endswith(each.suffix)), FORMATS[0])
    if not form.writer or str(path).endswith(PROGRAMS):
        raise ModelError(f"model {path}: cannot be written in this format; write {written_forms()}")
    try:
        files = {_beside(path, form, suffix): content for suffix, content in form.write(model).items()}
        _refuse_old(form, path, files)
        for file, content in files.items():
            file.write_bytes(content)
    except ModelError as error:
        raise ModelError(f"model {path}: {error}") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"model {path}: cannot be written ({error})") from error
    if lost := form.left_out(model):
        warnings.warn(f"model {path}: {form.suffix} cannot hold: {', '.join(lost)}", ModelWarning, stacklevel=2)


def _refuse_old(form: Format, path: str | Path, files: Container[Path]) -> None:
    for suffix in form.beside:
        if (old := _beside(path, form, suffix)) not in files and old.exists():
            raise ModelError(f"{old} exists and would be read as part of the model: remove it, or use another name")


def _beside(path: str | Path, form: Format, suffix: str) -> Path:
    return Path(path) if suffix == form.suffix else Path(path).with_suffix(suffix)
