"""What a test leaves behind fails that test, not its neighbour: open sockets and files, and running tasks."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

__all__ = ["leaves_no_task", "leaves_nothing_open"]

T = TypeVar("T")
ROOT: Final = Path(__file__).parents[1]
VENV: Final = ROOT / ".venv"


@pytest.fixture(autouse=True)
def leaves_nothing_open() -> Iterator[None]:
    """Collect garbage at the end of a test that has more open files than at its start.

    A socket or file that nobody closed warns (ResourceWarning, an error here) when it is collected.
    """
    before = _open_files()
    yield
    if _open_files() > before:
        gc.collect()


@pytest.fixture(autouse=True)
def leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test in which `asyncio.run` ends with tasks that nobody awaited; it would cancel them silently."""
    run = asyncio.run

    def checked(main: Coroutine[Any, Any, T], **options: Any) -> T:  # noqa: ANN401 - those of asyncio.run
        async def alone() -> T:
            result = await main
            left = [task for task in asyncio.all_tasks() - {asyncio.current_task()} if _is_ours(task)]
            assert not left, f"tasks still run: {left}"
            return result

        return run(alone(), **options)

    monkeypatch.setattr(asyncio, "run", checked)


def _is_ours(task: asyncio.Task[Any]) -> bool:
    """Return whether the code of a task is the project's: libraries may leave the end of theirs to the loop."""
    sources = (Path(frame.f_code.co_filename) for frame in task.get_stack(limit=1))
    return any(source.is_relative_to(ROOT) and not source.is_relative_to(VENV) for source in sources)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a hundred thousand times
