"""The clock: ticks are the time in which we could hear."""

from __future__ import annotations

import time

import pytest

from monitor.sidecar.clock import Clock


def test_ticks_stand_still_go_on_and_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = Clock()
    assert clock().ticks == 100.0
    clock.stop()
    now = 150.0
    assert clock().ticks == 100.0
    clock.stop()
    clock.go()
    clock.go()
    now = 151.0
    assert clock().ticks == 101.0
    clock.resume(7.0)
    now = 153.0
    assert clock().ticks == 9.0
