"""Send pings, and decide when a broker that does not answer counts as lost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class KeepAlive:
    """Calls `ping` if either side was silent for half of `seconds`; calls `lost(reason)` if the broker does not answer.

    The broker's time to answer is counted from the ping and not from its last message, because this process may have
    been suspended in between. While reading is paused (`deaf`), the broker does not count as lost.
    """

    def __init__(self, seconds: float, ping: Callable[[], None], lost: Callable[[str], None]) -> None:
        self.seconds = seconds
        self._ping = ping
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._heard = self._said = self._loop.time()
        self._pinged = math.inf  # time of the first ping since the broker last sent something
        self._deaf = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to check, every quarter of `seconds`."""
        now = self._loop.time()
        if not self._deaf and now - self._pinged > 0.75 * self.seconds:
            self._lost(f"the broker says nothing for {now - self._heard:.0f} s")
            return
        if now - min(self._heard, self._said) >= self.seconds / 2:
            self._ping()
            self._pinged = min(self._pinged, now)
        self._timer = self._loop.call_later(self.seconds / 4, self.start)

    def stop(self) -> None:
        """Stop checking. No effect if the checks have not begun."""
        if self._timer is not None:
            self._timer.cancel()

    def heard(self) -> None:
        """Record that the broker sent something."""
        self._heard, self._pinged = self._loop.time(), math.inf

    def said(self) -> None:
        """Record that this client sent something."""
        self._said = self._loop.time()

    def deafen(self) -> None:
        """Record that reading is paused."""
        self._deaf = True

    def listen(self) -> None:
        """Record that reading continues. The broker's time to answer begins with the next ping."""
        self._deaf, self._pinged = False, math.inf
