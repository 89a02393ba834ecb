"""The alarm room: when verdicts become an alarm, what is said about it, and the evidence that it was right."""
