"""What a test leaves behind fails that test, not its neighbour: open sockets and files, and running tasks."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

__all__ = ["alone", "leaves_no_task", "leaves_nothing_open"]

T = TypeVar("T")
ROOT: Final = Path(__file__).parents[1]
VENV: Final = ROOT / ".venv"


@pytest.fixture(autouse=True)
def leaves_nothing_open() -> Iterator[None]:
    """Collect garbage at the end of a test that has more open files than at its start; fail one that leaves a process.

    A socket or file that nobody closed warns (ResourceWarning, an error here) when it is collected.
    """
    before, running = _open_files(), set(multiprocessing.active_children())
    yield
    left = set(multiprocessing.active_children()) - running
    assert not left, f"processes still run: {left}"
    if _open_files() > before:
        gc.collect()


@pytest.fixture(autouse=True)
def leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test in which `asyncio.run` ends with tasks that nobody awaited; it would cancel them silently."""
    run = asyncio.run

    def checked(main: Coroutine[Any, Any, T], **options: Any) -> T:  # noqa: ANN401 - those of asyncio.run
        return run(alone(main), **options)

    monkeypatch.setattr(asyncio, "run", checked)


async def alone(main: Coroutine[Any, Any, T]) -> T:
    """Return what `main` returns; AssertionError if a task of the project still runs then."""
    result = await main
    left = [task for task in asyncio.all_tasks() - {asyncio.current_task()} if _is_ours(task)]
    assert not left, f"tasks still run: {left}"
    return result


def _is_ours(task: asyncio.Task[Any]) -> bool:
    """Return whether the code of a task is the project's: libraries may leave the end of theirs to the loop."""
    sources = (Path(frame.f_code.co_filename) for frame in task.get_stack(limit=1))
    return any(source.is_relative_to(ROOT) and not source.is_relative_to(VENV) for source in sources)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a hundred thousand times
