"""Measurements of the sidecar as a separate process behind mosquitto, and of a subscriber that only decodes."""
