"""Which form computes a convolution, and by which plan."""
