"""What is made from a verdict is made once for all copies of it, and anew for any other."""

from __future__ import annotations

from msgspec.structs import replace

from monitor.alarm.verdict_cache import ENTRIES, OFFSETS, VerdictCache
from monitor.types import Quantity, Recourse, Verdict


def verdict(value: float = 0.5, offsets: int = 1) -> Verdict:
    quantity = Quantity("q", value, 0, clipped=False)
    profile = dict.fromkeys(range(offsets), (value, 1.0))
    return Verdict("f", "exact", "gumbel", (quantity,), outcome="regret", profile=profile)


def made(kept: VerdictCache[object], about: Verdict, owner: object, *context: object) -> object:
    return kept.get(object, about, owner, *context)


def test_copies_of_a_verdict_share_what_is_made() -> None:
    kept, shared, owner = VerdictCache[object](), verdict(), object()
    recourse = Recourse(avoidable="no")
    first = made(kept, replace(shared, recourse=recourse), owner, "firing")
    assert made(kept, replace(shared, recourse=recourse), owner, "firing") is first


def test_whatever_differs_is_made_anew() -> None:
    kept, shared, owner = VerdictCache[object](), verdict(), object()
    first = made(kept, shared, owner, "firing")
    others = [
        made(kept, verdict(), owner, "firing"),
        made(kept, replace(shared, robust=True), owner, "firing"),
        made(kept, replace(shared, recourse=Recourse(avoidable="no")), owner, "firing"),
        made(kept, shared, object(), "firing"),
        made(kept, shared, owner, "ended"),
    ]
    assert first not in others
    assert len(set(map(id, others))) == len(others)


def test_what_is_kept_is_bounded() -> None:
    kept, owner = VerdictCache[object](), object()
    oldest = verdict()
    first = made(kept, oldest, owner)
    for _ in range(ENTRIES - 1):
        made(kept, verdict(), owner)
    assert made(kept, oldest, owner) is first
    newest = verdict()
    made(kept, newest, owner)
    assert made(kept, oldest, owner) is not first, "all were forgotten"
    large = verdict(offsets=OFFSETS + 1)
    assert made(kept, large, owner) is not made(kept, large, owner)
