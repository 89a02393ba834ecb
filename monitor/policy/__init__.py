"""Policies: tables of what is done in every state, read from ONNX files by way of a manifest."""

from monitor.policy.table import PolicyTable, as_table

__all__ = ["PolicyTable", "as_table"]
