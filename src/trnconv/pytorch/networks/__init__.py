"""Autoencoders in code of our own: small ones, and those that diffusers does not have."""
