"""Files and folders that appear whole or not at all: after errors, after a kill, beside processes at work."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor import atomic

OLD, NEW = b"before", b"after" * 1000


def names(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_files_are_written_with_the_rights_of_those_they_replace(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(OLD)
    (tmp_path / "a").chmod(0o640)
    atomic.write_files(tmp_path, {"a": NEW, "b": OLD})
    assert names(tmp_path) == ["a", "b"]
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (NEW, OLD)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    mask = os.umask(0o027)
    try:
        atomic.write_file(tmp_path / "c", NEW)
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o640


def test_a_link_stays_and_a_device_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(OLD)
    (tmp_path / "link").symlink_to("kept/file")
    atomic.write_file(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept" / "file").read_bytes() == NEW
    atomic.write_file(Path(os.devnull), NEW)
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("where", ["write", "fsync", "rename"])
def test_after_an_error_everything_is_as_before(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(OLD)
    with monkeypatch.context() as patch:
        match where:
            case "write":
                patch.setattr("monitor.atomic._begin_writing", full)
            case "fsync":
                patch.setattr(os, "fsync", full)
            case _:
                patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            atomic.write_files(tmp_path, {"a": NEW, "b": NEW})
        if where != "write":
            with pytest.raises(OSError, match="No space left"), atomic.new_path(tmp_path / "c") as path:
                path.write_bytes(NEW)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == OLD


def test_a_folder_appears_with_all_that_is_in_it_once_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    fsync = os.fsync

    def flush(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", flush)
        with atomic.new_path(tmp_path / "made") as path:
            (path / "inner").mkdir(parents=True)
            (path / "inner" / "file").write_bytes(NEW)
            assert not (tmp_path / "made").exists()
    assert names(tmp_path) == ["made", "made/inner", "made/inner/file"]
    assert flushed == ["file", "inner", "made", tmp_path.name]


def test_what_the_block_raises_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with atomic.new_path(tmp_path / "made") as path:
            path.mkdir()
            (path / "file").write_bytes(NEW)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []


WRITER = """
import sys
from pathlib import Path
from monitor import atomic
with atomic.new_path(Path(sys.argv[1]) / "big") as path:
    path.mkdir()
    (path / "part").write_bytes(b"half")
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Callable[[], subprocess.Popen[str]]:
    def begun() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        return process

    return begun


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(
    tmp_path: Path, writer: Callable[[], subprocess.Popen[str]]
) -> None:
    mine = [".cfmon-unfinished-notes", ".cfmon-unfinished-0123456789abcdef.txt", ".big.new"]
    for name in mine:
        (tmp_path / name).mkdir()
    with writer() as killed:
        killed.kill()
    with writer() as busy:
        hidden = {each.name for each in tmp_path.iterdir()} - set(mine)
        assert len(hidden) == 1  # that of the process at work: the other was removed when it began
        atomic.write_file(tmp_path / "other", NEW)
        assert {each.name for each in tmp_path.iterdir()} == {*mine, "other", *hidden}
        busy.communicate("")
    assert busy.returncode == 0
    assert {each.name for each in tmp_path.iterdir()} == {*mine, "other", "big"}


def test_a_hidden_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir, made = Path.mkdir, []

    def racing(path: Path, mode: int = 0o777) -> None:
        mkdir(path, mode)
        made.append(path)
        if len(made) == 1:
            atomic.remove_abandoned(tmp_path)  # another process, which finds no lock

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", racing)
        atomic.write_file(tmp_path / "file", NEW)
    assert len(made) == 2
    assert names(tmp_path) == ["file"]


def test_a_signal_that_ends_the_process_removes_what_is_unfinished(tmp_path: Path) -> None:
    begin = "from monitor.cli.interrupts import exit_immediately; exit_immediately()\n"
    command = [sys.executable, "-c", begin + WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert len(names(tmp_path)) == 3
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 143
    assert names(tmp_path) == []
