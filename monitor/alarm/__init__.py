"""Alarms: when verdicts become an alarm, and the sentences and numbers of its alerts."""
