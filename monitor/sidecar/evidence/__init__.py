"""Evidence that travels: packed, signed, opened and verified."""
