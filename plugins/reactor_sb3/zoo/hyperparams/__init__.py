"""Hyperparameters of the trainers by environment, a module each, as ``rl_zoo3`` reads them with ``--conf-file MODULE``."""
