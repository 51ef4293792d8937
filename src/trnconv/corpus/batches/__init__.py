"""Sequences of batches of latents for ranks and their DataLoaders."""
