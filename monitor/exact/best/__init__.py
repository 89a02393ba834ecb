"""Values of the best decisions: with hindsight, without it, and with few changes (docs/semantics.md, section 14)."""
