"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["end_tasks"]


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
