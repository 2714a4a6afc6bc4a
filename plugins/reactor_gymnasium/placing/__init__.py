"""What environments cost, and therefore what they run on and where each of them goes."""
