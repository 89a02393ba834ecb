"""Exact answers along an observed path, compiled: all loops over the forward weights are in this package."""
