"""Durable state: the journal in SQLite, the evidence files and the alarm history."""
