"""Loading of a user's own Python: `module.py:name` names an object at the top level of a file.

Loading runs the file. Only what a user gives on the command line or in a configuration is loaded, never what a model, a
manifest, evidence or a message names.
"""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from monitor.errors import MonitorError

_REFERENCE: Final = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)\Z", re.DOTALL)


def is_reference(text: str) -> bool:
    """Return whether `text` has the form `module.py:name`.

    >>> is_reference("rooms.py:make_env"), is_reference("gymnasium:Taxi-v4")
    (True, False)
    """
    return _REFERENCE.match(text) is not None


def load_object(reference: str, error: type[MonitorError]) -> Any:  # noqa: ANN401 - whatever the user's file holds
    """Return the object that `module.py:name` names.

    Raises:
        MonitorError: (of the class `error`) the reference has another form, the file or name does not exist, or running
            the file fails.
    """
    found = _REFERENCE.match(reference)
    if found is None:
        raise error(f"{reference!r} names no function; write module.py:function")
    module = _module(Path(found["file"]), reference, error)
    if not hasattr(module, found["name"]):
        raise error(f"{reference}: {found['file']} has no {found['name']!r} at its top level")
    return getattr(module, found["name"])


def explained(error: BaseException) -> str:
    """Return an exception of the user's code as one line: its class and its message."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _module(file: Path, reference: str, error: type[MonitorError]) -> ModuleType:
    """Return the module in a file. The file runs once; its folder joins `sys.path`, as for a script."""
    loaded = sys.modules.get(file.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file.resolve()):
        return loaded
    spec = spec_from_file_location(file.stem, file.resolve())
    if not file.is_file() or spec is None or spec.loader is None:
        raise error(f"{reference}: there is no file {file}")
    if (folder := str(file.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    module = module_from_spec(spec)
    if file.stem not in sys.modules:  # pickles and the module's own classes look it up there
        sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        if sys.modules.get(file.stem) is module:
            del sys.modules[file.stem]
        raise error(f"{reference}: {file} cannot be run ({explained(problem)})") from problem
    return module
