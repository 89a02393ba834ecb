"""Values of the best decisions: with and without hindsight, and with few changes.

Definitions: docs/semantics/decisions.md, section 14.
"""
