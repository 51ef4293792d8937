"""Norms between convolutions: found by their operators, and run as kernels or inside of one."""
