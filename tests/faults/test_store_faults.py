"""A disk that is full, cannot be written to or lies: the monitor goes on watching, says so, and takes up again."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.faults.harness import Monitor, Scene, scene
from tests.faults.world import write_world
from tests.servers import PATIENCE, wait_until
from tests.tiers import slow


@contextmanager
def small_disk(folder: Path, size: str = "16m") -> Iterator[Path]:
    """A file system of its own; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "cfmon", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk needs root and mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def breaking_disk(folder: Path) -> Iterator[Callable[[], object]]:
    """A file system of its own, which the kernel makes read-only when that is called, as after an error of the disk."""
    folder.mkdir()
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(16 << 20)
    make = ["mkfs.ext4", "-q", "-F", str(image)]
    mount = ["mount", "-o", "loop,errors=remount-ro", str(image), str(folder)]
    if os.geteuid() != 0 or shutil.which(make[0], path="/usr/sbin:/sbin") is None:
        pytest.skip("a disk that breaks needs root and mkfs.ext4 (Debian: apt-get install e2fsprogs)")
    subprocess.run(make, check=True)
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file can be mounted as a disk here")
    try:
        device = subprocess.check_output(["findmnt", "-no", "SOURCE", str(folder)], text=True).strip()
        trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
        yield partial(trigger.write_text, "test")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Not a byte is left."""
    waste = disk / "waste"
    with waste.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"\0" * 4096)
            except OSError:
                break
    try:
        yield
    finally:
        waste.unlink()


def failing(staged: Scene) -> bool:
    return staged.monitor.running.metric("cfmon_store_ok") == 0


def works(staged: Scene) -> bool:
    return staged.monitor.running.metric("cfmon_store_ok") == 1


def test_a_full_disk_stops_nothing(tmp_path: Path, report: Callable[..., None]) -> None:
    with small_disk(tmp_path / "disk") as disk, scene(tmp_path, store={"path": str(disk / "cfmon.sqlite")}) as staged:
        with filled(disk):
            wait_until(lambda: failing(staged), "it says that it cannot keep anything")
            errors = staged.monitor.running.metric("cfmon_store_errors_total")
        wait_until(lambda: works(staged), "it keeps again")
        with staged.fault():
            staged.monitor.kill()  # what was kept since the disk has room again is enough
        staged.monitor.start()
        staged.monitor.until_ready()
        outcome = staged.outcome()
    report(store_errors=errors, **outcome.figures())


@slow
def test_a_restart_on_a_full_disk_watches(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, scene(tmp_path, store={"path": str(disk / "cfmon.sqlite")}) as staged:
        with filled(disk):
            wait_until(lambda: failing(staged), "it says that it cannot keep anything")
            staged.monitor.kill()
            staged.monitor.start()
            staged.monitor.until_ready()
            assert "restored the stored state" in staged.monitor.logs
            wait_until(lambda: failing(staged), "it says so again")
            before = len(staged.listener.heard)
            wait_until(lambda: len(staged.listener.heard) > before + 100, "alerts are told all the same")
        wait_until(lambda: works(staged), "it keeps again")


@slow
def test_a_disk_that_becomes_read_only_stops_nothing(tmp_path: Path, report: Callable[..., None]) -> None:
    disk = tmp_path / "disk"
    with breaking_disk(disk) as break_it, scene(tmp_path, store={"path": str(disk / "cfmon.sqlite")}) as staged:
        break_it()
        wait_until(lambda: failing(staged), "it says that it cannot keep anything")
        before = len(staged.listener.heard)
        wait_until(lambda: len(staged.listener.heard) > before + 100, "alerts are told all the same")
        outcome = staged.outcome()
        code, took = staged.monitor.stop()
        assert code == 0, staged.monitor.logs
        assert staged.monitor.logs.count("a restart would lose state") == 1
    report(seconds_to_end=round(took, 2), **outcome.figures())


def test_a_store_that_cannot_be_opened_is_an_error_at_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        store = {"path": str(disk / "cfmon.sqlite")}
        monitor = Monitor(write_world(tmp_path / "project", "mqtt://127.0.0.1:1", store=store))
        monitor.start()
        assert monitor.running.process.wait(PATIENCE) == 2
        assert "store.path" in monitor.logs
        assert "Traceback" not in monitor.logs


def emptied(_store: Path) -> bytes:
    return b""


def exchanged(_store: Path) -> bytes:
    return b"no database at all"


def flipped(store: Path) -> bytes:
    """One byte of what it remembers is another."""
    database = sqlite3.connect(store)
    [[remembered]] = database.execute("SELECT events FROM journal ORDER BY n DESC LIMIT 1")
    database.close()  # by which all of it is in one file
    begin = remembered[:64]  # of a large one, the rest may lie on other pages
    content = store.read_bytes()
    assert begin in content
    return content.replace(begin, begin[:32] + bytes([begin[32] ^ 0x01]) + begin[33:])


@pytest.mark.parametrize("damaged", [flipped, *(pytest.param(each, marks=slow) for each in (emptied, exchanged))])
def test_a_corrupt_store_is_set_aside(tmp_path: Path, damaged: Callable[[Path], bytes]) -> None:
    with scene(tmp_path) as staged:
        staged.monitor.kill()
        store = staged.monitor.config.parent / "var" / "cfmon.sqlite"
        content = damaged(store)
        for suffix in ("-wal", "-shm"):
            store.with_name(store.name + suffix).unlink(missing_ok=True)
        store.write_bytes(content)
        staged.monitor.start()
        staged.monitor.until_ready()
        aside = list(store.parent.glob("*.corrupt-*"))
        wait_until(staged.monitor.newest, "it watches again")
    if damaged is not emptied:  # an empty file is a new database
        assert aside, staged.monitor.logs
        assert "set aside as" in staged.monitor.logs
