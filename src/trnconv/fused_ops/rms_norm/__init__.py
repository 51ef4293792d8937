"""Norm over channels, position by position, and SiLU."""
