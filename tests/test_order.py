"""The lists by which tests are put in order and traced name what there is, and what is marked as untraced is."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.conftest import ALSO_MEASURED, LONG_FILES, MEASURED, TESTS, UNTRACED, is_untraced


def test_every_file_and_folder_named_exists() -> None:
    assert [name for name in LONG_FILES if not (TESTS / name).is_file()] == []
    assert [name for name in (*UNTRACED, *ALSO_MEASURED) if not (TESTS / name).exists()] == []


def test_every_pure_package_is_measured_by_its_tests() -> None:
    makefile = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    pure = set(re.findall(r"monitor/([a-z]+)/\*", re.findall(r"^PURE := (.*)$", makefile, flags=re.MULTILINE)[0]))
    assert pure == set(MEASURED)
    assert all((TESTS / name).is_dir() for name in MEASURED)


def test_what_is_traced_is_told_by_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def untraced(name: str) -> bool:
        return is_untraced(TESTS / name)

    monkeypatch.delenv("CFMON_MEASURE_ALL", raising=False)
    assert not untraced("exact/test_verdict.py")
    assert not is_untraced(TESTS.parent / "monitor/types.py")
    assert untraced("exact/test_storm.py")
    assert untraced("sidecar/test_service.py")
    monkeypatch.setenv("CFMON_MEASURE_ALL", "1")
    assert untraced("exact/test_storm.py")
    assert not untraced("sidecar/test_service.py")


@pytest.fixture
def tracers() -> Iterator[list[object]]:
    yield [sys.gettrace(), threading.gettrace()]
    assert sys.gettrace() is None


@pytest.mark.untraced
def test_what_is_untraced_runs_without_a_tracer_and_so_do_its_fixtures_and_threads(tracers: list[object]) -> None:
    assert tracers == [None, None]
    assert sys.gettrace() is None
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(sys.gettrace()))
    thread.start()
    thread.join()
    assert found == [None]
