"""A robot of one's own: the example of the page "Your own robot"."""
