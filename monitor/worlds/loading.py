"""Load a world from a class, an instance, or the path of a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from monitor.errors import ModelError, MonitorError
from monitor.model.formats import names_world
from monitor.user_code import explained, is_reference, load_object
from monitor.worlds.checked import CheckedWorld
from monitor.worlds.content import of_python
from monitor.worlds.trial import examine


def is_world(model: object) -> bool:
    """Return whether a model, or its source, is a world with numbers, not a model with numbered states."""
    if isinstance(model, str | Path):
        return names_world(model)
    return isinstance(model, CheckedWorld) or (hasattr(model, "features") and hasattr(model, "step"))


def load_world(source: Any) -> CheckedWorld:  # noqa: ANN401 - anything with the parts of a `World`
    """Return a world after checks and trial calls.

    `source`: a class (called without arguments), an instance, `module.py:name` of either, or the path of a manifest. A
    checked world is returned unchanged. So if you make many queries, load a world once and pass the result.

    Raises:
        ModelError: something is missing, malformed or altered; `step` is not a function of its arguments; or abduction
            does not recover the noise that `step` was given.
    """
    if isinstance(source, CheckedWorld):
        return source
    content = b""
    if isinstance(source, str) and is_reference(source):
        reference, source = source, load_object(source, ModelError)
        file, _, name = reference.rpartition(":")
        content = of_python(f"{Path(file).name}:{name}", Path(file).read_bytes())
    elif isinstance(source, str | Path):
        from monitor.worlds.location_scale import read_world  # noqa: PLC0415 - onnxruntime and scipy only where needed

        source = read_world(Path(source))
    if isinstance(source, type):
        try:
            source = source()
        except MonitorError:
            raise
        except Exception as error:
            problem = f"world {source.__name__!r}: it cannot be made without arguments ({explained(error)})"
            raise ModelError(f"{problem}; give an instance") from error
    world = CheckedWorld(source, content)
    for each in (world, *world.fits):
        examine(each)
    return world
