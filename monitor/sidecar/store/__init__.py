"""Durable state: the journal in SQLite, evidence files, the alarm history."""
