"""Exact answers along an observed path, compiled: everything numba sees is in this room."""
