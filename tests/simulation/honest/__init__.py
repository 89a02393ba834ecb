"""The simulated broker and disk, compared with mosquitto and SQLite."""
