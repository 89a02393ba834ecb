"""Taking up where an earlier process ended: its last snapshot, and what happened since, through the same pipeline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from monitor.errors import InputError, MonitorError
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.effects import Publication
from monitor.sidecar.events import Event
from monitor.sidecar.pipeline import Pipeline, Topics, topics_of
from monitor.sidecar.recording import unpack_events
from monitor.sidecar.store.journal import Kept, Setting

__all__ = ["Recovered", "setting_of", "steps_left", "take_up"]

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


def steps_left(setting: Setting | None, steps: str) -> str | None:
    """Where steps came from under the configuration before, if from elsewhere than `steps`."""
    if setting is None or setting.common is None:
        return None
    try:
        before = topics_of(setting.common).steps
    except InputError:  # damaged: that is told where it is taken up
        return None
    return None if before == steps else before


async def take_up(
    kept: Kept,
    setting: Setting,
    loaded: Loaded,
    client_id: str,
    progress: Callable[[int], None],
    *,
    incomplete: str = "",
) -> Recovered:
    """Restore the snapshot and let the events since happen again; `progress` hears how many have.

    `incomplete`: why more happened than was kept; empty if it did not. Then alarms go on with higher revisions.

    What they publish is passed over: it was noted with them, and what the broker does not have yet is in `kept` too.
    They happen to the formulas of that time, on the topics of that time, also under a changed configuration; then its
    pipeline takes over, and says which alarms are removed or told elsewhere. Where model or policies are others, they
    happen to the paths alone.

    Raises whatever the content causes; `loaded.monitor` is used up then.
    """
    common = setting.common or b""
    topics = topics_of(common)
    same = _same(setting, topics, loaded, client_id)
    former = loaded if same else _former(setting, loaded)
    earlier = former.pipeline(setting.client_id, topics)
    publications = earlier.restore(common, kept.agents, kept.pages, missing=bool(incomplete)).publications
    unasked = [spec.name for spec in setting.formulas if spec not in former.formulas]
    if unasked:
        earlier.snapshot()  # the next one tells who changed since
    ticks, count = setting.ticks, 0
    for event in _events(kept):
        earlier.step(event)
        ticks, count = max(ticks, event.now.ticks), count + 1
        if count % PIECE == 0:
            progress(count)
            await asyncio.sleep(0)
    if same:
        return Recovered(earlier, publications, ticks)
    if topics.steps != loaded.topics.steps:
        LOG.warning("steps come from %s now; what still comes from %s is refused", loaded.topics.steps, topics.steps)
    closed = {publication.topic for publication in publications}
    unheard = _unheard(earlier, topics, unasked) if unasked else ()
    doubtful = [publication for publication in unheard if publication.topic not in closed]
    pipeline = loaded.pipeline(client_id)
    state = earlier.snapshot(everything=True)
    moved = pipeline.restore(state.common, state.agents, state.pages).publications
    # The oldest in the outbox are given up first, so what is not even certain to be retained goes in front.
    return Recovered(pipeline, (*doubtful, *publications, *moved), ticks)


def _same(setting: Setting, topics: Topics, loaded: Loaded, client_id: str) -> bool:
    """Whether the configuration before was this one, as far as the events' effects depend on it."""
    before = (setting.world, set(setting.formulas), topics, setting.client_id)
    return before == (loaded.world, set(loaded.formulas), loaded.topics, client_id)


def _former(setting: Setting, loaded: Loaded) -> Loaded:
    """The configuration as far as it was in force before, with a monitor of its own."""
    if setting.world != loaded.world:
        return loaded.with_formulas(())
    try:
        return loaded.with_formulas(setting.formulas)
    except MonitorError:  # such as an offset that does not fit a smaller window
        return loaded.with_formulas([spec for spec in loaded.formulas if spec in setting.formulas])


def _unheard(earlier: Pipeline, topics: Topics, formulas: Sequence[str]) -> list[Publication]:
    """Take back what these formulas may have said since the snapshot; what that was, only asking them would tell."""
    return [
        Publication(f"{topics.alerts}/{agent}/{formula}", b"")
        for agent, state in earlier.snapshot().agents.items()
        if state is not None
        for formula in formulas
    ]


def _events(kept: Kept) -> Iterator[Event]:
    for packed in kept.events:
        yield from unpack_events(packed)
