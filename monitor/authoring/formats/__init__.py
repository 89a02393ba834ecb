"""Readers and writers of model formats other than `.npz`; `monitor.model.formats` lists them."""
