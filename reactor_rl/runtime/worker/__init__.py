"""One worker: its loop, and the handles of the ports and events that its reactions use."""
