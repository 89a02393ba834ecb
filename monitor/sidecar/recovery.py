"""Taking up where an earlier process ended: its last snapshot, and what happened since, through the same pipeline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from monitor.errors import MonitorError
from monitor.sidecar.effects import Publication
from monitor.sidecar.events import Event
from monitor.sidecar.journal import Kept, Setting
from monitor.sidecar.load import Loaded
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.recording import unpack_events

__all__ = ["Recovered", "setting_of", "take_up"]

LOG: Final = logging.getLogger("monitor.service")
PIECE: Final = 200
"""Events between two turns of the loop: a signal to stop is heard meanwhile."""


class Recovered(msgspec.Struct, frozen=True):
    """A pipeline in the state of the earlier process.

    `publications`: what a changed configuration has to say. `ticks`: the latest the earlier process noted.
    """

    pipeline: Pipeline
    publications: tuple[Publication, ...]
    ticks: float


def setting_of(loaded: Loaded, client_id: str, ticks: float) -> Setting:
    """Under which circumstances a snapshot is taken now."""
    return Setting(client_id, loaded.world, loaded.formulas, ticks)


async def take_up(
    kept: Kept, setting: Setting, loaded: Loaded, client_id: str, progress: Callable[[int], None]
) -> Recovered:
    """Restore the snapshot and let the events since happen again; `progress` hears how many have.

    What they publish is passed over: it was noted with them, and what the broker does not have yet is in `kept` too.
    They happen to the formulas of that time, also under a changed configuration; then its pipeline takes over, and says
    which alarms are removed. Where model or policies are others, they happen to the paths alone.

    Raises whatever the content causes; `loaded.monitor` is used up then.
    """
    former = _former(setting, loaded)
    earlier = former.pipeline(client_id)
    publications = list(earlier.restore(setting.common or b"", kept.agents).publications)
    ticks, count = setting.ticks, 0
    for event in _events(kept):
        earlier.step(event)
        ticks, count = max(ticks, event.now.ticks), count + 1
        if count % PIECE == 0:
            progress(count)
            await asyncio.sleep(0)
    if former is loaded:
        return Recovered(earlier, tuple(publications), ticks)
    pipeline = loaded.pipeline(client_id)
    state = earlier.snapshot(everything=True)
    publications += pipeline.restore(state.common, state.agents).publications
    return Recovered(pipeline, tuple(publications), ticks)


def _former(setting: Setting, loaded: Loaded) -> Loaded:
    """The configuration as far as it was in force before; `loaded` itself if it is the same."""
    if setting.world != loaded.world:
        return loaded.watching(())
    if set(setting.formulas) == set(loaded.formulas):
        return loaded
    try:
        return loaded.watching(setting.formulas)
    except MonitorError:  # such as an offset that does not fit a smaller window
        return loaded.watching([spec for spec in loaded.formulas if spec in setting.formulas])


def _events(kept: Kept) -> Iterator[Event]:
    for packed in kept.events:
        yield from unpack_events(packed)
