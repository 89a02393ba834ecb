"""What outlives the process: the journal in SQLite, files of evidence, the list of alarms."""
