"""Define the settings of a configuration, read its file, and build a monitor from it."""
