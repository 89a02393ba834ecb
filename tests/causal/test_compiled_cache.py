"""Machine code kept by an earlier process is used where nothing can be written, and what is missing is compiled."""

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest
from numba import config
from numba.core.caching import IndexDataCacheFile

import monitor.jit as compiled_module
from monitor.jit import compiled

SOURCE = "def twice(number):\n    return 2 * number\n"


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    file = tmp_path / "source" / "kernel.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("kernel", file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called on, no folder can be written to, as numba sees it."""

    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    return lambda: monkeypatch.setattr("numba.core.caching.tempfile.TemporaryFile", refuse)


def kept_in(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", folder)


def hits(function: Any) -> int:  # noqa: ANN401 - numba's dispatcher
    return sum(function.stats.cache_hits.values())


def test_a_cached_result_is_used_and_nothing_is_written(
    module: ModuleType, read_only: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept_in(monkeypatch, str(kept))
    assert compiled(module.twice)(3) == 6
    files = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    assert files
    read_only()
    again = compiled(module.twice)
    assert again(4) == 8
    assert hits(again) == 1
    assert again(1.5) == 3.0  # for this type nothing was kept
    assert hits(again) == 1
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == files


def test_without_a_cache_it_is_compiled(
    module: ModuleType, read_only: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read_only()
    for folder in (str(tmp_path / "nothing"), ""):
        kept_in(monkeypatch, folder)
        function = compiled(module.twice)
        assert function(3) == 6
        assert hits(function) == 0


def test_machine_code_is_stale_when_any_source_has_changed(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """numba looks at the file of the function alone; what it calls may be in another one."""
    kept_in(monkeypatch, str(tmp_path / "kept"))
    assert compiled(module.twice)(3) == 6
    again = compiled(module.twice)
    assert (again(3), hits(again)) == (6, 1)
    monkeypatch.setattr(compiled_module, "_NUMBERS", "another digest")
    anew = compiled(module.twice)
    assert (anew(3), hits(anew)) == (6, 0)


def test_integers_of_any_width_and_constants_share_one_compilation(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """numba has a type of its own for each constant, and would compile a large function for each of them."""
    kept_in(monkeypatch, str(tmp_path / "kept"))
    twice = compiled(module.twice)

    def total(shorts: Any) -> Any:  # noqa: ANN401 - an array of 32-bit integers
        place = -1
        for n in range(len(shorts)):
            place = twice(number=place) + twice(shorts[n]) + twice(3)
        return place

    assert compiled(total)(np.array([5, 2**31 - 1], dtype=np.int32)) == 2 * 14 + 2**32 + 4
    assert len(cast("Any", twice).signatures) == 1


def test_two_processes_that_write_at_once_do_not_take_the_same_name(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each has read the index before the other writes it, unless it has to wait; threads stand for processes."""
    kept_in(monkeypatch, str(tmp_path / "kept"))
    made = [cast("Any", compiled(module.twice)) for _ in range(2)]
    for function, argument in zip(made, (3, 1.5), strict=True):
        function(argument)
    for function in made:
        function._cache.flush()  # noqa: SLF001 - numba's, which has no public face
    both, read_index = Barrier(2), cast("Any", IndexDataCacheFile)._load_index  # noqa: SLF001 - numba's, which has no public face

    def read_together(self: Any) -> Any:  # noqa: ANN401 - numba's index
        index = read_index(self)
        with suppress(BrokenBarrierError):
            both.wait(0.5)
        return index

    monkeypatch.setattr(IndexDataCacheFile, "_load_index", read_together)
    with ThreadPoolExecutor(2) as threads:
        [*threads.map(lambda function: function._cache.save_overload(*function.overloads.popitem()), made)]  # noqa: SLF001 - numba's, which has no public face
    monkeypatch.undo()
    kept_in(monkeypatch, str(tmp_path / "kept"))
    again = compiled(module.twice)
    assert (again(4), again(2.5), hits(again)) == (8, 5.0, 2)


def test_without_locks_it_works_as_numba_does(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some file systems of networks have none."""

    def refuse(_file: int, _how: int) -> None:
        raise OSError(37, "No locks available")

    kept_in(monkeypatch, str(tmp_path / "kept"))
    monkeypatch.setattr("monitor.jit.fcntl.flock", refuse)
    assert compiled(module.twice)(3) == 6
    again = compiled(module.twice)
    assert (again(4), hits(again)) == (8, 1)


def test_code_that_is_loaded_while_code_is_loaded_does_not_wait_for_itself(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept_in(monkeypatch, str(tmp_path / "kept"))
    compiled(module.twice)(3)
    outer, inner, read_index = compiled(module.twice), [], cast("Any", IndexDataCacheFile)._load_index  # noqa: SLF001 - numba's, which has no public face

    def read_more(self: Any) -> Any:  # noqa: ANN401 - numba's index
        monkeypatch.setattr(IndexDataCacheFile, "_load_index", read_index)
        inner.append(compiled(module.twice)(5))
        return read_index(self)

    monkeypatch.setattr(IndexDataCacheFile, "_load_index", read_more)
    assert (outer(4), inner) == (8, [10])
