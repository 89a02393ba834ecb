"""MQTT broker inside the demo's process, on a loopback port. Use it for the demo only."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from monitor.errors import ConfigError, to_install


@contextmanager
def held_port(preferred: int = 0) -> Iterator[int]:
    """Yield `preferred` if it is free on loopback, else any free port, and reserve it until the block ends.

    Raises:
        ConfigError: no port is free.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        for port in (preferred, 0):
            try:
                holder.bind(("127.0.0.1", port))
                holder.listen()  # otherwise other processes could bind it too
            except OSError:
                continue
            break
        else:
            raise ConfigError("no loopback port is free")
        yield int(holder.getsockname()[1])


@asynccontextmanager
async def embedded_broker(port: int) -> AsyncIterator[None]:
    """Run a broker on a loopback port until the block ends.

    Raises:
        ConfigError: the extra with the broker is not installed.
    """
    try:
        from amqtt.broker import Broker  # noqa: PLC0415 - an extra that only the demo needs
    except ImportError as error:
        fix = to_install("demo")
        raise ConfigError(f"the demo's broker is not installed: {fix} (`make demo` does this)") from error
    logging.getLogger("amqtt").setLevel(logging.CRITICAL)  # the broker warns about every client that disconnects
    logging.getLogger("transitions").setLevel(logging.CRITICAL)
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    await broker.start()
    try:
        yield
    finally:
        await broker.shutdown()
