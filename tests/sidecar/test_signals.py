"""Which signals end a process: what was ignored for it when it was started stays ignored."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from monitor.sidecar.signals import when_ended


@contextmanager
def sigint(disposition: signal.Handlers) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def heard() -> int:
    """How many of SIGINT and SIGTERM were taken as an end. The loop hears signals in their order, SIGUSR1 last."""
    ends: list[None] = []
    last = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, last.set)
    with when_ended(lambda: ends.append(None)):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.raise_signal(number)
        await last.wait()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
    return len(ends)


@pytest.mark.parametrize(("disposition", "ends"), [(signal.SIG_DFL, 2), (signal.SIG_IGN, 1)])
def test_an_interrupt_ends_what_was_not_started_in_the_background(disposition: signal.Handlers, ends: int) -> None:
    with sigint(disposition):
        assert asyncio.run(heard()) == ends


def test_afterwards_the_signals_mean_what_they_meant_before() -> None:
    handlers = {signal.SIGINT: signal.SIG_DFL, signal.SIGTERM: signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        asyncio.run(heard())
        assert {number: signal.getsignal(number) for number in handlers} == handlers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
