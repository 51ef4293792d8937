"""Attention of one head, without a tensor of scores; causal by frame if asked."""
