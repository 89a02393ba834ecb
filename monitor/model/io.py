"""Reading and writing models: the impure door of this room. What a model file holds is told in `monitor.model.npz`."""

from __future__ import annotations

import zipfile
from pathlib import Path

from monitor.errors import ModelError
from monitor.model.gymnasium_env import PREFIX, load_gymnasium
from monitor.model.mdp import MDP
from monitor.model.npz import MAX_UNPACKED_BYTES, canonical_bytes, model_sha256, pack, read_model

__all__ = ["canonical_bytes", "load_model", "model_sha256", "read_model", "save_model"]


def load_model(source: str | Path) -> MDP:
    """The model in a `.npz` file, or that of `gymnasium:ID?arg=value&...`.

    Raises:
        ModelError: there is no such file or environment, or what is there is malformed; says what and where.
    """
    if isinstance(source, str) and source.startswith(PREFIX):
        return load_gymnasium(source)
    path = Path(source)
    try:
        if path.stat().st_size > MAX_UNPACKED_BYTES:
            raise ModelError(f"model {source}: the file is larger than the limit of {MAX_UNPACKED_BYTES:,} bytes")
        if not path.is_file():
            raise ModelError(f"model {source}: cannot be read (it is no file); give a .npz file or gymnasium:ID")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ModelError(f"model {source}: cannot be read ({error}); give a .npz file or gymnasium:ID") from error
    return read_model(content, str(source))


def save_model(model: MDP, path: str | Path) -> None:
    """Write the model as a compressed `.npz`; `load_model` gives the same model back, to the bit.

    Raises:
        ModelError: the file cannot be written.
    """
    try:
        Path(path).write_bytes(pack(model, zipfile.ZIP_DEFLATED))
    except (OSError, ValueError) as error:
        raise ModelError(f"model {path}: cannot be written ({error})") from error
