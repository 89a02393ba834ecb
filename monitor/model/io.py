"""Reading and writing of model files: the impure module of this package. `monitor.model.formats` lists the formats."""

from __future__ import annotations

import zipfile
from pathlib import Path

from monitor.errors import ModelError
from monitor.model.formats import format_of, supported_forms
from monitor.model.mdp import MDP
from monitor.model.npz import MAX_UNPACKED_BYTES, canonical_bytes, model_sha256, pack, read_model

__all__ = ["canonical_bytes", "load_model", "model_sha256", "read_model", "save_model"]


def load_model(source: str | Path) -> MDP:
    """Return the model of a source: a file, or text such as `gymnasium:ID?argument=value` (`monitor.model.formats`).

    A `Path` is always a file. A file whose suffix is unknown is read as `.npz`.

    Raises:
        ModelError: the file or environment does not exist or is malformed; says what and where.
    """
    form = format_of(source)
    if form.scheme:
        return form.read(source)
    files = {form.suffix: _content(source)}
    beside = {suffix: Path(source).with_suffix(suffix) for suffix in form.beside}
    files |= {suffix: _content(path) for suffix, path in beside.items() if path.exists()}
    return form.read(files, str(source))


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
    """Write the model as a compressed `.npz`; `load_model` returns the same model, bit by bit.

    Raises:
        ModelError: the file cannot be written.
    """
    try:
        Path(path).write_bytes(pack(model, zipfile.ZIP_DEFLATED))
    except (OSError, ValueError) as error:
        raise ModelError(f"model {path}: cannot be written ({error})") from error
