"""The keyed function: evaluate batches of lines of a bucket's agents, and return messages, exactly once."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import msgspec
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor

from cfmon_flink.bucket import Bucket, Changes
from cfmon_flink.keyed import EVERY, Noticed, Saved
from cfmon_flink.messages import messages
from cfmon_flink.scraped import Scraped, server_of_process
from monitor.sidecar.config.load import assemble

__all__ = ["Monitoring", "Settings"]

GRAIN: Final = 100
"""Timers are set at multiples of this number of milliseconds, so that one timer serves many agents of a bucket. Each
event is evaluated as of the time at which it was due."""

_text: Final = msgspec.json.Encoder().encode
_saved: Final = msgspec.json.Decoder(Saved).decode


@dataclass(frozen=True)
class Settings:
    """Settings of the function.

    `config`: path of the monitor's configuration, on each TaskManager. `hydrated`: maximum number of agents in
    memory, for each TaskManager. `metrics`: host and first port to try for /metrics; None: no metrics.
    """

    config: str
    hydrated: int = 20_000
    metrics: tuple[str, int] | None = None
    every: int = EVERY


@dataclass
class _Hydrated:
    """A bucket in memory. `timer`: its next timer, in milliseconds since the epoch, as far as this process knows."""

    bucket: Bucket
    timer: int | None = None


class Monitoring(KeyedProcessFunction):
    """Monitor of the agents of one subtask.

    Flink calls no Python when it takes a checkpoint, so the state must be complete after each batch of lines: the
    newest bytes, and the batches since then (`cfmon_flink.bucket`). Buckets in memory are a cache of this state: a
    restart begins with no bucket, and with too many agents the least recently used bucket is dropped. Bytes are stored
    as base64 text, because Flink passes bytes to Python number by number, or pickled.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Read the configuration, the model and the policies."""
        loaded = assemble(self._settings.config, {})
        self._monitor, self._identity = loaded.monitor, loaded.identity
        self._topic = loaded.config.mqtt.alerts
        self._formulas = [formula.name for formula in loaded.formulas]
        agents = MapStateDescriptor("agents", Types.STRING(), Types.STRING())
        pages = MapStateDescriptor("pages", Types.STRING(), Types.STRING())
        self._agents = runtime_context.get_map_state(agents)
        self._pages = runtime_context.get_map_state(pages)
        self._batches = runtime_context.get_list_state(ListStateDescriptor("batches", Types.STRING()))
        self._buckets: OrderedDict[int, _Hydrated] = OrderedDict()
        self._metrics = None
        if self._settings.metrics is not None:
            self._metrics = Scraped(loaded.watched, server_of_process(*self._settings.metrics))

    def close(self) -> None:
        """Stop serving the metrics."""
        if self._metrics is not None:
            self._metrics.close()

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> list[str]:
        """Evaluate a batch of lines."""
        hydrated = self._hydrate(ctx.get_current_key())
        before = len(hydrated.bucket.agents)
        noticed = self._take(hydrated.bucket, value)
        if len(hydrated.bucket.agents) > before:
            self._fit()
        self._set_timer(hydrated, ctx)
        return self._send(noticed)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[str]:
        """Evaluate what is due by `timestamp`, as a batch of tick lines, which is stored like any other batch."""
        hydrated = self._hydrate(ctx.get_current_key())
        if hydrated.timer is not None and hydrated.timer <= timestamp:
            hydrated.timer = None
        noticed: list[Noticed] = []
        while ticks := hydrated.bucket.ticks(timestamp):
            noticed += self._take(hydrated.bucket, ticks)
        self._set_timer(hydrated, ctx)
        return self._send(noticed)

    def _take(self, bucket: Bucket, batch: str) -> list[Noticed]:
        """Evaluate a batch, and make the state complete after it."""
        noticed = [*bucket.restored, *bucket.take(batch)]
        if bucket.full or bucket.restored:
            self._write(bucket.save())
            self._batches.clear()
        else:
            self._batches.add(batch)
        return noticed

    def _hydrate(self, key: int) -> _Hydrated:
        """Return the bucket of the current key; restore it from the state if it is not in memory."""
        if (found := self._buckets.get(key)) is not None:
            self._buckets.move_to_end(key)
            return found
        saved = {name: _saved(text) for name, text in self._agents.items()}
        pages = {_page_of(name): b64decode(page) for name, page in self._pages.items()}
        bucket = Bucket(self._monitor, saved, pages, self._batches.get(), every=self._settings.every)
        if self._metrics is not None:
            self._metrics.recall(bucket.current())
        found = self._buckets[key] = _Hydrated(bucket)
        self._fit()
        return found

    def _fit(self) -> None:
        """Drop the least recently used buckets while there are too many agents in memory."""
        agents = sum(len(each.bucket.agents) for each in self._buckets.values())
        while agents > self._settings.hydrated and len(self._buckets) > 1:
            _, dropped = self._buckets.popitem(last=False)
            agents -= len(dropped.bucket.agents)

    def _write(self, changes: Changes) -> None:
        for name in changes.agents_gone:
            self._agents.remove(name)
        for page in changes.pages_gone:
            self._pages.remove(_name_of(page))
        for name, saved in changes.agents.items():
            self._agents.put(name, _text(saved).decode())
        for page, content in changes.pages.items():
            self._pages.put(_name_of(page), b64encode(content).decode())

    def _set_timer(self, hydrated: _Hydrated, ctx: KeyedProcessFunction.Context) -> None:
        """Let Flink call `on_timer` when an agent is due. A timer that fires too early sets the next one."""
        due = hydrated.bucket.due
        if due is not None and (hydrated.timer is None or due <= hydrated.timer - GRAIN):
            hydrated.timer = -(-due // GRAIN) * GRAIN
            ctx.timer_service().register_event_time_timer(hydrated.timer)

    def _send(self, noticed: list[Noticed]) -> list[str]:
        if self._metrics is not None:
            self._metrics.take(noticed)
        return list(messages(noticed, self._identity, self._topic, self._formulas))


def _name_of(page: tuple[str, int]) -> str:
    return f"{page[0]}/{page[1]}"


def _page_of(name: str) -> tuple[str, int]:
    agent, _, number = name.partition("/")
    return agent, int(number)
