"""The algorithms, each in a file of its own."""
