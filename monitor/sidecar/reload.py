"""Change the configuration without a restart: read and check it in a thread, apply it between two steps.

If the new configuration is wrong, the former configuration stays in force, and one log line gives the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from monitor.errors import ConfigError, MonitorError
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.config.settings import Config
from monitor.sidecar.systemd import ServiceManager
from monitor.sidecar.tasks import in_thread

LOG: Final = logging.getLogger("monitor.service")
SECTIONS: Final = ("mqtt", "http")
SETTINGS: Final = (("store", "path"), ("store", "signing_key"), ("limits", "queue"), ("webhooks",))
"""Settings that are read only at the start."""


class Reloader:
    """Reads the configuration again on request. Reloads do not overlap.

    Args:
        read: reads and checks the configuration, in a thread. Raises MonitorError if the configuration cannot be used.
        adopt: puts the configuration in force, on the loop. If it raises MonitorError, nothing has changed.
        report: called after each reload, with True if the newest configuration is in force.
        manager: notified when a reload begins and ends.
    """

    def __init__(
        self,
        read: Callable[[], Loaded],
        *,
        adopt: Callable[[Loaded], None],
        report: Callable[[bool], None],
        manager: ServiceManager,
    ) -> None:
        self._read = read
        self._adopt = adopt
        self._report = report
        self._manager = manager
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Request a reload. If one is running, another follows, because the file may have changed since it was read."""
        self._requested.set()

    async def run(self) -> None:
        """Reload at each request, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            self._manager.reloading()
            try:
                self._report(await self._reload())
            finally:
                self._manager.ready()

    async def _reload(self) -> bool:
        LOG.info("reading the configuration again")
        try:
            loaded = await in_thread(self._read)
            self._adopt(loaded)
        except (MonitorError, OSError) as error:  # the configuration is wrong, or cannot be read now
            why = "; ".join(str(error).splitlines())
            LOG.error("the configuration was not reloaded; the former one stays in force: %s", why)  # noqa: TRY400
            return False
        except Exception:
            LOG.exception(
                "the configuration was not reloaded; the former one stays in force. This is a bug, please report it"
            )
            return False
        LOG.info("the configuration is in force; formulas: %s", ", ".join(formula.name for formula in loaded.formulas))
        return True


def check_fixed(old: Config, new: Config) -> None:
    """Raise ConfigError if a setting has changed that is read only at the start."""
    keys = [(section, name) for section in SECTIONS for name in type(getattr(old, section)).model_fields]
    changed = [key for key in (*keys, *SETTINGS) if attrgetter(".".join(key))(old) != attrgetter(".".join(key))(new)]
    if changed:
        places = ", ".join(new.where(*key) for key in changed)
        raise ConfigError(f"{places}: read at start only; restart the monitor to change it, or undo the change")
