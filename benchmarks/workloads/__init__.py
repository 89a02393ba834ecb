"""The measurements; each registers the rows that it gives."""
