"""How the Tensor engine's array is filled: its K lines, its M lines, and the order of sums."""
