"""The configuration: every setting, how a file is read, and a monitor made from it."""
