"""The store: whole files or none, by names that lead nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitor.errors import ConfigError
from monitor.sidecar.pipeline import EvidenceFile
from monitor.sidecar.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "var" / "cfmon.sqlite")


def test_evidence_is_kept_and_found_by_its_id(store: Store, tmp_path: Path) -> None:
    store.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    assert store.read_evidence("a" * 32) == b"proof"
    assert [path.name for path in (tmp_path / "var" / "evidence").iterdir()] == ["a" * 32]


def test_objects_are_written_once(store: Store) -> None:
    store.keep_objects({"b" * 64: b"model"})
    before = (store.objects / ("b" * 64)).stat().st_mtime_ns
    store.keep_objects({"b" * 64: b"model"})
    assert (store.objects / ("b" * 64)).stat().st_mtime_ns == before
    assert (store.objects / ("b" * 64)).read_bytes() == b"model"


@pytest.mark.parametrize("name", ["..", "../objects", "/etc/passwd", "", "A" * 32, "c" * 65, "c" * 32, "a\0b"])
def test_a_name_that_is_none_gives_nothing(store: Store, name: str) -> None:
    assert store.read_evidence(name) is None


def test_a_write_that_fails_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.keep_evidence(EvidenceFile("a" * 32, b"proof"))
    assert list(store.evidence.iterdir()) == []
    with pytest.raises(ConfigError, match="No space left"):
        store.keep_objects({"b" * 64: b"model"})


def test_a_folder_that_cannot_be_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"store\.path: .* cannot be written to"):
        Store(tmp_path / "file" / "cfmon.sqlite")
