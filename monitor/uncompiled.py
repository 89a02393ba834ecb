"""Run the kernels as Python: if they are not compiled, or with `MONITOR_UNCOMPILED=1` for debuggers and coverage.

The modules that have a `.pxd` file beside them are compiled when the package is built (`hatch_build.py`). Uncompiled,
the same sources give the same results, about a hundred times slower.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from types import ModuleType

SLOW = (
    "the monitor is not compiled and runs some hundred times slower: too slow for most agents. "
    "Install a C compiler and Python's headers (Debian: apt-get install gcc python3-dev), then install it anew"
)
_ROOT = os.path.dirname(__file__)  # noqa: PTH120 - `pathlib` is slow to import, and this comes first


def prefer_sources() -> None:
    """Import the sources of this package from now on, even where they have been compiled."""
    sys.path_hooks.insert(0, _source_finder)
    for path in [path for path in sys.path_importer_cache if _is_ours(path)]:
        del sys.path_importer_cache[path]


def _is_ours(path: str) -> bool:
    return path == _ROOT or path.startswith(_ROOT + os.sep)


def _source_finder(path: str) -> FileFinder:
    if not _is_ours(path):
        raise ImportError(path)
    return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))


def warn_if_uncompiled(kernel: ModuleType) -> None:
    """Warn if the kernels are not compiled; then silence NumPy's warnings, which machine code does not give."""
    if str(kernel.__file__).endswith(".py"):
        warnings.warn(SLOW, RuntimeWarning, stacklevel=2)
        warnings.filterwarnings("ignore", "(divide by zero|overflow|invalid value) encountered", RuntimeWarning)
