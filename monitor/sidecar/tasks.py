"""Reliable cancellation of tasks, and work in threads."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> list[Any]:
    """Cancel tasks and wait until they end; return their results, including exceptions.

    The cancellation is repeated, because Python 3.11's `wait_for` can lose a cancellation that arrives just as
    `wait_for` finishes.
    """
    every = list(tasks)
    while pending := [task for task in every if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.1)
    return await asyncio.gather(*every, return_exceptions=True)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until it ends or `stop` is set; return whether it finished. Raises the exceptions of `work`."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        await end_tasks((working, stopping))


def start_thread(work: Callable[[], None]) -> None:
    """Start a daemon thread. Raises OSError (`EAGAIN`) if this is impossible."""
    try:
        threading.Thread(target=work, daemon=True).start()
    except RuntimeError as error:  # callers handle OSError
        raise OSError(errno.EAGAIN, f"no thread can be started: {error}") from error


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a daemon thread, which does not delay the end of the process. Raises the exceptions of `work`.

    Raises OSError (`EAGAIN`) if no thread can be started. The work has then not begun, and may be tried again.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def hand_over(outcome: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
            loop.call_soon_threadsafe(lambda: None if done.done() else outcome())

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - re-raised in the waiting task, which would wait forever
            strange = isinstance(error, StopIteration) or not isinstance(error, Exception)  # unfit for a future
            failure = RuntimeError(f"ended by {error!r}") if strange else error
            hand_over(lambda: done.set_exception(failure))
        else:
            hand_over(lambda: done.set_result(result))

    start_thread(run)
    return await done
