"""Evidence: packing, signing, opening and verification."""
