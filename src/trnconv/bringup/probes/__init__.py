"""Probes: tiny kernels that ask a device one problem each, in integers that are exact."""
