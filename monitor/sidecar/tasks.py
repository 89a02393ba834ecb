"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

__all__ = ["end_tasks", "unless"]


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> list[Any]:
    """Cancel tasks and wait for their end; returns their results, exceptions included.

    Python 3.11's `wait_for` can swallow a cancellation that comes just as it finishes, so it is repeated until heard.
    """
    everyone = list(tasks)
    while pending := {task for task in everyone if not task.done()}:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.1)
    return await asyncio.gather(*everyone, return_exceptions=True)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do some work, but not beyond `stop`; whether it was done. Raises what it raises."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        await end_tasks((working, stopping))
