"""Decide by the topic alone whether a message is for this shard. Messages for other shards are not decoded."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

from monitor.errors import ConfigError, InputError
from monitor.sidecar.config.settings import MqttConfig
from monitor.sidecar.store.journal import StoreContent
from monitor.stream import agent_of
from monitor.stream.shard import Shard

TOPICS: Final = 4096
"""Number of topics whose shard is cached."""


class ShardFilter:
    """Decides by the topic whether a message is for this monitor. If no shard is configured, all messages are for it.

    A message whose topic has no valid agent's name is for shard 0, so that only one shard reports it.
    """

    def __init__(self, mqtt: MqttConfig) -> None:
        self._shard = mqtt.part
        self._has = lru_cache(TOPICS)(partial(_has, mqtt.steps, self._shard))

    def takes(self, topic: str) -> bool:
        """Return whether a message on this topic is for this monitor."""
        return self._shard is None or self._has(topic)


def _has(pattern: str, shard: Shard | None, topic: str) -> bool:
    assert shard is not None, "without a shard nothing is looked up"
    try:
        agent = agent_of(topic, pattern)
    except InputError:
        return shard.number == 0
    return shard.has(agent)


def check_store(kept: StoreContent, mqtt: MqttConfig) -> None:
    """Raise ConfigError if the store is of another shard.

    Some agents would be monitored twice, and others not at all.
    """
    found = "" if kept.setting is None else kept.setting.shard
    configured = mqtt.shard or ""
    if found == configured or not (kept.agents or kept.events):
        return
    there, here = (f"shard {shard}" if shard else "a monitor of all agents" for shard in (found, configured))
    raise ConfigError(
        f"mqtt.shard: the store is that of {there}, and this is {here}; move the agents with `cfmon store split`, or "
        f"give another store.path"
    )
