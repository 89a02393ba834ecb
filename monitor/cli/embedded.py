"""An MQTT broker inside the demo's process, on a loopback port. For the demo and nothing else."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from monitor.errors import ConfigError, to_install

__all__ = ["embedded_broker", "free_port"]


def free_port(preferred: int = 0) -> int:
    """`preferred` if nothing listens there on loopback, else any port that is free now."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ConfigError("no loopback port is free")


@asynccontextmanager
async def embedded_broker(port: int) -> AsyncIterator[None]:
    """Run a broker on a loopback port for as long as the block lasts.

    Raises:
        ConfigError: the extra that holds the broker is not installed.
    """
    try:
        from amqtt.broker import Broker  # noqa: PLC0415 - an extra: only the demo has it
    except ImportError as error:
        raise ConfigError(f"the demo's broker is not installed: {to_install('demo')} (`make demo` does it)") from error
    logging.getLogger("amqtt").setLevel(logging.CRITICAL)  # it warns of every client that hangs up
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
