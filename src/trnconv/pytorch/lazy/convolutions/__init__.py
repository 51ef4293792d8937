"""Convolutions of lazy tensors: what they take over, what they end with, what it costs."""
