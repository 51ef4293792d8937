"""Attention and its masks: run as a kernel, masks that are causal by frame never allocated."""
