"""The monitor's corridor, for tests with both sides."""

from __future__ import annotations

from tests.sidecar.conftest import corridor

__all__ = ["corridor"]
