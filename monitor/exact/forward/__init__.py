"""Exact answers along an observed path, compiled: all loops over the forward message are in this package."""
