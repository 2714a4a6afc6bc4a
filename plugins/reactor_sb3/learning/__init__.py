"""How the learner learns: the reactors that do it, and what they learn from."""
