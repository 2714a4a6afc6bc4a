"""How actors act: their policies, their records, and who evaluates them."""
