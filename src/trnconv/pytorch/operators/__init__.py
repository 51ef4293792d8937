"""Operators of torch.library on our kernels, and what torch asks of one: gradients, FLOPs."""
