"""This host: which machine it is, what probes found on it, and how kernels are launched there."""
