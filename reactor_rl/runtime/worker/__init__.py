"""What one worker does: its kernel, and the handles of the ports and events that its reactions use."""
