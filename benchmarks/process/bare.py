"""The peer: a subscriber with aiomqtt that decodes every message and does nothing else.

`python -m benchmarks.process.bare PORT COUNT`: prints `ready`, then after COUNT messages the measurement as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import aiomqtt
import msgpack

__all__ = ["main"]


async def main(port: int, count: int) -> None:
    """Receive `count` messages; print their rate and their lags in seconds since each was sent."""
    lags: list[float] = []
    begun = busy = 0.0
    async with aiomqtt.Client("127.0.0.1", port, identifier="bare", clean_session=False) as client:
        await client.subscribe("agents/+/steps", qos=1)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        async for message in client.messages:
            now = time.time()
            fields = msgpack.unpackb(message.payload)
            if not lags:
                begun, busy = now, time.process_time()
            lags.append(now - fields["time"])
            if len(lags) == count:
                break
        ended, busy = time.time(), (time.process_time() - busy) / count
    measured = {"rate": (count - 1) / (ended - begun), "busy": busy, "lags": lags, "accepted": count, "answered": count}
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
