"""Restore the state of an earlier process: load its last snapshot, then replay later events in the same pipeline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from monitor.errors import InputError, MonitorError
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.effects import Publication
from monitor.sidecar.events import Evaluate, Event
from monitor.sidecar.pipeline import Pipeline, Topics, topics_of
from monitor.sidecar.recording import unpack_events
from monitor.sidecar.store.journal import SnapshotSetting, StoreContent

LOG: Final = logging.getLogger("monitor.service")
PIECE: Final = 200
"""Maximum number of events between two turns of the loop, so that a signal to stop is handled. Each evaluation is also
followed by a turn of the loop."""


class Recovered(msgspec.Struct, frozen=True):
    """A pipeline in the state of the earlier process.

    `publications`: messages that a changed configuration requires. `ticks`: last ticks of the earlier process.
    """

    pipeline: Pipeline
    publications: tuple[Publication, ...]
    ticks: float


def setting_of(loaded: Loaded, client_id: str, ticks: float) -> SnapshotSetting:
    """Return the settings and the times for a snapshot that is taken now."""
    return SnapshotSetting(
        client_id, loaded.inputs_digest, loaded.formulas, ticks, shard=loaded.config.mqtt.shard or ""
    )


def steps_left(setting: SnapshotSetting | None, steps: str) -> str | None:
    """Return the topic of steps in the former configuration; None if it is `steps` or unknown."""
    if setting is None or setting.common is None:
        return None
    try:
        before = topics_of(setting.common).steps
    except InputError:  # damaged: reported by `take_up`
        return None
    return None if before == steps else before


async def take_up(
    kept: StoreContent,
    setting: SnapshotSetting,
    loaded: Loaded,
    client_id: str,
    progress: Callable[[int], None],
    *,
    incomplete: str = "",
) -> Recovered:
    """Restore the snapshot and replay the later events; `progress` is called with the number of replayed events.

    `incomplete`: why the store lacks some events; empty if it has all of them. If events are missing, alarms skip
    revisions.

    Messages that the replayed events publish are ignored, because `kept` already has the messages that the broker has
    not acknowledged. The events are replayed with the former formulas and topics. Then the pipeline of the present
    configuration takes over, and publishes messages about alarms that are removed or that move to another topic. If the
    model or a policy has changed, the events only extend the paths.

    Raises any error that the content causes; `loaded.monitor` must not be used after an error.
    """
    common = setting.common or b""
    topics = topics_of(common)
    same = _same(setting, topics, loaded, client_id)
    former = loaded if same else _former(setting, loaded)
    earlier = former.pipeline(setting.client_id, topics)
    publications = earlier.restore(common, kept.agents, kept.pages, missing=bool(incomplete)).publications
    unknown = [spec.name for spec in setting.formulas if spec not in former.formulas]
    if unknown:
        earlier.snapshot()  # so that the next snapshot has only the agents that change from here on
    ticks, count = setting.ticks, 0
    for event in _events(kept):
        earlier.step(event)
        ticks, count = max(ticks, event.now.ticks), count + 1
        if isinstance(event, Evaluate) or count % PIECE == 0:
            progress(count)
            await asyncio.sleep(0)
    if same:
        return Recovered(earlier, publications, ticks)
    if topics.steps != loaded.topics.steps:
        LOG.warning(
            "steps are now read from %s; messages on the former topic %s are rejected",
            loaded.topics.steps,
            topics.steps,
        )
    closed = {publication.topic for publication in publications}
    unsent = _cleared(earlier, topics, unknown) if unknown else ()
    doubtful = [publication for publication in unsent if publication.topic not in closed]
    pipeline = loaded.pipeline(client_id)
    state = earlier.snapshot(everything=True)
    moved = pipeline.restore(state.common, state.agents, state.pages).publications
    # A full outbox drops its oldest messages first, so the least important messages come first.
    return Recovered(pipeline, (*doubtful, *publications, *moved), ticks)


def _same(setting: SnapshotSetting, topics: Topics, loaded: Loaded, client_id: str) -> bool:
    """Return whether events have the same effects under the former and the present configuration."""
    before = (setting.inputs_digest, set(setting.formulas), topics, setting.client_id)
    return before == (loaded.inputs_digest, set(loaded.formulas), loaded.topics, client_id)


def _former(setting: SnapshotSetting, loaded: Loaded) -> Loaded:
    """Return the part of the former configuration that still fits, with its own monitor."""
    if setting.inputs_digest != loaded.inputs_digest:
        return loaded.with_formulas(())
    try:
        return loaded.with_formulas(setting.formulas)
    except MonitorError:  # such as an offset that does not fit a smaller window
        return loaded.with_formulas([spec for spec in loaded.formulas if spec in setting.formulas])


def _cleared(earlier: Pipeline, topics: Topics, formulas: Sequence[str]) -> list[Publication]:
    """Return messages that clear the topics on which these formulas may have published since the snapshot."""
    return [
        Publication(f"{topics.alerts}/{agent}/{formula}", b"")
        for agent, state in earlier.snapshot().agents.items()
        if state is not None
        for formula in formulas
    ]


def _events(kept: StoreContent) -> Iterator[Event]:
    for packed in kept.events:
        yield from unpack_events(packed)
