"""Evidence and objects: whole files or none, by names that lead nowhere else, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.evidence.signing import Signer, read_signer, read_verifier
from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.store.evidence_folder import EvidenceFolder
from monitor.sidecar.store.store import Store
from tests.sidecar.keys import make_keys


@pytest.fixture
def archive(tmp_path: Path) -> EvidenceFolder:
    return EvidenceFolder(tmp_path / "var")


def test_evidence_is_kept_and_found_by_its_id(archive: EvidenceFolder, tmp_path: Path) -> None:
    archive.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    assert archive.read_evidence("a" * 32) == b"proof"
    assert [path.name for path in (tmp_path / "var" / "evidence").iterdir()] == ["a" * 32]


def test_objects_are_written_once(archive: EvidenceFolder) -> None:
    archive.keep_objects({"b" * 64: b"model"})
    before = (archive.objects / ("b" * 64)).stat().st_mtime_ns
    archive.keep_objects({"b" * 64: b"model"})
    assert (archive.objects / ("b" * 64)).stat().st_mtime_ns == before
    assert (archive.objects / ("b" * 64)).read_bytes() == b"model"


def test_objects_may_be_written_while_it_is_asked_if_they_have_changed(
    archive: EvidenceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload writes those of the new configuration in another thread."""
    archive.keep_objects({"b" * 64: b"model"})
    lstat = Path.lstat

    def while_written(path: Path) -> os.stat_result:
        monkeypatch.setattr(Path, "lstat", lstat)
        archive.keep_objects({"c" * 64: b"new"})
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", while_written)
    assert not archive.changed()
    assert archive.read_object("c" * 64) == b"new"


@pytest.mark.parametrize("name", ["..", "../objects", "/etc/passwd", "", "A" * 32, "c" * 65, "c" * 32, "a\0b"])
def test_a_name_that_is_none_gives_nothing(archive: EvidenceFolder, name: str) -> None:
    assert archive.read_evidence(name) is None


def test_a_write_that_fails_leaves_nothing(archive: EvidenceFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        archive.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    assert list(archive.evidence.iterdir()) == []
    with pytest.raises(ConfigError, match="No space left"):
        archive.keep_objects({"b" * 64: b"model"})


def test_evidence_written_together_is_all_there_and_readable(archive: EvidenceFolder) -> None:
    files = [EvidenceFile(letter * 32, letter.encode()) for letter in "cab"]
    archive.keep_evidence(*files)
    for file in files:
        assert archive.read_evidence(file.id) == file.content
        assert (archive.evidence / file.id).stat().st_mode & 0o777 == 0o644
    assert kept(archive) == ["a", "b", "c"]


def test_the_disk_has_all_contents_before_the_first_name_and_the_names_at_the_end(
    archive: EvidenceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are written before the first is flushed, so that they share the transactions of the file system."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def flush(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        sizes = [each.stat().st_size for each in archive.evidence.glob(".cfmon-unfinished-*/*")]
        done.append("folder" if folder else f"content of {sizes}")
        fsync(descriptor)

    def rename(path: Path, target: Path) -> Path:
        done.append(target.name[0])
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", rename)
    archive.keep_evidence(*(EvidenceFile(letter * 32, b"proof") for letter in "ab"))
    assert done == ["content of [5, 5]", "content of [5, 5]", "a", "b", "folder"]


@pytest.mark.parametrize("good", range(5))
def test_when_writing_together_fails_whole_files_are_left_and_nothing_else(
    archive: EvidenceFolder, monkeypatch: pytest.MonkeyPatch, good: int
) -> None:
    """Whatever call fails: the writes of three contents, or the first two of their names."""
    steps = iter(range(good))

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: object) -> object:
            if next(steps, None) is None:
                raise OSError(28, "No space left on device")
            return call(*arguments)

        return called

    files = [EvidenceFile(letter * 32, letter.encode() * 100) for letter in "abc"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync))
        patch.setattr(Path, "replace", failing(Path.replace))
        with pytest.raises(OSError, match="No space left"):
            archive.keep_evidence(*files)
    assert kept(archive) == ["a", "b", "c"][: max(0, good - 3)]
    assert all(archive.read_evidence(file.id) in (None, file.content) for file in files)
    archive.keep_evidence(*files)
    assert kept(archive) == ["a", "b", "c"]


def test_a_folder_that_cannot_be_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"store\.path: .* cannot be written to"):
        EvidenceFolder(tmp_path / "file")


@pytest.mark.parametrize(("number", "told"), [(28, None), (30, "Read-only file system")])
def test_a_full_disk_is_no_error_at_start(
    archive: EvidenceFolder, monkeypatch: pytest.MonkeyPatch, number: int, told: str | None
) -> None:
    archive.keep_evidence(EvidenceFile("a" * 32, b"proof"))

    def failing(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", failing)
    with contextlib.nullcontext() if told is None else pytest.raises(ConfigError, match=told):
        assert EvidenceFolder(archive.evidence.parent).read_evidence("a" * 32) == b"proof"


def kept(archive: EvidenceFolder) -> list[str]:
    return sorted(path.name[0] for path in archive.evidence.iterdir())


def test_old_evidence_goes_and_the_oldest_where_it_is_too_much(archive: EvidenceFolder) -> None:
    archive.keep_objects({"f" * 64: b"model"})
    for age, letter in ((400, "a"), (300, "b"), (200, "c"), (100, "d")):
        archive.keep_evidence(EvidenceFile(letter * 32, bytes(1000)))
        path = archive.evidence / (letter * 32)
        now = path.stat().st_mtime
        os.utime(path, (now - age, now - age))
    assert archive.prune(keep=1000.0, size=4000) == 0
    assert archive.prune(keep=350.0, size=4000) == 1
    assert kept(archive) == ["b", "c", "d"]
    assert archive.prune(keep=350.0, size=1999) == 2
    assert kept(archive) == ["d"]
    assert (archive.objects / ("f" * 64)).exists()


MONTH = 30 * 86400.0


def aged(archive: EvidenceFolder, days: int) -> None:
    """Evidence of today and of each day before, as a monitor leaves it that looked at it today."""
    for age in range(days):
        name = f"{age:032x}"
        archive.keep_evidence(EvidenceFile(name, b"proof"))
        written = time.time() - age * 86400.0
        os.utime(archive.evidence / name, (written, written))
    archive.prune(keep=MONTH, size=1000)


class Clocks:
    """Both clocks, as a test moves them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.ticks = time.time(), 1000.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.ticks)

    def passes(self, days: float) -> None:
        self.wall += days * 86400.0
        self.ticks += days * 86400.0


@pytest.mark.parametrize("marked", [True, False], ids=["looked at before", "from an earlier version"])
def test_a_clock_that_jumps_ahead_removes_nothing(
    archive: EvidenceFolder, monkeypatch: pytest.MonkeyPatch, *, marked: bool
) -> None:
    aged(archive, 27)
    if not marked:
        (archive.evidence.parent / "evidence.time").unlink()
    clocks = Clocks(monkeypatch)
    clocks.wall += 400 * 86400.0
    started = EvidenceFolder(archive.evidence.parent)
    assert started.prune(keep=MONTH, size=1000) == 0
    clocks.wall += 400 * 86400.0
    assert started.prune(keep=MONTH, size=1000) == 0
    assert len(kept(started)) == 27
    assert started.prune(keep=MONTH, size=100) == 7, "the bound on size holds, whatever the clock says"


def test_time_that_is_seen_to_pass_removes_what_is_old(
    archive: EvidenceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(archive, 27)
    clocks = Clocks(monkeypatch)
    clocks.passes(1.0)
    started = EvidenceFolder(archive.evidence.parent)
    assert started.prune(keep=MONTH, size=1000) == 0
    clocks.passes(9.5)
    assert started.prune(keep=MONTH, size=1000) == 7
    clocks.wall -= 300 * 86400.0
    assert started.prune(keep=MONTH, size=1000) == 0, "nor does a clock that goes back make anything older"
    again = EvidenceFolder(archive.evidence.parent)
    clocks.wall += 301 * 86400.0
    assert again.prune(keep=MONTH, size=1000) == 1, "a day at most for the time before a start"


def test_what_lies_there_and_is_not_ours_keeps_nothing_from_being_removed(archive: EvidenceFolder) -> None:
    (archive.evidence / "lost+found").mkdir()
    os.utime(archive.evidence / "lost+found", (1, 1))
    archive.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    assert archive.prune(keep=1000.0, size=0) == 1
    assert kept(archive) == ["l"]


def test_a_file_that_gets_its_name_meanwhile_keeps_nothing_from_being_removed(
    archive: EvidenceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    (archive.evidence / ".new-1").write_bytes(b"pro")
    scan = os.scandir

    @contextlib.contextmanager
    def scanned(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scan(folder) as entries:
            found = list(entries)
        (archive.evidence / ".new-1").rename(archive.evidence / ("b" * 32))
        yield iter(found)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scanned)
        assert archive.prune(keep=1000.0, size=0) == 1
    assert kept(archive) == ["b"]


def test_the_evidence_of_what_fires_stays_however_old_and_much(archive: EvidenceFolder) -> None:
    for letter in "abc":
        archive.keep_evidence(EvidenceFile(letter * 32, bytes(1000)))
        os.utime(archive.evidence / (letter * 32), (ord(letter), ord(letter)))
    assert archive.prune(keep=1.0, size=0, needed={"b" * 32}) == 2
    assert kept(archive) == ["b"]


# ---- signatures ----


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return read_signer(make_keys(tmp_path)[0])


def test_evidence_is_signed_where_there_is_a_key(tmp_path: Path, archive: EvidenceFolder, signer: Signer) -> None:
    archive.keep_evidence(EvidenceFile("a" * 32, b"before there was a key"))
    signing = EvidenceFolder(tmp_path / "var", signer)
    signing.keep_evidence(EvidenceFile("b" * 32, b"proof"))
    verifier = read_verifier(tmp_path / "evidence.pub.pem")
    signature = signing.read_signature("b" * 32)
    assert signature is not None
    assert verifier.accepts(signature, b"proof")
    assert signing.read_evidence("b" * 32) == b"proof"
    assert signing.read_signature("a" * 32) is None
    for name in ("..", "../objects", "", f"{'b' * 32}.sig", "a\0b"):
        assert signing.read_signature(name) is None


def test_evidence_never_lies_there_without_its_signature(
    tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever write fails, or whenever it is killed."""
    signing = EvidenceFolder(tmp_path / "var", signer)
    replace, seen = Path.replace, []

    def watched(path: Path, target: Path) -> Path:
        seen.append(target.name)
        if len(seen) == 2:
            raise OSError(28, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", watched)
    with pytest.raises(OSError, match="No space left"):
        signing.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    assert seen == [f"{'a' * 32}.sig", "a" * 32]
    assert [path.name for path in signing.evidence.iterdir()] == [f"{'a' * 32}.sig"]
    signing.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    assert signing.read_evidence("a" * 32) == b"proof"


def test_a_signature_goes_with_its_evidence(tmp_path: Path, signer: Signer) -> None:
    signing = EvidenceFolder(tmp_path / "var", signer)
    for age, letter in ((300, "a"), (200, "b"), (100, "c")):
        signing.keep_evidence(EvidenceFile(letter * 32, bytes(1000)))
        for path in signing.evidence.glob(f"{letter}*"):
            now = path.stat().st_mtime
            os.utime(path, (now - age, now - age))
    assert kept(signing) == ["a", "a", "b", "b", "c", "c"]
    assert signing.prune(keep=250.0, size=10_000) == 1
    assert kept(signing) == ["b", "b", "c", "c"]
    assert signing.prune(keep=250.0, size=2 * 1064) == 0
    assert signing.prune(keep=250.0, size=2 * 1064 - 1, needed={"b" * 32}) == 1
    assert kept(signing) == ["b", "b"]


def test_a_signature_without_evidence_goes_when_it_is_old(tmp_path: Path, signer: Signer) -> None:
    signing = EvidenceFolder(tmp_path / "var", signer)
    signing.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    (signing.evidence / ("a" * 32)).unlink()
    os.utime(signing.evidence / f"{'a' * 32}.sig", (1, 1))
    assert signing.prune(keep=1000.0, size=10_000) == 1
    assert kept(signing) == []


def test_a_store_gives_the_signature_of_what_waits_and_of_what_is_filed(tmp_path: Path, signer: Signer) -> None:
    store = Store(tmp_path / "var" / "cfmon.sqlite", signer)
    file = EvidenceFile("a" * 32, b"proof")
    store.commit([], [file], [])
    assert not list((tmp_path / "var" / "evidence").iterdir())
    waiting = store.read_signature(file.id)
    assert waiting == signer.sign(b"proof")
    asyncio.run(store.file_evidence())
    assert len(list((tmp_path / "var" / "evidence").iterdir())) == 2
    assert (store.read_signature(file.id), store.read_signature("b" * 32)) == (waiting, None)
    store.close()
