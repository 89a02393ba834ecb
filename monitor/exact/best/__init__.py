"""Values of the best decisions: with and without hindsight, and with few changes (docs/semantics.md, section 14)."""
