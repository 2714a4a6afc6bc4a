"""The base of every trainer: its options, its run, its report, where it runs."""
