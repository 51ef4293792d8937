"""Which algorithm computes a convolution, and by which plan."""
