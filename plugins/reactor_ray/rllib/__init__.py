"""Ray RLlib on reactor programs. Importing this imports RLlib."""
