"""Taking up where an earlier process ended: its last snapshot, and what happened since, through the same pipeline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

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
    return Setting(client_id, loaded.world, loaded.specifications, ticks)


async def take_up(
    kept: Kept, setting: Setting, loaded: Loaded, client_id: str, progress: Callable[[int], None]
) -> Recovered:
    """Restore the snapshot and let the events since happen again; `progress` hears how many have.

    What they publish is passed over: it was noted with them, and what the broker does not have yet is in `kept` too.
    Under a changed configuration they happen to the formulas that did not change, for no other has seen what was
    before; the others begin with the first new step.

    Raises whatever the content causes; `loaded.monitor` is used up then.
    """
    common = _in_common(setting, loaded)
    same = common == loaded.specifications.keys()
    earlier = (loaded if same else loaded.watching(common)).pipeline(client_id)
    publications = list(earlier.restore(setting.common or b"", kept.agents).publications)
    ticks, count = setting.ticks, 0
    for event in _events(kept):
        earlier.step(event)
        ticks, count = max(ticks, event.now.ticks), count + 1
        if count % PIECE == 0:
            progress(count)
            await asyncio.sleep(0)
    if same:
        return Recovered(earlier, tuple(publications), ticks)
    pipeline = loaded.pipeline(client_id)
    state = earlier.snapshot(everything=True)
    publications += pipeline.restore(state.common, state.agents).publications
    return Recovered(pipeline, tuple(publications), ticks)


def _in_common(setting: Setting, loaded: Loaded) -> set[str]:
    if setting.world != loaded.world:
        return set()
    return {name for name, digest in loaded.specifications.items() if setting.formulas.get(name) == digest}


def _events(kept: Kept) -> Iterator[Event]:
    for packed in kept.events:
        yield from unpack_events(packed)
