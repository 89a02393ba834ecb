"""A process that takes messages over a link, acknowledges the first ones only, and waits to be killed.

`python -m tests.sidecar.taker URL ACKNOWLEDGED FURTHER`: prints every payload, then `waiting`.
"""

from __future__ import annotations

import asyncio
import sys

from tests.sidecar.side import Side


async def main(url: str, acknowledged: int, further: int) -> None:
    side = Side(url)
    payloads = await side.take(acknowledged, acknowledge=True) + await side.take(further, acknowledge=False)
    for payload in payloads:
        sys.stdout.write(payload.decode() + "\n")
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
