"""The keyed function: one agent's lines to messages, exactly once."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import msgspec
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

from cfmon_flink.arrival import NOBODY, Arrival, read_line, tick_line
from cfmon_flink.keyed import EVERY, KeyedAgent, Saved
from cfmon_flink.messages import messages
from cfmon_flink.scraped import Scraped, server_of_process
from monitor.errors import InputError
from monitor.sidecar.config.load import assemble
from monitor.types import Instant, Received

__all__ = ["Monitoring", "Settings"]

_text: Final = msgspec.json.Encoder().encode
_saved: Final = msgspec.json.Decoder(Saved).decode


@dataclass(frozen=True)
class Settings:
    """Settings of the function.

    `config`: path of the monitor's configuration, on each TaskManager. `hydrated`: agents kept in memory at most, for
    each TaskManager. `metrics`: host and port of /metrics, or the next port that is free; None: none.
    """

    config: str
    hydrated: int = 20_000
    metrics: tuple[str, int] | None = None
    every: int = EVERY


@dataclass
class _Hydrated:
    """An agent in memory. `timer`: its next timer, as far as this process knows; milliseconds since the epoch."""

    agent: KeyedAgent
    timer: int | None = None


class Monitoring(KeyedProcessFunction):
    """Monitor of the agents of one subtask.

    Flink calls no Python when it takes a checkpoint, so the state must be complete after each line: the newest bytes,
    and the lines since then (`cfmon_flink.keyed`). Agents in memory are a cache of it: a restart begins with none, and
    the one not seen for longest is dropped when there are too many. Bytes are kept as text, in base64: Flink hands
    bytes to Python number by number, or pickled.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Read the configuration; this compiles what is not in the cache of compiled code."""
        loaded = assemble(self._settings.config, {})
        self._monitor, self._identity = loaded.monitor, loaded.identity
        self._topic = loaded.config.mqtt.alerts
        self._formulas = [formula.name for formula in loaded.formulas]
        self._bytes = runtime_context.get_state(ValueStateDescriptor("bytes", Types.STRING()))
        self._lines = runtime_context.get_list_state(ListStateDescriptor("lines", Types.STRING()))
        pages = MapStateDescriptor("pages", Types.INT(), Types.STRING())
        self._pages = runtime_context.get_map_state(pages)
        self._agents: OrderedDict[str, _Hydrated] = OrderedDict()
        self._metrics = None
        if self._settings.metrics is not None:
            self._metrics = Scraped(loaded.watched, server_of_process(*self._settings.metrics))

    def close(self) -> None:
        """Serve the metrics no longer."""
        if self._metrics is not None:
            self._metrics.close()

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> list[str]:
        """Evaluate a line."""
        try:
            arrival = read_line(value)
        except InputError as error:
            return self._refuse(error)
        return self._take(arrival.agent, value, arrival, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[str]:
        """Evaluate what is due by time; a line records it."""
        agent = ctx.get_current_key()
        hydrated = self._hydrate(agent)
        if hydrated.timer is not None and hydrated.timer <= timestamp:
            hydrated.timer = None
        due = hydrated.agent.due
        if due is None:  # forgotten since the timer was set
            self._clear(agent)
            return []
        if due > timestamp:
            self._set_timer(hydrated, ctx)
            return []
        line = tick_line(agent, timestamp)
        return self._take(agent, line, read_line(line), ctx)

    def _take(self, agent: str, line: str, arrival: Arrival, ctx: KeyedProcessFunction.Context) -> list[str]:
        hydrated = self._agents.get(agent) or self._hydrate(agent)
        self._agents.move_to_end(agent)
        live = hydrated.agent
        noticed = [*live.restored, *live.take(arrival)]
        live.restored = []
        if live.due is None:  # forgotten: the next line begins anew
            self._clear(agent)
        else:
            self._keep(live, line)
            self._set_timer(hydrated, ctx)
        if self._metrics is not None:
            self._metrics.take(noticed)
        return list(messages(noticed, self._identity, self._topic, self._formulas))

    def _hydrate(self, agent: str) -> _Hydrated:
        """Return the agent whose key is current, from the state if it is not in memory."""
        if (found := self._agents.get(agent)) is not None:
            return found
        text = self._bytes.value()
        saved = None if text is None else _saved(text)
        pages = {number: b64decode(page) for number, page in self._pages.items()}
        live = KeyedAgent(self._monitor, agent, saved, pages, self._lines.get())
        if self._metrics is not None and live.lines:
            self._metrics.recall(live.current())
        found = self._agents[agent] = _Hydrated(live)
        if len(self._agents) > self._settings.hydrated:
            self._agents.popitem(last=False)
        return found

    def _keep(self, live: KeyedAgent, line: str) -> None:
        """Make the state complete after a line."""
        if live.lines < self._settings.every:
            self._lines.add(line)
            return
        saved, new, gone = live.save()
        self._bytes.update(_text(saved).decode())
        self._lines.clear()
        for number, page in new.items():
            self._pages.put(number, b64encode(page).decode())
        for number in gone:
            self._pages.remove(number)

    def _clear(self, agent: str) -> None:
        del self._agents[agent]
        for state in (self._bytes, self._lines, self._pages):
            state.clear()

    def _set_timer(self, hydrated: _Hydrated, ctx: KeyedProcessFunction.Context) -> None:
        """Have `on_timer` called when the agent is due. A timer that comes too early sets the next."""
        due = hydrated.agent.due
        if due is not None and (hydrated.timer is None or due < hydrated.timer):
            ctx.timer_service().register_event_time_timer(due)
            hydrated.timer = due

    def _refuse(self, error: InputError) -> list[str]:
        """Count a line that is none."""
        if self._metrics is not None:
            notice = Received(NOBODY, "rejected", error.reason, error.detail)
            self._metrics.take([(Instant(0.0, 0.0), [notice])])
        return []
