"""What every trainer has: its options, its program, what it tells."""
