"""``ParallelVectorEnv``: a Gymnasium vector environment whose rows are agents."""
