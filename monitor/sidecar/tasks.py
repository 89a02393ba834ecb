"""Tasks that end for certain, and work beside the loop."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["end_tasks", "in_thread", "unless"]

T = TypeVar("T")


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


async def in_thread(work: Callable[[], T]) -> T:
    """Do some work beside the loop; raises what it raises. Given up, it does not hold up the end of the process.

    Raises:
        OSError: `EAGAIN`; the system has no thread for us now. The work has not begun, and may be tried again.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if done.done() else outcome())

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for, or that waits for ever
            strange = isinstance(error, StopIteration) or not isinstance(error, Exception)  # an exit is not the loop's
            failure = RuntimeError(f"ended by {error!r}") if strange else error
            settle(lambda: done.set_exception(failure))
        else:
            settle(lambda: done.set_result(result))

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError as error:  # Python's word for it; who waits is prepared for a system that refuses
        raise OSError(errno.EAGAIN, f"no thread can be started: {error}") from error
    return await done
