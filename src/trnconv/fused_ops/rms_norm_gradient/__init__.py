"""Gradient of a norm over channels and its activation."""
