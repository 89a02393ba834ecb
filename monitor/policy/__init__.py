"""Policies as tables of actions over all states, read from ONNX files with a manifest."""

from monitor.policy.table import PolicyTable, as_table

__all__ = ["PolicyTable", "as_table"]
