"""How a schedule is executed: one protocol, several executors."""
