"""Files of `cfmon init` moved to their folder: all of them, or after an error none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path


def move_files(staging: Path, folder: Path, names: Sequence[str], finish: Callable[[], None]) -> list[str]:
    """Move the files of these names from `staging` to `folder`, which then has no others of them; return their names.

    Then call `finish`. After any error, one of `finish` included, the folder is as it was. What was replaced is kept in
    `staging` until then. Raises what the file system or `finish` raises.
    """
    moved = [name for name in names if (staging / name).exists()]
    replaced, is_new = staging / "replaced", not folder.exists()
    replaced.mkdir()
    try:
        folder.mkdir(exist_ok=True)
        for name in names:
            if (folder / name).exists():
                shutil.move(folder / name, replaced / name)
        for name in moved:
            shutil.move(staging / name, folder / name)
        finish()
    except BaseException:
        _restore(replaced, folder, names)
        if is_new:
            folder.rmdir()
        raise
    return moved


def _restore(replaced: Path, folder: Path, names: Sequence[str]) -> None:
    """Put back what was replaced, and remove everything else of these names."""
    for name in names:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        (folder / name).unlink(missing_ok=True)
        if (replaced / name).exists():
            shutil.move(replaced / name, folder / name)
