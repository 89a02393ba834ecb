"""The alarm room: when verdicts become an alarm, and what is said about it."""
