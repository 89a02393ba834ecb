"""The soak, short: what the process holds after some hundred agents and a thousand episodes is what it held before."""

from __future__ import annotations

import asyncio
import gc
from contextlib import closing
from pathlib import Path

from tests.faults.soak import Soak

WARM, MORE = 10_000, 15_000


def test_nothing_grows_with_messages_episodes_or_agents(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    with closing(soak.store):
        asyncio.run(soak.run(WARM))
        gc.collect()
        warm = soak.figures()
        asyncio.run(soak.run(MORE))
        gc.collect()
        end = soak.figures()
    done = soak.traffic.count
    assert soak.acknowledged == soak.messages >= WARM + MORE
    assert done["agents"] > 130 > end["agents_known"], "agents came and were forgotten"
    assert done["episodes"] > 400
    assert all(done[kind] for kind in ("gaps", "conflicts", "doubled", "late", "malformed", "nobody", "scrapes"))
    assert end["objects"] < warm["objects"] * 1.05
    assert end["resident"] < warm["resident"] * 1.05
