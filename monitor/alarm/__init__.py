"""Alarms: the state machine that turns verdicts into alarms, and the sentences and numbers of alerts."""
