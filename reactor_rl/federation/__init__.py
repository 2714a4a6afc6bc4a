"""One program on several nodes: cut it, join the parts by gateways, and carry the messages between them."""
