"""One program on several nodes: cut it, join the parts by gateways, and let something carry the messages."""
