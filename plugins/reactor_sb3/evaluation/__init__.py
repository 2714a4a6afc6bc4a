"""Models of Stable-Baselines3 and modules of torch as ``evaluate`` asks them, and the callback that evaluates while one learns."""
