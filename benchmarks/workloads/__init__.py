"""Measurements; each registers the rows it returns."""
