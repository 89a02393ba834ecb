"""The other peer: a subscriber with gmqtt, over MQTT 5, that decodes every message and does nothing else.

`python -m benchmarks.process.bare_gmqtt PORT COUNT`: prints `ready`, then after COUNT messages the measurement as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import gmqtt
import msgpack

__all__ = ["main"]


async def main(port: int, count: int) -> None:
    """Receive `count` messages; print their rate and their lags in seconds since each was sent."""
    lags: list[float] = []
    begun = busy = 0.0
    subscribed, done = asyncio.Event(), asyncio.Event()

    def receive(_client: gmqtt.Client, _topic: str, payload: bytes, _qos: int, _properties: object) -> None:
        nonlocal begun, busy
        now = time.time()
        fields = msgpack.unpackb(payload)
        if not lags:
            begun, busy = now, time.process_time()
        lags.append(now - fields["time"])
        if len(lags) == count:
            done.set()

    client = gmqtt.Client("bare", clean_session=False, session_expiry_interval=3600)
    client.on_message = receive
    client.on_subscribe = lambda *_: subscribed.set()
    await client.connect("127.0.0.1", port)
    client.subscribe("agents/+/steps", qos=1)
    await subscribed.wait()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await done.wait()
    ended, busy = time.time(), (time.process_time() - busy) / count
    await client.disconnect()
    measured = {"rate": (count - 1) / (ended - begun), "busy": busy, "lags": lags, "accepted": count, "answered": count}
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
