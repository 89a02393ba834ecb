"""The alarms of `tests/alarm`, and their evidence."""

from tests.alarm.conftest import content, identity, manifests, raise_alert, regret, road, tables

__all__ = ["content", "identity", "manifests", "raise_alert", "regret", "road", "tables"]
