"""The sidecar as a process of its own, behind mosquitto, and beside it a subscriber that only decodes."""
