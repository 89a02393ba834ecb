"""Another configuration without a restart: read and checked beside the work, put in force between two steps.

Whatever is wrong with it, the one before stays in force, and one line of the log says why.
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

__all__ = ["Reloader", "check_fixed"]

LOG: Final = logging.getLogger("monitor.service")
SECTIONS: Final = ("mqtt", "http")
SETTINGS: Final = (("store", "path"), ("store", "signing_key"), ("limits", "queue"))
"""What is opened at start and never again."""


class Reloader:
    """Reads the configuration again whenever it is asked to, one time after the other.

    Args:
        read: gives what the configuration names now; runs in a thread. Raises MonitorError where it cannot be used.
        adopt: puts another in force, on the loop; raises MonitorError if it cannot, and then nothing has changed.
        told: hears after each time whether the newest configuration is in force.
        manager: hears when it begins and ends.
    """

    def __init__(
        self,
        read: Callable[[], Loaded],
        *,
        adopt: Callable[[Loaded], None],
        told: Callable[[bool], None],
        manager: ServiceManager,
    ) -> None:
        self._read = read
        self._adopt = adopt
        self._told = told
        self._manager = manager
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Read it again, once more if that is under way: the file may have changed since it was read."""
        self._asked.set()

    async def run(self) -> None:
        """Wait to be asked, for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._manager.reloading()
            try:
                self._told(await self._reload())
            finally:
                self._manager.ready()

    async def _reload(self) -> bool:
        LOG.info("the configuration is read again")
        try:
            loaded = await in_thread(self._read)
            self._adopt(loaded)
        except (MonitorError, OSError) as error:  # it is wrong, or cannot be read for now
            LOG.error("the configuration before stays in force: %s", "; ".join(str(error).splitlines()))  # noqa: TRY400
            return False
        except Exception:
            LOG.exception("the configuration before stays in force; this is a bug, please report it")
            return False
        LOG.info("the configuration is in force: %s", ", ".join(formula.name for formula in loaded.formulas))
        return True


def check_fixed(old: Config, new: Config) -> None:
    """ConfigError if a setting differs that is read at start only: half a configuration in force would be a third."""
    keys = [(section, name) for section in SECTIONS for name in type(getattr(old, section)).model_fields]
    changed = [key for key in (*keys, *SETTINGS) if attrgetter(".".join(key))(old) != attrgetter(".".join(key))(new)]
    if changed:
        places = ", ".join(new.where(*key) for key in changed)
        raise ConfigError(f"{places}: read at start only; restart the monitor to change that, or take it back")
