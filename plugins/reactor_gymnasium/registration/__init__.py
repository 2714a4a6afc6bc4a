"""``make_vec``, and a twin of every registered id."""
