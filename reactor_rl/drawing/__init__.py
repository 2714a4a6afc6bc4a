"""Programs as pictures."""
