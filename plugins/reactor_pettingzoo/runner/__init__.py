"""``MultiAgentRunner`` and ``tournament``: many agents, and the policies that act for them."""
