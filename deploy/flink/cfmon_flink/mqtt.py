"""Messages to an MQTT broker, each acknowledged before the next lines are evaluated."""

from __future__ import annotations

import time
from typing import Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from pyflink.datastream import ProcessFunction, RuntimeContext

from cfmon_flink.messages import split_message
from cfmon_flink.subtask import subtask_number
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.mqtt.tls import make_context

__all__ = ["ToBroker"]

PATIENCE: Final = 30.0
"""Seconds to connect, and for an acknowledgement. After that the job restarts from its checkpoint and sends again."""


class ToBroker(ProcessFunction):
    """Publishes messages, retained and with QoS 1, to the broker of the configuration's section `mqtt`.

    It waits for each PUBACK: Flink calls no Python when it takes a checkpoint, so none may be unacknowledged then.
    After a restart the messages since the checkpoint are sent again with the same bytes; a receiver ignores an (id,
    revision) that it already has.
    """

    def __init__(self, config: str) -> None:
        self._config = config

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect. Raises OSError or TimeoutError if there is no broker; the job then tries again."""
        settings = load_config(self._config, {}).mqtt
        broker = settings.broker
        name = f"{settings.session or 'cfmon'}-flink-{subtask_number(runtime_context)}"
        self._client = client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name)
        if (credentials := broker.credentials()) is not None:
            client.username_pw_set(*credentials)
        if broker.tls is not None:
            client.tls_set_context(make_context(broker.tls))
        client.connect(broker.host, broker.port, max(1, round(settings.keepalive)))
        client.loop_start()
        limit = time.monotonic() + PATIENCE
        while not client.is_connected():
            if time.monotonic() > limit:
                client.loop_stop()
                raise TimeoutError(f"no answer to CONNECT from {broker.address} within {PATIENCE:g} s")
            time.sleep(0.01)

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def process_element(self, value: str, ctx: ProcessFunction.Context) -> list[str]:
        """Publish a message. Raises RuntimeError if the broker does not acknowledge the message in time."""
        del ctx
        topic, payload = split_message(value)
        sent = self._client.publish(topic, payload, qos=1, retain=True)
        sent.wait_for_publish(PATIENCE)
        if not sent.is_published():
            raise TimeoutError(f"the broker did not acknowledge a message on {topic} within {PATIENCE:g} s")
        return []
