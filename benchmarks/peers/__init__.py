"""What we compare with: other tools, and samplers of the same answers; each imported when a row needs it."""
