"""Probes: tiny kernels that ask a device one question each, in integers that are exact."""
