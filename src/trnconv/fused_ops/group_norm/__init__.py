"""Norm over groups of channels and all positions of an image or frame, and SiLU."""
