"""Its folder is where the tests of all rooms find :mod:`trainers`."""
