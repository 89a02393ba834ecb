"""Write files and folders atomically and durably: they appear complete and already on the disk, or not at all.

They are written in a hidden folder in the target's folder, and then renamed. The process holds a lock on its hidden
folder. A killed process leaves an unlocked hidden folder, and the next process that writes to the same place removes
it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import Final

_PREFIX: Final = ".cfmon-unfinished-"
_NAME: Final = re.compile(re.escape(_PREFIX) + r"[0-9a-f]{16}\Z")
_held: Final[set[Path]] = set()
"""Hidden folders of this process."""


def write_file(path: Path, content: bytes) -> None:
    """Write or replace a file atomically and durably; write directly to a device or a pipe. Raises OSError."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with path.open("wb") as stream:
            stream.write(content)
        return
    write_files(target.parent, {target.name: content})


def write_files(folder: Path, contents: Mapping[str, bytes], *, mode: int | None = None, tidy: bool = True) -> None:
    """Write or replace files in order, each atomically and durably.

    An error while contents are written changes no file. All contents are sent to the disk before the first is waited
    for, so the files share its transactions.

    Args:
        folder: folder of the files.
        contents: name -> content.
        mode: access rights; None: the replaced file's rights, or the rights by the process's umask for a new file.
        tidy: first remove what killed processes left in the folder.

    Raises OSError.
    """
    with hidden_folder(folder, tidy=tidy) as hidden:
        with ExitStack() as opened:
            files = []
            for name, content in contents.items():
                files.append(opened.enter_context(_new_file(hidden / name, _mode_of(folder / name, mode))))
                _begin_writing(files[-1], content)
            for file in files:
                os.fsync(file.fileno())
        for name in contents:
            (hidden / name).replace(folder / name)
    _sync(folder)


@contextmanager
def new_path(target: Path) -> Iterator[Path]:
    """Yield a hidden path for a new file or folder; after the block, flush it to the disk and rename it to `target`.

    A file replaces an existing file; a folder replaces at most an empty folder. After an error nothing is left. Raises
    OSError.
    """
    with hidden_folder(target.parent) as hidden:
        path = hidden / target.name
        yield path
        _sync_all(path)
        path.replace(target)
    _sync(target.parent)


@contextmanager
def hidden_folder(place: Path, *, tidy: bool = True) -> Iterator[Path]:
    """Make a hidden folder in `place` that other users cannot read; remove it and its content after the block.

    `tidy`: first remove hidden folders that killed processes left there. Raises OSError.
    """
    if tidy:
        remove_abandoned(place)
    folder, descriptor = _locked(place)
    _held.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _held.discard(folder)
        os.close(descriptor)


def remove_abandoned(place: Path) -> None:
    """Remove the unlocked hidden folders in `place` that killed processes of this user left there."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if _NAME.match(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def abandon_all() -> None:
    """Remove the hidden folders of this process, which is about to end."""
    for folder in tuple(_held):
        shutil.rmtree(folder, ignore_errors=True)


def _locked(place: Path) -> tuple[Path, int]:
    """Return a new hidden folder and the descriptor that holds its lock."""
    while True:
        folder = place / f"{_PREFIX}{os.urandom(8).hex()}"
        folder.mkdir(0o700)
        try:
            descriptor = _open_folder(folder)
        except FileNotFoundError:  # removed before it was locked
            continue
        with contextlib.suppress(OSError):  # on a file system without locks, left folders are never removed
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)


def _remove_if_abandoned(folder: Path) -> None:
    descriptor = _open_folder(folder)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _mode_of(target: Path, mode: int | None) -> int | None:
    if mode is not None:
        return mode
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except OSError:
        return None


def _new_file(path: Path, mode: int | None) -> FileIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    file = FileIO(descriptor, "wb")
    if mode is not None:
        os.fchmod(descriptor, mode)
    return file


def _begin_writing(file: FileIO, content: bytes) -> None:
    """Write a file, and make Linux start to flush it to the disk."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _sync_all(path: Path) -> None:
    """Flush a file to the disk, or a folder with its content."""
    if path.is_dir():
        for inner in path.iterdir():
            _sync_all(inner)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
