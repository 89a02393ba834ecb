"""Moves the files of `cfmon init` to their folder. After an error, none of them is moved."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path


def move_files(staging: Path, folder: Path, names: Sequence[str], finish: Callable[[], None]) -> list[str]:
    """Replace the files of these names in `folder` by the files in `staging`; return the names of the moved files.

    If `folder` has a file with one of the names, and `staging` has no such file, the file is removed. After the move,
    `finish` is called. Until `finish` returns, the replaced files are kept in `staging`. If anything fails, `finish`
    included, the folder is restored. Raises the errors of the file system and of `finish`.
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
    """Put back the replaced files, and remove all other files of these names."""
    for name in names:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        (folder / name).unlink(missing_ok=True)
        if (replaced / name).exists():
            shutil.move(replaced / name, folder / name)
