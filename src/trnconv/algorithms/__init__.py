"""Algorithms: the ways to compute a convolution, each with its plans, prices, rules and kernel."""
